"""The commands of docs/reproduction.md: programs accept them, and what they name can be had."""

from __future__ import annotations

import re
import shlex

import pytest

from albert_tf import classification, data, pretraining, race, squad
from albert_tf.cli import flags, train_vocabulary
from albert_tf.config import AlbertConfig
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
SETTINGS = {
    "create_pretraining_data.py": data.Settings,
    "run_pretraining.py": pretraining.Settings,
    "run_classifier.py": classification.Settings,
    "run_race.py": race.Settings,
    "run_squad.py": squad.Settings,
    "tools/train_vocabulary.py": train_vocabulary.Settings,
}


def commands():
    """Words of all commands in the indented blocks, in order, with shell variables filled in."""
    variables = {}
    blocks = re.findall(r"(?:^ {4}.*\n)+", TEXT, re.MULTILINE)
    for line in "".join(blocks).replace("\\\n", " ").splitlines():
        for name, value in variables.items():
            line = line.replace(f"${name}", value)
        words = shlex.split(line)
        if assigned := re.fullmatch(r"(\w+)=(--.*)", words[0]):
            variables[assigned[1]] = assigned[2]
        else:
            yield words


PARSED = [
    flags.parse(SETTINGS[words[1]], words[2:]) for words in commands() if words[1] in SETTINGS
]
FILES = ("input_file", "eval_input_file", "train_file", "predict_file", "data_dir", "vocab_file")


def test_the_log_has_commands_of_every_program():
    assert {type(settings) for settings in PARSED} == set(SETTINGS.values())


@pytest.mark.parametrize("settings", PARSED, ids=lambda settings: type(settings).__module__)
def test_what_a_command_reads_is_there_or_explained_or_written_by_another(settings):
    values = [getattr(settings, name, None) for name in (*FILES, "spm_model_file")]
    names = {name for value in values if value for name in value.split(",")}
    table = TEXT.split("| in the commands |")[1].split("\n\n")[0]
    known = set(re.findall(r"`([\w.-]+)/?`", table.replace("/`", "`")))
    prefixes = {s.output_prefix for s in PARSED if isinstance(s, train_vocabulary.Settings)}
    made = {s.output_file for s in PARSED if isinstance(s, data.Settings)}
    made |= {prefix + ending for prefix in prefixes for ending in (".model", ".txt")}
    made |= set(re.findall(r"> \"?(\w+\.txt)", TEXT)) | {"train.txt", "held_out.txt"}
    assert names <= known | made


@pytest.mark.parametrize("settings", PARSED, ids=lambda settings: type(settings).__module__)
def test_configs_are_in_the_repository_and_checkpoints_are_made_by_another_command(settings):
    config = getattr(settings, "albert_config_file", None)
    if config:
        AlbertConfig.from_json_file(str(ROOT / config))
    checkpoint = getattr(settings, "init_checkpoint", None)
    if checkpoint:
        assert checkpoint.split("/")[0] in {getattr(s, "output_dir", None) for s in PARSED}


def test_parity_is_shown_with_what_is_in_the_repository():
    from benchmarks import parity

    references = list(parity.references(parity.GOLDEN))
    assert len(references) == len(parity.MODELS)
    for row in map(parity.compare, references):
        assert row["layers"] < 1e-5
        assert row["loss"] < 1e-5
        assert (row["gradients_relative"] or 0) < 1e-4
