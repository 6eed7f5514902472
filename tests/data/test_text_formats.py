"""Sentences from paragraphs, whole files and JSON lines."""

from __future__ import annotations

import gzip
import importlib.util
import json

import pytest

from albert_tf.data import corpus
from albert_tf.data.settings import TextSettings
from albert_tf.data.text_formats import sentences_of, split_paragraph

JSONL = TextSettings(input_format="jsonl")


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode("utf-8"))
    return str(path)


def read(paths, settings, chunk_bytes=1 << 20):
    """Returns the documents of all chunks, as lists of sentences."""
    found = [[]]
    for chunk in corpus.read_chunks(paths, chunk_bytes, settings.input_format):
        for lines in sentences_of(chunk.parts, settings):
            for line in [*lines, ""]:
                if line.strip():
                    found[-1].append(line)
                else:
                    found.append([])
    return [document for document in found if document]


def json_lines(*texts, **others):
    return "".join(json.dumps({"text": text, **others}) + "\n" for text in texts)


def needs_sentencex():
    if not importlib.util.find_spec("sentencex"):
        pytest.skip("sentencex is not installed")


def test_one_sentence_per_line_is_the_default(tmp_path):
    path = write(tmp_path / "text.txt", "one\ntwo. three.\n \nfour\n")
    assert read([path], TextSettings()) == [["one", "two. three."], ["four"]]


def test_a_json_object_is_a_document(tmp_path):
    text = json_lines("one\ntwo\n\n \nthree", "four\r\nfive\rsix", id=7) + "\n  \n"
    path = write(tmp_path / "text.jsonl", text)
    assert read([path], JSONL) == [["one", "two", "three"], ["four", "five", "six"]]


def test_the_text_may_be_in_another_field(tmp_path):
    path = write(tmp_path / "text.jsonl", '{"text": 1, "content": "one"}\n{"content": "two"}')
    assert read([path], TextSettings(input_format="jsonl", text_field="content")) == [
        ["one"],
        ["two"],
    ]


@pytest.mark.parametrize("chunk_bytes", [1, 50, 200])
def test_json_lines_are_split_between_objects_and_gzip_is_read(tmp_path, chunk_bytes):
    texts = [f"text {number}\nmore 字" for number in range(30)]
    path = write(tmp_path / "text.jsonl.gz", gzip.compress(json_lines(*texts).encode()))
    expected = [text.split("\n") for text in texts]
    assert read([path], JSONL, chunk_bytes) == expected
    chunks = list(corpus.read_chunks([path], chunk_bytes, "jsonl"))
    assert len(chunks) > 3
    for chunk in chunks:  # an instance may need another document
        parts = chunk.parts + chunk.borrowed
        assert sum(lines.count("") for lines in sentences_of(parts, JSONL)) >= 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "no end', r"expected a JSON object: Unterminated string"),
        ("plain text", "expected a JSON object: Expecting value"),
        ('["text"]', "expected a JSON object, found a list"),
        ('{"body": "one", "id": 3}', r"no field 'text'; its fields: 'body', 'id'. .*--text_field"),
        ("{}", r"no field 'text'; its fields: none"),
        ('{"text": ["one"]}', "field 'text': expected text, found a list"),
        ('{"text": null}', "field 'text': expected text, found a NoneType"),
    ],
)
def test_an_error_names_the_line_without_json_text(tmp_path, line, reason):
    path = write(tmp_path / "text.jsonl", json_lines("one", "two") + "\n" + line + "\n")
    with pytest.raises(ValueError, match=rf"text\.jsonl, line 4: {reason}"):
        read([path], JSONL, chunk_bytes=10)


def test_lone_surrogates_and_raw_controls_in_json_are_tolerated(tmp_path):
    path = write(tmp_path / "text.jsonl", b'{"text": "a \\ud83d b\\u0000c\x01d"}\n')
    assert read([path], JSONL) == [["a \ufffd b\0c\1d"]]


def test_an_endless_json_line_is_rejected_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "MIN_DOCUMENT_LIMIT", 5000)
    monkeypatch.setattr(corpus, "READ_BYTES", 1000)
    path = write(tmp_path / "text.jsonl", json_lines("short") + '{"text": "' + "x" * 60_000)
    with pytest.raises(
        ValueError, match=r"text\.jsonl, line 2: .* Expected one JSON object per line"
    ):
        read([path], JSONL, 1)


def test_a_file_is_a_document(tmp_path):
    paths = [
        write(tmp_path / "one.txt", "first\n\nsecond\n  \nthird"),
        write(tmp_path / "two.txt", "\n\n"),
        write(tmp_path / "three.txt", "\ufefffourth\r\n"),
    ]
    expected = [["first", "second", "third"], ["fourth"]]
    assert read(paths, TextSettings(input_format="documents")) == expected
    # Files are not split at blank lines.
    assert read(paths, TextSettings(input_format="documents"), chunk_bytes=1) == expected
    assert len(list(corpus.read_chunks(paths, 1, "documents"))) == 3


def test_a_very_long_file_is_split_between_lines(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(corpus, "MIN_DOCUMENT_LIMIT", 500)
    text = "".join(f"sentence {number}\n\n" for number in range(200))
    path = write(tmp_path / "text.txt", text)
    documents = read([path], TextSettings(input_format="documents"), 100)
    assert [line for lines in documents for line in lines] == text.split("\n")[:-1:2]
    assert len(documents) > 3
    assert "no document boundary within" in caplog.text


def test_english_paragraphs_are_split_into_sentences():
    needs_sentencex()
    text = 'Mr. Holmes paid $3.50 at 4 p.m. on Monday. "Is it you?" he asked. It was.'
    assert split_paragraph(text, "en") == [
        "Mr. Holmes paid $3.50 at 4 p.m. on Monday.",
        '"Is it you?" he asked.',
        "It was.",
    ]


def test_chinese_paragraphs_are_split_into_sentences():
    needs_sentencex()
    text = "他说：“你好吗？我很好。”然后走了。价格是3.5元！ 真的？"
    assert split_paragraph(text, "zh") == [
        "他说：“你好吗？我很好。”",
        "然后走了。",
        "价格是3.5元！",
        "真的？",
    ]


@pytest.mark.parametrize(
    ("input_format", "text", "expected"),
    [
        ("sentences", "One. Two!\nThree.\n \nFour? Five.", [["One.", "Two!", "Three."], 2]),
        ("documents", "One. Two!\n\nThree.", [["One.", "Two!", "Three."]]),
        (
            "jsonl",
            json_lines("One. Two!\n\nThree.", "Four? Five."),
            [["One.", "Two!", "Three."], 2],
        ),
    ],
)
def test_paragraphs_of_every_format_are_split(tmp_path, input_format, text, expected):
    needs_sentencex()
    path = write(tmp_path / "text", text)
    expected = [["Four?", "Five."] if document == 2 else document for document in expected]
    assert read([path], TextSettings(input_format=input_format, split_sentences=True)) == expected


def test_a_paragraph_may_be_longer_than_a_sentence(tmp_path, monkeypatch):
    needs_sentencex()
    monkeypatch.setattr(corpus, "MAX_SENTENCE_CHARS", 20)
    path = write(tmp_path / "text", "A boat waits. The river is wide. It rains.\n\nNext.")
    assert len(read([path], TextSettings(split_sentences=True))[0]) == 3
    with pytest.raises(ValueError, match="text, line 1: longer than 20 characters"):
        read([path], TextSettings())
    path = write(tmp_path / "text.jsonl", json_lines("short", "x" * 21))
    with pytest.raises(ValueError, match=r"text\.jsonl, line 2: longer than 20 characters"):
        read([path], JSONL)


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


@pytest.mark.parametrize("chunk_bytes", [1, 1000])
def test_articles_of_wikiextractor_are_documents_without_titles(tmp_path, chunk_bytes):
    path = tmp_path / "wiki_00"
    path.write_text(ARTICLES)
    settings = TextSettings(input_format="wikiextractor")
    found = [
        line
        for chunk in corpus.read_chunks([str(path)], chunk_bytes, "wikiextractor")
        for lines in sentences_of(chunk.parts, settings)
        for line in lines
    ]
    assert found == ["First <doc> here.", "Second.", "", "B", "</doc>", ""]
