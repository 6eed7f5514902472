"""Flags made of settings: types, ranges, aliases, flags without effect, and `--help`."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import subprocess
import sys

import pytest
from absl import flags as absl_flags

from albert_tf.cli import flags
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.settings import describe
from tests.conftest import ROOT

PROGRAMS = {
    "create_pretraining_data": "data",
    "run_pretraining": "pretraining",
    "run_classifier": "classification",
    "run_race": "race",
    "run_squad": "squad",
    "run_token_classification": "token_classification",
}
OLD_FLAGS = json.loads((ROOT / "tests" / "golden" / "flags.json").read_text())

parse = functools.partial(flags.parse, FineTuningSettings)


def test_flags_without_arguments_are_the_defaults():
    assert parse(["--output_dir=out"]) == FineTuningSettings(output_dir="out")


def test_every_field_is_a_flag_and_its_value_arrives():
    given = {}
    for field in describe(FineTuningSettings):
        value = {bool: True, int: 3, float: 0.5, str: "text"}[field.type]
        given[field.name] = field.choices[-1] if field.choices else value
    settings = parse([f"--{name}={value}" for name, value in given.items()])
    assert dataclasses.asdict(settings) == given


def test_several_learning_rates_make_a_tuple():
    assert parse(["--output_dir=o", "--learning_rate=1e-5,3e-5"]).learning_rate == (1e-5, 3e-5)


def test_a_flag_file_is_read(tmp_path):
    (tmp_path / "a.flags").write_text("# a comment\n--output_dir=o\n--seed=3\n")
    given = parse([f"--flagfile={tmp_path}/a.flags", "--seed=4"])
    assert (given.output_dir, given.seed) == ("o", 4)


def test_one_call_leaves_nothing_to_the_next():
    assert parse(["--output_dir=o", "--seed=3"]).seed == 3
    assert parse(["--output_dir=o"]).seed == 12345


def test_albert_zh_spellings_are_aliases():
    assert parse(["--output_dir=o", "--bert_config_file=c.json"]).albert_config_file == "c.json"


@pytest.mark.parametrize("flag", ["--master=local", "--num_tpu_cores=8"])
def test_old_flags_are_accepted(flag):
    assert parse(["--output_dir=o", flag]) == FineTuningSettings(output_dir="o")


@pytest.mark.parametrize(
    "flag",
    [
        "--train_batch_size=0",
        "--precision=float8",
        "--learning_rate=1,-2",
        "--warmup_proportion=2",
        "--sed=1",
        "sed",
    ],
)
def test_what_is_not_allowed_is_refused_by_name(flag):
    with pytest.raises(absl_flags.Error, match=flag.split("=")[0].strip("-")):
        parse(["--output_dir=o", flag])


def test_a_required_flag_that_is_missing_is_named():
    with pytest.raises(absl_flags.Error, match="output_dir"):
        parse(["--seed=1"])


def test_help_shows_groups_meanings_and_defaults():
    text = flags.help_text(FineTuningSettings, "Fine-tunes.\n")
    assert text.startswith("Fine-tunes.\n\nmodel:\n")
    assert "\n  --train_batch_size=INT  (default: 32)\n      Number of examples" in text
    assert "\n  --output_dir=STR  (required)\n" in text
    assert "\n  --vocab_file=STR\n" in text
    assert "\n  --[no]do_lower_case  (default: True)\n" in text
    assert "\n  --optimizer=adamw|lamb  (default: adamw)\n" in text
    assert "\n  --learning_rate=FLOAT,...  (default: 5e-05)\n" in text
    assert "  --bert_config_file: same as --albert_config_file\n" in text
    for field in describe(FineTuningSettings):
        assert f"\n{field.group}:\n" in text
        assert field.help.endswith("."), f"{field.name}: one sentence"


def settings_of(script):
    """The settings class of a program."""
    return importlib.import_module(f"albert_tf.{PROGRAMS[script]}").Settings


@pytest.mark.parametrize("script", sorted(set(PROGRAMS) & set(OLD_FLAGS)))
def test_the_flags_of_before_are_there_with_their_defaults(script):
    values = flags.define(settings_of(script))
    assert set(OLD_FLAGS[script]) <= set(values)
    names = {field.name for field in describe(settings_of(script))}
    found = {name: values[name].default for name in names & set(OLD_FLAGS[script])}
    lists = {name: list(value) for name, value in found.items() if isinstance(value, tuple)}
    expected = {name: OLD_FLAGS[script][name] for name in found}
    assert repr(found | lists) == repr(expected)  # nan is no equal of nan
    # What has no setting is another spelling or has no effect.
    aliases = {alias for rows in flags.ALIASES.values() for alias in rows}
    ignored = {name for rows in flags.IGNORED.values() for name in rows}
    assert set(OLD_FLAGS[script]) - names <= aliases | ignored


@pytest.mark.parametrize("script", PROGRAMS)
def test_help_answers_at_once_in_groups_and_ends_with_status_0(script):
    # A module that is None cannot be imported.
    code = (
        "import runpy, sys; sys.modules.update(tensorflow=None, tf_keras=None);"
        f"sys.argv = ['{script}.py', '--help']; runpy.run_path('{script}.py', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for field in describe(settings_of(script)):
        name = f"[no]{field.name}" if field.type is bool else f"{field.name}="
        assert f"\n{field.group}:\n" in done.stdout
        assert f"\n  --{name}" in done.stdout
