"""A file of questions and the model that answers them: evaluation, answers, the files they go to.

What `run_squad.py` does apart from training, without flags.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Sequence
from typing import Any

from absl import logging
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.checkpoints import loading
from albert_tf.checkpoints.names import GLOBAL_STEP
from albert_tf.finetuning import prediction, results
from albert_tf.finetuning.batching import Padding
from albert_tf.serving import saved_model
from albert_tf.squad import task as squad
from albert_tf.squad.decoding import Answers, DecodingSettings, describe_answer, write_answers
from albert_tf.squad.features import SquadFeatures
from albert_tf.squad.reading import SquadData
from albert_tf.training import evaluation

THRESHOLD = "null_score_diff_threshold"


@dataclasses.dataclass(frozen=True)
class AnsweringSettings:
    """How questions are answered and scored.

    Attributes:
        output_dir: folder of checkpoints and results.
        init_checkpoint: what answers where that folder has no checkpoint.
        decoding: how answers are chosen.
        batch_size: features at a time.
        padding: how far their batches are padded.
        threshold: of the null odds; None for what suits the data best or, where their answers are
            not known, what suited best when the model was evaluated.
        official_threshold: as in `squad.evaluate`.
    """

    output_dir: str
    init_checkpoint: str | None
    decoding: DecodingSettings
    batch_size: int
    padding: Padding
    threshold: float | None = None
    official_threshold: bool = False


class AnsweringRun:
    """Questions, their features and a model.

    Args:
        task: question answering of one version.
        data: the questions.
        features: of these.
        settings: how they are answered.
        made_of: whatever else decides the answers: vocabulary, windows.
    """

    def __init__(
        self,
        task: squad.QuestionAnswering,
        data: SquadData,
        features: SquadFeatures,
        settings: AnsweringSettings,
        made_of: Any = None,
    ) -> None:
        self.task, self.data, self.features = task, data, features
        self.settings, self._made_of = settings, made_of
        self.predictor = prediction.Predictor(
            task.build_model(), features, settings.batch_size, settings.padding, task.outputs
        )

    @functools.cached_property
    def evaluator(self) -> evaluation.CheckpointEvaluator | None:
        """Measures checkpoints; None where the answers are not known."""
        settings, data = self.settings, self.data
        if not data.has_answers:
            return None
        measured_on = evaluation.digest(
            *(data.checksum, data.is_chinese, self._made_of, self.task.version_2),
            *(self.task.start_n_top, self.task.end_n_top, vars(settings.decoding)),
            *(settings.padding, settings.threshold, settings.official_threshold),
        )
        return evaluation.CheckpointEvaluator(
            settings.output_dir,
            self.predictor.model,
            lambda: self._evaluate(self._answers(self.predictor.predict()))[0],
            self.task.selection_metric,
            measured_on,
            write_squad_results,
        )

    def _answers(self, outputs: dict[str, NDArray[Any]]) -> Answers:
        return self.task.answer(self.data, self.features, outputs, self.settings.decoding)

    def _evaluate(self, answers: Answers) -> tuple[dict[str, float], dict[str, str]]:
        settings = self.settings
        return squad.evaluate(self.data, answers, settings.official_threshold, settings.threshold)

    def _answer_with_best(self) -> Answers:
        settings = self.settings
        _, outputs = self.predictor.predict_with_best(settings.output_dir, settings.init_checkpoint)
        return self._answers(outputs)

    def _threshold(self) -> float | None:
        """The null odds above which there is no answer, where the data do not tell."""
        if self.settings.threshold is not None or not self.task.version_2:
            return self.settings.threshold
        best = evaluation.evaluation_of_best(self.settings.output_dir)
        found = None if best is None else best.metrics.get(THRESHOLD)
        if found is None:
            logging.warning("No threshold of the null odds is known: 0 is taken")
        return found or 0.0

    def answer(self) -> str:
        """Answers all questions with the best checkpoint, and writes the files of answers.

        Returns:
            lines `metric = value`, where the right answers are known.
        """
        if self.evaluator is not None:
            self.evaluator.evaluate_all(self.settings.init_checkpoint)
        answers, directory = self._answer_with_best(), self.settings.output_dir
        if not self.data.has_answers:
            write_answers(directory, answers, answers.predictions(self._threshold()))
            return ""
        metrics, predictions = self._evaluate(answers)
        write_answers(directory, answers, predictions)
        return format_exactly(metrics)

    def describe_first(self) -> str:
        """The answer of the best checkpoint to the first question, and its n-best list."""
        answers = self._answer_with_best()
        return describe_answer(answers, self.data.examples[0].qas_id, self._threshold())


def export_best(
    task: squad.QuestionAnswering,
    output_dir: str,
    init_checkpoint: str | None,
    export_dir: str,
    max_seq_length: int,
    extra_files: Sequence[str] = (),
) -> None:
    """Writes the best checkpoint as `squad.QuestionAnswering.export` does.

    In float32 whatever this machine computes in: TFLite knows no bfloat16, and servers may not.

    Args:
        task: of the checkpoint's version.
        output_dir: its folder.
        init_checkpoint: what to take where that has none.
        export_dir: where to write.
        max_seq_length: S.
        extra_files: to put beside the SavedModel: the config, the vocabulary.

    Raises:
        FileNotFoundError: there is no checkpoint, or no such file.
    """
    contents = {}
    for path in extra_files:
        with files.open_binary(path) as stream:
            contents[os.path.basename(path)] = stream.read()
    with saved_model.float32_models():
        model = task.build_model()
        loading.load_weights(model, prediction.find_best(output_dir, init_checkpoint))
        task.export(model, export_dir, max_seq_length, contents)


def write_squad_results(
    output_dir: str, evaluations: Sequence[evaluation.Evaluation], metric: str
) -> str:
    """Writes `eval_results.txt` as Google's SQuAD programs: a block for each checkpoint.

    A block has the metrics, the files that were copied if this checkpoint is the best so far, the
    best value including this one, and a line of "=". The best checkpoint's metrics and its step
    come last.

    Args:
        output_dir: an existing folder.
        evaluations: by step.
        metric: what decides which is best.

    Returns:
        the text.
    """
    text = ""
    best = None
    for number, found in enumerate(evaluations, 1):
        text += format_exactly(found.metrics | {GLOBAL_STEP: found.step})
        if evaluation.best_of(evaluations[:number], metric) is found:
            best = found
            text += results.format_copies(output_dir, found)
        text += f"best {metric} = {-1 if best is None else best.metrics[metric]}\n"
        text += results.SEPARATOR + "\n"
    if best is not None:
        text += format_exactly(best.metrics) + f"best perf happened at step: {best.step}"
    with files.write_atomically(os.path.join(output_dir, results.RESULTS_FILE)) as stream:
        stream.write(text)
    return text


def format_exactly(metrics: results.Metrics) -> str:
    """Lines `key = value`, sorted by key; all digits, as Google's SQuAD programs."""
    return "".join(f"{key} = {value}\n" for key, value in sorted(metrics.items()))
