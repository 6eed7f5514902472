"""The loss of a worker; tests/test_shell_runs.py has runs of several workers."""

from __future__ import annotations

import pytest
import tensorflow as tf

from albert_tf.training import cluster
from albert_tf.training.interruption import InterruptedRunError


@pytest.mark.parametrize(
    "before",
    [
        "{{function_node __wrapped__Send}} ",
        "Graph execution error:\n\nDetected at node x defined at (most recent call last):\n"
        '  File "a.py", line 3, in <module>\n<stack traces unavailable>\n',
    ],
)
def test_a_lost_worker_interrupts_the_run(before):
    message = before + "Collective ops is aborted by: Socket closed\nmore"
    with (
        pytest.raises(InterruptedRunError, match=r"lost \(Collective ops is aborted by: Socket cl"),
        cluster.losses_interrupt(),
    ):
        raise tf.errors.UnavailableError(None, None, message)
