"""Fine-tunes ALBERT on multiple-choice questions: RACE, and custom questions."""

from albert_tf.finetuning.program import run_task
from albert_tf.finetuning.result import FineTuningResult
from albert_tf.race.settings import Settings
from albert_tf.tasks import MULTIPLE_CHOICE

__all__ = ["Settings", "run"]


def run(settings: Settings) -> FineTuningResult:
    """Trains, evaluates, predicts and exports a multiple-choice model, as `run_race.py` does.

    Args:
        settings: the flags of that program. Config and vocabulary can be omitted if they are beside
            `init_checkpoint`.

    Returns:
        The folder, step and metrics of the best checkpoint on the dev set.

    Raises:
        ValueError, OSError: settings, files or data are invalid or inconsistent; the message says
            which.
    """
    return run_task(MULTIPLE_CHOICE, settings)
