"""The files that the guide to data names, as they are on the Hub, with two examples in each."""

from __future__ import annotations

import gzip
import json

import pyarrow
from pyarrow import ipc, parquet


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


def write_guide_data(folder):
    """Writes the files of the guide into the folder in which its commands are given."""
    for pattern, columns, features in HUB:
        for split in ("train", "validation"):
            path = folder / pattern.format(split)
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table_of(columns, features), path)
    many = {"text": [f"Film {n}." for n in range(20)], "label": [n % 2 for n in range(20)]}
    for split in ("train", "test"):
        path = folder / "imdb" / "plain_text" / f"{split}-00000-of-00001.parquet"
        parquet.write_table(table_of(many, {"label": POLAR}), path)
    for split in ("train", "validation"):
        saved = folder / "saved" / split
        saved.mkdir(parents=True)
        table = table_of(TEXT | {"label": [1, 0]}, {"label": POLAR})
        with ipc.new_stream(str(saved / "data-00000-of-00001.arrow"), table.schema) as stream:
            stream.write_table(table)
        files = [{"filename": "data-00000-of-00001.arrow"}]
        (saved / "state.json").write_text(json.dumps({"_data_files": files}))
    for name in ("2024.csv", "2025.csv", "new.csv"):
        (folder / name).write_text(f"id,text,label\n7,A mail of {name}.,spam\n8,Hello.,ham\n")
    lines = "".join(json.dumps({"text": text, "label": "ham"}) + "\n" for text in TEXT["text"])
    (folder / "checked.jsonl").write_text(lines)
    (folder / "new.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    parquet.write_table(pyarrow.table(TEXT), folder / "new.parquet")
    questions = []
    for number, (text, start) in enumerate((("Rome", 6), ("Go", 0))):
        asked = {"id": SQUAD["id"][number], "question": SQUAD["question"][number]}
        questions.append(asked | {"answers": [{"text": text, "answer_start": start}]})
    paragraphs = [{"context": SQUAD["context"][n], "qas": [questions[n]]} for n in range(2)]
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        (folder / name).write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
