"""What a flag or a word of other programs is called here."""

from __future__ import annotations

import contextlib
import sys

import pytest
from absl import flags

from albert_tf import inference, pretraining, settings
from albert_tf.cli import programs
from albert_tf.cli.compatibility import OTHER_NAMES
from albert_tf.cli.flags import parse
from albert_tf.finetuning import classification, squad
from albert_tf.finetuning.classification.tasks import Columns

TASK = ("--task_name=tsv", "--data_dir=d", "--output_dir=o")


@pytest.mark.parametrize(
    ("module", "given", "meant"),
    [
        (classification, "--epochs=3", "num_train_epochs"),
        (classification, "--batch_size=8", "train_batch_size"),
        (classification, "--model_name_or_path=m", "init_checkpoint"),
        (classification, "--model-name-or-path=m", "init_checkpoint"),
        (classification, "--lr=2e-5", "learning_rate"),
        (classification, "--max_steps=3", "train_step"),
        (pretraining, "--max_steps=3", "num_train_steps"),
        (squad, "--fp16", "precision"),
        (inference, "--model_name_or_path=m", "model_dir"),
        (inference, "--output=x", "output_file"),
    ],
)
def test_a_flag_that_others_have_is_named_as_it_is_here(module, given, meant):
    name = given.partition("=")[0]
    with pytest.raises(flags.Error, match=f"^{name} is not a flag .* Did you mean --{meant}\\?$"):
        parse(module.Settings, [given])


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
    ("words", "said"),
    [
        (("--do_train", "true"), "^'true' is not a flag: write --do_train=true, or --do_train or"),
        (("--do_eval", "False", "--do_train"), "write --do_eval=false, or --do_eval or --nodo_ev"),
        (("--do_train", "yes please"), "^'yes please' is not a flag: flags start with --$"),
        (("--seed=1", "true"), "^'true' is not a flag: flags start with --$"),
        (("true",), "^'true' is not a flag: flags start with --$"),
    ],
)
def test_a_truth_value_behind_its_flag_is_told_how_to_be_written(words, said):
    with pytest.raises(flags.Error, match=said):
        parse(classification.Settings, [*TASK, *words])


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
