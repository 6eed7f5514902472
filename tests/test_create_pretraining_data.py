"""The data script as users call it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys

import pytest

from albert_tf.data.records import count_records
from tests.conftest import ROOT, TOY_TEXT

SCRIPT = str(ROOT / "create_pretraining_data.py")

OFFICIAL_DEFAULTS = {
    "input_file": None,
    "output_file": None,
    "vocab_file": None,
    "spm_model_file": None,
    "input_file_mode": "r",
    "do_lower_case": True,
    "do_whole_word_mask": True,
    "do_permutation": False,
    "favor_shorter_ngram": True,
    "random_next_sentence": False,
    "max_seq_length": 512,
    "ngram": 3,
    "max_predictions_per_seq": 20,
    "random_seed": 12345,
    "dupe_factor": 40,
    "masked_lm_prob": 0.15,
    "short_seq_prob": 0.1,
}


def call(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def paths(tmp_path, toy_spm_model):
    """Flags of a small run and the folder it writes to."""
    text = tmp_path / "text.txt"
    text.write_text(TOY_TEXT.replace(".\n", ".\n\n", 3), encoding="utf-8")
    flags = [
        f"--input_file={text}",
        f"--output_file={tmp_path}/out/train@2",
        f"--spm_model_file={toy_spm_model}",
        "--max_seq_length=37",
        "--max_predictions_per_seq=7",
        "--dupe_factor=3",
        "--num_workers=1",
    ]
    return tmp_path, flags


def test_the_official_flags_have_their_defaults():
    code = (
        "import create_pretraining_data\n"
        "from absl import flags\n"
        f"names = {list(OFFICIAL_DEFAULTS)!r}\n"
        "print({name: flags.FLAGS[name].default for name in names})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(OFFICIAL_DEFAULTS)


def test_help_answers_without_tensorflow():
    code = (
        "import sys, create_pretraining_data\n"
        "print(sorted({'tensorflow', 'tf_keras'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr
    shown = call("--help").stdout
    assert all(f"--{name}" in shown.replace("[no]", "") for name in OFFICIAL_DEFAULTS)


def test_a_run_from_text_to_records(paths):
    folder, flags = paths
    done = call(*flags, "--num_logged_instances=2")
    assert done.returncode == 0, done.stderr
    names = ["train-00000-of-00002", "train-00001-of-00002", "train.records.json"]
    assert sorted(path.name for path in (folder / "out").iterdir()) == names
    instances = sum(count_records(str(folder / "out" / name)) for name in names[:2])
    assert done.stdout == f"{instances} instances in 2 files\n"
    assert done.stderr.count("*** Example ***") == 2
    assert re.search(r"4 documents, 6 sentences, \d+ tokens of text -> ", done.stderr)
    assert "made" in done.stderr
    assert "/s" in done.stderr


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--input_file=nowhere/*.txt", r"--input_file: 'nowhere/\*\.txt' matches no file"),
        ("--max_seq_length=4", "max_seq_length=4: expected 5 or more"),
        ("--max_predictions_per_seq=0", "max_predictions_per_seq=0: expected 1 or more"),
        ("--masked_lm_prob=1.5", "masked_lm_prob=1.5: expected"),
        ("--spm_model_file=nowhere.model", r"nowhere\.model: no such file"),
        ("--spm_model_file=", "a vocabulary is needed"),
        ("--output_file=/proc/none/train", "cannot write into '/proc/none'"),
        ("--chunk_megabytes=0", "chunk_bytes=0: expected 1 or more"),
        ("--albert_zh_compat", "albert_zh_compat needs a WordPiece vocabulary"),
    ],
)
def test_a_wrong_flag_is_one_line_that_says_so(paths, flag, reason):
    _, flags = paths
    done = call(*flags, flag)
    assert done.returncode == 1
    assert re.search(reason, done.stderr)
    assert "Traceback" not in done.stderr


def defaults_with(*arguments):
    """The settings that the flags make."""
    code = (
        "import sys, dataclasses, create_pretraining_data as script\n"
        "script.FLAGS(['script', '--input_file=i', '--output_file=o', *sys.argv[1:]])\n"
        "print(dataclasses.asdict(script.instance_settings()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    found = ast.literal_eval(done.stdout)
    return {**found.pop("masking"), **found}


def test_albert_zh_compat_brings_the_defaults_of_albert_zh():
    usual, zh = defaults_with(), defaults_with("--albert_zh_compat")
    changed = {name: value for name, value in zh.items() if usual[name] != value}
    assert changed == {
        "albert_zh_compat": True,
        "segment_chinese_words": True,
        "max_seq_length": 128,
        "do_whole_word_mask": False,
        "dupe_factor": 10,
        "ngram": 1,
    }
    own = defaults_with(
        "--albert_zh_compat", "--do_whole_word_mask", "--max_seq_length=512", "--non_chinese"
    )
    assert own == {**zh, "do_whole_word_mask": True, "max_seq_length": 512,
                   "segment_chinese_words": False}  # fmt: skip


def test_json_lines_become_records(paths):
    folder, flags = paths
    lines = folder / "text.jsonl"
    texts = [line + "\n" + line for line in TOY_TEXT.splitlines()]
    lines.write_text("".join(json.dumps({"body": t}) + "\n" for t in texts), encoding="utf-8")
    more = [f"--input_file={lines}", "--input_format=jsonl", "--num_logged_instances=0"]
    done = call(*flags, *more, "--text_field=body")
    assert done.returncode == 0, done.stderr
    assert "6 documents, 12 sentences" in done.stderr
    done = call(*flags, *more)
    assert done.returncode == 1
    assert "text.jsonl, line 1: no field 'text'; its fields: 'body'" in done.stderr


def test_input_and_output_are_required():
    done = call("--vocab_file=vocab.txt")
    assert done.returncode != 0
    assert "input_file" in done.stderr + done.stdout
