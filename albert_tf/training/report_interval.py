"""How many training steps lie between two reports. TensorFlow is not imported here."""

from __future__ import annotations

from albert_tf.training import run_directory

LONGEST = 25.0  # seconds between two reports, unless a single step takes longer
TIMED = 2.0  # seconds of training by which the interval is chosen
_LOG_STEPS = "log_steps"  # in the file of the run


class ReportInterval:
    """Says at which steps a run reports: at the multiples of a number of steps.

    With `log_steps=0` the number is 1, 2, 5, 10, 20, 50 or the like, so that a report comes every
    10 to 25 seconds. It is chosen once, as soon as the first steps have been timed, and is kept in
    the folder of the run, so that a run that is resumed reports at the same steps, whatever it is
    resumed on.

    Args:
        output_dir: folder of the run.
        log_steps: of the settings.

    Attributes:
        steps: number of steps; 0 until it is chosen.

    Raises:
        ValueError: the file in the folder is damaged.
    """

    def __init__(self, output_dir: str, log_steps: int) -> None:
        self._output_dir = output_dir
        self.steps = log_steps or run_directory.read_reporting(output_dir, _LOG_STEPS, int) or 0

    def is_due(self, step: int) -> bool:
        """Returns whether to report at a step."""
        return self.steps > 0 and step % self.steps == 0

    def is_time_to_measure(self, num_steps: int) -> bool:
        """Returns whether to call `choose` after so many steps.

        Measuring waits for the device, so it is done after 1, 2, 4, 8 and so on.
        """
        return self.steps == 0 and num_steps > 0 and num_steps & (num_steps - 1) == 0

    def choose(self, num_steps: int, seconds: float) -> None:
        """Chooses the interval, unless the steps took too little time to tell their speed.

        Args:
            num_steps: number of steps that have been timed.
            seconds: that they took.
        """
        if seconds < TIMED:
            return
        self.steps = round_steps(num_steps / seconds * LONGEST)
        run_directory.record_reporting(self._output_dir, _LOG_STEPS, self.steps)


def round_steps(most: float) -> int:
    """Returns the largest of 1, 2, 5, 10, 20, 50 and so on that is at most `most`, at least 1.

    >>> [round_steps(most) for most in (0.3, 4.9, 5, 99, 1234)]
    [1, 2, 5, 50, 1000]
    """
    power = 1
    while power * 10 <= most:
        power *= 10
    return max(factor * power for factor in (1, 2, 5) if factor == 1 or factor * power <= most)
