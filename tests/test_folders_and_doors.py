"""Every kind of folder gives, through every door that opens it, the answers of one reference.

A program trains a model of each kind for a step that changes nothing, and exports it; its folder is
saved again and converted to the other formats. The models have dropout in their config, which must
not act, and weights so large that their answers differ much. The reference is what NumPy computes
in float64 for one example at a time, without padding. Folders that transformers has written are
compared with its answers, in `test_transformers_folders.py`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shutil
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
from albert_tf.finetuning import registry, run_task
from albert_tf.finetuning.splits import Split
from albert_tf.inference import convert
from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertForPretraining
from albert_tf.model.poolings import MEAN, MEAN_LAST_4, POOLED, POOLINGS
from albert_tf.model.tokenization import FullTokenizer
from albert_tf.model.tokenization.characters import find_words
from tests.answers_without import answer_without
from tests.checkpoints.checkpoint_samples import random_arrays
from tests.conftest import TINY_SHAPE, TOY_TEXT
from tests.numpy_albert import NumpyAlbert, RecordingAlbert, softmax

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
FIRST_POSITIONS = np.int32([[1, 2]])  # of tokens that are predicted as masked words
# Only texts are classified, and embedded, by a signature that takes strings.
WITHOUT_TEXTS = frozenset({"texts"})
# Other folders than those of a run do not say how its windows were cut.
WITHOUT_RECORD = frozenset({("Keras", "load_predictor"), ("Hugging Face", "load_predictor")})
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
    and in the objects of `albert predict` and of predictors (`results`). `columns` are the
    arguments of a predictor.
    """

    missing: frozenset[tuple[str, str] | str] = frozenset()  # folders, doors, and pairs of these
    inputs = ("input_ids", "input_mask", "segment_ids")
    is_padded = False  # whether padding counts
    exports = True  # whether the program exports the model; `albert convert` does otherwise
    settings: ClassVar[dict[str, Any]]
    rows: ClassVar[list[dict[str, Any]]]
    asked: tuple[str, ...] = ()  # the keys of rows that a predictor takes

    @property
    def columns(self) -> list[list[Any]]:
        return [[row[name] for row in self.rows] for name in self.asked]

    def ask(self, load: Any) -> Answers:
        """Returns the answers of a predictor, given what loads one with options."""
        return self.results(load()(*self.columns))

    def make(self, folder: Path, vocabulary: str) -> Made:
        """Returns the `Made` of a program's run."""
        return train_and_export(self, folder, vocabulary)

    def program_flags(self, folder: Path) -> list[str]:
        """Returns further flags of `albert predict`."""
        return []

    def outputs(self, task: Any, found: Any) -> dict[str, Any]:
        """Returns what the task collects from the outputs of its model."""
        return task.predictions(found)

    def evaluated(self, folder: Path) -> Answers:
        """Returns the answers in the files of `--do_eval`, other than metrics."""
        return {}

    def served(self, split: Split, outputs: Any) -> Answers:
        """Returns the answers that only an export has, in outputs [N, …] of its signature."""
        return {}

    def served_texts(self, outputs: Any) -> Answers:
        """Returns those of the signature that takes texts."""
        return {}


class Classifier(Kind):
    program, task = classification, "classification"
    settings: ClassVar = {"task_name": "tsv", "max_seq_length": 47, "tflite_quantization": "none"}
    rows: ClassVar = [
        {"text_a": text, "text_b": TEXTS[number - 4][: 4 * number + 3]}
        for number, text in enumerate(TEXTS)
    ]
    asked = ("text_a", "text_b")

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


class MeanClassifier(Classifier):
    """The mean of the last layer is classified, in which the padding counts: no row is full."""

    settings: ClassVar = {"task_name": "tsv", "max_seq_length": 47, "use_pooled_output": False}
    rows: ClassVar = [{name: text[:24] for name, text in row.items()} for row in Classifier.rows]
    missing = frozenset({"Hugging Face", "run_task"})  # which has no such head, and takes long
    is_padded = True
    exports = False

    def head(self, model, x, pooled, batch):
        return model.project(x.mean(axis=1), "")


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
    missing = WITHOUT_TEXTS | {"TFLite"}
    asked = ("tokens",)
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
        rows = split.features.at_tokens(np.asarray(outputs["predictions"]))
        return {"labels": [TAGS[number] for number in rows]}

    def predicted(self, folder):
        return {"labels": [row[-1] for row in read_columns(folder / "test_predictions.tsv")]}

    def evaluated(self, folder):
        return {"labels": [row[-1] for row in read_columns(folder / "dev_predictions.tsv")]}

    def results(self, rows):
        return {name: [x for row in rows for x in row[name]] for name in ("labels", "scores")}


class Choice(Kind):
    program, task = race, "multiple_choice"
    settings: ClassVar = {"task_name": "choice", "max_seq_length": 47, "max_qa_length": 19}
    missing = WITHOUT_TEXTS | WITHOUT_RECORD | {"TFLite"}
    asked = ("passage", "question", "options")
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
        return {"predictions": np.asarray(outputs["predictions"]).astype(str)}

    def predicted(self, folder):
        return self.results(read_lines(folder / "choice_predictions.jsonl"))

    def results(self, rows):
        lists = [row["probabilities"] for row in rows]
        return {
            "probabilities": [row + [0.0] * (max(map(len, lists)) - len(row)) for row in lists],
            "predictions": [str(row["prediction"]) for row in rows],
        }


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
    missing = WITHOUT_TEXTS | WITHOUT_RECORD
    asked = ("question", "context")

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


class AnswerableSpans(Spans):
    """Questions of which some have no answer: SQuAD 2.0."""

    task = "answerable_spans"
    settings: ClassVar = Spans.settings | {
        "version_2_with_negative": True,
        "start_n_top": 4,
        "end_n_top": 3,
    }
    inputs = (*Spans.inputs, "p_mask")
    missing = Spans.missing | {"Hugging Face"}  # which has no such head

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


class Encoder(Kind):
    """A model that was only pre-trained: embeddings, and the logits of pre-training."""

    task = "embeddings"
    settings: ClassVar = {"max_seq_length": CONFIG.max_position_embeddings}
    rows: ClassVar = [{"text": text} for text in TEXTS]
    asked = ("text",)
    exports = False

    def make(self, folder, vocabulary):
        """Returns the `Made` of a folder like those of releases."""
        tokenizer = FullTokenizer(spm_model_file=vocabulary)
        config = dataclasses.replace(CONFIG, num_hidden_layers=5)  # one more than are pooled
        weights = random_weights(AlbertForPretraining(config))
        run = folder / "run"
        save_checkpoint(str(run / "model.ckpt-best"), weights)
        config.to_json_file(str(run / "albert_config.json"))
        shutil.copy(vocabulary, run)
        batches = [tokenizer([text]) for text in TEXTS]
        rows = [self._compute(RecordingAlbert(config, weights), batch) for batch in batches]
        expected = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        padded = tokenizer(TEXTS, padding="max_length", max_length=config.max_position_embeddings)
        return Made(self, None, run, None, None, expected, padded)

    def _compute(self, model, batch):
        """Returns name → numbers [1, …] for a row."""
        inputs = [batch[name] for name in self.inputs]
        x, pooled = model.encode(*inputs)
        layers = [y for _, y in model.transitions]
        words, order = model(*inputs, positions=FIRST_POSITIONS)
        return {
            MEAN: x.mean(1),
            MEAN_LAST_4: np.mean(layers[-4:], axis=(0, 2)),
            POOLED: pooled,
            "cls": x[:, 0],
            "max": x.max(1),
            "words": words,
            "order": order,
            "log order": log_softmax(order),
        }

    def answers(self, task, split, outputs):
        names = {"pooled_output": POOLED, "masked_lm_logits": "words", "mlm_logits": "words"}
        names |= {"sentence_order_logits": "order", "sop_log_probs": "log order"}
        found = {names.get(name, name): value for name, value in outputs.items()}
        if "sequence_output" in found:
            found["cls"] = found["sequence_output"][:, 0]
        return {name: found[name] for name in (*POOLINGS, *names.values()) if name in found}

    def outputs(self, task, found):
        return found

    def ask(self, load):
        return {pooling: load(pooling=pooling)(TEXTS) for pooling in POOLINGS}

    def results(self, rows):
        return {MEAN: rows}

    def program_flags(self, folder):
        return ["--task=embeddings", "--pooling=mean", f"--embeddings_file={folder}/mean.npy"]

    def written(self, folder):
        return {MEAN: np.load(folder / "mean.npy")}


KINDS = {
    kind.__name__: kind
    for kind in (
        *(Classifier, MeanClassifier, MultiLabel, Regression),
        *(Tagger, Choice, Spans, AnswerableSpans, Encoder),
    )
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
    """A model and its answers, which a program has trained for a step at a learning rate of 0."""

    kind: Kind
    settings: Any
    folder: Path  # of the run
    task: Any
    split: Split | None
    expected: Answers
    tokens: dict[str, Any] | None = None  # if there is no split

    def batch(self, length: int | None = None) -> dict[str, Any]:
        """Returns all examples as arrays that are padded to a length."""
        if self.tokens is not None:
            return self.tokens
        features = self.split.features
        if length is None:
            longest = int(features.lengths.max())
            length = self.kind.settings["max_seq_length"] if self.kind.is_padded else longest
        batch = features.batch(np.arange(len(features)), length)
        return {name: batch[name] for name in self.kind.inputs}

    def answers(self, outputs: Any) -> Answers:
        """Returns the answers in outputs [N, …] of a model."""
        arrays = {name: np.asarray(value) for name, value in outputs.items()}
        return self.kind.answers(self.task, self.split, arrays)

    def served(self, outputs: Any) -> Answers:
        """Returns the answers in outputs [N, …] of an export."""
        return self.answers(outputs) | self.kind.served(self.split, outputs)


@pytest.fixture(scope="module", name="make")
def make_once(tmp_path_factory, toy_spm_model):
    """A function that returns the `Made` of a kind."""

    @functools.cache
    def make(name):
        return KINDS[name]().make(tmp_path_factory.mktemp(name), toy_spm_model)

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
            "export_dir": str(folder / "run" / "export") if kind.exports else None,
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
    assert spread.max() > 0.1, spread
    kind.program.run(settings)
    return Made(kind, settings, folder / "run", task, split, expected)


def compute_in_numpy(kind, task, weights, features):
    """Returns name → outputs [N, …], float64, computed for each example alone."""
    model, rows = NumpyAlbert(CONFIG, weights), []
    for number in range(len(features)):
        length = kind.settings["max_seq_length"] if kind.is_padded else features.lengths[number]
        length = int(length)
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


# The folders


def exported(made):
    """The numbered folder of the program's export, or what `albert convert` writes."""
    if not made.kind.exports:
        return converted("saved_model")(made)
    (path,) = (path for path in (made.folder / "export").glob("**/[0-9]*") if path.is_dir())
    return path


def exported_for_tflite(made):
    return made.folder / "export" if made.kind.exports else converted("tflite")(made)


def saved_again(made):
    target = made.folder.parent / "saved"
    if not target.exists():
        model, tokenizer = albert_tf.from_pretrained(str(made.folder))
        albert_tf.save_pretrained(model, str(target), tokenizer)
    return target


def converted(output_format, package="tensorflow"):
    def find(made):
        pytest.importorskip(package, reason=f"needs the extra {output_format}")
        target = made.folder.parent / output_format
        if not target.exists():
            list(convert.run(convert.Settings(str(made.folder), str(target), output_format)))
        return target

    return find


# The doors: each returns the answers of a folder.


def evaluated(made, folder, predict):
    text = (folder / "eval_results.txt").read_text()
    metrics = {name: float(value) for name, value in re.findall(r"^(\w+) = (\S+)$", text, re.M)}
    known = {
        name: metrics[name] for name in made.expected if isinstance(made.expected[name], float)
    }
    return known | made.kind.evaluated(folder)


def predicted(made, folder, predict):
    return made.kind.predicted(folder)


def run_by_name(made, folder, predict):
    """Also if only predictions are asked for: questions with answers are evaluated all the same."""
    again = folder.parent / "by_name"
    asked = {"output_dir": str(again), "export_dir": None}
    if hasattr(made.settings, "tflite_quantization"):  # which is refused without an export
        asked["tflite_quantization"] = type(made.settings).tflite_quantization  # the default
    if "spans" in made.kind.task:
        asked["do_eval"] = False
    run_task(made.kind.task, dataclasses.replace(made.settings, **asked))
    return evaluated(made, again, predict) | made.kind.predicted(again)


def run_program(made, folder, predict):
    path = made.folder.parent / "rows.jsonl"
    write_lines(path, made.kind.rows)
    flags = [f"--model_dir={folder}", f"--input_file={path}", f"--top_k={MOST_ANSWERS}"]
    flags += ["--precision=float32"]
    if not list(folder.glob("model.[ox]*")):  # which other engines than TensorFlow compute
        flags += ["--engine=tensorflow"]
    rows = predict(*flags, *made.kind.program_flags(made.folder.parent))
    return made.kind.results(rows) if rows else made.kind.written(made.folder.parent)


def load_with(engine):
    def load(made, folder, predict):
        pytest.importorskip(engine, reason=f"{engine} is an extra")
        options = {"engine": engine, "top_k": MOST_ANSWERS}
        if folder != made.folder and made.task is not None:  # which is not recorded
            options["max_seq_length"] = made.settings.max_seq_length
        return made.kind.ask(functools.partial(albert_tf.load_predictor, folder, **options))

    return load


def load_without_tensorflow(made, folder, predict):
    """In a process that cannot import what the server image lacks."""
    done = answer_without(str(folder), made.kind.columns, {"top_k": MOST_ANSWERS})
    return made.kind.results(json.loads(done))


def load_exported(made, folder, predict):
    return made.kind.ask(functools.partial(albert_tf.load_predictor, folder))


def load_model(made, folder, predict):
    """With the logits of pre-training, if there are any."""
    task = "pretraining" if made.task is None else made.kind.task
    model, _ = albert_tf.from_pretrained(str(folder), task)
    batch = made.batch()
    if made.task is None:
        batch = batch | {"masked_lm_positions": np.repeat(FIRST_POSITIONS, len(TEXTS), 0)}
    return made.answers(made.kind.outputs(made.task, model(batch)))


def serve_texts(made, folder, predict):
    text_a, *text_b = made.kind.columns
    inputs = {"text_a": text_a, "text_b": text_b[0] if text_b else [""] * len(text_a)}
    served = tf.saved_model.load(str(folder))
    outputs = served.signatures["texts"](**{name: tf.constant(x) for name, x in inputs.items()})
    return made.answers(outputs) | made.kind.served_texts(outputs)


def serve_tensors(made, folder, predict):
    served = tf.saved_model.load(str(folder))
    signature = served.signatures.get("tensors", served.signatures["serving_default"])
    return made.served(signature(**{name: tf.constant(x) for name, x in made.batch().items()}))


def call_module(made, folder, predict):
    """The outputs of the encoder, of its signature, and of both heads."""
    module = tf.saved_model.load(str(folder))
    names = {"input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
    inputs = {names.get(name, name): tf.constant(x) for name, x in made.batch().items()}
    positions = tf.repeat(FIRST_POSITIONS, len(TEXTS), 0)
    found, served = module(inputs), module.signatures["serving_default"](**inputs)
    assert set(found) == {*served, "encoder_outputs"}
    words = module.mlm(inputs | {"masked_lm_positions": positions})
    order = module.sop(inputs)
    for outputs in (found, served, words, order):
        assert set(served) == {"default", "pooled_output", "sequence_output"}
        np.testing.assert_array_equal(outputs["default"], outputs["pooled_output"])
        for name in served:
            np.testing.assert_allclose(outputs[name], found[name], rtol=0, atol=TOLERANCE)
    mask = made.batch()["input_mask"][..., None]
    layers = np.mean(found["encoder_outputs"][-4:], axis=0)
    means = {MEAN_LAST_4: (layers * mask).sum(1) / mask.sum(1)}
    arrays = {name: x for name, x in (words | order).items() if name != "encoder_outputs"}
    return made.answers(arrays | means)


def run_tflite(made, folder, predict):
    content = (folder / "albert_model.tflite").read_bytes()
    batch = made.batch(made.kind.settings["max_seq_length"])
    return made.answers(predict_with_tflite(content, batch))


def predict_with_tflite(content, batch):
    """Returns name → outputs of all rows, one of which is computed at a time."""
    runner = tf.lite.Interpreter(model_content=content).get_signature_runner("serving_default")
    assert set(runner.get_input_details()) == set(batch)
    rows = range(len(batch["input_ids"]))
    found = [runner(**{name: value[i : i + 1] for name, value in batch.items()}) for i in rows]
    return {name: np.concatenate([row[name] for row in found]) for name in found[0]}


def run_openvino(made, folder, predict):
    import openvino

    precision = {"INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Core().compile_model(f"{folder}/model.xml", "CPU", precision)
    batch = made.batch()
    results = model({port.any_name: batch[port.any_name] for port in model.inputs})
    return made.served({port.any_name: results[port] for port in model.outputs})


def run_onnx(made, folder, predict):
    import onnxruntime

    session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
    names = [node.name for node in session.get_outputs()]
    batch = made.batch()
    values = session.run(names, {node.name: batch[node.name] for node in session.get_inputs()})
    return made.served(dict(zip(names, values, strict=True)))


FOLDERS = {
    "run": lambda made: made.folder,
    "Keras": saved_again,
    "Hugging Face": converted("huggingface", "safetensors"),
    "SavedModel": exported,
    "TF-Hub": converted("tf_hub"),
    "TFLite": exported_for_tflite,
    "OpenVINO": converted("openvino", "openvino"),
    "ONNX": converted("onnx", "tf2onnx"),
}
DOORS = {
    "--do_eval": evaluated,
    "--do_predict": predicted,
    "run_task": run_by_name,
    "albert predict": run_program,
    "load_predictor": load_with("tensorflow"),
    "load_predictor, openvino": load_with("openvino"),
    "load_predictor, without TensorFlow": load_without_tensorflow,
    "load_predictor, all poolings": load_exported,
    "from_pretrained": load_model,
    "texts": serve_texts,
    "tensors": serve_tensors,
    "module": call_module,
    "TFLite": run_tflite,
    "OpenVINO": run_openvino,
    "ONNX": run_onnx,
}
PROGRAMS = ("--do_eval", "--do_predict", "run_task")
PREDICTORS = ("albert predict", "load_predictor", "load_predictor, openvino")
EXPORTED = ("albert predict", "load_predictor, without TensorFlow")
CELLS = {
    "run": (*PROGRAMS, *PREDICTORS),
    "Keras": ("from_pretrained", "load_predictor"),
    "Hugging Face": ("from_pretrained", "load_predictor"),
    "SavedModel": ("albert predict", "texts", "tensors"),
    "TFLite": ("TFLite",),
    "OpenVINO": (*EXPORTED, "OpenVINO"),
    "ONNX": (*EXPORTED, "ONNX"),
}
ALL_POOLINGS = "load_predictor, all poolings"
CELLS_OF_ENCODERS = {
    "run": (*PREDICTORS, "from_pretrained"),
    "Hugging Face": ("from_pretrained", "load_predictor"),
    "SavedModel": ("albert predict", "texts", "tensors"),
    "TF-Hub": ("load_predictor", "from_pretrained", "module"),
    "TFLite": ("TFLite",),
    "OpenVINO": (*EXPORTED, ALL_POOLINGS, "OpenVINO"),
    "ONNX": (*EXPORTED, ALL_POOLINGS, "ONNX"),
}


def cells():
    for name, kind in KINDS.items():
        for folder, doors in (CELLS_OF_ENCODERS if kind is Encoder else CELLS).items():
            for door in doors:
                if not kind.missing & {folder, door, (folder, door)}:
                    yield pytest.param(name, folder, door, id=f"{name}-{folder}-{door}")


def difference(found, expected):
    """Returns the largest difference of numbers, or the fraction of strings that differ."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return np.inf
    if expected.dtype.kind == "U":
        return float(np.mean(found != expected))
    return float(np.abs(found - expected).max())


@pytest.mark.parametrize(("kind", "folder", "door"), list(cells()))
def test_a_folder_gives_the_answers_of_numpy(kind, folder, door, make, predict):
    made = make(kind)
    found = DOORS[door](made, FOLDERS[folder](made), predict)
    assert found
    for name, value in found.items():
        assert difference(value, made.expected[name]) <= TOLERANCE, name
