"""Tests that a model gives the same answers through every door of the project, within rounding.

The doors are the programs' files, run_predict.py, the predictors, the exports and Hugging Face's
format. A model of each kind has dropout in its config, which must not act, and weights so large
that its answers differ much. Its answers are compared with those that NumPy computes in float64 for
one example at a time, without padding.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf import classification, race, squad, token_classification
from albert_tf.checkpoints.model_folder import ModelPath
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.checkpoints.weight_names import variable_name
from albert_tf.export import convert
from albert_tf.finetuning import registry, run_task
from albert_tf.finetuning.race.questions import parse_choice
from albert_tf.finetuning.splits import Split
from albert_tf.model.config import AlbertConfig
from albert_tf.model.tokenization.characters import find_words
from tests.checkpoints import test_tflite
from tests.checkpoints.checkpoint_samples import random_arrays
from tests.conftest import TINY_SHAPE, TOY_TEXT
from tests.numpy_albert import NumpyAlbert, softmax

pytestmark = [
    pytest.mark.ci,
    pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning"),
]

TOLERANCE = 1e-5
CONFIG = AlbertConfig(
    **TINY_SHAPE
    | {
        "num_hidden_layers": 2,
        "num_hidden_groups": 1,
        "max_position_embeddings": 61,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.3,
        "attention_probs_dropout_prob": 0.3,
    }
)
FORBIDDEN_SCORE = -1e30  # of a start or an end where there is none
LINES = TOY_TEXT.splitlines()
# Texts of many lengths.
TEXTS = [*LINES, LINES[1][:30], LINES[0][:12], LINES[5][:5]]
LABELS = ("no", "perhaps", "yes")
TAGS = ("B-LOC", "I-LOC", "O")
MOST_ANSWERS = 20  # n_best_size
Answers = dict[str, Any]  # name → strings or numbers


def random_weights(model: Any) -> dict[str, Any]:
    """Weights that are far from those of a new model."""
    weights = random_arrays({variable_name(v): tuple(v.shape) for v in model.variables}, seed=7)
    for name, x in weights.items():
        if name.endswith("/gamma"):
            weights[name] = 1 + 0.3 * x
        elif name.endswith(("/beta", "bias")):
            weights[name] = 0.3 * x
        elif name.endswith("output_weights"):
            weights[name] = x
        elif not name.endswith("embeddings"):
            weights[name] = 1.5 * x / CONFIG.hidden_size**0.5
    return weights


class Kind:
    """A kind of model, with the forms that its answers have at each door.

    Its methods return, besides, the settings of data that it writes (`write_data`), the outputs of
    its head for the last layer, [B, S, H], the pooled output and the batch (`head`), and the
    answers in outputs [N, …] of the task (`answers`), in the files of `--do_predict` (`predicted`),
    in the objects of run_predict.py and of predictors (`results`), and of a predictor (`ask`).
    """

    extra_doors: tuple[str, ...] = ()
    missing_doors: tuple[str, ...] = ()
    inputs = ("input_ids", "input_mask", "segment_ids")

    def outputs(self, task: Any, found: Any) -> dict[str, Any]:
        """Returns what the task collects from the outputs of its model."""
        return task.predictions(found)

    def evaluated(self, folder: Path) -> Answers:
        """Returns the answers in the files of `--do_eval`, other than metrics."""
        return {}

    def served(self, split: Split, outputs: Any) -> Answers:
        """Returns the answers that only an export has, in outputs [N, …] of its signature."""
        return {}


class Classifier(Kind):
    program, task = classification, "classification"
    settings: ClassVar = {"task_name": "tsv", "max_seq_length": 47, "tflite_quantization": "none"}
    rows: ClassVar = [
        {"text_a": text, "text_b": TEXTS[number - 4][: 4 * number + 3]}
        for number, text in enumerate(TEXTS)
    ]
    extra_doors = ("SavedModel, texts", "TFLite")

    def write_data(self, folder):
        for split in ("train", "dev", "test"):
            rows = [row | self.label(number) for number, row in enumerate(self.rows)]
            write_lines(folder / f"{split}.jsonl", rows)
        return {"data_dir": str(folder)}

    def label(self, number):
        return {"label": LABELS[number % 3]}

    def head(self, model, x, pooled, batch):
        return model.project(pooled, "")

    def answers(self, task, split, outputs):
        rows = outputs["probabilities"]
        return {"probabilities": rows, "labels": [LABELS[number] for number in rows.argmax(1)]}

    def served(self, split, outputs):
        return {"labels": [LABELS[number] for number in outputs["predictions"]]}

    def served_texts(self, outputs):
        return {"labels": [label.decode() for label in outputs["labels"].numpy()]}

    def predicted(self, folder):
        return {"probabilities": np.loadtxt(folder / "test_results.tsv")}

    def evaluated(self, folder):
        rows = read_columns(folder / "dev_predictions.tsv")[1:]
        return {
            "probabilities": np.float32([row[4:] for row in rows]),
            "labels": [r[3] for r in rows],
        }

    def results(self, rows):
        return {
            "probabilities": [[row["probabilities"][label] for label in LABELS] for row in rows],
            "labels": [row["label"] for row in rows],
        }

    def ask(self, predictor):
        return predictor([(row["text_a"], row["text_b"]) for row in self.rows])


class MultiLabel(Classifier):
    """Texts with any number of labels, which are joined for comparison."""

    task = "multi_label_classification"
    settings: ClassVar = Classifier.settings | {"is_multi_label": True}

    def label(self, number):
        return {"labels": [label for n, label in enumerate(LABELS) if number >> n & 1]}

    def answers(self, task, split, outputs):
        rows = np.asarray(outputs["probabilities"])
        # Also those whose logits are above 0 by a little.
        assert np.any((rows > 0.5) & (rows < 0.6))
        return {"probabilities": rows, "labels": joined(rows > 0.5)}

    def served(self, split, outputs):
        return {"labels": joined(outputs["predictions"])}

    def served_texts(self, outputs):
        rows = [[label.decode() for label in row] for row in outputs["labels"].numpy()]
        return {"labels": ["+".join(filter(None, row)) for row in rows]}

    def predicted(self, folder):
        rows = read_columns(folder / "submit_results.tsv")[1:]
        return super().predicted(folder) | {"labels": ["+".join(json.loads(r[1])) for r in rows]}

    def evaluated(self, folder):
        found = super().evaluated(folder)
        return found | {"labels": ["+".join(json.loads(label)) for label in found["labels"]]}

    def results(self, rows):
        return {
            "probabilities": [[row["probabilities"][label] for label in LABELS] for row in rows],
            "labels": ["+".join(row["labels"]) for row in rows],
        }


class Regression(Classifier):
    """A score for a pair of texts."""

    task = "regression"
    settings: ClassVar = Classifier.settings | {"is_regression": True}

    def label(self, number):
        return {"label": number % 5 - 1.5}

    def answers(self, task, split, outputs):
        return {"probabilities": outputs["probabilities"][:, 0]}

    def served(self, split, outputs):
        return {"probabilities": outputs["predictions"]}

    def served_texts(self, outputs):
        return {"probabilities": outputs["predictions"]}

    def evaluated(self, folder):
        rows = read_columns(folder / "dev_predictions.tsv")[1:]
        assert [row[3] for row in rows] == [row[4] for row in rows]
        return {"probabilities": np.float32([row[4] for row in rows])}

    def results(self, rows):
        return {"probabilities": [row["score"] for row in rows]}


class Tagger(Kind):
    program, task = token_classification, "token_classification"
    settings: ClassVar = {"max_seq_length": 23}
    rows: ClassVar = [{"tokens": [word for word, _ in find_words(text)]} for text in TEXTS]

    def write_data(self, folder):
        lines = []
        for row in self.rows:
            lines += [f"{word} {TAGS[len(word) % 3]}" for word in row["tokens"]] + [""]
        for split in ("train", "dev", "test"):
            (folder / f"{split}.txt").write_text("\n".join(lines))
        return {"data_dir": str(folder)}

    def head(self, model, x, pooled, batch):
        return model.project(x, "")

    def outputs(self, task, found):
        return {"probabilities": tf.nn.softmax(found), **task.predictions(found)}

    def answers(self, task, split, outputs):
        rows = split.features.at_tokens(outputs["probabilities"])
        labels = [TAGS[number] for number in rows.argmax(1)]
        return {"probabilities": rows, "scores": rows.max(1), "labels": labels}

    def served(self, split, outputs):
        rows = split.features.at_tokens(outputs["predictions"].numpy())
        return {"labels": [TAGS[number] for number in rows]}

    def predicted(self, folder):
        return {"labels": [row[-1] for row in read_columns(folder / "test_predictions.tsv")]}

    def evaluated(self, folder):
        return {"labels": [row[-1] for row in read_columns(folder / "dev_predictions.tsv")]}

    def results(self, rows):
        return {name: [x for row in rows for x in row[name]] for name in ("labels", "scores")}

    def ask(self, predictor):
        return predictor([row["tokens"] for row in self.rows])


class Choice(Kind):
    program, task = race, "multiple_choice"
    settings: ClassVar = {"task_name": "choice", "max_seq_length": 47, "max_qa_length": 19}
    rows: ClassVar = [
        {
            "passage": " ".join(LINES[number:]) if number % 2 else line[: 9 * number + 5],
            "question": "Where is _ now?" if number % 3 else "The boat is",
            "options": ["in the sea", "a river", "wide", "old"][: 2 + number % 3],
        }
        for number, line in enumerate(LINES)
    ]

    def write_data(self, folder):
        for split in ("train", "dev", "test"):
            write_lines(
                folder / f"{split}.jsonl",
                [row | {"label": n % 2} for n, row in enumerate(self.rows)],
            )
        return {"data_dir": str(folder)}

    def head(self, model, x, pooled, batch):
        return model.project(pooled, "").T  # [1, C]

    def answers(self, task, split, outputs):
        rows = outputs["probabilities"]
        return {"probabilities": rows, "predictions": rows.argmax(1).astype(str)}

    def served(self, split, outputs):
        return {"predictions": outputs["predictions"].numpy().astype(str)}

    def predicted(self, folder):
        return self.results(read_lines(folder / "choice_predictions.jsonl"))

    def results(self, rows):
        lists = [row["probabilities"] for row in rows]
        return {
            "probabilities": [row + [0.0] * (max(map(len, lists)) - len(row)) for row in lists],
            "predictions": [str(row["prediction"]) for row in rows],
        }

    def ask(self, predictor):
        return predictor.predict([parse_choice(row) for row in self.rows])


class Spans(Kind):
    """Questions on contexts of several windows."""

    program, task = squad, "spans"
    settings: ClassVar = {
        "max_seq_length": 32,
        "max_query_length": 9,
        "doc_stride": 7,
        "max_answer_length": 5,
        "n_best_size": MOST_ANSWERS,
        "num_workers": 1,
        "num_train_epochs": 1.0,
        "version_2_with_negative": False,
        "tflite_quantization": "none",
    }
    rows: ClassVar = [
        {"question": question, "context": context}
        for question, context in [
            ("What waits?", LINES[1]),
            ("What carries the rain?", LINES[0]),
            ("Who?", " ".join(LINES[2:5])),
            ("What had changed?", LINES[5]),
            ("Where is it?", LINES[4][:20]),
        ]
    ]
    extra_doors = ("TFLite",)

    def write_data(self, folder):
        paragraphs = []
        for number, row in enumerate(self.rows):
            answer = {"text": row["context"], "answer_start": 0}
            asked = {"id": f"q{number}", "question": row["question"], "answers": [answer]}
            paragraphs.append({"context": row["context"], "qas": [asked]})
        path = folder / "questions.json"
        path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
        return {"train_file": str(path), "predict_file": str(path)}

    def head(self, model, x, pooled, batch):
        start, end = np.moveaxis(model.project(x, "cls/squad/"), -1, 0)
        return {"start_logits": start, "end_logits": end}

    def answers(self, task, split, outputs):
        names = {"start_log_prob": "start_logits", "end_log_prob": "end_logits"}
        outputs = {names.get(name, name): value for name, value in outputs.items()}
        return self._of_lists(task.answer(split, outputs).nbest)

    def _of_lists(self, nbest):
        entries = [(name, entry) for name, entries in nbest.items() for entry in entries]
        return {
            "texts": [f"{name} {entry['text']}" for name, entry in entries],
            "probabilities": [entry["probability"] for _, entry in entries],
            "logits": [[entry["start_log_prob"], entry["end_log_prob"]] for _, entry in entries],
        }

    def predicted(self, folder):
        return self._of_lists(json.loads((folder / "nbest_predictions.json").read_text()))

    def results(self, rows):
        entries = [(n, entry) for n, row in enumerate(rows) for entry in row["answers"]]
        return {
            "texts": [f"q{number} {entry['answer']}" for number, entry in entries],
            "probabilities": [entry["score"] for _, entry in entries],
        }

    def ask(self, predictor):
        return predictor.predict([(row["question"], row["context"]) for row in self.rows])


class AnswerableSpans(Spans):
    """Questions of which some have no answer: SQuAD 2.0."""

    task = "answerable_spans"
    settings: ClassVar = Spans.settings | {
        "version_2_with_negative": True,
        "start_n_top": 4,
        "end_n_top": 3,
    }
    inputs = (*Spans.inputs, "p_mask")
    missing_doors = ("Hugging Face's format",)  # which has no such head

    def write_data(self, folder):
        given = super().write_data(folder)
        path = folder / "questions.json"
        data = json.loads(path.read_text())
        for number, paragraph in enumerate(data["data"][0]["paragraphs"]):
            paragraph["qas"][0]["is_impossible"] = number % 2 == 1
            if number % 2:
                paragraph["qas"][0]["answers"] = []
        path.write_text(json.dumps(data))
        return given

    def head(self, model, x, pooled, batch):
        return answerable_spans(model, x, batch["p_mask"], 4, 3)

    def answers(self, task, split, outputs):
        answers = task.answer(split, outputs)
        return self._of_lists(answers.nbest) | {"odds": list(answers.null_odds.values())}

    def predicted(self, folder):
        odds = json.loads((folder / "null_odds.json").read_text())
        return super().predicted(folder) | {"odds": list(odds.values())}

    def results(self, rows):
        return super().results(rows) | {"odds": [row["null_odds"] for row in rows]}


def forbid(logits, p_mask):
    return np.where(p_mask, FORBIDDEN_SCORE, logits[..., 0])


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def answerable_spans(model, x, p_mask, num_starts, num_ends):
    """Returns the outputs of the head of SQuAD 2.0 for x [1, S, H], with the beam of spans."""
    start_logits = forbid(model.dense(x, "start_logits/dense"), p_mask)  # [1, S]
    starts = np.argsort(-start_logits, kind="stable")[:, :num_starts]  # [1, N]
    start = np.broadcast_to(x[0, starts[0]][:, None], (num_starts, *x.shape[1:]))  # [N, S, H]
    pairs = np.concatenate((np.broadcast_to(x, start.shape), start), -1)  # [N, S, 2·H]
    hidden = model.norm(np.tanh(model.dense(pairs, "end_logits/dense_0")), "end_logits/LayerNorm")
    end_logits = forbid(model.dense(hidden, "end_logits/dense_1"), p_mask)  # [N, S]
    ends = np.argsort(-end_logits, kind="stable")[:, :num_ends]  # [N, M]
    expected = softmax(start_logits) @ x[0]  # [1, H]
    both = np.concatenate((expected, x[:, 0]), -1)  # [1, 2·H]
    answerable = np.tanh(model.dense(both, "answer_class/dense_0"))  # [1, H]
    return {
        "start_top_log_probs": np.take_along_axis(log_softmax(start_logits), starts, 1),
        "start_top_index": starts,
        "end_top_log_probs": np.take_along_axis(log_softmax(end_logits), ends, 1).reshape(1, -1),
        "end_top_index": ends.reshape(1, -1),
        "cls_logits": (answerable @ model.weights["answer_class/dense_1/kernel"])[:, 0],
    }


KINDS = {
    kind.__name__: kind
    for kind in (Classifier, MultiLabel, Regression, Tagger, Choice, Spans, AnswerableSpans)
}


def joined(rows):
    """Returns the names of the labels in each row of zeros and ones."""
    return ["+".join(np.array(LABELS)[np.asarray(row, bool)]) for row in rows]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_columns(path):
    return [line.split("\t") for line in path.read_text().splitlines() if line]


@dataclasses.dataclass
class Made:
    """A model that a program trained for a step at a learning rate of 0, and its answers."""

    kind: Kind
    settings: Any
    folder: Path  # of the run
    task: Any
    split: Split
    expected: Answers

    @property
    def export(self) -> Path:
        """The numbered folder."""
        (path,) = (path for path in (self.folder / "export").glob("**/[0-9]*") if path.is_dir())
        return path

    @functools.cached_property
    def signatures(self) -> Any:
        """The signatures of the SavedModel."""
        self._served = tf.saved_model.load(str(self.export))  # which has the weights
        return self._served.signatures

    @functools.cached_property
    def hugging_face(self) -> Path:
        """The model's folder in Hugging Face's format."""
        target = self.folder / "hugging_face"
        list(convert.run(convert.Settings(str(self.folder), str(target), "huggingface")))
        return target

    def batch(self, length: int | None = None) -> dict[str, Any]:
        """Returns all examples as tensors that are padded to a length."""
        features = self.split.features
        length = length or int(features.lengths.max())
        batch = features.batch(np.arange(len(features)), length)
        return {name: batch[name] for name in self.kind.inputs}

    def answers(self, outputs: Any) -> Answers:
        """Returns the answers in outputs [N, …] of a model."""
        arrays = {name: np.asarray(value) for name, value in outputs.items()}
        return self.kind.answers(self.task, self.split, arrays)


@pytest.fixture(scope="module", name="make")
def make_once(tmp_path_factory, toy_spm_model):
    """A function that returns the `Made` of a kind."""

    @functools.cache
    def make(name):
        return train_and_export(KINDS[name](), tmp_path_factory.mktemp(name), toy_spm_model)

    return make


def train_and_export(kind, folder, vocabulary):
    """Returns the `Made` of a kind of model, in a folder."""
    start, data = folder / "start", folder / "data"
    start.mkdir()
    data.mkdir()
    CONFIG.to_json_file(str(start / "albert_config.json"))
    settings = kind.program.Settings(
        **{
            "albert_config_file": str(start / "albert_config.json"),
            "init_checkpoint": str(start / "model.ckpt-best"),
            "spm_model_file": vocabulary,
            "output_dir": str(folder / "run"),
            "export_dir": str(folder / "run" / "export"),
            "precision": "float32",
            "learning_rate": 0.0,
            "train_step": 1,
            "train_batch_size": 5,
            "eval_batch_size": 4,
            "predict_batch_size": 3,
            "do_train": True,
            "do_eval": True,
            "do_predict": True,
        }
        | kind.settings
        | kind.write_data(data)
    )
    spec = registry.get(kind.task)
    new = dataclasses.replace(settings, init_checkpoint=None)  # which is written below
    place, config_file = ModelPath(str(start)), settings.albert_config_file
    source = ModelSource(place, None, config_file, spm_model_file=vocabulary)
    task = spec.task.open(new, source)
    weights = random_weights(task.build_model())
    save_checkpoint(settings.init_checkpoint, weights)
    examples = task.read("dev")
    split = Split("dev", examples, task.make_features(examples, "dev"))
    outputs = compute_in_numpy(kind, task, weights, split.features)
    expected = kind.answers(task, split, outputs) | task.measure(
        split, outputs, settings.eval_batch_size
    )
    spread = np.ptp(expected["probabilities"], axis=0)
    assert spread.min() > 0.1, spread
    kind.program.run(settings)
    return Made(kind, settings, folder / "run", task, split, expected)


def compute_in_numpy(kind, task, weights, features):
    """Returns name → outputs [N, …], float64, computed for each example alone."""
    model, rows = NumpyAlbert(CONFIG, weights), []
    for number in range(len(features)):
        length = int(features.lengths[number])
        batch = features.batch(np.array([number]), length)
        inputs = [batch[name].reshape(-1, length) for name in kind.inputs]  # [1, S], or [C, S]
        encoded = model.encode(*inputs[:3])
        rows.append(kind.outputs(task, kind.head(model, *encoded, batch)))
    fills = {**task.measured_outputs, **task.outputs}
    return {
        name: stack([np.asarray(row[name])[0] for row in rows], fills.get(name, 0.0))
        for name in rows[0]
    }


def stack(rows, fill):
    """Stacks arrays whose first axes differ in size, or numbers."""
    if not rows[0].ndim:
        return np.stack(rows)
    size = max(map(len, rows))
    every = [[(0, size - len(row))] + [(0, 0)] * (row.ndim - 1) for row in rows]
    return np.stack(
        [np.pad(row, pads, constant_values=fill) for row, pads in zip(rows, every, strict=True)]
    )


# The doors


def evaluated(made, request):
    return evaluated_in(made, made.folder)


def evaluated_in(made, folder):
    text = (folder / "eval_results.txt").read_text()
    metrics = {name: float(value) for name, value in re.findall(r"^(\w+) = (\S+)$", text, re.M)}
    known = {
        name: metrics[name] for name in made.expected if isinstance(made.expected[name], float)
    }
    return known | made.kind.evaluated(folder)


def run_by_name(made, request):
    """Also if only predictions are asked for: questions with answers are evaluated all the same."""
    folder = made.folder.parent / "by_name"
    asked = {"output_dir": str(folder), "export_dir": None}
    if hasattr(made.settings, "tflite_quantization"):  # which is refused without an export
        asked["tflite_quantization"] = type(made.settings).tflite_quantization  # the default
    if "spans" in made.kind.task:
        asked["do_eval"] = False
    run_task(made.kind.task, dataclasses.replace(made.settings, **asked))
    return evaluated_in(made, folder) | made.kind.predicted(folder)


def predicted(made, request):
    return made.kind.predicted(made.folder)


def predicted_from(find_folder):
    def run(made, request):
        path = made.folder / "rows.jsonl"
        write_lines(path, made.kind.rows)
        flags = [f"--model_dir={find_folder(made)}", f"--input_file={path}"]
        flags += ["--precision=float32", "--engine=tensorflow", f"--top_k={MOST_ANSWERS}"]
        return made.kind.results(request.getfixturevalue("predict")(*flags))

    return run


def predictor_with(engine):
    def run(made, request):
        if engine != "tensorflow":
            pytest.importorskip(engine, reason=f"{engine} is an extra")
        predictor = albert_tf.load_predictor(str(made.folder), engine=engine, top_k=MOST_ANSWERS)
        return made.kind.results(made.kind.ask(predictor))

    return run


def served_texts(made, request):
    columns = {name: [row[name] for row in made.kind.rows] for name in ("text_a", "text_b")}
    outputs = made.signatures["texts"](**{name: tf.constant(x) for name, x in columns.items()})
    return made.answers(outputs) | made.kind.served_texts(outputs)


def served_tensors(made, request):
    signature = made.signatures.get("tensors", made.signatures["serving_default"])
    batch = made.batch()
    outputs = signature(**{name: tf.constant(value) for name, value in batch.items()})
    return made.answers(outputs) | made.kind.served(made.split, outputs)


def run_tflite(made, request):
    content = (made.folder / "export" / "albert_model.tflite").read_bytes()
    length = made.kind.settings["max_seq_length"]
    return made.answers(test_tflite.predict(content, made.batch(length)))


def converted(made, request):
    """Shows that the converted weights are complete and read back, not what others compute."""
    model, _ = albert_tf.from_pretrained(str(made.hugging_face), made.kind.task)
    return made.answers(made.kind.outputs(made.task, model(made.batch())))


DOORS = {
    "--do_eval": evaluated,
    "--do_predict": predicted,
    "run_task": run_by_name,
    "run_predict.py, run": predicted_from(lambda made: made.folder),
    "run_predict.py, export": predicted_from(lambda made: made.export),
    "load_predictor, tensorflow": predictor_with("tensorflow"),
    "load_predictor, openvino": predictor_with("openvino"),
    "SavedModel, texts": served_texts,
    "SavedModel, tensors": served_tensors,
    "TFLite": run_tflite,
    "Hugging Face's format": converted,
}
OPTIONAL = {"SavedModel, texts", "TFLite"}


def difference(found, expected):
    """Returns the largest difference of numbers, or the fraction of strings that differ."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return np.inf
    if expected.dtype.kind == "U":
        return float(np.mean(found != expected))
    return float(np.abs(found - expected).max())


def cells():
    for name, kind in KINDS.items():
        for door in DOORS:
            is_there = door not in OPTIONAL or door in kind.extra_doors
            if is_there and door not in kind.missing_doors:
                yield pytest.param(name, door, id=f"{name}-{door}")


@pytest.mark.parametrize(("kind", "door"), list(cells()))
def test_a_door_gives_the_answers_of_numpy(kind, door, make, request):
    made = make(kind)
    found = DOORS[door](made, request)
    assert found
    for name, value in found.items():
        assert difference(value, made.expected[name]) <= TOLERANCE, name
