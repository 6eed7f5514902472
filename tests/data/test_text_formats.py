"""The documents and sentences of each format of text."""

from __future__ import annotations

import json

import pytest

from albert_tf.data import text_window
from albert_tf.data.chunks import read_chunks
from albert_tf.data.sentences import sentences_of, split_paragraph
from albert_tf.data.settings import TextSettings
from albert_tf.data.sources import find_sources
from tests.data.conftest import split_documents, write

ARTICLES = """<doc id="1" url="u?a=1&amp;b" title="R&amp;D &quot;x&quot;">
R&amp;D "x"

First &lt;doc&gt; here.
Second.

</doc>
<doc id="2" url="u" title="B">
B

B
&lt;/doc&gt;
</doc>
"""


def read(path, chunk_bytes=1 << 20, **settings):
    """Returns the documents of a file, as lists of sentences."""
    settings = TextSettings(**settings)
    chunks = read_chunks(find_sources([path]), chunk_bytes, settings.input_format)
    parts = [lines for chunk in chunks for lines in sentences_of(chunk.parts, settings)]
    return split_documents(line for lines in parts for line in [*lines, ""])


def json_lines(*texts, **others):
    return "".join(json.dumps({"text": text, **others}) + "\n" for text in texts)


@pytest.mark.parametrize(
    ("input_format", "text", "expected"),
    [
        ("sentences", "one\ntwo. three.\n \nfour\n", [["one", "two. three."], ["four"]]),
        ("documents", "\ufeffone\n\ntwo\r\n  \nthree", [["one", "two", "three"]]),
        ("documents", "\n\n", []),
        ("wikiextractor", ARTICLES, [["First <doc> here.", "Second."], ["B", "</doc>"]]),
        (
            "jsonl",
            json_lines("one\ntwo\n\n \nthree", "four\r\nfive\rsix", id=7) + "\n  \n",
            [["one", "two", "three"], ["four", "five", "six"]],
        ),
        ("jsonl", '{"text": "a \\ud83d b\\u0000c\x01d"}\n', [["a \ufffd b\0c\1d"]]),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_documents_are_those_of_the_format(tmp_path, input_format, text, expected, chunk_bytes):
    path = write(tmp_path / "text", text)
    assert read(path, chunk_bytes, input_format=input_format) == expected


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "no end', "expected a JSON object: Unterminated string"),
        ('["text"]', "expected a JSON object, found a list"),
        ("[" * 100_000, "expected a JSON object, found one that is nested hundreds of levels"),
        ('{"body": "one", "id": 3}', "no field 'text'; its fields: 'body', 'id'. .*--text_field"),
        ('{"text": "one", "text": "two"}', "an object has several values of 'text'"),
        ('{"text": ["one"]}', "field 'text': expected text, found a list"),
    ],
)
def test_a_line_without_json_text_is_named(tmp_path, line, said):
    path = write(tmp_path / "text.jsonl", json_lines("one", "two") + "\n" + line + "\n")
    with pytest.raises(ValueError, match=rf"text\.jsonl, line 4: {said}"):
        read(path, chunk_bytes=10, input_format="jsonl")


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        (
            "en",
            ["Mr. Holmes paid $3.50 at 4 p.m. on Monday.", ' "Is it you?" he asked.', " It was."],
        ),
        ("zh", ["他说：“你好吗？我很好。”", "然后走了。", "价格是3.5元！", " 真的？"]),
    ],
)
def test_paragraphs_are_split_into_sentences(language, sentences):
    paragraph = "".join(sentences)
    assert split_paragraph(paragraph, language) == [sentence.strip() for sentence in sentences]


@pytest.mark.parametrize(
    ("input_format", "text", "expected"),
    [
        ("sentences", "One. Two!\nThree.\n \nFour?", [["One.", "Two!", "Three."], ["Four?"]]),
        ("documents", "One. Two!\n\nThree.", [["One.", "Two!", "Three."]]),
        ("jsonl", json_lines("One. Two!\n\nThree.", "4."), [["One.", "Two!", "Three."], ["4."]]),
    ],
)
def test_paragraphs_of_every_format_are_split(tmp_path, input_format, text, expected):
    path = write(tmp_path / "text", text)
    assert read(path, input_format=input_format, split_sentences=True) == expected


def test_a_paragraph_may_be_longer_than_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(text_window, "MAX_SENTENCE_CHARS", 20)
    path = write(tmp_path / "text", "A boat waits. The river is wide. It rains.\n\nNext.")
    assert len(read(path, split_sentences=True)[0]) == 3
    with pytest.raises(ValueError, match="text, line 1: longer than 20 characters"):
        read(path)
    path = write(tmp_path / "text.jsonl", json_lines("short", "x" * 20))
    assert read(path, input_format="jsonl") == [["short"], ["x" * 20]]
    path = write(tmp_path / "text.jsonl", json_lines("short", "x" * 21))
    with pytest.raises(ValueError, match=r"text\.jsonl, line 2: longer than 20 characters"):
        read(path, input_format="jsonl")
