"""What a run and a fine-tuning program return."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from albert_tf.finetuning.settings import FineTuningSettings


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        settings: the settings of the run, with its folder, learning rate and seed.
        step: the step of its best checkpoint.
        metrics: the metrics of its best checkpoint; empty if there is none.
        remark: the reason if there is none.
    """

    settings: FineTuningSettings
    step: int = 0
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    remark: str = ""

    @property
    def learning_rate(self) -> float:
        """The learning rate of the run."""
        return self.settings.single_learning_rate


@dataclasses.dataclass(frozen=True)
class FineTuningResult:
    """The result of a fine-tuning program; its `str` is the text that the program prints.

    Attributes:
        output_dir: folder of the run; in a sweep, of the best run.
        step: step of the best checkpoint; 0 if none was evaluated.
        metrics: metrics of the best checkpoint on the dev set; empty if none was evaluated.
        text: the metrics, and the answers to single questions, as text.
        has_files: whether this process trained or evaluated, and wrote the files of the run; with
            several workers, only the first does.
    """

    output_dir: str
    step: int
    metrics: Mapping[str, float]
    text: str
    has_files: bool = True

    def __str__(self) -> str:
        return self.text
