"""Work in a thread: one function after the other, and errors that are not lost."""

from __future__ import annotations

import threading

import pytest

from albert_tf.training.background import BackgroundWork


def fail():
    raise OSError("the disk is full")


def wait_until_done(work):
    assert work._running is not None
    work._running.exception(timeout=60)


def test_a_function_runs_while_the_block_continues_and_ends_before_it():
    may_end, done = threading.Event(), []
    with BackgroundWork() as work:
        work.start(lambda: done.append(may_end.wait(60)))
        work.check()
        assert not done
        may_end.set()
    assert done == [True]


def test_the_next_function_waits_for_the_one_before():
    order, work = [], BackgroundWork()
    with work:
        for number in range(3):
            work.start(lambda number=number: order.append(number))
    assert order == [0, 1, 2]


@pytest.mark.parametrize(
    "next_call",
    [
        BackgroundWork.check,
        BackgroundWork.wait,
        lambda work: work.start(fail),
        lambda work: work.__exit__(None, None, None),
    ],
    ids=["check", "wait", "start", "end"],
)
def test_an_error_is_raised_once_by_the_next_call(next_call):
    work = BackgroundWork()
    work.start(fail)
    wait_until_done(work)
    with pytest.raises(OSError, match="the disk is full"):
        next_call(work)
    work.wait()


def test_the_error_of_the_block_is_raised_before_that_of_the_function(caplog):
    def fail_too():
        with BackgroundWork() as work:
            work.start(fail)
            raise ArithmeticError("the loss is not finite")

    with pytest.raises(ArithmeticError, match="not finite"):
        fail_too()
    assert "the disk is full" in caplog.text
