"""The command line of a registered task; tests/examples/test_my_task.py runs one."""

from __future__ import annotations

import sys

from albert_tf import tasks
from albert_tf.commands import fine_tune


def test_the_flags_are_the_settings_of_the_task(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["verse.py", "--help"])
    fine_tune.main(tasks.MULTIPLE_CHOICE, "Writes verse.")
    text = capsys.readouterr().out
    assert text.startswith("Writes verse.")
    assert "--max_qa_length=INT" in text
