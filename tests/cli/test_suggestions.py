"""What a flag or a word of other programs is called here."""

from __future__ import annotations

import contextlib
import sys

import pytest

from albert_tf import settings
from albert_tf.cli import programs
from albert_tf.cli.compatibility import OTHER_NAMES
from albert_tf.finetuning.classification.tasks import Columns

TASK = ("--task_name=tsv", "--data_dir=d", "--output_dir=o")


def test_all_names_that_are_suggested_are_flags_and_none_is_one_already():
    """A row for a name that every program has could never be used."""
    of_programs = [
        {field.name for field in settings.fields_of(program.load().Settings)}
        for program in programs.PROGRAMS.values()
    ]
    for other, names in OTHER_NAMES.items():
        assert any(other not in known and known.intersection(names) for known in of_programs), other
        assert all(any(name in known for known in of_programs) for name in names), names


@pytest.mark.parametrize(
    ("arguments", "beginning"),
    [
        (["help"], "usage: albert PROGRAM"),
        (["help", "plot-results"], "Plots the results of a run"),
        (["help", "plot_results"], "Plots the results of a run"),
    ],
)
def test_help_is_a_word_as_well(monkeypatch, capsys, arguments, beginning):
    monkeypatch.setattr(sys, "argv", ["albert", *arguments])
    with contextlib.suppress(SystemExit):
        programs.main()
    assert capsys.readouterr().out.startswith(beginning)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (Columns("review", None, "stars"), "text: review, label: stars"),
        (Columns(3, 4, 0, 1), "first text: 3, second text: 4, label: 0, id: 1"),
        (Columns("text", label=("sad", "glad")), "text: text, label: sad, glad"),
        (
            Columns("text", label=tuple("abcdefghijkl")),
            "text: text, label: a, b, c, d, e, f, g, h, ",
        ),
        (Columns(), "nothing"),
    ],
)
def test_the_log_says_which_columns_are_read(columns, said):
    assert str(columns).startswith(said)
