r"""Compares two sentences with a classifier of sentence pairs, such as one fine-tuned on LCQMC.

    python similarity.py --model_dir=albert_lcqmc_checkpoints --text_a=你多大了 --text_b=你几岁

prints the two sentences, the prediction and the probability of each label. --input_file specifies a
file of pairs instead, one per line, separated by a tab. From Python, as in albert_zh:

    from similarity import BertSim

    sim = BertSim("albert_lcqmc_checkpoints")
    sim.predict_sentences([("你多大了", "你几岁")])
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

sys.path.insert(0, os.path.abspath(f"{__file__}/../../.."))

from albert_tf.cli import console
from albert_tf.finetuning.rows import Row, parse_rows, text_cell
from albert_tf.settings import SettingsGroup, setting
from albert_tf.tables import open_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MODEL_DIR = "albert_lcqmc_checkpoints"  # as in albert_zh's program and README
MAX_SEQ_LENGTH = 128
BATCH_SIZE = 64


@dataclasses.dataclass(frozen=True)
class Settings(SettingsGroup):
    """Settings of similarity.py: the model and the pairs."""

    model_dir: str = setting(
        MODEL_DIR, "The --output_dir of a fine-tuned classifier, or a folder with a model."
    )
    albert_config_file: str | None = setting(None, "Its config, if the folder has none.")
    vocab_file: str | None = setting(None, "Its WordPiece vocabulary, if the folder has none.")
    text_a: str = setting("我喜欢妈妈做的汤", "The first sentence.")
    text_b: str = setting("妈妈做的汤我很喜欢喝", "The second sentence.")
    input_file: str = setting("", "Pairs to compare instead, with a tab between the two sentences.")
    max_seq_length: int = setting(
        MAX_SEQ_LENGTH, "Maximum length of a pair, in tokens; longer ones are truncated.", minimum=5
    )


class BertSim:
    """A classifier of sentence pairs, with the class name of albert_zh.

    Args:
        model_dir, max_seq_length, albert_config_file, vocab_file: see `Settings`.

    Attributes:
        labels: labels of the task, in the order of the probabilities.
    """

    def __init__(
        self,
        model_dir: str = MODEL_DIR,
        max_seq_length: int = MAX_SEQ_LENGTH,
        albert_config_file: str | None = None,
        vocab_file: str | None = None,
    ) -> None:
        self.model_dir = model_dir
        self.max_seq_length = max_seq_length
        self.albert_config_file = albert_config_file
        self.vocab_file = vocab_file
        self.labels: list[str] = []
        self._classify: Any = None

    def start_model(self) -> None:
        """Loads the model. `predict_sentences` calls this if the model is not loaded yet.

        Raises:
            OSError, ValueError: the folder does not contain a model of sentence pairs; the message
                says what is missing.
        """
        import albert_tf

        self._classify = albert_tf.load_predictor(
            self.model_dir,
            "classification",
            batch_size=BATCH_SIZE,
            max_seq_length=self.max_seq_length,
            config_file=self.albert_config_file,
            vocab_file=self.vocab_file,
        )
        self.labels = list(self._classify.labels)

    def predict_sentences(self, sentences: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Returns the probabilities of the labels, float32 [number of pairs, number of labels].

        Args:
            sentences: the sentence pairs.
        """
        import numpy as np

        if self._classify is None:
            self.start_model()
        results = self._classify(list(sentences))
        rows = [list(result["probabilities"].values()) for result in results]
        return np.array(rows, np.float32)


def read_pairs(path: str) -> list[tuple[str, str]]:
    """Returns the first two columns of a tab-separated file.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: a line has no second column, or the file is empty.
    """

    def parse(row: Row, line: int) -> tuple[str, str]:
        return text_cell(row, 0), text_cell(row, 1)

    table = open_table(path)
    pairs = [pair for _, pair in parse_rows(table.place, table, parse)]
    if not pairs:
        raise ValueError(f"{path}: the file is empty; expected pairs of sentences")
    return pairs


def run(settings: Settings) -> str:
    """Returns a table of sentences, predictions and probabilities; see `BertSim.start_model`."""
    pairs = [(settings.text_a, settings.text_b)]
    if settings.input_file:
        pairs = read_pairs(settings.input_file)
    similarity = BertSim(
        settings.model_dir,
        settings.max_seq_length,
        settings.albert_config_file,
        settings.vocab_file,
    )
    rows = similarity.predict_sentences(pairs)
    lines = ["\t".join(("text_a", "text_b", "prediction", *similarity.labels))]
    for pair, row in zip(pairs, rows, strict=True):
        cells = (*pair, similarity.labels[row.argmax()], *(f"{value:.4f}" for value in row))
        lines.append("\t".join(cells))
    return "\n".join(lines)


if __name__ == "__main__":
    console.start(Settings, run, __doc__)
