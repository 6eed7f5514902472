import os
import shutil
import struct
import subprocess
import sys

import pytest

from albert_tf.tokenization import FullTokenizer
from tests.conftest import ROOT

# A fake create_pretraining_data.py that prints its arguments, one per line.
ECHO = "import sys\nprint('\\n'.join(['got:', *sys.argv[1:]]))\n"


@pytest.fixture
def house(tmp_path):
    """Returns a copy of the files that the script needs, with the fake program."""
    root = tmp_path / "house"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "albert_tf", root / "albert_tf", ignore=ignored)
    (root / "data").mkdir()
    shutil.copy(ROOT / "data" / "sample_zh.txt", root / "data")
    shutil.copy(ROOT / "create_pretrain_data.sh", root)
    (root / "create_pretraining_data.py").write_text(ECHO, encoding="utf-8")
    return root


def run_script(house, *arguments, cwd="/", **environment):
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VOCAB_FILE", "SPM_MODEL_FILE")
    }
    done = subprocess.run(
        ["bash", str(house / "create_pretrain_data.sh"), *arguments],
        env={**inherited, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )
    done.arguments = done.stdout.partition("got:\n")[2].splitlines()
    return done


def test_the_sample_is_large_and_varied_enough():
    text = (ROOT / "data" / "sample_zh.txt").read_text(encoding="utf-8")
    documents = [document.strip().split("\n") for document in text.split("\n\n")]
    sentences = [sentence for document in documents for sentence in document]
    assert len(documents) >= 12
    assert min(len(document) for document in documents) >= 10
    assert len(sentences) == len(set(sentences)) >= 240
    assert len({sentence[:4] for sentence in sentences}) > 0.95 * len(sentences)
    assert all(sentence == sentence.strip() for sentence in sentences)


def test_defaults_are_albert_zhs_settings_and_a_vocabulary_is_trained(house, tmp_path):
    done = run_script(house, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.arguments == [
        f"--input_file={house}/data/sample_zh.txt",
        f"--output_file={house}/data/tf_sample_zh.tfrecord",
        "--do_lower_case=True",
        "--do_whole_word_mask=True",
        "--segment_chinese_words=True",
        "--ngram=1",
        "--max_seq_length=512",
        "--max_predictions_per_seq=51",
        "--masked_lm_prob=0.10",
        "--dupe_factor=10",
        "--num_logged_instances=0",
        f"--vocab_file={house}/data/vocab_sample_zh.txt",
    ]
    tokenizer = FullTokenizer(str(house / "data" / "vocab_sample_zh.txt"))
    sample = (house / "data" / "sample_zh.txt").read_text(encoding="utf-8")
    assert tokenizer.unk_id not in tokenizer.encode(sample)
    assert sorted(os.listdir(house / "data")) == ["sample_zh.txt", "vocab_sample_zh.txt"]


@pytest.mark.parametrize(
    ("arguments", "environment", "vocabulary"),
    [
        (["--vocab_file=a b.txt"], {}, ["--vocab_file=a b.txt"]),
        (["--vocab_file", "v.txt"], {}, ["--vocab_file", "v.txt"]),
        (["--spm_model_file=m.model"], {}, ["--spm_model_file=m.model"]),
        ([], {"VOCAB_FILE": "v.txt"}, ["--vocab_file=v.txt", "--spm_model_file="]),
        ([], {"SPM_MODEL_FILE": "m"}, ["--vocab_file=", "--spm_model_file=m"]),
        (["--vocab_file=a"], {"VOCAB_FILE": "b"}, ["--vocab_file=a"]),
    ],
)
def test_an_explicit_vocabulary_is_used(house, arguments, environment, vocabulary):
    done = run_script(house, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    assert done.arguments[11:] == vocabulary
    assert os.listdir(house / "data") == ["sample_zh.txt"]


def test_other_arguments_come_last_and_so_override(house):
    done = run_script(house, "--vocab_file=v", "--dupe_factor=3", "--input_file=*.txt")
    assert done.arguments[11:] == ["--vocab_file=v", "--dupe_factor=3", "--input_file=*.txt"]


def test_the_vocabulary_keeps_case_if_the_records_do(house):
    done = run_script(house, "--nodo_lower_case")
    assert done.arguments[-1] == "--nodo_lower_case"
    pieces = (house / "data" / "vocab_sample_zh.txt").read_text(encoding="utf-8").split("\n")
    assert {"G", "P", "S"} <= set(pieces)


def test_other_text_requires_a_vocabulary(house):
    done = run_script(house, "--input_file=other.txt")
    assert done.returncode == 1
    assert "--input_file requires a vocabulary" in done.stderr
    assert os.listdir(house / "data") == ["sample_zh.txt"]


def test_help_is_that_of_the_program(house):
    done = run_script(house, "--help")
    assert done.arguments == ["--help"]
    assert os.listdir(house / "data") == ["sample_zh.txt"]


def test_a_failing_program_fails_the_script(house):
    (house / "create_pretraining_data.py").write_text("raise SystemExit(7)", encoding="utf-8")
    assert run_script(house).returncode == 7
    (house / "data" / "sample_zh.txt").write_text("", encoding="utf-8")
    done = run_script(house)
    assert done.returncode == 1
    assert "no text in" in done.stderr


def count_records(path):
    """Records of a TFRecord file: each is its length (8 bytes), a checksum (4), data, another."""
    data = path.read_bytes()
    count = position = 0
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        position += 8 + 4 + length + 4
        count += 1
    assert position == len(data)
    return count


@pytest.mark.ci
def test_the_sample_becomes_records_from_any_directory(house, tmp_path):
    shutil.copy(ROOT / "create_pretraining_data.py", house)
    quick = ("--dupe_factor=2", "--num_workers=1", "--num_logged_instances=0")
    done = run_script(house, *quick, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # 16 documents of about 500 characters: with 512 tokens, one or two instances each per pass.
    assert 32 <= count_records(house / "data" / "tf_sample_zh.tfrecord") <= 160
