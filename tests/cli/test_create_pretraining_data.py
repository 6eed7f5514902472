"""create_pretraining_data.py from the shell: flags, errors, output and exit status."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from absl import flags as absl_flags

from albert_tf import data
from albert_tf.cli.flags import parse
from albert_tf.data.records import count_records
from tests.conftest import ROOT, TOY_TEXT

SCRIPT = str(ROOT / "create_pretraining_data.py")


def call(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.fixture
def flags(tmp_path, toy_spm_model):
    """Returns the flags of a small run in `tmp_path`."""
    text = tmp_path / "text.txt"
    text.write_text(TOY_TEXT.replace(".\n", ".\n\n", 3), encoding="utf-8")
    return [
        f"--input_file={text}",
        f"--output_file={tmp_path}/out/train@2",
        f"--spm_model_file={toy_spm_model}",
        "--max_seq_length=37",
        "--max_predictions_per_seq=7",
        "--dupe_factor=3",
        "--num_workers=1",
        "--input_file_mode=r",
    ]


def test_a_run_from_text_to_records(tmp_path, flags):
    done = call(*flags, "--num_logged_instances=2")
    assert done.returncode == 0, done.stderr
    names = ["train-00000-of-00002", "train-00001-of-00002"]
    instances = sum(count_records(str(tmp_path / "out" / name)) for name in names)
    assert done.stdout == f"{instances} instances in 2 files\n"
    assert done.stderr.count("*** Example ***") == 2
    assert re.search(r"4 documents, 6 sentences, \d+ tokens of text -> ", done.stderr)
    assert re.search(r"making instances: .*/s, .* made", done.stderr)
    assert "--input_file_mode has no effect" in done.stderr


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--input_file=nowhere/*.txt", r"--input_file: 'nowhere/\*\.txt' matches no file"),
        ("--max_seq_length=4", "max_seq_length=4: expected 5 or more"),
        ("--max_predictions_per_seq=0", "flag --max_predictions_per_seq=0"),
        ("--spm_model_file=nowhere.model", r"nowhere\.model: no such file"),
        ("--spm_model_file=", "a vocabulary is required"),
        ("--output_file=/proc/none/train", "cannot write to '/proc/none'"),
        ("--albert_zh_compat", "albert_zh_compat requires a WordPiece vocabulary"),
    ],
)
def test_a_wrong_flag_is_named(flags, flag, reason):
    with pytest.raises((ValueError, OSError, absl_flags.Error), match=reason):
        data.run(parse(data.Settings, [*flags, flag]))


def test_an_error_is_one_line(flags):
    done = call(*flags, "--input_file=nowhere/*.txt")
    assert done.returncode == 1
    assert re.search(r"^create_pretraining_data\.py: .*nowhere", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


def test_input_and_output_are_required():
    done = call("--vocab_file=vocab.txt")
    assert done.returncode == 1
    assert "input_file" in done.stderr
