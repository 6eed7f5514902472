"""The fine-tuning programs with small data about a town and its river, a row each."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

from albert_tf.cli import plot_results, programs
from albert_tf.cli.flags import parse
from tests.conftest import TOY_TEXT

SENTENCES = [
    "The river carries the rain.",
    "A small boat waits at the landing.",
    "In winter the landing freezes, and children skate.",
    "Old people say that the river was wider.",
    "Nobody knows whose boat it is.",
    "The town had grown towards the water.",
    "They measured it once.",
]
LINES = TOY_TEXT.splitlines()

CONTEXTS = [" ".join(LINES[:2]), " ".join(LINES[1:4]), " ".join(LINES[3:])]
# Id, number of the context, question, answer.
QUESTIONS = [
    ("r1", 0, "Where does the river carry the rain?", "down to the sea"),
    ("r2", 0, "What waits at the landing?", "A small boat"),
    ("r3", 1, "Who skates in winter?", "children"),
    ("r4", 2, "What had changed?", "the town"),
    ("r5", 2, "Who says that?", "Old people"),
    ("r6", 1, "What is the name of the boat?", None),
    ("r7", 2, "When was the town built?", None),
]
ANSWERABLE = [row for row in QUESTIONS if row[3]]

PASSAGE = "The river carries the rain down to the sea. " * 2
CHOICES = [
    ("Where does the river go?", ["to the sea", "to the town", "nowhere", "to the rain"], "A"),
    ("The _ is frozen in winter.", ["boat", "landing", "rain", "sea"], "B"),
    ("Who skates there?", ["nobody", "old people", "children", "a boat"], "C"),
]

PLACES = {"river": "LOC", "landing": "LOC", "sea": "LOC", "boat": "OBJ"}


def write_cola(folder):
    """Writes CoLA's files, with labels determined by the words."""
    cola = folder / "CoLA"
    cola.mkdir()
    for split, count in (("train", 23), ("dev", 13)):
        rows = [SENTENCES[number * 3 % len(SENTENCES)] for number in range(count)]
        lines = [f"x\t{int('river' in text)}\t\t{text}\n" for text in rows]
        (cola / f"{split}.tsv").write_text("".join(lines))
    lines = ["index\tsentence\n", *(f"{n + 40}\t{text}\n" for n, text in enumerate(SENTENCES))]
    (cola / "test.tsv").write_text("".join(lines))
    return ["--task_name=CoLA", f"--data_dir={folder}"]


def write_squad(path, rows, with_answers=True):
    """Writes SQuAD's JSON of rows like those of `QUESTIONS`."""
    paragraphs = []
    for number, context in enumerate(CONTEXTS):
        questions = []
        for qas_id, which, question, answer in rows:
            entry = {"id": qas_id, "question": question}
            if with_answers:
                found = [{"text": answer, "answer_start": context.find(answer)}] if answer else []
                entry |= {"answers": found, "is_impossible": answer is None}
            if which == number:
                questions.append(entry)
        paragraphs.append({"context": context, "qas": questions})
    path.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return path


def write_answerable(folder):
    """Writes questions of SQuAD 1.1."""
    path = write_squad(folder / "v1.json", ANSWERABLE)
    return [f"--train_file={path}", f"--predict_file={path}"]


def write_unanswerable_too(folder):
    """Writes questions of SQuAD 2.0."""
    path = write_squad(folder / "v2.json", QUESTIONS)
    return [f"--train_file={path}", f"--predict_file={path}"]


def write_article(folder, name, passage, questions):
    """Writes an article of RACE with questions like those of `CHOICES`."""
    folder.mkdir(parents=True, exist_ok=True)
    texts, options, answers = zip(*questions, strict=True)
    article = {"article": passage, "questions": texts, "options": options, "answers": answers}
    (folder / f"{name}.txt").write_text(json.dumps(article | {"id": f"{name}.txt"}))


def write_race(folder):
    """Writes articles of different lengths for all splits and levels."""
    for split, count in (("train", 3), ("dev", 2), ("test", 1)):
        for level in ("middle", "high"):
            for number in range(count):
                passage = PASSAGE * (number + 1 + (level == "high"))
                where = folder / "RACE" / split / level
                write_article(where, f"{level}{number}", passage, CHOICES[: 3 - number])
    return [f"--data_dir={folder}"]


def conll(has_labels=True):
    """The toy text in columns; words of the table have a label."""
    lines = []
    for sentence in LINES:
        for word in sentence.replace(",", " ,").replace(".", " .").split():
            label = f"B-{PLACES[word]}" if word in PLACES else "O"
            lines.append(f"{word} {label}" if has_labels else word)
        lines.append("")
    return "\n".join(lines)


def write_conll(folder):
    """Writes labeled sentences, and the same ones without labels to predict."""
    for split in ("train", "dev"):
        (folder / f"{split}.txt").write_text(conll())
    (folder / "test.conll").write_text(conll(has_labels=False))
    return [f"--data_dir={folder}"]


@dataclasses.dataclass(frozen=True)
class Row:
    """A program: its data and flags, and what it writes in five steps or seven."""

    name: str
    write: Callable[[Path], list[str]]  # writes the data and returns the flags that name them
    flags: str
    phases: str
    metrics: str  # of a checkpoint; the first one selects the best
    files: str
    assets: str = ""  # beside an exported model
    steps: tuple[int, ...] = (0, 2, 4, 5)


ALWAYS = (
    "checkpoints.jsonl eval_results.txt evaluations.jsonl examples.jsonl metrics.jsonl run.json"
    " runs.jsonl"
)
MODEL_FILES = "albert_config.json run.json toy.model"
ALL = "--do_train --do_eval --do_predict --train_step=5 --save_checkpoints_steps=2"
SQUAD = Row(
    "run-squad",
    write_answerable,
    "--max_seq_length=53 --max_query_length=17 --doc_stride=13 --num_workers=1"
    " --train_batch_size=3",
    "--do_train --do_predict --save_checkpoints_steps=2 --keep_checkpoint_max=0",
    "f1 exact_match",
    f"{ALWAYS} predictions.json nbest_predictions.json",
    MODEL_FILES,
)
PROGRAMS = {
    "classifier": Row(
        "run-classifier",
        write_cola,
        "--max_seq_length=17 --train_batch_size=5 --noexport_texts --threshold_to_export=0.25",
        f"{ALL} --keep_checkpoint_max=0",
        "matthew_corr eval_accuracy eval_loss loss best",
        f"{ALWAYS} test_results.tsv submit_results.tsv CoLA.tsv dev_predictions.tsv best_trial.txt"
        " label_scores.tsv confusion_matrix.png training_curve.png",
        f"{MODEL_FILES} labels.txt",
    ),
    # int(5 / 3 · 3) = 5 steps of SQuAD 1.1, int(7 / 3 · 3) = 7 of 2.0: questions, not windows.
    "squad_1": SQUAD,
    "squad_2": dataclasses.replace(
        SQUAD,
        write=write_unanswerable_too,
        metrics="f1 exact null_score_diff_threshold total",
        files=f"{SQUAD.files} null_odds.json",
        assets=f"{SQUAD.assets} null_odds_threshold.json",
        steps=(0, 2, 4, 6, 7),
    ),
    "race": Row(
        "run-race",
        write_race,
        "--max_seq_length=53 --max_qa_length=17 --train_batch_size=5 --warmup_step=1",
        "--do_predict --train_step=5 --save_checkpoints_steps=2 --num_keep_checkpoint=0",
        "eval_accuracy eval_accuracy_high eval_accuracy_middle eval_loss loss best",
        f"{ALWAYS} race_predictions.jsonl predict_results.txt",
    ),
    "tagger": Row(
        "run-token-classification",
        write_conll,
        "--max_seq_length=17 --train_batch_size=5",
        f"{ALL} --keep_checkpoint_max=0",
        "f1 precision recall f1_LOC precision_LOC recall_LOC accuracy",
        f"{ALWAYS} dev_predictions.tsv test_predictions.tsv training_curve.png",
        f"{MODEL_FILES} labels.txt",
    ),
}


class Program:
    """A program, its data, and the folder of a finished run."""

    def __init__(self, name, root, config_file, vocabulary):
        self.name = name
        self.row = PROGRAMS[name]
        self.out, self.export = root / "out", root / "export"
        (root / "data").mkdir()
        self.model = [f"--albert_config_file={config_file}", f"--spm_model_file={vocabulary}"]
        self.data = self.row.write(root / "data")
        self.training = ["--learning_rate=0.01", "--log_steps=2", "--precision=float32"]
        export = [f"--export_dir={self.export}"] if self.row.assets else []
        plots = ["--plots"] if "training_curve.png" in self.row.files else []
        self.run(*self.everything, *export, *plots)

    def run(self, *arguments, hooks=()):
        """Runs the program with its data and the tiny model; later flags replace earlier ones."""
        given = [*self.row.flags.split(), *self.model, *self.data, "--noplots", *self.training]
        return self.call(*given, *arguments, hooks=hooks)

    def call(self, *arguments, hooks=()):
        """Runs the program with these flags only."""
        program = programs.PROGRAMS[self.row.name].load()
        settings = parse(program.Settings, arguments)
        settings.require_a_phase()
        result = program.run(settings, hooks=hooks)
        plot_results.plot_result(settings, result)
        return result

    @property
    def everything(self):
        """The flags of the finished run."""
        return [f"--output_dir={self.out}", *self.row.phases.split()]

    def saved_model(self):
        """The folder of the exported model."""
        return min(self.export.rglob("saved_model.pb"), key=lambda path: len(path.parts)).parent
