"""Rows with lists of tokens and tags, of the Hub and of CLUENER, are the sentences of columns."""

import pytest

from albert_tf.finetuning.token_classification import Settings
from albert_tf.finetuning.token_classification.reading import read_data, read_sentences
from albert_tf.tables.python_rows import tables_of
from tests.hub_files import WITH_NAMES, class_label, list_of, write_json_lines, write_parquet

NAMES = ("O", "B-PER", "I-PER", "B-LOC")
POS = ("NOUN", "VERB", "ADP")
ROWS = [
    {
        "id": "0",
        "tokens": ["the", "river", "boat"],
        "pos_tags": [0, 1, 2],
        "ner_tags": [0, 3, 0],
    },
    {"id": "1", "tokens": ["rain"], "pos_tags": [1], "ner_tags": [1]},
    {"id": "2", "tokens": ["-DOCSTART-"], "pos_tags": [0], "ner_tags": [0]},
    {"id": "3", "tokens": ["old", "rain"], "pos_tags": [0, 1], "ner_tags": [1, 2]},
]
FEATURES = {
    "ner_tags": list_of(class_label(*NAMES)),
    "pos_tags": list_of(class_label(*POS), "List"),
}
COLUMNS = "the O\nriver B-LOC\nboat O\n\nrain B-PER\n\nold B-PER\nrain I-PER\n"
CLUENER = [
    {
        "text": "浙商 银行叶老桂在京",
        "label": {"company": {"浙商 银行": [[0, 4]]}, "name": {"叶老桂": [[5, 7]]}},
    },
    {"text": "在京", "label": {}},
    {"text": "京在京", "label": {"city": {"京": [[0, 0], [2, 2]]}}},
]


def settings_for(folder, **values):
    return Settings(data_dir=str(folder), output_dir=str(folder / "out"), **values)


def read(folder, split="train", labels=(), **values):
    data = read_sentences(settings_for(folder, **values), split, labels)
    return [(sentence.tokens, sentence.labels) for sentence in data.examples]


def read_columns(folder, text):
    (folder / "columns").mkdir()
    (folder / "columns" / "train.txt").write_text(text, encoding="utf-8")
    return read(folder / "columns")


def as_names(row):
    return row | {"ner_tags": [NAMES[tag] for tag in row["ner_tags"]], "pos_tags": None}


@pytest.mark.parametrize("write", WITH_NAMES)
def test_lists_of_tokens_and_ids_of_tags_are_the_sentences_of_columns(tmp_path, write):
    (tmp_path / "hub").mkdir()
    write(tmp_path / "hub", {"train": ROWS}, FEATURES)
    expected = read_columns(tmp_path, COLUMNS)
    assert read(tmp_path / "hub") == expected
    tags = [("NOUN", "VERB", "ADP"), ("VERB",), ("NOUN", "VERB")]
    assert [labels for _, labels in read(tmp_path / "hub", tag_column="pos_tags")] == tags


def test_tags_may_be_names_in_json_and_in_rows_of_python(tmp_path):
    rows = [as_names(row) for row in ROWS]
    (tmp_path / "hub").mkdir()
    write_json_lines(tmp_path / "hub", {"train": rows})
    expected = read_columns(tmp_path, COLUMNS)
    assert read(tmp_path / "hub") == expected
    given = tables_of({"train": rows})
    tags, data = read_data(settings_for(tmp_path, do_train=True), given=given)
    assert [(x.tokens, x.labels) for x in data["train"].examples] == expected
    assert tags.labels == ("B-LOC", "B-PER", "I-PER", "O")


def test_characters_of_cluener_are_tokens_and_its_spans_their_tags(tmp_path):
    write_json_lines(tmp_path, {"train": CLUENER, "test": [{"id": 0, "text": "在京"}]})
    assert read(tmp_path) == [
        (
            tuple("浙商银行叶老桂在京"),
            ("B-company", *["I-company"] * 3, "B-name", "I-name", "I-name", "O", "O"),
        ),
        (("在", "京"), ("O", "O")),
        (("京", "在", "京"), ("B-city", "O", "B-city")),
    ]
    assert read(tmp_path, "test", ("O",)) == [(("在", "京"), (None, None))]


def test_spans_that_overlap_are_left_out_and_counted(tmp_path, caplog):
    label = {"city": {"京": [[1, 1]]}, "name": {"在京": [[0, 1]]}}
    write_json_lines(tmp_path, {"train": [{"text": "在京", "label": label}]})
    assert read(tmp_path) == [(("在", "京"), ("B-name", "I-name"))]
    assert "train.jsonl: 1 spans are left out, because they overlap others" in caplog.text


def test_test_rows_may_lack_tags(tmp_path, caplog):
    rows = [ROWS[0], ROWS[1] | {"ner_tags": [-1]}, ROWS[3] | {"ner_tags": [1, -100]}]
    write_parquet(tmp_path, {"test": rows, "train": rows}, FEATURES)
    found = [labels for _, labels in read(tmp_path, "test", ("O", "B-PER", "B-LOC"))]
    assert found == [("O", "B-LOC", "O"), (None,), ("B-PER", None)]
    assert "predicted, but not evaluated: 2 of 3 have no known label; the first is" in caplog.text
    caplog.clear()
    with pytest.raises(ValueError, match="row 2: token 1 has no tag"):
        read(tmp_path)
    (tmp_path / "none").mkdir()
    write_json_lines(tmp_path / "none", {"test": [{"tokens": ["a", "b"]}, {"tokens": ["c"]}]})
    assert read(tmp_path / "none", "test", ("O",)) == [
        (("a", "b"), (None, None)),
        (("c",), (None,)),
    ]
    assert not caplog.messages


def row(**changes):
    return {"tokens": ["a", "b"], "ner_tags": ["O", "O"]} | changes


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (row(tokens=[]), r"the tokens are \[\], expected a list of one or more"),
        (row(tokens="a b"), "the tokens are 'a b', expected a list"),
        (row(tokens=["a", ""]), "token 2 is '', expected text"),
        (row(tokens=["a", "b\n"]), "token 2 is 'b.n', expected text without tabs and line breaks"),
        (row(tokens=["a", 5]), "token 2 is 5, expected text"),
        (row(ner_tags=["O"]), r"'ner_tags' is \['O'\], expected a list of 2 tags"),
        (row(ner_tags=[0, 0]), "'ner_tags' has 0 without a name: write the names of the tags, or"),
        (row(ner_tags=["O", None]), "token 2 has no tag"),
        (row(ner_tags=["O", "Q"]), "unknown label 'Q'; expected B-PER, O"),
        ({"tokens": ["a", "b"]}, r"no column 'ner_tags' or .* among 'tokens'\. Pass --tag_column"),
        (
            {"tokens": ["a", "b"], "pos": ["x", "y"], "upos": ["x", "y"]},
            "'pos', 'upos' may be meant; no column .*Pass --tag_column",
        ),
        ({"pieces": ["a"]}, "no column 'tokens' or 'words' among 'pieces'"),
        ({"text": " ", "label": {}}, "'text' is empty"),
        ({"text": "ab", "label": "x"}, "label 'x': expected type → text → list of"),
        ({"text": "ab", "label": {"x": {"b": [[0, 0]]}}}, "the text does not have 'b' at char"),
    ],
)
def test_what_is_wrong_in_a_row_is_named(tmp_path, bad, problem):
    write_json_lines(tmp_path, {"train": [row(), bad]})
    with pytest.raises(ValueError, match=rf"train\.jsonl, line 2: .*{problem}"):
        read(tmp_path, labels=("B-PER", "O"))


def test_an_only_other_list_is_taken_for_the_tags(tmp_path):
    write_json_lines(tmp_path, {"train": [{"tokens": ["a", "b"], "upos": ["X", "Y"]}]})
    assert read(tmp_path) == [(("a", "b"), ("X", "Y"))]
    write_parquet(tmp_path, {"dev": ROWS[:1]}, FEATURES | {"ner_tags": list_of(class_label("O"))})
    with pytest.raises(ValueError, match="row 1: tag 3: expected an id below 1"):
        read(tmp_path, "dev")
