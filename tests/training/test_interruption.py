"""Signals: the first requests a stop, the second kills, and handlers are restored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from albert_tf.training import interruption
from albert_tf.training.interruption import SIGNALS, StopRequest
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def restore_default_handlers():
    """Sets Python's handlers; in background processes the signals may be ignored."""
    handlers = {number: signal.SIG_DFL for number in SIGNALS} | {
        signal.SIGINT: signal.default_int_handler
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_only_requests_a_stop(number, caplog):
    before = signal.getsignal(number)
    with StopRequest() as request:
        assert not request.is_made
        os.kill(os.getpid(), number)
        assert request.is_made
        assert not caplog.records  # it may have interrupted a write to the log
        request.log()
        request.log()
        (message,) = caplog.messages
        assert signal.Signals(number).name in message
    assert signal.getsignal(number) is before


def test_the_second_signal_kills_the_process():
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
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "True\n")


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN], ids=["shell", "nohup"])
def test_a_repeated_sighup_only_requests_a_stop_and_none_under_nohup(handler):
    signal.signal(signal.SIGHUP, handler)
    with StopRequest() as request:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        assert request.is_made == (handler == signal.SIG_DFL)


def test_programs_start_where_there_is_no_sighup():
    code = "import signal; del signal.SIGHUP; import albert_tf.cli.programs"  # as on Windows
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_handlers_replaced_by_others_are_restored():
    before = signal.getsignal(signal.SIGTERM)
    with interruption.unchanged_handlers():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("number", sorted({*SIGNALS} - {signal.SIGINT}))
def test_a_signal_ends_a_block_by_an_exception_and_is_then_as_before(number):
    with pytest.raises(SystemExit) as caught, interruption.ending_by_exception():
        signal.raise_signal(number)
    assert caught.value.code == 128 + number
    assert signal.getsignal(number) == signal.SIG_DFL


def test_signals_keep_their_effect_in_other_threads():
    before, found = signal.getsignal(signal.SIGTERM), []

    def work():
        with StopRequest() as request:
            found.append((request.is_made, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(False, before)]
