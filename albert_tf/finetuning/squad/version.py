"""Whether a model has the head of SQuAD 1.1 or 2.0."""

from __future__ import annotations

from albert_tf.checkpoints import containers
from albert_tf.finetuning.head_variables import ANSWERABLE_SPANS_HEAD, SPANS_HEAD
from albert_tf.finetuning.squad.questions import SquadData


def choose_version(
    wanted: bool | None, checkpoint: str | None, train: SquadData | None, test: SquadData | None
) -> bool:
    """Returns whether to use the head of SQuAD 2.0. The first argument that tells decides.

    Args:
        wanted: the setting; None if not set.
        checkpoint: a trained model, whose head decides if it has one.
        train: the training questions; the head is used if they are SQuAD 2.0.
        test: the questions to predict; likewise.

    Raises:
        ValueError: no argument tells, or unanswerable questions are to be evaluated without the
            head of SQuAD 2.0.
    """
    version_2 = wanted
    if version_2 is None and checkpoint is not None:
        names = containers.open_weights(checkpoint).shapes
        if SPANS_HEAD in names or ANSWERABLE_SPANS_HEAD in names:
            version_2 = ANSWERABLE_SPANS_HEAD in names
    if version_2 is None:
        versions = [data.version_2 for data in (train, test) if data is not None]
        if not versions:
            raise ValueError(
                "neither a trained model nor a file of questions tells whether questions may be "
                "unanswerable: set --init_checkpoint or --version_2_with_negative"
            )
        version_2 = any(versions)
    if test is not None and test.version_2 and test.has_labels and not version_2:
        raise ValueError(
            f"{test.path} has unanswerable questions, but the model has the head of SQuAD 1.1. "
            "Train a model with --version_2_with_negative in another --output_dir, or choose other "
            "questions"
        )
    return version_2
