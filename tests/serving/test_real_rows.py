"""Tests exports of every kind in a fresh process with real rows, from raw strings.

A small model is trained, exported and loaded without this library. For 500 rows, its answers are
compared with the files that the program wrote, and its numbers with those of the predictor, also
for empty, very long and invalid texts. Regression and tags have no reference data, so their labels
are computed from real text.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import albert_tf
from albert_tf import classification, race, squad, token_classification
from albert_tf.classification.reading import read_examples
from albert_tf.classification.tasks import find_task
from albert_tf.config import AlbertConfig
from albert_tf.race.reading import read_race
from albert_tf.squad.reading import read_squad
from albert_tf.tokenization import find_words
from tests.serving.fresh_process import serve

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NUM_ROWS = 500
TOLERANCE = 1e-5
ODD = ["", "😀 👩‍👩‍👧 e\u0301", "the river " * 1000, "\ufffd\ufffdriver and the boat"]
INVALID = b"\xff\xferiver and the boat".decode("utf-8", "surrogateescape")
RAW_ODD = [*ODD[:-1], INVALID]  # the same texts in bytes
# A context is skipped if under 80 % of its characters are in its pieces, which the program and the
# export count differently: the text of emoji above lies between.
ODD_CONTEXTS = [
    ODD[0],
    "The boat 😀 waits at the 👩‍👩‍👧 old landing of the town, e\u0301",
    *ODD[2:],
]
RAW_CONTEXTS = [*ODD_CONTEXTS[:-1], INVALID]
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
        signature: the signature to call.
        columns: input name → rows.
        expected: output name → rows; of each served row, as much as is expected is compared.
    """

    export: Any
    signature: str
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

    def export(self, below=""):
        (folder,) = (self.folder / "export" / below).iterdir()
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
    return Case(place.export(), "texts", {"text_a": first, "text_b": second}, expected)


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


def spans(shared, folder, source, vocabulary):
    place = Workplace(shared, folder, vocabulary)
    content = json.loads((place.data / source).read_text("utf-8-sig"))
    path = folder / "questions.json"
    path.write_text(json.dumps(first_questions(content, NUM_ROWS), ensure_ascii=False), "utf-8")
    settings = place.always(
        train_file=str(path),
        predict_file=str(path),
        max_seq_length=128,
        doc_stride=48,
        max_query_length=32,
        num_workers=1,
        num_train_epochs=1.0,
        version_2_with_negative="v2" in source,
    )
    del settings["train_step"]
    squad.run(squad.Settings(**settings))
    examples = read_squad(str(path), False).examples
    assert len(examples) == NUM_ROWS
    asked = [(example.question, example.context) for example in examples]
    odd = [("Who waits?", text) for text in ODD_CONTEXTS]
    results = albert_tf.load_predictor(place.output, top_k=20).answer([*asked, *odd])
    with open(f"{place.output}/predictions.json", encoding="utf-8") as stream:
        written = json.load(stream)
    answers = [result["answer"] for result in results]
    assert [written[example.qas_id] for example in examples] == answers[:NUM_ROWS]
    columns = {
        "question": [question for question, _ in [*asked, *odd]],
        "context": [context for _, context in asked] + RAW_CONTEXTS,
    }
    names = ["answer", "score", "begin", "end", *(["null_odds"] if "v2" in source else [])]
    expected = {name: [result.get(name) for result in results] for name in names}
    return Case(place.export("saved_model"), "texts", columns, expected)


def first_questions(content, count):
    """The first questions of a file in SQuAD's format."""
    articles, missing = [], count
    for article in content["data"]:
        paragraphs = []
        for paragraph in article["paragraphs"]:
            questions = paragraph["qas"][:missing]
            missing -= len(questions)
            paragraphs.append(paragraph | {"qas": questions})
            if not missing:
                return content | {"data": [*articles, article | {"paragraphs": paragraphs}]}
        articles.append(article | {"paragraphs": paragraphs})
    raise ValueError(f"{missing} questions are missing")


def choices(shared, folder):
    place = Workplace(shared, folder, ENGLISH)
    for split, level, source, count in (
        ("train", "middle", "train", 10),
        ("test", "middle", "dev", None),
        ("test", "high", "dev", None),
        ("test", "middle", "train", None),
    ):
        target = folder / "RACE" / split / level
        target.mkdir(parents=True, exist_ok=True)
        paths = sorted((place.data / "race" / "RACE" / source / level).iterdir())
        for path in paths[:count]:
            (target / f"{source}-{path.name}").symlink_to(path)
    settings = place.always(max_seq_length=128, max_qa_length=48, train_batch_size=4)
    settings |= {"data_dir": str(folder / "RACE"), "do_predict": False, "train_step": 5}
    race.run(race.Settings(task_name="race", **settings))
    questions = read_race(str(folder / "RACE"), "test").examples[:NUM_ROWS]
    odd = [dataclasses.replace(questions[0], passage=text) for text in ODD]
    results = albert_tf.load_predictor(place.output).choose([*questions, *odd])
    columns = {
        "context": [question.passage for question in questions] + RAW_ODD,
        "question": [question.question for question in [*questions, *odd]],
        "choices": [list(question.options) for question in [*questions, *odd]],
    }
    # After a few steps, two options may be equally likely, so their order is not compared.
    expected = {"probabilities": [result["probabilities"] for result in results]}
    return Case(place.export(), "texts", columns, expected)


def tags(shared, folder, source, vocabulary):
    """The answers to the questions about a text, as spans of its words."""
    place = Workplace(shared, folder, vocabulary)
    texts, sentences = [], []
    for text, answers in contexts(place.data / source):
        words = find_words(text)
        labels = ["O"] * len(words)
        for begin, end in answers:
            inside = [place for place, (_, first) in enumerate(words) if begin <= first < end]
            for number, word in enumerate(inside):
                labels[word] = "I-ANSWER" if number else "B-ANSWER"
        texts.append(text)
        sentences.append("".join(f"{w}\t{t}\n" for (w, _), t in zip(words, labels, strict=True)))
    assert len(texts) >= NUM_ROWS
    for name, rows in (("train", sentences), ("test", sentences[:NUM_ROWS])):
        (folder / f"{name}.txt").write_text("\n".join(rows), encoding="utf-8")
    settings = place.always(max_seq_length=64, data_dir=str(folder))
    token_classification.run(token_classification.Settings(**settings))
    results = albert_tf.load_predictor(place.output)([*texts[:NUM_ROWS], *ODD])
    with open(f"{place.output}/test_predictions.tsv", encoding="utf-8") as stream:
        blocks = stream.read().rstrip("\n").split("\n\n")
    written = [[line.split("\t")[2] for line in block.split("\n")] for block in blocks]
    assert written == [result["labels"] for result in results[:NUM_ROWS]]
    columns = {"texts": texts[:NUM_ROWS] + RAW_ODD}
    expected = {
        name: [result[ours] for result in results]
        for name, ours in (("words", "tokens"), ("labels", "labels"), ("scores", "scores"))
    }
    return Case(place.export(), "texts", columns, expected)


def contexts(path):
    """Yields sentences with the places [begin, end) of answers, from a file in SQuAD's format."""
    for article in json.loads(path.read_text("utf-8-sig"))["data"]:
        for paragraph in article["paragraphs"]:
            answers = [a for question in paragraph["qas"] for a in question["answers"]]
            text, begin = paragraph["context"], 0
            for sentence in text.replace("。", "。\0").replace(". ", ". \0").split("\0"):
                if find_words(sentence):
                    places = {
                        (found - begin, found - begin + len(answer["text"]))
                        for answer in answers
                        if (found := text.find(answer["text"])) >= begin
                    }
                    yield sentence, sorted(places)
                begin += len(sentence)


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
    return Case(export, "texts", columns, expected)


def masks(shared, folder, vocabulary):
    export, texts = pretrained(shared, folder, vocabulary)

    def mask(text):
        middle = len(text) // 2
        return f"{text[:middle]}[MASK]{text[middle + 1 :]}"

    results = albert_tf.load_predictor(str(export), "fill_mask")([*map(mask, [*texts, *ODD])])
    expected = {
        "filled": [result["text"] for result in results],
        "scores": [[[w["score"] for w in found] for found in r["masks"]] for r in results],
        "tokens": [[[w["token"] for w in found] for found in r["masks"]] for r in results],
    }
    return Case(export, "fill_mask", {"texts": [*map(mask, [*texts, *RAW_ODD])]}, expected)


CASES: dict[str, Callable[..., Case]] = {
    "one sentence": lambda *at: classify(*at, "sst-2", "glue/SST-2", ENGLISH),
    "pairs": lambda *at: classify(*at, "mrpc", "glue/MRPC", ENGLISH),
    "Chinese pairs": lambda *at: classify(*at, "lcqmc", "lcqmc", CHINESE),
    "regression": regression,
    "spans": lambda *at: spans(*at, "squad/dev-v1.1-part.json", ENGLISH),
    "spans or none": lambda *at: spans(*at, "squad/dev-v2.0-part.json", ENGLISH),
    "Chinese spans": lambda *at: spans(*at, "cmrc2018/cmrc2018_trial.json", CHINESE),
    "choices": choices,
    "tags": lambda *at: tags(*at, "squad/dev-v1.1-part.json", ENGLISH),
    "Chinese tags": lambda *at: tags(*at, "cmrc2018/cmrc2018_trial.json", CHINESE),
    "embeddings": lambda *at: embeddings(*at, ENGLISH),
    "Chinese embeddings": lambda *at: embeddings(*at, CHINESE),
    "masks": lambda *at: masks(*at, ENGLISH),
    "Chinese masks": lambda *at: masks(*at, CHINESE),
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
    found = serve(case.export, case.signature, **case.columns)
    for name, rows in case.expected.items():
        assert len(found[name]) == len(rows) >= NUM_ROWS
        assert_close(found[name], rows, name)
