"""Extractive question answering: SQuAD 1.1 and 2.0, CMRC 2018, DRCD."""

from albert_tf.finetuning import model_files
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.squad.settings import Settings

__all__ = ["Settings", "run"]


def run(settings: Settings) -> FineTuningResult:
    """Trains, evaluates, answers questions and exports, as `run_squad.py` does.

    Args:
        settings: the flags of that program. If none of `do_train`, `do_eval`, `do_predict`,
            `question` and `export_dir` is set, it trains on `train_file` and evaluates on
            `predict_file`. Config and vocabulary can be omitted if they are beside
            `init_checkpoint`.

    Returns:
        The folder, step and metrics of the best checkpoint on `predict_file`; its text includes the
        answer to `question`.

    Raises:
        ValueError, OSError: settings, files or data are invalid or inconsistent; the message says
            which.
    """
    settings = model_files.complete_early(settings)
    from albert_tf.squad import program  # imported late: needs TensorFlow, unlike the settings

    return program.run(settings)
