"""Signals: the first asks, the second ends, and afterwards all is as before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from albert_tf.training.interruption import SIGNALS, StopRequest
from tests.conftest import ROOT


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_only_asks(number):
    before = signal.getsignal(number)
    with StopRequest() as request:
        assert not request.is_made
        os.kill(os.getpid(), number)
        assert request.is_made
    assert signal.getsignal(number) is before


def test_the_second_signal_ends_the_process():
    program = (
        "import os, signal\n"
        "from albert_tf.training.interruption import StopRequest\n"
        "with StopRequest() as request:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print(request.is_made, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('still here')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == -signal.SIGTERM
    assert done.stdout == "True\n"
    assert "SIGTERM: saving after this step" in done.stderr


def test_in_another_thread_signals_keep_their_effect():
    before = signal.getsignal(signal.SIGTERM)
    found = []

    def work():
        with StopRequest() as request:
            found.append((request.is_made, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, before)]
