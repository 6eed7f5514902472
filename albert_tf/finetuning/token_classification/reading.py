"""Reads the tags and the sentences of each split."""

from __future__ import annotations

from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.finetuning.examples import Examples
from albert_tf.finetuning.split_reading import read_splits
from albert_tf.finetuning.token_classification import RAW, Settings
from albert_tf.finetuning.token_classification.sentences import Sentence, read_sentences
from albert_tf.finetuning.token_classification.tags import Tags, find_tags, recorded_tags


def read_data(
    settings: Settings, trained: RunFolder | None = None
) -> tuple[Tags, dict[str, Examples[Sentence]]]:
    """Returns the tags, and the sentences of each split; see `read_sentences`.

    The tags are those of the trained model, unless it is trained now, or else those of the train
    file.

    Args:
        settings: the settings of the program.
        trained: the folder of the trained model; None if there is none.

    Raises:
        FileNotFoundError: there is no file of a split, or no train file.
        ValueError: a file is invalid, or its label column does not contain labels.
    """
    is_raw = settings.tag_scheme == RAW
    tags = None
    if trained is not None and not settings.do_train:
        tags = recorded_tags(trained, is_raw)
    data = {}
    if tags is None:
        try:
            data["train"] = read_sentences(settings, "train")
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error} It is needed for the labels.") from None
        tags = find_tags(data["train"], is_raw)
    labels = tags.labels

    def read(split: str) -> Examples[Sentence]:
        return read_sentences(settings, split, labels)

    return tags, read_splits(settings.splits, settings.dev_fraction, read, data)
