"""Flags made of settings: types, ranges, aliases, and flags that have no effect."""

from __future__ import annotations

import dataclasses

import pytest
from absl import flags as absl_flags

from albert_tf.cli import flags
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.settings import describe


@pytest.fixture
def parse():
    values = absl_flags.FlagValues()
    flags.define(FineTuningSettings, values)

    def run(*arguments):
        values(["program", *arguments])
        return flags.read(FineTuningSettings, values)

    return run


def test_flags_without_arguments_are_the_defaults(parse):
    assert parse("--output_dir=out") == FineTuningSettings(output_dir="out")


def test_every_field_is_a_flag_and_its_value_arrives(parse):
    given = {}
    for field in describe(FineTuningSettings):
        value = {bool: True, int: 3, float: 0.5, str: "text"}[field.type]
        given[field.name] = field.choices[-1] if field.choices else value
    settings = parse(*(f"--{name}={value}" for name, value in given.items()))
    assert dataclasses.asdict(settings) == given


def test_several_learning_rates_make_a_tuple(parse):
    assert parse("--output_dir=o", "--learning_rate=1e-5,3e-5").learning_rate == (1e-5, 3e-5)


def test_albert_zh_spellings_are_aliases(parse):
    assert parse("--output_dir=o", "--bert_config_file=c.json").albert_config_file == "c.json"


@pytest.mark.parametrize("flag", ["--master=local", "--nouse_einsum", "--use_einsum"])
def test_old_flags_are_accepted(parse, flag):
    assert parse("--output_dir=o", flag) == FineTuningSettings(output_dir="o")


@pytest.mark.parametrize(
    "flag", ["--train_batch_size=0", "--precision=float8", "--warmup_proportion=2", "--sed=1"]
)
def test_what_is_not_allowed_is_refused_while_parsing(parse, flag):
    with pytest.raises(absl_flags.Error, match=flag.split("=")[0].strip("-")):
        parse("--output_dir=o", flag)


def test_help_shows_groups_meanings_and_defaults():
    text = flags.help_text(FineTuningSettings, "Fine-tunes.")
    assert "training:" in text
    assert "--train_batch_size=int" in text
    assert "(default: 32)" in text
    for field in describe(FineTuningSettings):
        assert field.help.endswith("."), f"{field.name}: one sentence"
