"""The speed of training: steps per second, without compilation, saving and evaluation."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Stopwatch:
    """Measures the speed in laps, each from `start` or the end of the lap before."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begins a lap."""
        self._began = time.monotonic()
        self._left_out = 0.0  # seconds
        self._steps = 0

    def count_step(self) -> None:
        """Counts a step, whose time is part of the lap."""
        self._steps += 1

    def leave_out(self, seconds: float) -> None:
        """Leaves seconds out of the lap."""
        self._left_out += seconds

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Context manager whose time is left out of the lap."""
        began = time.monotonic()
        yield
        self.leave_out(time.monotonic() - began)

    def lap(self) -> float:
        """Ends the lap and begins another; returns its steps per second, 0 without any step."""
        seconds = time.monotonic() - self._began - self._left_out
        speed = self._steps / max(seconds, 1e-9)
        self.start()
        return speed
