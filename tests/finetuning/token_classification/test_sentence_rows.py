"""Rows with lists of tokens and tags, of the Hub and of CLUENER, are the sentences of columns."""

import pytest

from albert_tf.finetuning.token_classification import Settings
from albert_tf.finetuning.token_classification.reading import open_sentences, read_data
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
    data = open_sentences(settings_for(folder, **values), split, labels).read_all()
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
    assert (
        "train.jsonl: 1 spans, which overlap others, are left out; the first is in line 1"
        in caplog.text
    )


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
        (row(tokens=None), "the tokens are None, expected a list"),
        (row(tokens="a b"), "the tokens are 'a b', expected a list"),
        (row(tokens=["a", ""]), "token 2 is '', expected text"),
        (row(tokens=["a", "b\n"]), "token 2 is 'b.n', expected text without tabs and line breaks"),
        (row(tokens=["a", 5]), "token 2 is 5, expected text"),
        (row(ner_tags=["O"]), r"'ner_tags' is \['O'\], expected a list of 2 tags"),
        (row(ner_tags=[0, 0]), "'ner_tags' has 0 without a name: pass the names of the tags in"),
        (row(ner_tags=["O", None]), "token 2 has no tag"),
        (row(ner_tags=["O", "Q"]), "unknown label 'Q'; expected B-PER, O"),
        ({"tokens": ["a", "b"]}, r"no column 'ner_tags' or .* among 'tokens'\. Pass --tag_column"),
        (
            {"tokens": ["a", "b"], "pos": ["x", "y"], "upos": ["x", "y"]},
            "'pos', 'upos' may be meant; no column .*Pass --tag_column",
        ),
        ({"pieces": ["a"]}, "no column 'tokens' or 'words' among 'pieces'"),
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


def test_sentences_without_a_token_are_left_out_and_counted(tmp_path, caplog):
    empty = {"tokens": [], "ner_tags": []}
    write_json_lines(tmp_path, {"train": [row(), empty, row(), empty], "test": [empty, row()]})
    assert read(tmp_path) == [(("a", "b"), ("O", "O"))] * 2
    assert "2 sentences without a token are left out; the first is in line 2" in caplog.text
    assert len(read(tmp_path, "test")) == 1
    write_json_lines(tmp_path, {"dev": [{"text": " ", "label": {}}, CLUENER[1]]})
    assert read(tmp_path, "dev") == [(("在", "京"), ("O", "O"))]
    write_json_lines(tmp_path, {"dev": [empty]})
    with pytest.raises(ValueError, match=r"dev\.jsonl: contains no example"):
        read(tmp_path, "dev")


PARTS = ("NOUN", "AUX", "_", "PART", "VERB")
DEPENDENCIES = {
    "tokens": ["Boats", "don't", "do", "n't", "sink", "fast"],
    "upos": [0, 2, 1, 3, 4, 0],
    "xpos": ["NNS", "_", "VBP", "RB", "VB", "RB"],
    "head": ["5", "None", "5", "5", "0", "None"],  # the last one is an empty node
}
CONLLU = """\
1\tBoats\tNOUN
2-3\tdon't\t_
2\tdo\tAUX
3\tn't\tPART
4\tsink\tVERB
4.1\tfast\tNOUN
"""


@pytest.mark.parametrize("write", WITH_NAMES)
def test_what_is_no_token_in_conllu_is_none_in_rows(tmp_path, write, caplog):
    (tmp_path / "rows").mkdir()
    features = {"upos": list_of(class_label(*PARTS))}
    write(tmp_path / "rows", {"train": [DEPENDENCIES]}, features)
    (tmp_path / "columns").mkdir()
    (tmp_path / "columns" / "train.conllu").write_text(CONLLU)
    expected = read(tmp_path / "columns", token_column=1, label_column=2, tag_scheme="raw")
    assert read(tmp_path / "rows", tag_column="upos") == expected
    assert "2 ranges of tokens and empty nodes, which are no tokens, are left out" in caplog.text
    ((_, tags),) = read(tmp_path / "rows", tag_column="xpos")
    assert tags == ("NNS", "VBP", "RB", "VB")


def test_ranges_are_found_in_rows_that_have_tokens_and_parts_of_speech_only(tmp_path):
    row = {name: DEPENDENCIES[name] for name in ("tokens", "upos")}
    row |= {"upos": [PARTS[part] for part in row["upos"]]}
    write_json_lines(tmp_path, {"train": [row]})
    assert read(tmp_path) == [
        (("Boats", "do", "n't", "sink", "fast"), ("NOUN", "AUX", "PART", "VERB", "NOUN"))
    ]
    # Without trees, no token depends on another; and "_" is a tag as any other elsewhere.
    write_json_lines(tmp_path, {"dev": [row | {"head": ["_"] * 6}]})
    assert len(read(tmp_path, "dev", tag_column="upos")[0][0]) == 5
    write_json_lines(tmp_path, {"test": [{"tokens": ["a", "b"], "ner_tags": ["_", "B"]}]})
    assert read(tmp_path, "test") == [(("a", "b"), ("_", "B"))]


@pytest.mark.parametrize("number", [int, str])
def test_flags_name_tags_that_are_numbers(tmp_path, number):
    rows = [row | {"ner_tags": list(map(number, row["ner_tags"]))} for row in ROWS]
    (tmp_path / "rows").mkdir()
    write_json_lines(tmp_path / "rows", {"train": rows})
    expected = read_columns(tmp_path, COLUMNS)
    assert read(tmp_path / "rows", tag_names=NAMES) == expected
    assert read(tmp_path / "rows", tag_names="O,B-PER,I-PER,B-LOC") == expected
    with pytest.raises(ValueError, match="tag 3: expected an id below 3"):
        read(tmp_path / "rows", tag_names=NAMES[:3])
    (tmp_path / "ids").mkdir()
    text = COLUMNS
    for name in NAMES:
        text = text.replace(f" {name}\n", f" {NAMES.index(name)}\n")
    (tmp_path / "ids" / "train.txt").write_text(text)
    assert read(tmp_path / "ids", tag_names=NAMES) == expected
    with pytest.raises(ValueError, match="line 2: tag 3: expected an id below 2"):
        read(tmp_path / "ids", tag_names=NAMES[:2])


def test_names_that_contradict_those_of_the_table_are_refused(tmp_path):
    write_parquet(tmp_path, {"train": ROWS}, FEATURES)
    assert read(tmp_path, tag_names=NAMES) == read(tmp_path)
    with pytest.raises(
        ValueError, match=r"--tag_names has 'O', 'B', but the data have 'O', 'B-PER"
    ):
        read(tmp_path, tag_names=("O", "B"))
