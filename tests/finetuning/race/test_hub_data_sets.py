"""Multiple choice as the Hub has it: the questions of files of one's own."""

import pytest

from albert_tf.finetuning.race import Settings
from albert_tf.finetuning.race.reading import read_data
from tests.hub_files import WITH_NAMES, class_label, write_json_lines, write_parquet

OPTIONS = ["an old boat", "a river", "rain", "the sea"]
NAMED = {"label": ["A", "B", "C", "D"], "text": OPTIONS}
NUMBERED = {"label": ["1", "2", "3", "4"], "text": OPTIONS}


def own(index, passage="", question="", **more):
    row = {"passage": passage, "question": question, "options": OPTIONS, "label": index} | more
    return {key: value for key, value in row.items() if value not in ("", None)}


def in_columns(name, first=0):
    return {f"{name}{first + number}": option for number, option in enumerate(OPTIONS)}


# Rows of the Hub, with features of columns, and the same questions in the format of before.
DATA_SETS = {
    "swag": (
        [
            {"startphrase": "It rains.", "sent1": "It", "sent2": "rains."}
            | in_columns("ending")
            | {"label": 2},
            {"startphrase": "A boat", "sent1": "A", "sent2": "boat"}
            | in_columns("ending")
            | {"label": 0},
        ],
        {"label": class_label("0", "1", "2", "3")},
        [own(2, "It rains."), own(0, "A boat")],
    ),
    "hellaswag": (
        [
            {"ind": 4, "ctx": "It rains.", "endings": OPTIONS, "label": "3"},
            {"ind": 5, "ctx": "A boat", "endings": OPTIONS, "label": "0"},
        ],
        {},
        [own(3, "It rains.", id=4), own(0, "A boat", id=5)],
    ),
    "commonsense_qa": (
        [{"id": "x", "question": "What rains?", "choices": NAMED, "answerKey": "C"}],
        {},
        [own(2, question="What rains?", id="x")],
    ),
    "arc": (
        [
            {"id": "x", "question": "What rains?", "choices": NUMBERED, "answerKey": "3"},
            {"id": "y", "question": "What is old?", "choices": NUMBERED, "answerKey": "1"},
        ],
        {},
        [own(2, question="What rains?", id="x"), own(0, question="What is old?", id="y")],
    ),
    "cosmos_qa": (
        [
            {"id": "x", "context": "It rains.", "question": "Why?"}
            | in_columns("answer")
            | {"label": 1},
            {"id": "y", "context": "It rains.", "question": "So?"}
            | in_columns("answer")
            | {"label": 0},
        ],
        {},
        [own(1, "It rains.", "Why?", id="x"), own(0, "It rains.", "So?", id="y")],
    ),
    "c3": (
        [{"context": ["It", "rains."], "question": "Why?", "choice": OPTIONS, "answer": "rain"}],
        {},
        [own(2, "It rains.", "Why?")],
    ),
    "mmlu": (
        [
            {"question": "What rains?", "subject": "x", "choices": OPTIONS, "answer": 2},
            {"question": "What is old?", "subject": "x", "choices": OPTIONS, "answer": 0},
        ],
        {"answer": class_label("A", "B", "C", "D")},
        [own(2, question="What rains?"), own(0, question="What is old?")],
    ),
}


def read(folder, split="train", **values):
    phase = {"train": "do_train", "dev": "do_eval", "test": "do_predict"}[split]
    phases = {"do_train": False, "do_eval": False, phase: True}
    given = {"task_name": "choice", "data_dir": str(folder), "output_dir": "out"} | phases
    return read_data(Settings(**(given | values)))[split]


@pytest.mark.parametrize("name", DATA_SETS)
@pytest.mark.parametrize("write", [*WITH_NAMES, write_json_lines])
def test_the_hub_has_the_questions_of_ones_own_files(tmp_path, name, write):
    rows, features, expected = DATA_SETS[name]
    for folder in ("hub", "own"):
        (tmp_path / folder).mkdir()
    write(tmp_path / "hub", {"train": rows}, features)
    write_json_lines(tmp_path / "own", {"train": expected})
    found, before = read(tmp_path / "hub").examples, read(tmp_path / "own").examples
    assert [(x.passage, x.question, x.options, x.label) for x in found] == [
        (x.passage, x.question, x.options, x.label) for x in before
    ]
    if "id" in expected[0]:
        assert [x.example_id for x in found] == [x.example_id for x in before]


def test_ids_of_classes_are_counted_from_zero_even_if_none_is_zero(tmp_path):
    rows = [
        row | {"answer": 1 + number % 3} for number, row in enumerate(DATA_SETS["mmlu"][0] * 12)
    ]
    write_parquet(tmp_path, {"train": rows}, DATA_SETS["mmlu"][1])
    assert [x.label for x in read(tmp_path).examples[:4]] == [1, 2, 3, 1]
    write_parquet(tmp_path, {"dev": rows}, {})
    with pytest.raises(ValueError, match="none of 24 labels is 0"):
        read(tmp_path, "dev")


def winogrande(answer):
    return {"sentence": "The boat left the river as _ froze.", "option1": "the boat"} | {
        "option2": "the river",
        "answer": answer,
    }


@pytest.mark.parametrize("number", [str, int, float])
def test_winogrande_counts_as_its_columns_do_even_if_there_is_only_one_row(tmp_path, number):
    rows = {"train": [winogrande(number(1))], "dev": [winogrande(number(1))] * 30}
    write_json_lines(tmp_path, rows | {"test": [winogrande("")]})
    assert read(tmp_path).examples[0].label == 0
    assert {x.label for x in read(tmp_path, "dev").examples} == {0}
    assert [x.label for x in read(tmp_path, "test").examples] == [None]


def test_the_labels_of_all_splits_tell_what_a_number_means(tmp_path):
    row = {"question": "What rains?", "options": OPTIONS}
    splits = {"train": ["1", "2", "4"], "dev": ["2"], "test": ["1"]}
    write_json_lines(
        tmp_path, {split: [row | {"label": x} for x in xs] for split, xs in splits.items()}
    )
    settings = Settings(
        task_name="choice", data_dir=str(tmp_path), output_dir="out", do_predict=True
    )
    found = {split: [x.label for x in data.examples] for split, data in read_data(settings).items()}
    assert found == {"train": [0, 1, 3], "dev": [1], "test": [0]}


def test_questions_without_ids_have_the_same_numbers_in_all_formats(tmp_path):
    texts = {"train": "What rains?", "dev": "What is old?"}
    for split, question in texts.items():
        rows = [f"{question},{option},rain,0\n" for option in OPTIONS[:3]]
        (tmp_path / f"{split}.csv").write_text(f"question,option1,option2,label\n{''.join(rows)}")
        found = [x.example_id for x in read(tmp_path, split).examples]
        assert found == [f"{split}-{number}" for number in range(3)]


def test_data_sets_with_other_columns_are_read_as_flags_name_them(tmp_path):
    names = ("opa", "opb", "opc", "opd")
    rows = [
        {"question": "What rains?", "cop": number} | dict(zip(names, OPTIONS, strict=True))
        for number in (2, 0)
    ]
    write_parquet(tmp_path, {"train": rows}, {"cop": class_label("a", "b", "c", "d")})
    flags = {"option_columns": names, "label_column": "cop"}
    assert [(x.options, x.label) for x in read(tmp_path, **flags).examples] == [
        (tuple(OPTIONS), 2),
        (tuple(OPTIONS), 0),
    ]
    with pytest.raises(ValueError, match=r"no options among .*--option_columns takes other names"):
        read(tmp_path)
    with pytest.raises(ValueError, match=r"no label: expected a column 'label'.*--label_column"):
        read(tmp_path, option_columns=names)
    with pytest.raises(ValueError, match="--option_columns=opa,opb,opc,opd: RACE has known col"):
        read(tmp_path, task_name="race", option_columns=names)


@pytest.mark.parametrize("name", ["swag", "hellaswag", "arc"])
def test_labels_of_test_splits_are_not_known(tmp_path, name):
    rows, features, _ = DATA_SETS[name]
    (key,) = {"label", "answerKey"} & rows[0].keys()
    unknown = -1 if isinstance(rows[0][key], int) else ""
    write_parquet(tmp_path, {"test": [row | {key: unknown} for row in rows]}, features)
    data = read(tmp_path, "test")
    assert [question.label for question in data.examples] == [None] * len(rows)
