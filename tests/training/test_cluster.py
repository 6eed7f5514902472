"""The loss of a worker; tests/test_shell_runs.py has runs of several workers."""

from __future__ import annotations

import pytest
import tensorflow as tf

from albert_tf.training import cluster
from albert_tf.training.interruption import InterruptedRunError


def test_a_lost_worker_interrupts_the_run():
    message = "{{function_node __wrapped__Send}} Collective ops is aborted by: Socket closed\nmore"
    with (
        pytest.raises(InterruptedRunError, match=r"lost \(Collective ops is aborted by: Socket cl"),
        cluster.losses_interrupt(),
    ):
        raise tf.errors.UnavailableError(None, None, message)
