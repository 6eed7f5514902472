"""Fine-tunes ALBERT on classification and regression of texts and text pairs.

>>> from albert_tf import classification
>>> settings = classification.Settings(
...     task_name="lcqmc",
...     data_dir="lcqmc",
...     init_checkpoint="albert_tiny_zh",
...     output_dir="lcqmc_model",
... )
>>> classification.run(settings).metrics["eval_accuracy"]  # doctest: +SKIP
"""

from albert_tf.classification.settings import Settings
from albert_tf.finetuning.program import run_task
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.tasks import CLASSIFICATION

__all__ = ["Settings", "run"]


def run(settings: Settings) -> FineTuningResult:
    """Trains, evaluates, predicts and exports a classifier, as `run_classifier.py` does.

    Args:
        settings: the flags of that program. If none of `do_train`, `do_eval`, `do_predict` and
            `export_dir` is set, it trains and evaluates. Config and vocabulary can be omitted if
            they are beside `init_checkpoint`.

    Returns:
        The folder, step and metrics of the best checkpoint on the dev set.

    Raises:
        ValueError, OSError: settings, files or data are invalid or inconsistent; the message says
            which.
    """
    return run_task(CLASSIFICATION, settings)
