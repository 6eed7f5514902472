"""The commands of the guide to data read the folders that they name, as these are on the Hub."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
import shlex

import pyarrow
import pytest
from pyarrow import ipc, parquet

from albert_tf.cli import programs
from albert_tf.cli.flags import parse
from albert_tf.finetuning import classification, race, registry, squad, token_classification
from albert_tf.finetuning.texts import parse_text
from albert_tf.inference import inputs
from albert_tf.tables.python_rows import tables_of
from tests.conftest import ROOT

GUIDE = (ROOT / "docs" / "guides" / "data.md").read_text(encoding="utf-8")
TASKS = {
    classification: "classification",
    race: "multiple_choice",
    squad: "spans",
    token_classification: "token_classification",
}


def names(*labels):
    return {"names": list(labels), "_type": "ClassLabel"}


PAIR = {"sentence1": ["It rains.", "A boat."], "sentence2": ["Rain.", "A town."]}
MNLI = {"premise": PAIR["sentence1"], "hypothesis": PAIR["sentence2"], "label": [0, 2]}
TEXT = {"text": ["A fine film.", "Far too long."]}
ANSWERS = [{"text": ["Rome"], "answer_start": [6]}, {"text": ["Go"], "answer_start": [0]}]
SQUAD = {"id": ["a", "b"], "title": ["t"] * 2, "context": ["It is Rome.", "Go home."]}
SQUAD |= {"question": ["Where?", "What?"], "answers": ANSWERS}
RACE = {"example_id": ["high1.txt"] * 2, "article": ["It rains."] * 2, "answer": ["A", "C"]}
RACE |= {"question": ["Why _ ?", "How ?"], "options": [["a", "b", "c", "d"]] * 2}
SWAG = {"startphrase": ["It rains", "It snows"], "label": [0, 3]}
SWAG |= {f"ending{n}": [f"x{n}", f"y{n}"] for n in range(4)}
TAGS = {"tokens": [["Ann", "lives"], ["in", "Rome"]], "ner_tags": [[1, 0], [0, 3]]}
TAG_NAMES = {"feature": names("O", "B-PER", "I-PER", "B-LOC"), "_type": "Sequence"}
BINARY, POLAR = names("no", "yes"), names("neg", "pos")
ENTAILMENT = names("entailment", "neutral", "contradiction")
EMOTIONS = {"feature": names("joy", "fear"), "_type": "List"}

# Pattern of the files of each split, with {} for its name on the Hub; columns; names of labels.
HUB = [
    ("glue/mrpc/{}-00000-of-00001.parquet", PAIR | {"label": [1, 0]}, {"label": BINARY}),
    ("glue/mnli/train-00000-of-00001.parquet", MNLI, {"label": ENTAILMENT}),
    ("glue/mnli/validation_matched-00000-of-00001.parquet", MNLI, {"label": ENTAILMENT}),
    ("glue/mnli/validation_mismatched-00000-of-00001.parquet", MNLI, {"label": ENTAILMENT}),
    ("clue/afqmc/{}-00000-of-00001.parquet", PAIR | {"label": [1, 0]}, {"label": names("0", "1")}),
    ("lcqmc/{}.parquet", PAIR | {"label": [1, 0]}, {}),
    ("reviews/{}.parquet", TEXT | {"label": ["good", "bad"]}, {}),
    ("imdb/plain_text/unsupervised-00000-of-00001.parquet", TEXT, {}),
    (
        "go_emotions/simplified/{}-00000-of-00001.parquet",
        TEXT | {"labels": [[0], [0, 1]]},
        {"labels": EMOTIONS},
    ),
    ("squad/plain_text/{}-00000-of-00001.parquet", SQUAD, {}),
    ("race/all/{}-00000-of-00001.parquet", RACE, {}),
    ("race/high/{}-00000-of-00001.parquet", RACE, {}),
    ("race/middle/{}-00000-of-00001.parquet", RACE, {}),
    ("swag/regular/{}-00000-of-00001.parquet", SWAG, {"label": names("0", "1", "2", "3")}),
    ("wikiann/en/{}-00000-of-00001.parquet", TAGS, {"ner_tags": TAG_NAMES}),
]


def table_of(columns, features):
    info = json.dumps({"info": {"features": features}})
    return pyarrow.table(columns).replace_schema_metadata({"huggingface": info})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder in which the commands of the guide are given."""
    monkeypatch.chdir(tmp_path)
    for pattern, columns, features in HUB:
        for split in ("train", "validation"):
            path = tmp_path / pattern.format(split)
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table_of(columns, features), path)
    many = {"text": [f"Film {n}." for n in range(20)], "label": [n % 2 for n in range(20)]}
    for split in ("train", "test"):
        path = tmp_path / "imdb" / "plain_text" / f"{split}-00000-of-00001.parquet"
        parquet.write_table(table_of(many, {"label": POLAR}), path)
    for split in ("train", "validation"):
        saved = tmp_path / "saved" / split
        saved.mkdir(parents=True)
        table = table_of(TEXT | {"label": [1, 0]}, {"label": POLAR})
        with ipc.new_stream(str(saved / "data-00000-of-00001.arrow"), table.schema) as stream:
            stream.write_table(table)
        files = [{"filename": "data-00000-of-00001.arrow"}]
        (saved / "state.json").write_text(json.dumps({"_data_files": files}))
    for name in ("2024.csv", "2025.csv", "new.csv"):
        (tmp_path / name).write_text(f"id,text,label\n7,A mail of {name}.,spam\n8,Hello.,ham\n")
    lines = "".join(json.dumps({"text": text, "label": "ham"}) + "\n" for text in TEXT["text"])
    (tmp_path / "checked.jsonl").write_text(lines)
    (tmp_path / "new.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    parquet.write_table(pyarrow.table(TEXT), tmp_path / "new.parquet")
    questions = []
    for number, (text, start) in enumerate((("Rome", 6), ("Go", 0))):
        asked = {"id": SQUAD["id"][number], "question": SQUAD["question"][number]}
        questions.append(asked | {"answers": [{"text": text, "answer_start": start}]})
    paragraphs = [{"context": SQUAD["context"][n], "qas": [questions[n]]} for n in range(2)]
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (tmp_path / name).write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return tmp_path


def commands():
    for block in re.findall(r"^```bash\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            command = shlex.split(line.split(" > ")[0])
            if command[0] != "hf":
                yield pytest.param(command[1:], id=" ".join(command[1:4]))


@pytest.mark.parametrize("command", list(commands()))
@pytest.mark.usefixtures("folder")
def test_the_commands_read_what_they_name(command):
    name, *flags = command
    verb = name.removesuffix(".py").replace("_", "-")
    module = programs.PROGRAMS[verb if verb in programs.PROGRAMS else f"run-{verb}"].load()
    settings = parse(module.Settings, flags)
    if module not in TASKS:
        assert inputs.read_inputs(settings, parse_text).total == 2
        return
    data = registry.get(TASKS[module]).reader(settings, None)
    data = data[1] if isinstance(data, tuple) else data
    assert {"train", "dev"} <= set(data)
    for split in ("train", "dev"):
        assert data[split].examples


def test_the_python_example_is_read():
    (example,) = re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    seen = {}

    def run(settings, data):
        settings = dataclasses.replace(settings, do_train=True, do_eval=True)  # as `run` does
        task, read = registry.get("classification").reader(settings, None, tables_of(data))
        seen.update(labels=task.labels, texts=[x.text_a for x in read["dev"].examples])

    code = example.replace("classification.run(", "run(")
    exec(compile(code, "data.md", "exec"), {"run": run})
    assert seen == {"labels": ("bad", "good"), "texts": ["A fine film.", "Far too long."]}
