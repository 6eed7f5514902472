"""The program that verifies the three ideas of the paper: its output, and a failure."""

from __future__ import annotations

import pytest
import test_changes as changes


@pytest.mark.ci
def test_the_three_ideas_hold_and_are_printed(capsys):
    changes.run(None)
    printed = capsys.readouterr().out
    for text in ("3,840,000 + 524,288", "12 layers have the 10,498,048", "125,976,576"):
        assert text in printed
    first, second = (line.split(" [SEP]")[:2] for line in printed.splitlines()[-2:])
    strip = "".join(first).replace("  0: [CLS] ", "").split()
    assert sorted(strip) == sorted("".join(second).replace("  1: [CLS] ", "").split())


def test_a_false_claim_is_an_error():
    with pytest.raises(ValueError, match="this does not hold: a claim"):
        changes.check(False, "a claim")
