"""Without a terminal, a loop logs its progress from time to time."""

from __future__ import annotations

import time

import pytest
from absl import logging

from albert_tf.training import progress


@pytest.mark.parametrize(("total", "of_total"), [(5, " of 5"), (None, "")])
def test_a_slow_loop_logs_a_line_every_half_minute(monkeypatch, total, of_total):
    now, lines = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(logging, "info", lambda text, *args: lines.append(text % args))
    seen = []
    for batch in progress.with_progress("abcde", "evaluating", total):
        seen.append(batch)
        now[0] += 16
    assert seen == list("abcde")
    assert lines == [f"evaluating: {number}{of_total} batches" for number in (2, 4)]
