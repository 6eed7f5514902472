"""Folders saved by transformers give its answers to real lines, and so do converted ones.

Models are small and have random weights, so large that their answers differ. Their vocabularies are
those of the released models. `transformers_answers.py` saves the folders, and computes the answers
of transformers one line at a time, without padding. That all doors of the project have the same
answers is held by `test_folders_and_doors.py`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.export import convert
from tests import huggingface_folders as folders

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TOLERANCE = 1e-4
COUNT = 100  # lines
MAX_CHARACTERS = 400  # no line exceeds the positions
SHAPE = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_hidden_groups": 1,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 512,
    "hidden_dropout_prob": 0.1,
}
ENGLISH = ("30k-clean.model", "spiece.model", folders.ALBERT_CONFIG)
CHINESE = ("vocab_chinese.txt", "vocab.txt", folders.BERT_CONFIG)
SEQUENCE, WHOLE = "AlbertForSequenceClassification", "1GB"
FIRST_MASKED = 2  # position of the word to mask


def labels(*names: str, **more: Any) -> dict[str, Any]:
    """Returns the values of `config.json` for labels, and `more`."""
    ids = {name: number for number, name in enumerate(names)}
    return {"id2label": dict(enumerate(names)), "label2id": ids, **more}


def sentiments(data):
    return [[row.split("\t")[0]] for row in read(data / "glue" / "SST-2" / "dev.tsv")[1:]]


def paraphrases(data):
    return [row.split("\t")[3:5] for row in read(data / "glue" / "MRPC" / "dev.tsv")[1:]]


def questions_in_chinese(data):
    return [row.split("\t")[:2] for row in read(data / "lcqmc" / "dev.txt")]


def novel(data):
    return [[line] for line in read(data / "text" / "doyle_adventures.txt") if "Holmes" in line]


def foreign(data):
    lines = [line.strip() for line in read(data / "text" / "wikitext2_valid.txt")]
    has_accents = re.compile("[À-ÿ]").search
    return [[x] for x in sorted(filter(None, lines), key=lambda x: not has_accents(x))]


def words(data):
    return [line.split() for (line,) in novel(data)]


def masked(data):
    rows = [line.split() for (line,) in sentiments(data)]
    rows = [row for row in rows if len(row) > FIRST_MASKED]
    return [[" ".join([*row[:FIRST_MASKED], "[MASK]", *row[FIRST_MASKED + 1 :]])] for row in rows]


def squad(data):
    articles = json.loads((data / "squad" / "dev-v1.1-part.json").read_text(encoding="utf-8"))
    parts = [part for article in articles["data"] for part in article["paragraphs"]]
    return [
        [question["question"], part["context"]]
        for part in parts
        if len(part["context"]) < 2 * MAX_CHARACTERS  # one window
        for question in part["qas"][:3]
    ]


def read(path):
    return path.read_text(encoding="utf-8-sig").splitlines()


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of folder.

    Attributes:
        architecture: the class in transformers.
        rows: the inputs in the folder of real data.
        config: values of `config.json` beside `SHAPE`.
        vocabulary: its file, its name in folders, and the options of the tokenizer.
        options: further options of the tokenizer.
        more: further entries of a case of `transformers_answers.py`.
        task: name of the task if it has to be given.
    """

    architecture: str
    rows: Any
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    vocabulary: tuple[str, str, dict[str, Any]] = ENGLISH
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    task: str | None = None

    def case(self, folder: Path, shared: Path) -> dict[str, Any]:
        """Returns what `transformers_answers.py` answers for a folder."""
        rows = self.rows(shared / "data")[:COUNT]
        cuts = [[text[: 2 * MAX_CHARACTERS] for text in row] for row in rows]
        return {"folder": str(folder), "class": self.architecture, "rows": cuts}


NAMES, CHOICES = labels("bad", "fair", "good"), labels("不同", "相同")
MULTI_LABEL = {"problem_type": "multi_label_classification"}
VERSION_4 = {"keeps_version_4": True}
CASED = {"do_lower_case": False, "keep_accents": True}
KINDS = {
    "classifier": Kind(SEQUENCE, sentiments, NAMES),
    "groups": Kind(SEQUENCE, sentiments, NAMES | {"num_hidden_groups": 3, "inner_group_num": 2}),
    "E = H": Kind(SEQUENCE, sentiments, NAMES | {"embedding_size": 32, "hidden_act": "relu"}),
    "pairs": Kind(SEQUENCE, paraphrases, labels("different", "equal")),
    "multi-label": Kind(SEQUENCE, novel, labels("joy", "fear", "anger", "calm", **MULTI_LABEL)),
    "regression": Kind(SEQUENCE, paraphrases, {"num_labels": 1, "problem_type": "regression"}),
    "Chinese": Kind(SEQUENCE, questions_in_chinese, CHOICES, CHINESE),
    "cased": Kind(SEQUENCE, foreign, NAMES, options=CASED),
    "added tokens": Kind(
        SEQUENCE, novel, NAMES, more={"added": ["Holmes", "Sherlock Holmes", "Watson"]}
    ),
    "sharded": Kind(SEQUENCE, sentiments, NAMES, more={"shard_size": "20KB"}),
    "bfloat16": Kind(SEQUENCE, sentiments, NAMES, more={"dtype": "bfloat16"}),
    "tags": Kind("AlbertForTokenClassification", words, labels("O", "B-PER", "I-PER")),
    "questions": Kind("AlbertForQuestionAnswering", squad),
    "masked words": Kind("AlbertForMaskedLM", masked, task="fill_mask"),
    "pre-training": Kind("AlbertForPreTraining", masked, task="fill_mask"),
    "encoder": Kind("AlbertModel", sentiments),
    "classifier, version 4": Kind(SEQUENCE, sentiments, NAMES, more=VERSION_4),
    "Chinese, version 4": Kind(SEQUENCE, questions_in_chinese, CHOICES, CHINESE, more=VERSION_4),
}


@dataclasses.dataclass(frozen=True)
class Folder:
    """A folder of transformers, and its answers."""

    name: str
    path: Path
    rows: list[list[str]]
    converted: Path

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]

    def expected(self) -> list[dict[str, Any]]:
        return json.loads(Path(f"{self.path}-answers.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def written(transformers_python, shared, tmp_path_factory):
    """Kind → its folder, written by transformers."""
    root = tmp_path_factory.mktemp("theirs")
    cases = {}
    for name, kind in KINDS.items():
        file, saved_as, options = kind.vocabulary
        vocabulary = root / f"{saved_as} {'cased' if kind.options else ''}"
        vocabulary.mkdir(exist_ok=True)
        (vocabulary / saved_as).write_bytes((shared / "vocab" / file).read_bytes())
        folders.write_config(vocabulary, options | kind.options)
        cases[name] = kind.case(root / name, shared) | {
            "config": SHAPE | kind.config,
            "vocabulary": str(vocabulary),
            "added": [],
            "shard_size": WHOLE,
            "dtype": "float32",
            "keeps_version_4": False,
            **kind.more,
        }
    answer(transformers_python, root, list(cases.values()))
    for name in KINDS:  # the folders are what their names say
        assert (root / name / "model.safetensors.index.json").exists() == (name == "sharded")
        assert (root / name / "tokenizer.json").exists() != name.endswith("version 4")
    return {
        name: Folder(name, root / name, case["rows"], root / f"{name}-converted")
        for name, case in cases.items()
    }


def answer(python, root, cases):
    (root / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    code = Path(__file__).with_name("transformers_answers.py").read_text(encoding="utf-8")
    folders.run(python, code, root / "cases.json")


@pytest.fixture(scope="module")
def converted(written):
    """Kind → its folder, which is converted to TensorFlow's format and back."""
    for folder in written.values():
        source, back = str(folder.path), str(folder.converted)
        for input, output, form in (
            (source, f"{back}-tensorflow", "tensorflow"),
            (f"{back}-tensorflow", back, "huggingface"),
        ):
            settings = convert.Settings(input=input, output=output, output_format=form)
            list(convert.run(settings))
    return written


def found(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns results of predictors in the form of `transformers_answers.py`."""
    answers = []
    for row in results:
        best: list[Any] = []
        if "probabilities" in row:
            scores = list(row["probabilities"].values())
            best = row["labels"] if "labels" in row else [row["label"]]
        elif "tokens" in row:
            scores, best = row["scores"], row["labels"]
        elif "answers" in row:
            scores = [entry["score"] for entry in row["answers"]]
            best = [entry["answer"] for entry in row["answers"]]
        elif "masks" in row:
            scores = [entry["score"] for entry in row["masks"][0]]
            best = [entry["token"] for entry in row["masks"][0]]
        else:
            scores = row["embedding"] if "embedding" in row else [row["score"]]
        answers.append({"scores": scores, "words": best})
    return answers


def compare(folder: Folder, answers: list[dict[str, Any]]) -> float:
    """Returns the largest difference of scores, after checking that the words are equal."""
    expected = folder.expected()
    assert [row["words"] for row in answers] == [row["words"] for row in expected]
    assert len({str(np.round(row["scores"], 3)) for row in expected}) > len(expected) // 2
    return max(
        np.abs(np.subtract(ours["scores"], theirs["scores"])).max()
        for ours, theirs in zip(answers, expected, strict=True)
    )


def predict_with(path: str, folder: Folder) -> float:
    predictor = albert_tf.load_predictor(path, folder.kind.task)
    results = predictor(inputs_of(folder, is_tokens=folder.kind.rows is words))
    if isinstance(results, np.ndarray):
        results = [{"embedding": row} for row in results]
    return compare(folder, found(results))


def inputs_of(folder: Folder, is_tokens: bool) -> list[Any]:
    """Returns the rows as predictors or tokenizers take them: texts, pairs or lists of words."""
    if folder.kind.rows is words:
        return folder.rows if is_tokens else [" ".join(row) for row in folder.rows]
    return [tuple(row) if len(row) > 1 else row[0] for row in folder.rows]


def squash(x: Any, mask: Any = None) -> np.ndarray:
    """Softmax in float64; positions outside of the mask are 0."""
    x = np.asarray(x, np.float64)
    x = np.exp(x - x.max(-1, keepdims=True)) * (1 if mask is None else mask)
    return x / x.sum(-1, keepdims=True)


def raw_of(outputs: Any, folder: Folder, mask: np.ndarray) -> dict[str, np.ndarray]:
    """Returns outputs of a model in the form of `transformers_answers.py`."""
    if not isinstance(outputs, dict):
        kind = folder.kind.config.get("problem_type")
        if kind == "regression":
            return {"probabilities": np.reshape(outputs, (-1, 1))}
        if kind:
            return {"probabilities": tf.sigmoid(outputs).numpy()}
        x = squash(outputs)
        return {"probabilities": x * mask[:, :, None] if x.ndim == 3 else x}
    if "start_logits" in outputs:
        return {f"{n}s": squash(outputs[f"{n}_logits"], mask) for n in ("start", "end")}
    if "sequence_output" in outputs:
        x = outputs["sequence_output"] * mask[:, :, None]
        mean = np.sum(x, 1) / mask.sum(1, keepdims=True)
        return {"embeddings": mean, "pooled": outputs["pooled_output"].numpy()}
    raw = {"words": squash(outputs["masked_lm_logits"])[:, 0]}
    if "sentence_order_logits" in outputs:
        raw["order"] = squash(outputs["sentence_order_logits"])
    return raw


@pytest.mark.parametrize("name", KINDS)
def test_answers_of_predictors_are_those_of_transformers(written, name):
    assert predict_with(str(written[name].path), written[name]) <= TOLERANCE


@pytest.mark.parametrize("name", KINDS)
def test_outputs_of_models_are_those_of_transformers(written, name):
    folder, theirs = written[name], dict(np.load(f"{written[name].path}-raw.npz"))
    task = "pretraining" if folder.kind.task else None
    model, tokenizer = albert_tf.from_pretrained(str(folder.path), task)
    batch = tokenizer(inputs_of(folder, is_tokens=False))
    if task:
        places = np.argwhere(batch["input_ids"] == tokenizer.mask_id)[:, 1:]
        batch["masked_lm_positions"] = places
    ours = raw_of(model(batch), folder, batch["input_mask"])
    assert set(ours) == set(theirs)
    for key, value in theirs.items():
        np.testing.assert_allclose(ours[key], value, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", KINDS)
def test_converted_models_have_the_same_answers(converted, name):
    assert predict_with(f"{converted[name].converted}-tensorflow", converted[name]) <= TOLERANCE


def test_transformers_reads_what_is_converted_back(
    converted, transformers_python, shared, tmp_path
):
    cases = [folder.kind.case(folder.converted, shared) for folder in converted.values()]
    answer(transformers_python, tmp_path, cases)
    for name, folder in converted.items():
        path = Path(f"{folder.converted}-answers.json")
        answers = json.loads(path.read_text(encoding="utf-8"))
        assert compare(folder, answers) <= TOLERANCE, name
