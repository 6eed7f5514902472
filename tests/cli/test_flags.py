"""Flags defined from settings: types, aliases, albert_zh's spellings, and `--help`."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import re
import subprocess
import sys

import pytest

from albert_tf import classification
from albert_tf.cli import compatibility, describe, flags
from albert_tf.cli.help import help_text
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.settings import fields_of
from tests.conftest import ROOT

PROGRAMS = {
    "create_pretraining_data": "data",
    "run_pretraining": "pretraining",
    "run_classifier": "finetuning.classification",
    "run_race": "finetuning.race",
    "run_squad": "finetuning.squad",
    "run_token_classification": "finetuning.token_classification",
    "run_predict": "inference",
}
GOOGLES = json.loads((ROOT / "tests" / "golden" / "flags.json").read_text())

parse = functools.partial(flags.parse, FineTuningSettings)


def settings_of(script):
    """The settings class of a program or tool."""
    module = PROGRAMS.get(script, f"cli.{script}")
    return importlib.import_module(f"albert_tf.{module}").Settings


def read(script, line):
    """Returns the settings of a program for a command line."""
    return flags.parse(settings_of(script), line.split())


def test_every_field_has_a_flag_that_sets_it():
    given = {}
    for field in fields_of(FineTuningSettings):
        value = {bool: True, int: 3, float: 0.5, str: "text"}[field.type]
        given[field.name] = field.choices[-1] if field.choices else value
    settings = parse([f"--{name}={value}" for name, value in given.items()])
    tuples = {f.name for f in fields_of(FineTuningSettings) if f.is_tuple and not f.is_scalar}
    expected = {name: (v,) if name in tuples else v for name, v in given.items()}
    assert dataclasses.asdict(settings) == expected
    assert parse(["--output_dir=o"]).seed == 12345  # calls are independent


@pytest.mark.parametrize(
    ("script", "line", "expected"),
    [
        ("run_race", "--threads=auto --log_steps=7", {"threads": None, "log_steps": 7}),
        ("run_race", "--learning_rate=1e-5,3e-5", {"learning_rate": (1e-5, 3e-5)}),
        ("run_race", "--optimizer=LAMB --task_name=RACE", {"optimizer": "lamb"}),
        ("run_race", "--num_keep_checkpoint=3", {"keep_checkpoint_max": 3}),
        ("run_race", "--bert_config_file=c.json", {"albert_config_file": "c.json"}),
        ("run_pretraining", "--train_step=7 --input_file=i", {"num_train_steps": 7}),
    ],
)
def test_values_and_their_other_names_are_read(script, line, expected):
    data = "--data_dir=d " if script == "run_race" else ""
    settings = read(script, f"--output_dir=o {data}{line}")
    assert {name: getattr(settings, name) for name in expected} == expected


def test_flags_may_follow_the_argument():
    given = flags.parse(describe.Settings, ["albert_base", "--train_batch_size=32"])
    assert (given.model, given.train_batch_size) == ("albert_base", 32)


def test_flag_files_and_recipes_are_read(tmp_path):
    (tmp_path / "a.flags").write_text("# a comment\n--output_dir=o\n--seed=3\n")
    given = parse([f"--flagfile={tmp_path}/a.flags", "--seed=4"])
    assert (given.output_dir, given.seed) == ("o", 4)
    for words in (["--flagfile=glue_rte"], ["-flagfile", "glue_rte"]):
        given = flags.parse(classification.Settings, [*words, "--output_dir=o"])
        assert (given.task_name, given.output_dir) == ("RTE", "o")


@pytest.mark.parametrize("flag", ["--master=local", "--num_tpu_cores=8"])
def test_old_flags_are_accepted_with_a_warning(flag, caplog):
    assert parse(["--output_dir=o", flag]) == FineTuningSettings.make(output_dir="o")
    assert caplog.messages == [f"{flag.split('=')[0]} has no effect"]


@pytest.mark.parametrize(
    ("script", "spelling", "line", "expected"),
    [
        (
            "run_pretraining",
            "--bert_config_file=c",
            "--input_file=i --output_dir=o --do_eval",
            {"max_seq_length": 128, "optimizer": "lamb_albert_zh", "num_warmup_steps": 10000},
        ),
        (
            "run_classifier",
            "--task_name=lcqmc_pair",
            "--data_dir=d --output_dir=o --train_step=7",
            {"max_seq_length": 128, "num_train_epochs": 0.0, "train_step": 7},
        ),
        (
            "create_pretraining_data",
            "--non_chinese",
            "--input_file=i --output_file=o --vocab_file=v",
            {"max_seq_length": 128, "dupe_factor": 10, "do_whole_word_mask": False},
        ),
    ],
)
def test_a_spelling_of_albert_zh_selects_its_defaults(script, spelling, line, expected, caplog):
    settings = read(script, f"{line} {spelling}")
    assert {name: getattr(settings, name) for name in expected} == expected
    assert "is albert_zh's spelling, so albert_zh's defaults apply: --" in caplog.text
    # What is given stays, though it is Google's default.
    assert read(script, f"{line} {spelling} --max_seq_length=512").max_seq_length == 512


@pytest.mark.parametrize("script", sorted(set(PROGRAMS) & set(GOOGLES)))
def test_all_flags_of_google_exist_with_their_defaults(script):
    values = flags.define(settings_of(script))
    assert set(GOOGLES[script]) <= set(values)
    names = {field.name for field in fields_of(settings_of(script))}
    found = {name: values[name].default for name in names & set(GOOGLES[script])}
    lists = {name: list(value) for name, value in found.items() if isinstance(value, tuple)}
    expected = {name: GOOGLES[script][name] for name in found}
    if issubclass(settings_of(script), FineTuningSettings):
        expected["do_lower_case"] = None  # True, unless the weights are known to need False
    assert repr(found | lists) == repr(expected)  # nan is no equal of nan
    # What has no setting is another spelling or has no effect.
    aliases = {alias for rows in compatibility.ALIASES.values() for alias in rows}
    ignored = {name for rows in compatibility.IGNORED.values() for name in rows}
    assert set(GOOGLES[script]) - names <= aliases | ignored


def test_help_shows_groups_meanings_and_defaults():
    text = help_text(FineTuningSettings, "Fine-tunes.\n")
    assert text.startswith("Fine-tunes.\n\nmodel:\n")
    assert "\n  --train_batch_size=INT  (default: 32)\n      Effective training batch size" in text
    for line in (
        "--output_dir=STR  (required)",
        "--vocab_file=STR",
        "--threads=INT  (default: auto)",
        "--[no]official_order  (default: False)",
        "--optimizer=adamw|lamb|lamb_albert_zh  (default: adamw)",
        "--learning_rate=FLOAT,...  (default: 5e-05)",
        "--bert_config_file\n      Same as --albert_config_file.",
    ):
        assert f"\n  {line}\n" in text
    # At the end, and under no other heading.
    assert text.endswith(
        "\n\naccepted and ignored:\n  --master, --num_tpu_cores, --iterations_per_loop"
    )
    assert text.count("--iterations_per_loop") == 1


@pytest.mark.parametrize("script", PROGRAMS)
def test_help_shows_the_essential_flags_and_helpfull_all_of_them(script):
    settings = settings_of(script)
    fields = fields_of(settings)
    full = help_text(settings, "")
    for field in fields:
        name = f"[no]{field.name}" if field.type is bool else f"{field.name}="
        assert f"\n{field.group}:\n" in f"\n{full}"
        assert f"\n  --{name}" in full
    text = help_text(settings, "", is_full=False)
    shown = re.findall(r"^  --(?:\[no\])?(\w+)", text, re.MULTILINE)
    if settings.ESSENTIAL:
        assert tuple(shown) == settings.ESSENTIAL
        assert f"--helpfull describes all {len(fields)} flags." in text
    assert {field.name for field in fields if field.is_required} <= set(shown)


@pytest.mark.ci
def test_help_of_every_program_needs_neither_tensorflow_nor_an_extra():
    # A module that is None cannot be imported.
    absent = ("tensorflow", "tf_keras", "tokenizers", "huggingface_hub", "gradio")
    code = f"import runpy, sys; sys.modules.update(dict.fromkeys({absent}))\n" + "\n".join(
        f"sys.argv = ['{script}.py', '--helpfull']; runpy.run_path('{script}.py', None, '__main__')"
        for script in PROGRAMS
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
