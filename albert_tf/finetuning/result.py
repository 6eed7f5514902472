"""What a fine-tuning program returns. TensorFlow is not imported here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class FineTuningResult:
    """The result of a fine-tuning program. Its `str` is what the program prints.

    Attributes:
        output_dir: folder of the run; of a sweep, that of the best run.
        step: of the best checkpoint; 0 if none was evaluated.
        metrics: of the best checkpoint on the dev set; empty if none was evaluated.
        text: metrics, and answers to single questions, as text.
    """

    output_dir: str
    step: int
    metrics: Mapping[str, float]
    text: str

    @property
    def has_files(self) -> bool:
        """Whether this process evaluated or predicted: of several workers, only the first does."""
        return bool(self.text)

    def __str__(self) -> str:
        return self.text
