"""Multiple choice: RACE and questions of the same form."""

from albert_tf.finetuning import model_files
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.race.settings import Settings

__all__ = ["Settings", "run"]


def run(settings: Settings) -> FineTuningResult:
    """Trains, evaluates, predicts and exports a multiple-choice model, as `run_race.py` does.

    Args:
        settings: as the flags of that program. Config and vocabulary may be left out where they
            lie beside `init_checkpoint`.

    Returns:
        the folder, step and metrics of the best checkpoint on the dev set.

    Raises:
        ValueError, OSError: settings, files and data do not go together; says which.
    """
    settings = model_files.complete_early(settings)
    from albert_tf.race import program  # TensorFlow, which settings do without

    return program.run(settings)
