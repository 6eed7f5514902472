"""The columns of multiple-choice data sets, as the Hub or their authors have them."""

import pytest

from albert_tf.finetuning.race.questions import (
    QuestionColumns,
    parse_options,
    with_known_names,
)
from albert_tf.finetuning.rows import BadRowError

OPTIONS = ["w", "x", "y", "z"]
NAMED = {"label": ["A", "B", "C", "D"], "text": OPTIONS}
# A row, and its passage, question, options, label and id ("-": there is none).
DATA_SETS = {
    "race": (
        {"example_id": "7", "article": "p", "answer": "B", "question": "q", "options": OPTIONS},
        ("p", "q", OPTIONS, "B", "7"),
    ),
    "swag": (
        {"fold-ind": "3", "startphrase": "p", "sent1": "a", "sent2": "b", "gold-source": "gold"}
        | {f"ending{n}": text for n, text in enumerate(OPTIONS)}
        | {"label": 2},
        ("p", "-", OPTIONS, 2, "-"),
    ),
    "hellaswag": (
        {"ind": 4, "activity_label": "n", "ctx_a": "a", "ctx_b": "b", "ctx": "p"}
        | {"endings": OPTIONS, "source_id": "s", "split": "val", "label": "3"},
        ("p", "-", OPTIONS, "3", 4),
    ),
    "commonsense_qa": (
        {"id": "7", "question": "q", "question_concept": "c", "choices": NAMED, "answerKey": "A"},
        ("-", "q", NAMED, "A", "7"),
    ),
    "commonsense_qa of its authors": (
        {"id": "7", "question": {"stem": "q", "choices": [{"label": "A", "text": "w"}]}},
        ("-", "q", [{"label": "A", "text": "w"}], "-", "7"),
    ),
    "cosmos_qa": (
        {"id": "7", "context": "p", "question": "q"}
        | {f"answer{n}": text for n, text in enumerate(OPTIONS)}
        | {"label": 1},
        ("p", "q", OPTIONS, 1, "7"),
    ),
    "c3": (
        {"documents": [], "context": ["p", "r"], "question": "q", "choice": OPTIONS, "answer": "y"},
        (["p", "r"], "q", OPTIONS, "y", "-"),
    ),
    "copa": (
        {"premise": "p", "choice1": "w", "choice2": "x", "question": "cause", "idx": 5, "label": 0},
        ("p", "cause", ["w", "x"], 0, 5),
    ),
    "piqa": ({"goal": "q", "sol1": "w", "sol2": "x", "label": 0}, ("-", "q", ["w", "x"], 0, "-")),
    "openbookqa": (
        {"id": "7", "question_stem": "q", "choices": NAMED, "answerKey": "D"},
        ("-", "q", NAMED, "D", "7"),
    ),
    "winogrande": (
        {"sentence": "a _ b", "option1": "w", "option2": "x", "answer": "1"},
        ("-", "a _ b", ["w", "x"], "1", "-"),
    ),
    "siqa": (
        {"context": "p", "question": "q", "answerB": "x", "answerA": "w", "answerC": "y"}
        | {"label": "B"},
        ("p", "q", ["w", "x", "y"], "B", "-"),
    ),
    "many options": (
        {"question": "q"} | {f"option_{n}": str(n) for n in range(12)},
        ("-", "q", list(map(str, range(12))), "-", "-"),
    ),
    "fewer options": (
        {"question": "q", "option1": "w", "option2": "x", "option3": None, "Label": 1},
        ("-", "q", ["w", "x"], 1, "-"),
    ),
}


@pytest.mark.parametrize("name", DATA_SETS)
def test_the_parts_of_a_question_have_the_names_of_each_data_set(name):
    row, expected = DATA_SETS[name]
    parts = with_known_names(row)
    names = ("passage", "question", "options", "label", "id")
    assert tuple(parts.get(part, "-") for part in names) == expected


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (OPTIONS, ()),
        (NAMED, ("A", "B", "C", "D")),
        ([{"label": n, "text": t} for n, t in zip("1234", OPTIONS, strict=True)], tuple("1234")),
        (dict(zip("ABCD", OPTIONS, strict=True)), tuple("ABCD")),
        ({"text": OPTIONS}, ()),
    ],
)
def test_options_may_have_names(options, names):
    assert parse_options(options) == (tuple(OPTIONS), names)


# Flags, the row of a data set, and the parts of its question.
NAMED_COLUMNS = {
    "sciq": (
        QuestionColumns(
            {"label": "correct_answer", "passage": "support"},
            ("correct_answer", "distractor1", "distractor2", "distractor3"),
        ),
        {"question": "q", "distractor3": "z", "distractor1": "x", "distractor2": "y"}
        | {"correct_answer": "w", "support": "p"},
        ("p", "q", OPTIONS, "w"),
        None,
    ),
    "medmcqa": (
        QuestionColumns({"label": "cop"}, ("opa", "opb", "opc", "opd")),
        {"id": "7", "question": "q", "cop": 3, "choice_type": "single", "exp": "e"}
        | dict(zip(("opa", "opb", "opc", "opd"), OPTIONS, strict=True)),
        ("-", "q", OPTIONS, 3),
        None,
    ),
    "quail": (
        QuestionColumns({"label": "correct_answer_id"}, ("answers",)),
        {"context": "p", "question": "q", "answers": OPTIONS, "correct_answer_id": 1},
        ("p", "q", OPTIONS, 1),
        None,
    ),
    "logiqa": (
        QuestionColumns({"question": "Query", "label": "correct_option"}),
        {"context": "p", "query": "q", "options": OPTIONS, "correct_option": 1},
        ("p", "q", OPTIONS, 1),
        None,
    ),
    "QuALITY": (
        QuestionColumns({"label": "gold_label"}),
        {"article": "p", "question": "q", "options": OPTIONS, "gold_label": 4, "label": "x"},
        ("p", "q", OPTIONS, 4),
        None,
    ),
    "numbered": (
        QuestionColumns({"label": "key"}, ("reply 1", "reply 2")),
        {"question": "q", "reply 1": "w", "reply 2": "x", "key": 1},
        ("-", "q", ["w", "x"], 1),
        1,
    ),
    "usual": (
        QuestionColumns(),
        {"question": "q", "ending0": "w", "ending1": "x"},
        ("-", "q", ["w", "x"], "-"),
        0,
    ),
}


@pytest.mark.parametrize("name", NAMED_COLUMNS)
def test_flags_name_the_columns_of_other_data_sets(name):
    columns, row, expected, first_number = NAMED_COLUMNS[name]
    parts = with_known_names(row, columns)
    assert tuple(parts.get(part, "-") for part in ("passage", "question", "options", "label")) == (
        expected
    )
    assert columns.first_number(row) == first_number


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (QuestionColumns(options=("opa", "opx")), "no column 'opx' among .*--option_columns names"),
        (QuestionColumns({"question": "query"}, ("opa", "opb")), "no column 'query' among"),
        (QuestionColumns({"passage": "text"}, ("opa", "opb")), "no column 'text' among"),
        (QuestionColumns(), "no options among .*; --option_columns takes other names"),
    ],
)
def test_a_column_that_a_flag_names_must_be_there(columns, said):
    with pytest.raises(BadRowError, match=said):
        with_known_names({"question": "q", "opa": "w", "opb": "x"}, columns)
