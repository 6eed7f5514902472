r"""Fine-tunes, evaluates, predicts and exports ALBERT for token classification, such as NER.

    python run_token_classification.py --data_dir=msra --init_checkpoint=albert_tiny_489k \
        --output_dir=msra_model --do_train --do_eval --do_predict \
        --max_seq_length=128 --num_train_epochs=3 --learning_rate=1e-4

--data_dir contains train, dev and test files (.txt, .conll or .tsv) with one token per line (in
Chinese, one character), its label in the last column, and blank lines between sentences; or files
of the Hugging Face Hub (.parquet, .arrow, .jsonl, .json) with lists of tokens and tags.
Checkpoints, model.ckpt-best, eval_results.txt (precision, recall and F1 of the spans),
dev_predictions.tsv, test_predictions.tsv and plots are written to --output_dir. With --num_runs or
several learning rates, each run has a subfolder, next to sweep_results.txt. Run the same command
again to resume a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf.checkpoints.tasks import TOKEN_CLASSIFICATION
from albert_tf.data.settings import SequenceSettings
from albert_tf.finetuning import run_task
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.settings import (
    FineTuningSettings,
    HeadSettings,
    SplitSettings,
    TaskSettings,
)
from albert_tf.settings import READING, redefined, setting

if TYPE_CHECKING:
    from albert_tf.training.hooks import Hook


__all__ = ["Settings", "run"]


AUTO = "auto"
RAW = "raw"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(FineTuningSettings, SplitSettings, HeadSettings):
    """Settings of run_token_classification.py.

    The files have one token per line and blank lines between sentences, or a sentence per row.
    """

    GROUP = "data"
    ESSENTIAL = ("data_dir", *FineTuningSettings.ESSENTIAL)

    data_dir: str | None = redefined(
        TaskSettings,
        "data_dir",
        None,
        "Folder with the files train, dev and test, ending in .txt, .conll or .tsv, or of the "
        "Hugging Face Hub; required, unless other flags name the file of each split.",
    )
    # The smallest is [CLS] a [SEP].
    max_seq_length: int = redefined(SequenceSettings, "max_seq_length", 512, minimum=3)
    token_column: int = setting(
        0,
        "Column of the token, counted from 0, or from the end with negative numbers; 0 is the "
        "first column.",
        affects=READING,
    )
    label_column: int = redefined(
        TaskSettings,
        "label_column",
        -1,
        "Column of the label, counted from 0, or from the end with negative numbers; -1 is the "
        "last column.",
    )
    tag_column: str | None = setting(
        None,
        "Column of the tags in files whose rows have lists, such as pos_tags; if not given, "
        "ner_tags, tags, labels or ner.",
        affects=READING,
    )
    tag_scheme: str = setting(
        AUTO,
        "How labels mark spans: auto is by the first letter, as in IOB1, IOB2, BIOES, BILOU, BMES "
        "and BMEWO, and raw takes every token with a label other than O as a span of its own.",
        choices=(AUTO, RAW),
        affects=READING,
    )


def run(
    settings: Settings,
    hooks: Sequence[Hook] = (),
    data: Mapping[str, object] | None = None,
) -> FineTuningResult:
    """Trains, evaluates, predicts and exports, as `run_token_classification.py` does.

    >>> from albert_tf import token_classification
    >>> settings = token_classification.Settings(
    ...     data_dir="msra",
    ...     init_checkpoint="albert_tiny_zh",
    ...     output_dir="msra_model",
    ... )
    >>> token_classification.run(settings).metrics["f1"]  # doctest: +SKIP

    Args:
        settings: the flags of that program. If none of `do_train`, `do_eval`, `do_predict` and
            `export_dir` is set, it trains and evaluates. Config and vocabulary can be omitted if
            they are beside `init_checkpoint`.
        hooks: called in training; see `albert_tf.training.hooks`.
        data: split → rows to read instead of files: an iterable of dicts, a `datasets.Dataset`, or
            a DataFrame.

    Returns:
        The folder, step and metrics of the best checkpoint on the dev set.

    Raises:
        ValueError, OSError: settings, files or data are invalid or inconsistent; the message says
            which.
    """
    return run_task(TOKEN_CLASSIFICATION, settings, hooks, rows=data)
