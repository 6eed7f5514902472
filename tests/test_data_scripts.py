"""create_pretrain_data.sh, and albert_zh's script for many files, with their settings."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from albert_tf.data.records import count_records
from albert_tf.model.tokenization import FullTokenizer
from tests.conftest import ROOT

SCRIPT = "create_pretrain_data.sh"
BATCH = "compat/albert_zh/create_pretrain_data_batch.sh"
# Stands for create_pretraining_data.py: prints its arguments; fails for a file of number 13.
ECHO = """import sys
print("got:", *sys.argv[1:], sep="\\n")
sys.exit(7 if any("_13." in argument for argument in sys.argv) else 0)
"""
VARIABLES = ("INPUT_PATTERN", "OUTPUT_PATTERN", "VOCAB_FILE", "SPM_MODEL_FILE", "PYTHONPATH")


@pytest.fixture
def house(tmp_path):
    """A folder with what the scripts need, and the program that prints its arguments."""
    root = tmp_path / "a house"
    for name in (SCRIPT, BATCH, "data/sample_zh.txt"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    (root / "albert_tf").symlink_to(ROOT / "albert_tf")
    (root / "create_pretraining_data.py").write_text(ECHO, encoding="utf-8")
    return root


def run(house, script, *arguments, **environment):
    """Runs a script in another folder; `calls` are the arguments of the program's calls."""
    inherited = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        ["bash", str(house / script), *arguments],
        env={**inherited, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=house.parent,
    )
    printed = done.stdout.split("got:\n")[1:]
    done.calls = [[line for line in part.splitlines() if line[:2] == "--"] for part in printed]
    return done


def settings(max_predictions, probability):
    return [
        *("--do_lower_case=True", "--do_whole_word_mask=True", "--segment_chinese_words=True"),
        *("--ngram=1", "--max_seq_length=512", f"--max_predictions_per_seq={max_predictions}"),
        *(f"--masked_lm_prob={probability}", "--dupe_factor=10", "--num_logged_instances=0"),
    ]


@pytest.mark.slow
def test_the_sample_becomes_records_with_albert_zhs_settings_and_a_vocabulary_of_its_own(house):
    done = run(house, SCRIPT)
    assert done.returncode == 0, done.stderr
    vocabulary, sample = (house / "data" / f"{n}sample_zh.txt" for n in ("vocab_", ""))
    assert done.calls == [
        [
            *(f"--input_file={sample}", f"--output_file={house}/data/tf_sample_zh.tfrecord"),
            *(*settings(51, "0.10"), f"--vocab_file={vocabulary}"),
        ]
    ]
    tokenizer = FullTokenizer(str(vocabulary))
    assert tokenizer.unk_id not in tokenizer.encode(sample.read_text(encoding="utf-8"))
    shutil.copy(ROOT / "create_pretraining_data.py", house)
    quick = [f"--vocab_file={vocabulary}", "--dupe_factor=2", "--num_workers=1"]
    assert run(house, SCRIPT, *quick).returncode == 0
    # 16 documents of about 500 characters: with 512 tokens, one or two instances each per pass.
    assert 32 <= count_records(str(house / "data" / "tf_sample_zh.tfrecord")) <= 160


@pytest.mark.slow
def test_the_vocabulary_of_the_sample_has_its_case_and_needs_a_text(house):
    vocabulary, sample = (house / "data" / f"{n}sample_zh.txt" for n in ("vocab_", ""))
    assert run(house, SCRIPT, "--nodo_lower_case").calls[0][-1] == "--nodo_lower_case"
    assert {"G", "P", "S"} <= set(vocabulary.read_text(encoding="utf-8").split("\n"))
    sample.write_text("", encoding="utf-8")
    done = run(house, SCRIPT)
    assert (done.returncode, done.calls) == (1, [])
    assert "no text in" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "environment", "given"),
    [
        (["--vocab_file=a b.txt"], {}, ["--vocab_file=a b.txt"]),
        (["--vocab_file", "--v"], {}, ["--vocab_file", "--v"]),
        (["--spm_model_file=m.model"], {}, ["--spm_model_file=m.model"]),
        ([], {"VOCAB_FILE": "v.txt"}, ["--vocab_file=v.txt", "--spm_model_file="]),
        ([], {"SPM_MODEL_FILE": "m"}, ["--vocab_file=", "--spm_model_file=m"]),
        (["--vocab_file=a", "--ngram=*"], {"VOCAB_FILE": "b"}, ["--vocab_file=a", "--ngram=*"]),
    ],
)
def test_arguments_come_last_and_a_given_vocabulary_is_used(house, arguments, environment, given):
    done = run(house, SCRIPT, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    assert done.calls[0][11:] == given
    assert os.listdir(house / "data") == ["sample_zh.txt"]


def test_other_text_requires_a_vocabulary_and_help_is_that_of_the_program(house):
    done = run(house, SCRIPT, "--input_file=other.txt")
    assert (done.returncode, done.calls) == (1, [])
    assert "--input_file requires a vocabulary" in done.stderr
    assert run(house, SCRIPT, "--help").calls == [["--help"]]


def test_albert_zhs_script_makes_every_file_from_start_to_end(house):
    done = run(house, BATCH, "8", "10", "--albert_zh_compat", "--dupe_factor=3")
    assert done.returncode == 0, done.stderr
    assert done.calls == [
        [
            f"--input_file=raw_text/web_text_zh_{number}.txt",
            f"--output_file=tf_records/tf_web_text_zh_{number}.tfrecord",
            *("--vocab_file=albert_config/vocab.txt", *settings(76, "0.15"), "--resume"),
            *("--albert_zh_compat", "--dupe_factor=3"),
        ]
        for number in (8, 9, 10)
    ]


def test_the_environment_names_the_files_of_albert_zhs_script(house):
    patterns = {"INPUT_PATTERN": "my text/{}/{}.txt", "OUTPUT_PATTERN": "gs://b/{}"}
    done = run(house, BATCH, "3", "3", VOCAB_FILE="v", **patterns)
    expected = ["--input_file=my text/3/3.txt", "--output_file=gs://b/3", "--vocab_file=v"]
    assert done.calls[0][:3] == expected


@pytest.mark.parametrize(
    ("arguments", "pattern", "said"),
    [
        (["1"], "{}", "START END"),
        (["one", "2"], "{}", "START END"),
        (["3", "2"], "{}", "START END"),
        (["01", "2"], "{}", "START END"),
        (["1", "2"], "records.tfrecord", "records.tfrecord: expected {}"),
    ],
)
def test_wrong_arguments_of_albert_zhs_script_are_refused(house, arguments, pattern, said):
    done = run(house, BATCH, *arguments, OUTPUT_PATTERN=pattern)
    assert (done.returncode, done.calls) == (2, [])
    assert said in done.stderr


def test_a_failing_file_stops_albert_zhs_script(house):
    done = run(house, BATCH, "12", "14")
    assert done.returncode == 7
    assert len(done.calls) == 2
