r"""Fine-tunes, evaluates, predicts and exports ALBERT for token classification, such as NER.

    python run_token_classification.py --data_dir=msra --init_checkpoint=albert_tiny_489k \
        --output_dir=msra_model --do_train --do_eval --do_predict \
        --max_seq_length=128 --num_train_epochs=3 --learning_rate=1e-4

--data_dir contains train, dev and test files (.txt, .conll, .conllu, .tsv, .bio and others, or
eng.train, eng.testa and eng.testb) with one token per line (in Chinese, one character), its label
in the last column, and blank lines between sentences; or files of the Hugging Face Hub (.parquet,
.arrow, .jsonl, .json) with lists of tokens and tags.
Checkpoints, model.ckpt-best, eval_results.txt (precision, recall and F1 of the spans),
dev_predictions.tsv, test_predictions.tsv and plots are written to --output_dir. With --num_runs or
several learning rates, each run has a subfolder, next to sweep_results.txt. Run the same command
again to resume a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf.checkpoints.tasks import TOKEN_CLASSIFICATION
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.run import run_fine_tuning
from albert_tf.finetuning.token_classification.settings import Settings
from albert_tf.finetuning.token_classification.task import TokenClassifier

if TYPE_CHECKING:
    from albert_tf.training.hooks import Hook

__all__ = ["Settings", "run"]


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
    return run_fine_tuning(TOKEN_CLASSIFICATION, TokenClassifier, settings, hooks, data)
