r"""Fine-tunes, evaluates, predicts and exports ALBERT on GLUE, CLUE or a custom task.

    python run_classifier.py --task_name=MRPC --data_dir=glue --init_checkpoint=albert_base_v2 \
        --output_dir=mrpc_model --do_train --do_eval --do_predict \
        --learning_rate=2e-5 --num_train_epochs=5 --max_seq_length=128

Config and vocabulary are found next to the weights, and the recipes in configs/recipes have the
published settings: --flagfile=glue_mrpc.

--data_dir is a folder of the Hugging Face Hub, of `save_to_disk`, or of the task's archive, and
--task_name=tsv reads train, dev and test files of your own (.parquet, .jsonl, .csv, .tsv) from it.
Other names are passed as --train_file, --dev_file and --test_file. Checkpoints, model.ckpt-best,
eval_results.txt, best_trial.txt, dev_predictions.tsv, predictions and plots are written to
--output_dir. With --num_runs or several learning rates, each run has a subfolder, next to
sweep_results.txt. Run the same command again to resume a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from albert_tf.checkpoints.tasks import CLASSIFICATION
from albert_tf.finetuning.classification.settings import Settings
from albert_tf.finetuning.classification.task import Classifier
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.finetuning.run import run_fine_tuning

if TYPE_CHECKING:
    from albert_tf.training.hooks import Hook

__all__ = ["Settings", "run"]


def run(
    settings: Settings,
    hooks: Sequence[Hook] = (),
    data: Mapping[str, object] | None = None,
) -> FineTuningResult:
    """Trains, evaluates, predicts and exports a classifier, as `run_classifier.py` does.

    >>> from albert_tf import classification
    >>> settings = classification.Settings(
    ...     task_name="lcqmc",
    ...     data_dir="lcqmc",
    ...     init_checkpoint="albert_tiny_zh",
    ...     output_dir="lcqmc_model",
    ... )
    >>> classification.run(settings).metrics["eval_accuracy"]  # doctest: +SKIP

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
    return run_fine_tuning(CLASSIFICATION, Classifier, settings, hooks, data)
