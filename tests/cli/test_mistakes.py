"""Mistakes of models, vocabularies, data and lengths, which are reported without TensorFlow."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest

from albert_tf.checkpoints import run_record
from albert_tf.model.tokenization import FullTokenizer
from tests.conftest import TINY_SHAPE

# A module that is None cannot be imported.
CODE = """
import json, sys
from importlib.machinery import ModuleSpec
class Installed:
    "Finds modules, which cannot be imported."
    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self) if name in ("tensorflow", "tf_keras") else None
    def create_module(self, spec):
        raise ImportError(spec.name)
    def exec_module(self, module):
        pass
sys.meta_path.insert(0, Installed())
from albert_tf.cli import programs
for name, *flags in json.loads(sys.argv[1]):
    sys.argv = [name, *flags]
    try:
        programs.main(name)
    except SystemExit as error:
        print(str(error).replace("\\n", " "))
"""
MODEL = ("--albert_config_file=config.json", "--spm_model_file=toy.model", "--output_dir=out")
TUNE = (*MODEL, "--do_train", "--max_seq_length=40")
SQUAD = (*TUNE, "--train_file=no.json")
CLASSIFY = (*TUNE, "--task_name=mrpc", "--data_dir=.")
CREATE = ("--input_file=tags/train.txt", "--output_file=x")
TRAIN = (MODEL[0], MODEL[2], "--input_file=a.tfrecord", "--train_batch_size=1")
PREDICT = ("--model_dir=race",)
MISTAKES = [  # program, flags, and what the error names
    ("create-pretraining-data", (*CREATE, "--spm_model_file=tags/train.txt"), "not a Sentence"),
    ("run-classifier", (*CLASSIFY, "--spm_model_file=tags/train.txt"), "not a SentencePiece model"),
    ("run-classifier", CLASSIFY, "train.tsv, line 2: expected 4 or more columns"),
    ("run-classifier", (*CLASSIFY, "--max_seq_length=41"), "=41 is larger .*embeddings=40"),
    ("run-classifier", (*CLASSIFY, "--output_dir=other"), "other contains another model .*num"),
    ("run-classifier", ("--task_name=mrcp", "--data_dir=.", "--output_dir=x"), "mean 'mrpc'"),
    (
        "run-classifier",  # `$FOLDER/model.ckpt-best` of an unset variable, without a config
        ("--task_name=mrpc", "--data_dir=.", "--output_dir=x", "--init_checkpoint=/model.ckpt-x"),
        "^run-classifier: --init_checkpoint: /model.ckpt-x: no such checkpoint.* shell variable",
    ),
    ("run-squad", (*SQUAD, "--max_query_length=7"), "no.json: 'data' is missing"),
    ("run-squad", SQUAD, "--max_query_length=64 .* expected 68 or more"),
    ("run-race", (*TUNE, "--data_dir=."), "no key 'questions' among 'article'"),
    ("run-token-classification", (*TUNE, "--data_dir=tags"), "train.txt, line 1: no label"),
    ("run-pretraining", (*TRAIN, "--max_seq_length=41"), "=41 is larger .*embeddings=40"),
    ("run-pretraining", (*TRAIN, "--max_seq_length=40"), "vocabulary of 98 entries"),
    ("run-pretraining", (*TRAIN, "--output_dir=other"), "other contains another model .*num"),
    ("run-predict", ("--model_dir=none", "--text=x"), "none: no such checkpoint"),
    ("run-predict", (*PREDICT, "--input_file=none.txt"), "--input_file.*none.txt"),
    ("run-predict", (*PREDICT, "--text=x", "--embeddings_file=no.json/x.npy"), "_file: cannot"),
    ("run-predict", ("--model_dir=tags", "--text=x"), "tags: this folder contains no checkpoint"),
    ("run-predict", (*PREDICT, "--text=x", "--max_seq_length=41"), "=41 is larger .*dings=40"),
    ("run-predict", (*PREDICT, "--text=x", "--vocab_file=words.txt"), "with another vocabulary"),
    (
        "run-predict",
        (*PREDICT, "--input_file=no.json", "--task=fill_mask"),
        "1: expected 'text_a' or",
    ),
    (
        "run-predict",
        (*PREDICT, "--input_file=train.tsv"),
        "line 1: .Quality., .id. look like names",
    ),
    ("run-predict", (*PREDICT, "--input_file=a.tfrecord", "--task=embeddings"), "line 1: not UTF"),
    ("run-predict", (*PREDICT, "--input_file=bad.jsonl"), "line 1: expected one JSON object"),
]


@pytest.fixture(name="messages", scope="module")
def messages_of_all_programs(tmp_path_factory, toy_spm_model):
    """Returns the error of each row of MISTAKES, from a process that cannot import TensorFlow."""
    folder = tmp_path_factory.mktemp("mistakes")
    article = folder / "RACE" / "train" / "high" / "1.txt"
    article.parent.mkdir(parents=True)
    article.write_text('{"article": "x"}')
    config = TINY_SHAPE | {"max_position_embeddings": 40}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "no.json").write_text("{}")
    (folder / "other").mkdir()
    other = json.dumps(config | {"num_hidden_layers": 7})
    (folder / "other" / "albert_config.json").write_text(other)
    (folder / "tags").mkdir()
    (folder / "tags" / "train.txt").write_text("word\n")
    (folder / "train.tsv").write_text("Quality\tid\n1\t2\n")
    (folder / "toy.model").symlink_to(toy_spm_model)
    (folder / "a.tfrecord").write_bytes(b"\xff")
    (folder / "bad.jsonl").write_text("{")
    (folder / "words.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    model = folder / "race"
    model.mkdir()
    (model / "config.json").symlink_to(folder / "config.json")
    (model / "toy.model").symlink_to(toy_spm_model)
    for suffix in (".index", ".data-00000-of-00001"):
        (model / f"model.ckpt-best{suffix}").touch()
    tokenizer = FullTokenizer(spm_model_file=str(toy_spm_model))
    record = run_record.of_tokenizer(tokenizer, str(toy_spm_model))
    record = dataclasses.replace(record, task={"name": "multiple_choice"})
    (model / "run.json").write_text(record.to_json())
    vocabulary = {"size": 98, "checksum": "a" * 64, "file": "x.model", "do_lower_case": False}
    entry = {"name": "a.tfrecord", "instances": 1, "bytes": 1}
    metadata = {"files": [entry], "settings": {}, "vocabulary": vocabulary, "mask_id": 4}
    (folder / "a.records.json").write_text(json.dumps(metadata))
    rows = json.dumps([[name, *flags] for name, flags, _ in MISTAKES])
    done = subprocess.run(
        [sys.executable, "-c", CODE, rows], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("number", "said"), [*enumerate(said for *_, said in MISTAKES)])
def test_mistakes_are_reported_without_tensorflow(messages, number, said):
    assert re.search(said, messages[number]), messages[number]
