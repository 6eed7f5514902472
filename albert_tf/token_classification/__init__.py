"""Fine-tunes ALBERT on token classification, such as named entity recognition.

>>> from albert_tf import token_classification
>>> settings = token_classification.Settings(
...     data_dir="msra",
...     init_checkpoint="albert_tiny_zh",
...     output_dir="msra_model",
... )
>>> token_classification.run(settings).metrics["f1"]  # doctest: +SKIP
"""

from albert_tf.finetuning.program import run_task
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.tasks import TOKEN_CLASSIFICATION
from albert_tf.token_classification.settings import Settings

__all__ = ["Settings", "run"]


def run(settings: Settings) -> FineTuningResult:
    """Trains, evaluates, predicts and exports, as `run_token_classification.py` does.

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
    return run_task(TOKEN_CLASSIFICATION, settings)
