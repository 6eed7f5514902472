"""Which unused columns have texts."""

import pytest

from albert_tf.finetuning.columns import MAX_ROWS, UnusedTexts, places_of

HEADER = ["title", "text", "label", "review", "author", "date", "kind", "标题"]
ROW = [
    "Good",
    "x",
    "pos",
    "I liked it",
    "Ann Lee",
    "2020-01-01 10:00",
    "a long kind here",
    "很好的电影",
]


def names_of(header, rows, used=(1, 2)):
    unused = UnusedTexts(places_of(header), used)
    for row in rows:
        unused.add(row)
    return unused.names()


def rows_of(count):
    return [[*(f"{cell} {n}" for cell in ROW[:6]), ROW[6], ROW[7] + str(n)] for n in range(count)]


def test_columns_are_texts_by_their_name_or_their_values():
    assert names_of(HEADER, rows_of(3)) == ["title", "review", "标题"]
    objects = [dict(zip(HEADER, row, strict=True)) for row in rows_of(3)]
    assert names_of(objects[0], objects, ("text", "label")) == ["title", "review", "标题"]
    assert names_of(HEADER, rows_of(3), range(8)) == []


@pytest.mark.parametrize("value", ["", None, 5, ["a", "long", "list"], {"a": "b c d e"}])
def test_what_is_no_text_is_none(value):
    assert names_of({"title": ""}, [{"title": value}] * 3, ()) == []


def test_a_row_may_be_short_and_only_the_first_rows_are_looked_at():
    assert names_of(["title", "text"], [["a"], ["b", "c"]], (0,)) == ["text"]
    rows = [["x"]] * MAX_ROWS + [[f"some {n} more words" for n in range(1)]] * MAX_ROWS
    assert names_of(["review"], rows, ()) == []
