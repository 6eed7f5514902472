"""Which unused columns decide the labels of texts."""

import pytest

from tests.finetuning.classification.test_meaning import read
from tests.hub_files import write_csv, write_json_lines

WIC = [
    {"sentence1": "A seat by the bank.", "sentence2": "He sat in the bank.", "word": word}
    | {"label": label, "idx": number}
    for number, (word, label) in enumerate([("seat", 0), ("bank", 1)] * 2)
]
MENU = ["The soup was fine, the waiter was not.", "The waiter smiled, the bread was old."]
ASPECTS = [
    {"text": text, "aspect": aspect, "label": label}
    for text, labels in zip(MENU, ["good bad", "bad good"], strict=True)
    for aspect, label in zip(["food", "service"], labels.split(), strict=True)
]
SPANS = [
    {"text": "Ann told Eve that she won.", "label": label, "id": f"r{number}"}
    | {"target": {"span1_text": noun, "span2_text": "she"}}
    for number, (noun, label) in enumerate([("Ann", "yes"), ("Eve", "no")])
]


def with_column(rows, name, values):
    return [row | {name: value} for row, value in zip(rows, values, strict=True)]


@pytest.mark.parametrize("write", [write_json_lines, write_csv])
@pytest.mark.parametrize(
    ("rows", "name", "advice"),
    [
        (WIC, "word", "To use it, write it into the text"),
        (ASPECTS, "aspect", "To use it, pass --text_b_column=aspect, or write it into the text"),
        (SPANS, "target", "pass --text_b_column=target"),
    ],
)
def test_a_column_without_which_the_same_texts_have_several_labels_is_named(
    tmp_path, caplog, write, rows, name, advice
):
    write(tmp_path, {"train": rows})
    read(tmp_path)
    said = f"train.{'jsonl' if write is write_json_lines else 'csv'}: the same texts have "
    assert f"{said}different labels, and '{name}', which is not used" in caplog.text
    assert advice in caplog.text


@pytest.mark.parametrize(
    "rows",
    [
        with_column(ASPECTS, "aspect", ["food"] * 4),  # which does not tell them apart
        with_column(ASPECTS, "aspect", [7, 8, 9, 10]),  # an id
        [row | {"text": row["text"] + row["aspect"]} for row in ASPECTS],
        [row | {"label": row["text"]} for row in ASPECTS],
        # Two of 300 rows: the label may be wrong.
        ASPECTS[:2] + [row | {"text": f"soup {n}"} for n in range(149) for row in ASPECTS[::3]],
    ],
)
def test_no_column_is_named_that_does_not_decide(tmp_path, caplog, rows):
    write_csv(tmp_path, {"train": rows})
    read(tmp_path)
    assert "the same texts" not in caplog.text


def test_a_column_that_is_used_is_not_named(tmp_path, caplog):
    write_csv(tmp_path, {"train": ASPECTS})
    read(tmp_path, text_b_column="aspect")
    assert "the same texts" not in caplog.text
