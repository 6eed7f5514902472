"""The script over numbered files, with an echo in the place of the program."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT

# Stands for create_pretraining_data.py: prints its arguments; fails for a file of number 13.
ECHO = """import sys
print("got:", *sys.argv[1:], sep="\\n")
sys.exit(7 if any("_13." in argument for argument in sys.argv) else 0)
"""


@pytest.fixture
def run_script(tmp_path):
    house = tmp_path / "a house"
    script = house / "compat" / "albert_zh" / "create_pretrain_data_batch.sh"
    script.parent.mkdir(parents=True)
    shutil.copy(ROOT / "compat" / "albert_zh" / script.name, script)
    (house / "create_pretraining_data.py").write_text(ECHO, encoding="utf-8")
    ours = ("INPUT_PATTERN", "OUTPUT_PATTERN", "VOCAB_FILE", "PYTHON")
    inherited = {name: value for name, value in os.environ.items() if name not in ours}

    def run(*arguments, **environment):
        done = subprocess.run(
            ["bash", str(script), *arguments],
            env={**inherited, "PYTHON": sys.executable, **environment},
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        done.calls = [
            [line for line in part.splitlines() if line.startswith("--")]
            for part in done.stdout.split("got:\n")[1:]
        ]
        return done

    return run


def test_every_file_from_start_to_end_is_made(run_script):
    done = run_script("8", "10")
    assert done.returncode == 0, done.stderr
    assert [call[:2] for call in done.calls] == [
        [
            f"--input_file=raw_text/web_text_zh_{number}.txt",
            f"--output_file=tf_records/tf_web_text_zh_{number}.tfrecord",
        ]
        for number in (8, 9, 10)
    ]
    assert done.calls[0][2:] == [
        "--vocab_file=albert_config/vocab.txt",
        "--do_lower_case=True",
        "--do_whole_word_mask=True",
        "--segment_chinese_words=True",
        "--ngram=1",
        "--max_seq_length=512",
        "--max_predictions_per_seq=76",
        "--masked_lm_prob=0.15",
        "--dupe_factor=10",
        "--num_logged_instances=0",
        "--resume",
    ]


def test_the_environment_names_the_files(run_script):
    done = run_script(
        "3", "3", INPUT_PATTERN="my text/{}/{}.txt", OUTPUT_PATTERN="gs://b/{}", VOCAB_FILE="v"
    )
    assert done.calls[0][:3] == [
        "--input_file=my text/3/3.txt",
        "--output_file=gs://b/3",
        "--vocab_file=v",
    ]


def test_further_arguments_come_last(run_script):
    done = run_script("0", "1", "--albert_zh_compat", "--dupe_factor=3")
    assert [call[-2:] for call in done.calls] == [["--albert_zh_compat", "--dupe_factor=3"]] * 2


@pytest.mark.parametrize(
    "arguments", [[], ["1"], ["one", "2"], ["3", "2"], ["--help"], ["1", "-2"], ["01", "2"]]
)
def test_wrong_arguments_show_the_usage(run_script, arguments):
    done = run_script(*arguments)
    assert (done.returncode, done.calls) == (2, [])
    assert "START END" in done.stderr


def test_a_pattern_without_a_place_for_the_number_is_refused(run_script):
    done = run_script("1", "2", OUTPUT_PATTERN="records.tfrecord")
    assert (done.returncode, done.calls) == (2, [])
    assert "records.tfrecord: expected {}" in done.stderr


def test_a_failing_file_stops_the_script(run_script):
    done = run_script("12", "14")
    assert done.returncode == 7
    assert len(done.calls) == 2
