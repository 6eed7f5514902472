"""The progress of long loops where there is no terminal."""

from __future__ import annotations

import logging
import time

import pytest

from albert_tf.training.progress import SECONDS_BETWEEN_LINES, with_progress


@pytest.mark.parametrize(("total", "of_total"), [(None, ""), (4, " of 4")])
def test_a_line_is_logged_when_enough_time_has_passed(monkeypatch, caplog, total, of_total):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    seen = []
    with caplog.at_level(logging.INFO):
        for batch in with_progress("abcd", "evaluating", total):
            seen.append(batch)
            now[0] += SECONDS_BETWEEN_LINES - (batch == "a")  # of the first batch, a second less
    assert seen == list("abcd")
    assert caplog.messages == [f"evaluating: {done}{of_total} batches" for done in (2, 3)]
