"""Flags defined from settings: types, ranges, aliases, ignored flags, and `--help`."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import re
import subprocess
import sys

import pytest
from absl import flags as absl_flags

from albert_tf import classification
from albert_tf.cli import flags
from albert_tf.finetuning.settings import FineTuningSettings
from albert_tf.settings import fields_of
from tests.conftest import ROOT

PROGRAMS = {
    "create_pretraining_data": "data",
    "run_pretraining": "pretraining",
    "run_classifier": "classification",
    "run_race": "race",
    "run_squad": "squad",
    "run_token_classification": "token_classification",
    "run_predict": "inference",
}
OLD_FLAGS = json.loads((ROOT / "tests" / "golden" / "flags.json").read_text())

parse = functools.partial(flags.parse, FineTuningSettings)


def test_flags_without_arguments_are_the_defaults():
    assert parse(["--output_dir=out", "--do_eval"]) == FineTuningSettings(
        output_dir="out", do_eval=True
    )


def test_every_field_has_a_flag_that_sets_it():
    given = {}
    for field in fields_of(FineTuningSettings):
        value = {bool: True, int: 3, float: 0.5, str: "text"}[field.type]
        given[field.name] = field.choices[-1] if field.choices else value
    settings = parse([f"--{name}={value}" for name, value in given.items()])
    tuples = {f.name for f in fields_of(FineTuningSettings) if f.is_tuple and not f.is_scalar}
    expected = {name: (v,) if name in tuples else v for name, v in given.items()}
    assert dataclasses.asdict(settings) == expected


def test_a_flag_that_does_not_exist_names_what_does(monkeypatch):
    monkeypatch.setitem(flags.INSTEAD, FineTuningSettings, {"fan_speed": "use --threads"})
    with pytest.raises(absl_flags.Error, match=r"^--fan_speed does not exist: use --threads$"):
        parse(["--output_dir=o", "--fan_speed=3"])
    with pytest.raises(absl_flags.UnrecognizedFlagError):
        parse(["--output_dir=o", "--fan_size=3"])


def test_a_number_may_be_left_to_the_program():
    given = parse(["--output_dir=o", "--threads=auto", "--log_steps=7"])
    assert (given.threads, given.log_steps) == (None, 7)
    assert "\n  --threads=INT  (default: auto)\n" in flags.help_text(FineTuningSettings, "")


def test_several_learning_rates_make_a_tuple():
    assert parse(["--output_dir=o", "--learning_rate=1e-5,3e-5"]).learning_rate == (1e-5, 3e-5)


def test_repeated_texts_are_several_texts_which_may_contain_commas():
    read_texts = functools.partial(flags.parse, settings_of("run_predict"))
    assert read_texts(["--model_dir=m", "--text=a, b", "--text=c"]).text == ("a, b", "c")
    assert read_texts(["--model_dir=m", "--text=a, b"]).text == "a, b"
    assert "\n  --text=STR\n" in flags.help_text(settings_of("run_predict"), "")


def test_flag_files_are_supported(tmp_path):
    (tmp_path / "a.flags").write_text("# a comment\n--output_dir=o\n--seed=3\n")
    given = parse([f"--flagfile={tmp_path}/a.flags", "--seed=4"])
    assert (given.output_dir, given.seed) == ("o", 4)


@pytest.mark.parametrize("words", [["--flagfile=glue_rte"], ["-flagfile", "glue_rte"]])
def test_a_recipe_is_read_by_its_name(words):
    given = flags.parse(classification.Settings, [*words, "--output_dir=o"])
    assert (given.task_name, given.output_dir) == ("RTE", "o")


def test_calls_are_independent():
    assert parse(["--output_dir=o", "--seed=3"]).seed == 3
    assert parse(["--output_dir=o"]).seed == 12345


def test_albert_zh_spellings_are_aliases():
    assert parse(["--output_dir=o", "--bert_config_file=c.json"]).albert_config_file == "c.json"


@pytest.mark.parametrize("flag", ["--master=local", "--num_tpu_cores=8"])
def test_old_flags_are_accepted_with_a_warning(flag, caplog):
    assert parse(["--output_dir=o", flag]) == FineTuningSettings.make(output_dir="o")
    assert caplog.messages == [f"{flag.split('=')[0]} has no effect"]


def read(script, line):
    """Returns the settings of a program for a command line."""
    return flags.parse(settings_of(script), line.split())


@pytest.mark.parametrize(
    ("script", "line", "spelling", "expected"),
    [
        (
            "run_pretraining",
            "--input_file=i --output_dir=o --bert_config_file=c --do_eval",
            "--bert_config_file",
            {
                "max_seq_length": 128,
                "do_train": False,
                "train_batch_size": 32,
                "optimizer": "lamb_albert_zh",
                "learning_rate": 5e-5,
                "num_train_steps": 100000,
                "num_warmup_steps": 10000,
            },
        ),
        (
            "run_classifier",
            "--data_dir=d --output_dir=o --task_name=afqmc --bert_config_file=c",
            "--bert_config_file",
            {"max_seq_length": 128, "num_train_epochs": 3.0},
        ),
        (
            "run_classifier",
            "--data_dir=d --output_dir=o --task_name=LCQMC_pair --train_step=7",
            "--task_name=lcqmc_pair",
            {"max_seq_length": 128, "num_train_epochs": 0.0, "train_step": 7},
        ),
        (
            "create_pretraining_data",
            "--input_file=i --output_file=o --vocab_file=v --non_chinese=True",
            "--non_chinese",
            {"max_seq_length": 128, "dupe_factor": 10, "do_whole_word_mask": False},
        ),
    ],
)
def test_a_spelling_of_albert_zh_selects_its_defaults(script, line, spelling, expected, caplog):
    caplog.set_level("INFO")
    settings = read(script, line)
    assert {name: getattr(settings, name) for name in expected} == expected
    (said,) = [text for text in caplog.messages if "albert_zh's spelling" in text]
    assert said.startswith(f"{spelling} is albert_zh's spelling, so albert_zh's defaults apply: --")
    assert "--max_seq_length=128" in said
    # What is given stays, though it is Google's default.
    assert read(script, f"{line} --max_seq_length=512").max_seq_length == 512


def test_without_a_spelling_of_albert_zh_defaults_are_googles(caplog):
    caplog.set_level("INFO")
    line = "--data_dir=d --output_dir=o --task_name=lcqmc --albert_config_file=c"
    assert read("run_classifier", line).max_seq_length == 512
    assert caplog.messages == []


def test_choices_are_case_insensitive():
    assert parse(["--output_dir=o", "--optimizer=LAMB"]).optimizer == "lamb"
    assert read("run_race", "--data_dir=d --output_dir=o --task_name=RACE").task_name == "race"


def test_help_lists_the_tasks():
    text = flags.help_text(settings_of("run_classifier"), "")
    for name in ("cola", "mnli", "lcqmc_pair", "iflytek", "tsv"):
        assert re.search(rf"\b{name}\b", text)
    assert "albert_zh's defaults apply: --max_seq_length=128" in " ".join(text.split())


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
def test_invalid_values_are_rejected_by_name(flag):
    with pytest.raises(absl_flags.Error, match=flag.split("=")[0].strip("-")):
        parse(["--output_dir=o", flag])


def test_a_missing_required_flag_is_reported():
    with pytest.raises(absl_flags.Error, match="output_dir"):
        parse(["--seed=1"])


def test_help_shows_groups_meanings_and_defaults():
    text = flags.help_text(FineTuningSettings, "Fine-tunes.\n")
    assert text.startswith("Fine-tunes.\n\nmodel:\n")
    assert "\n  --train_batch_size=INT  (default: 32)\n      Effective training batch size" in text
    assert "\n  --output_dir=STR  (required)\n" in text
    assert "\n  --vocab_file=STR\n" in text
    assert "\n  --[no]official_order  (default: False)\n" in text
    assert "\n  --optimizer=adamw|lamb|lamb_albert_zh  (default: adamw)\n" in text
    assert "\n  --learning_rate=FLOAT,...  (default: 5e-05)\n" in text
    assert "  --bert_config_file\n      Same as --albert_config_file.\n" in text
    for field in fields_of(FineTuningSettings):
        assert f"\n{field.group}:\n" in text
    # At the end, and under no other heading.
    assert text.endswith(
        "\n\naccepted and ignored:\n  --master, --num_tpu_cores, --iterations_per_loop"
    )
    assert text.count("--iterations_per_loop") == 1


def test_defaults_with_several_values_are_shown_as_on_the_command_line():
    text = flags.help_text(settings_of("train_vocabulary"), "")
    assert '--user_defined_symbols=STR,...  (default: (,),",-,.,–,£,€)\n' in text


def settings_of(script):
    """The settings class of a program or tool."""
    module = PROGRAMS.get(script, f"cli.{script}")
    return importlib.import_module(f"albert_tf.{module}").Settings


@pytest.mark.parametrize("script", sorted(set(PROGRAMS) & set(OLD_FLAGS)))
def test_all_recorded_flags_exist_with_their_defaults(script):
    values = flags.define(settings_of(script))
    assert set(OLD_FLAGS[script]) <= set(values)
    names = {field.name for field in fields_of(settings_of(script))}
    found = {name: values[name].default for name in names & set(OLD_FLAGS[script])}
    lists = {name: list(value) for name, value in found.items() if isinstance(value, tuple)}
    expected = {name: OLD_FLAGS[script][name] for name in found}
    if issubclass(settings_of(script), FineTuningSettings):
        expected["do_lower_case"] = None  # True, unless the weights are known to need False
    assert repr(found | lists) == repr(expected)  # nan is no equal of nan
    # What has no setting is another spelling or has no effect.
    aliases = {alias for rows in flags.ALIASES.values() for alias in rows}
    ignored = {name for rows in flags.IGNORED.values() for name in rows}
    assert set(OLD_FLAGS[script]) - names <= aliases | ignored


@pytest.mark.parametrize("script", PROGRAMS)
def test_help_is_fast_grouped_and_exits_with_status_0(script):
    # A module that is None cannot be imported.
    code = (
        "import runpy, sys; sys.modules.update(tensorflow=None, tf_keras=None);"
        f"sys.argv = ['{script}.py', '--helpfull'];"
        f"runpy.run_path('{script}.py', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for field in fields_of(settings_of(script)):
        name = f"[no]{field.name}" if field.type is bool else f"{field.name}="
        assert f"\n{field.group}:\n" in done.stdout
        assert f"\n  --{name}" in done.stdout


@pytest.mark.parametrize("script", PROGRAMS)
def test_help_shows_the_essential_flags_with_the_required_ones(script):
    settings = settings_of(script)
    text = flags.help_text(settings, "", is_full=False)
    shown = re.findall(r"^  --(?:\[no\])?(\w+)", text, re.MULTILINE)
    fields = fields_of(settings)
    if settings.ESSENTIAL:
        assert tuple(shown) == settings.ESSENTIAL
        assert f"--helpfull describes all {len(fields)} flags." in text
        assert len(shown) <= 13
    assert {field.name for field in fields if field.is_required} <= set(shown)


def test_steps_have_the_same_names_in_all_programs():
    tuned = flags.parse(
        settings_of("run_squad"), ["--output_dir=o", "--num_train_steps=7", "--num_warmup_steps=2"]
    )
    assert (tuned.train_step, tuned.warmup_step) == (7, 2)
    pretrained = flags.parse(
        settings_of("run_pretraining"),
        [*("--output_dir=o", "--input_file=i", "--albert_config_file=c"), "--train_step=7"],
    )
    assert pretrained.num_train_steps == 7
