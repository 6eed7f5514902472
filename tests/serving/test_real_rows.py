"""Tests exports of every kind in a fresh process with real rows, from raw strings.

A small model is trained, exported and loaded without this library. For 500 rows, its answers are
compared with the files that the program wrote, and its numbers with those of the predictor, also
for empty, very long and invalid texts. Regression has no reference data, so its labels are computed
from real text.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import albert_tf
from albert_tf import classification
from albert_tf.classification.reading import read_examples
from albert_tf.classification.tasks import find_task
from albert_tf.config import AlbertConfig
from tests.serving.fresh_process import serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NUM_ROWS = 500
TOLERANCE = 1e-5
ODD = ["", "😀 👩‍👩‍👧 e\u0301", "the river " * 1000, "\ufffd\ufffdriver and the boat"]
INVALID = b"\xff\xferiver and the boat".decode("utf-8", "surrogateescape")
RAW_ODD = [*ODD[:-1], INVALID]  # the same texts in bytes
ENGLISH, CHINESE = ("spm_model_file", "30k-clean.model"), ("vocab_file", "vocab_chinese.txt")
SHAPE = {
    "embedding_size": 32,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "type_vocab_size": 2,
}


@dataclasses.dataclass
class Case:
    """What a kind of model is asked, and what is expected.

    Attributes:
        export: the folder of the SavedModel.
        columns: input name → rows.
        expected: output name → rows; of each served row, as much as is expected is compared.
    """

    export: Any
    columns: dict[str, list]
    expected: dict[str, list]


class Workplace:
    """The folders and settings of a run."""

    def __init__(self, shared, folder, vocabulary):
        self.data, self.folder = shared / "data", folder
        name, file = vocabulary
        self.vocabulary = {name: str(shared / "vocab" / file)}
        size = 30000 if name == "spm_model_file" else 21128
        self.config = AlbertConfig(size, **SHAPE)
        self.config.to_json_file(str(folder / "albert_config.json"))
        self.output = str(folder / "run")

    def always(self, **changes):
        return {
            "albert_config_file": str(self.folder / "albert_config.json"),
            "output_dir": self.output,
            "export_dir": str(self.folder / "export"),
            "precision": "float32",
            "train_batch_size": 16,
            "learning_rate": 1e-3,
            "train_step": 30,
            "do_train": True,
            "do_eval": False,
            "do_predict": True,
            **self.vocabulary,
            **changes,
        }

    def export(self):
        (folder,) = (self.folder / "export").iterdir()
        return folder


def cut(source, target, count):
    """Copies the first lines of a text file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(source, encoding="utf-8") as lines:
        target.write_text("".join(itertools.islice(lines, count)), encoding="utf-8")


def classify(shared, folder, task, source, vocabulary):
    place = Workplace(shared, folder, vocabulary)
    row = find_task(task)
    extension = ".txt" if task == "lcqmc" else ".tsv"
    target = folder / "data" / row.folder
    for name in ("train", "test"):
        cut(place.data / source / (name + extension), target / (name + extension), NUM_ROWS + 1)
    return run_classifier(place, task, str(folder / "data"))


def run_classifier(place, task, data_dir):
    settings = place.always(max_seq_length=64)
    classification.run(classification.Settings(task_name=task, data_dir=data_dir, **settings))
    examples = read_examples(find_task(task), data_dir, "test").examples
    assert len(examples) >= NUM_ROWS
    pairs = [(example.text_a, example.text_b or "") for example in examples]
    results = albert_tf.load_predictor(place.output)([*pairs, *((text, text) for text in ODD)])
    written = np.loadtxt(f"{place.output}/test_results.tsv", ndmin=2)
    if "score" in results[0]:
        numbers = [[result["score"]] for result in results]
        expected = {"probabilities": numbers}
    else:
        numbers = [list(result["probabilities"].values()) for result in results]
        expected = {"probabilities": numbers, "labels": [result["label"] for result in results]}
    np.testing.assert_allclose(written, numbers[: len(pairs)], atol=TOLERANCE)
    first, second = ([pair[part] for pair in pairs] + RAW_ODD for part in (0, 1))
    return Case(place.export(), {"text_a": first, "text_b": second}, expected)


def regression(shared, folder):
    """Scores from 0 to 5 by common words, for the pairs of MRPC, in the format of STS-B."""
    place = Workplace(shared, folder, ENGLISH)
    target = folder / "data" / "STS-B"
    target.mkdir(parents=True)
    for name in ("train", "test"):
        lines = (place.data / "glue" / "MRPC" / f"{name}.tsv").read_text("utf-8-sig").splitlines()
        rows = ["\t".join("index genre filename year old s1 s2 sentence1 sentence2 score".split())]
        for number, line in enumerate(lines[1 : NUM_ROWS + 1]):
            pair = line.split("\t")[3:]
            first, second = (set(text.lower().split()) for text in pair)
            score = 5 * len(first & second) / len(first | second)
            cells = [str(number), *"none none none none none none".split(), *pair]
            rows.append("\t".join([*cells, f"{score:.3f}"] if name == "train" else cells))
        (target / f"{name}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return run_classifier(place, "sts-b", str(folder / "data"))


def pretrained(shared, folder, vocabulary):
    """A model with random weights from a fixed seed, and texts."""
    from albert_tf.checkpoints.names import variable_name
    from albert_tf.checkpoints.store import save_checkpoint
    from albert_tf.cli import convert_checkpoint

    place = Workplace(shared, folder, vocabulary)
    rng = np.random.default_rng(5)
    model = albert_tf.AlbertForPretraining(place.config)
    weights = {
        variable_name(w): rng.normal(0, 0.2, w.shape).astype(np.float32) for w in model.variables
    }
    (folder / "source").mkdir()
    save_checkpoint(str(folder / "source" / "model.ckpt-best"), weights)
    convert_checkpoint.convert(
        convert_checkpoint.Settings(
            str(folder / "source"),
            str(folder / "export"),
            "saved_model",
            albert_config_file=str(folder / "albert_config.json"),
            **place.vocabulary,
        )
    )
    source = "train.txt" if vocabulary is CHINESE else "train.tsv"
    below = "lcqmc" if vocabulary is CHINESE else "glue/SST-2"
    with open(place.data / below / source, encoding="utf-8") as lines:
        texts = [line.split("\t")[0] for line in itertools.islice(lines, 1, NUM_ROWS + 1)]
    return folder / "export", texts


def embeddings(shared, folder, vocabulary):
    export, texts = pretrained(shared, folder, vocabulary)
    columns = {"text_a": texts + RAW_ODD, "text_b": [""] * (len(texts) + len(ODD))}
    expected = {
        pooling: albert_tf.load_predictor(str(export), pooling=pooling)([*texts, *ODD]).tolist()
        for pooling in ("mean", "mean_last_4", "pooled")
    }
    return Case(export, columns, expected)


CASES: dict[str, Callable[..., Case]] = {
    "one sentence": lambda *at: classify(*at, "sst-2", "glue/SST-2", ENGLISH),
    "pairs": lambda *at: classify(*at, "mrpc", "glue/MRPC", ENGLISH),
    "Chinese pairs": lambda *at: classify(*at, "lcqmc", "lcqmc", CHINESE),
    "regression": regression,
    "embeddings": lambda *at: embeddings(*at, ENGLISH),
    "Chinese embeddings": lambda *at: embeddings(*at, CHINESE),
}


def assert_close(found, expected, place):
    """Compares nested lists of numbers and texts; found ones may be padded."""
    if isinstance(expected, list):
        for number, entry in enumerate(expected):
            assert_close(found[number], entry, f"{place}[{number}]")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE), place
    else:
        assert found == expected, place


@pytest.mark.parametrize("kind", CASES)
def test_an_export_answers_real_texts_as_the_program_does(kind, shared, tmp_path):
    case = CASES[kind](shared, tmp_path)
    found = serve(case.export, **case.columns)
    for name, rows in case.expected.items():
        assert len(found[name]) == len(rows) >= NUM_ROWS
        assert_close(found[name], rows, name)
