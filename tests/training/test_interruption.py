"""Signals: the first asks, the second ends, and afterwards all is as before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from albert_tf.training import interruption
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


def test_a_closed_terminal_that_signals_twice_only_asks():
    with StopRequest() as request:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        assert request.is_made


def test_under_nohup_a_closed_terminal_does_not_matter():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as request:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not request.is_made
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_that_others_replace_are_set_again():
    before = signal.getsignal(signal.SIGTERM)
    with interruption.unchanged_handlers():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interrupt_that_a_destructor_swallows_is_raised_after_it(monkeypatch):
    class Owner:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    interruption.repeat_lost_interrupts()
    owners = [Owner()]
    owners.clear()
    with pytest.raises(KeyboardInterrupt):
        time.sleep(10)
    assert not reported


def test_other_errors_of_destructors_are_reported_as_before(monkeypatch):
    class Owner:
        def __del__(self):
            raise LookupError

    reported = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: reported.append(found.exc_type))
    interruption.repeat_lost_interrupts()
    owner = Owner()
    del owner
    assert reported == [LookupError]


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
