"""Extractive question answering: SQuAD 1.1 and 2.0, CMRC 2018, DRCD."""

from albert_tf.finetuning import model_files
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.squad.settings import Settings

__all__ = ["Settings", "run"]


def run(settings: Settings) -> FineTuningResult:
    """Trains, evaluates, answers and exports, as `run_squad.py` does.

    Args:
        settings: as the flags of that program. Without any of `do_train`, `do_eval`, `do_predict`,
            `question` and `export_dir` it trains on `train_file` and evaluates on `predict_file`.
            Config and vocabulary may be left out where they lie beside `init_checkpoint`.

    Returns:
        the folder, step and metrics of the best checkpoint on `predict_file`, and in its text the
        answer to `question`.

    Raises:
        ValueError, OSError: settings, files and data do not go together; says which.
    """
    settings = model_files.complete_early(settings)
    from albert_tf.squad import program  # TensorFlow, which settings do without

    return program.run(settings)
