"""Training of vocabularies, SentencePiece as for English and WordPiece as for Chinese."""

from __future__ import annotations

import dataclasses
import gzip
import shlex
import subprocess
import sys
from collections import Counter

import pytest

from albert_tf.data import train_vocabulary
from albert_tf.data.train_vocabulary import Settings
from albert_tf.model.tokenization import FullTokenizer
from tests.conftest import TOY_TEXT, needs_text
from tests.file_events import folders_at_each_event

CHINESE = """\
雨下了一整天，到晚上7点才停。
孩子们用iPhone 15拍下了彩虹！

他说："iPad比iPhone大。"
她在2015年和2017年去过那里，iPod还在。
"""
SPECIAL_LAYOUT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.–£€']


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.fixture
def english(tmp_path):
    return write(tmp_path / "en.txt", TOY_TEXT)


def test_sentencepiece_has_the_special_ids_of_the_published_models(english, tmp_path):
    prefix = str(tmp_path / "new" / "toy")
    printed = str(train_vocabulary.run(Settings(english, prefix, vocab_size=79)))
    tokenizer = FullTokenizer(f"{prefix}.vocab", spm_model_file=f"{prefix}.model")
    assert tokenizer.pieces[:13] == SPECIAL_LAYOUT
    assert tokenizer.vocab_size == 79
    assert tokenizer.encode("£5 (a–b)")[1:].count(tokenizer.unk_id) == 1  # the 5
    assert not {"<s>", "</s>"} & set(tokenizer.pieces)
    assert f"wrote {prefix}.model and {prefix}.vocab\nsize: 79 pieces" in printed
    assert "coverage: 100.000%" in printed
    assert "0 <pad>  1 <unk>  2 [CLS]  3 [SEP]  4 [MASK]  5 (" in printed


def test_text_is_normalized_as_for_the_records_also_if_it_is_compressed(tmp_path):
    text = "\ufeffCAFÉ Crème\r\n \r\ncafé CRÈME\n" * 5
    path = write(tmp_path / "text.gz", gzip.compress(text.encode()))
    found = []
    for is_lower in (True, False):
        prefix = str(tmp_path / f"v{is_lower}")
        settings = Settings(path, prefix, vocab_size=97, hard_vocab_limit=False)
        train_vocabulary.run(dataclasses.replace(settings, do_lower_case=is_lower))
        pieces = FullTokenizer(spm_model_file=f"{prefix}.model").pieces[13:]
        found.append(set("".join(pieces)))
    assert found[0] == set("▁cafeCREME".lower())
    assert {"C", "F"} <= found[1]


@pytest.mark.parametrize(
    ("type_", "is_lower", "share"),
    [
        ("sentencepiece", True, "27.3%"),
        ("sentencepiece", False, "27.3%"),
        pytest.param("wordpiece", True, "27.3%", marks=needs_text),
        pytest.param("wordpiece", False, "0.0%", marks=needs_text),
    ],
)
def test_words_that_lose_their_marks_are_counted(tmp_path, caplog, type_, is_lower, share):
    text = write(tmp_path / "ru.txt", "мой синий дом на реке\nмои синие дома на море й\n" * 9)
    settings = Settings(text, str(tmp_path / "v"), type_, vocab_size=99, hard_vocab_limit=False)
    result = train_vocabulary.run(dataclasses.replace(settings, do_lower_case=is_lower))
    assert f"marks: {share} of the words in these lines lose" in str(result)
    said = '27% of the words of the text, such as "мой" → "мои"'
    assert (said in caplog.text) == (share != "0.0%")


@pytest.mark.parametrize("type_", ["sentencepiece", pytest.param("wordpiece", marks=needs_text)])
def test_the_same_text_gives_the_same_vocabulary(tmp_path, type_):
    lines = [f"{line} {number}" for number in range(59) for line in TOY_TEXT.splitlines()]
    text = write(tmp_path / "long.txt", "\n".join(lines))
    content = []
    settings = Settings(text, str(tmp_path / "v"), type_, vocab_size=83, input_sentence_size=103)
    for overwrite in (False, True):
        train_vocabulary.run(dataclasses.replace(settings, overwrite=overwrite))
        content.append([path.read_bytes() for path in sorted(tmp_path.glob("v.*"))])
        for path in tmp_path.glob("v.*"):
            path.write_text("another one")
    assert content[0] == content[1] != []


@needs_text
def test_wordpiece_keeps_the_characters_that_cover_the_text():
    counts = Counter({"一": 90, "二": 9, "三": 1})
    for coverage, kept in ((0.9, "一"), (0.95, "一二"), (1.0, "一二三")):
        settings = Settings("i", "o", vocab_size=23, character_coverage=coverage)
        vocabulary = train_vocabulary.train_wordpiece(counts, settings)
        assert vocabulary[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        assert set(vocabulary[5:]) == {*kept, *("##" + char for char in kept)}


@needs_text
def test_wordpiece_spells_every_text_it_was_trained_on(tmp_path):
    text, prefix = write(tmp_path / "zh.txt", CHINESE), str(tmp_path / "vocabulary")
    train_vocabulary.run(Settings(text, prefix, "wordpiece", vocab_size=500))
    tokenizer = FullTokenizer(f"{prefix}.txt")
    for line in CHINESE.splitlines():
        assert tokenizer.unk_id not in tokenizer.encode(line)
    assert tokenizer.tokenize("iPhone 雨") == ["iphone", "雨"]
    assert tokenizer.tokenize("2015") != ["2", "##0", "##1", "##5"]
    assert {"雨", "##雨", "，"} <= set(tokenizer.pieces)


@pytest.mark.parametrize(("longest", "letters"), [(11, "▁abcdef"), (12, "▁abcdefgh")])
def test_a_line_of_exactly_the_maximum_length_is_trained_on(tmp_path, longest, letters):
    lines = ["abc ab", "abc def def", "abc defg ghg"]  # the last two have 11 and 12 bytes
    text = write(tmp_path / "text.txt", "\n".join(lines * 9))
    settings = Settings(text, str(tmp_path / "v"), vocab_size=99, hard_vocab_limit=False)
    train_vocabulary.run(dataclasses.replace(settings, max_sentence_length=longest))
    pieces = FullTokenizer(spm_model_file=str(tmp_path / "v.model")).pieces
    assert set("".join(pieces[13:])) == set(letters)


@needs_text
def test_a_piece_of_a_wordpiece_vocabulary_occurs_twice():
    counts = Counter({"ab": 2, "cd": 1})
    settings = Settings("i", "o", vocab_size=23, character_coverage=1.0)
    vocabulary = train_vocabulary.train_wordpiece(counts, settings)
    assert {"ab", "c", "##d"} <= set(vocabulary)
    assert "cd" not in vocabulary


@needs_text
def test_a_wordpiece_vocabulary_may_have_exactly_the_smallest_size():
    settings = Settings("i", "o", vocab_size=14, character_coverage=1.0)
    counts = Counter({"abcd": 5})
    assert len(train_vocabulary.train_wordpiece(counts, settings)) == 14
    with pytest.raises(ValueError, match=r"--vocab_size=13 is too small .* symbols is 14\."):
        train_vocabulary.train_wordpiece(counts, dataclasses.replace(settings, vocab_size=13))


def test_a_size_out_of_reach_names_the_limit_and_the_limit_works(english, tmp_path):
    for size, said in (
        (5000, r"too large for this text: the maximum is (\d+)"),
        (17, r"symbols is (\d+)"),
    ):
        with pytest.raises(ValueError, match=rf"--vocab_size={size} .*{said}") as error:
            train_vocabulary.run(Settings(english, str(tmp_path / "v"), vocab_size=size))
        assert not list(tmp_path.glob("v.*"))
        words = str(error.value).replace(".", " ").split()
        limit = next(int(word) for word in words if word.isdigit())
        train_vocabulary.run(Settings(english, str(tmp_path / "v"), vocab_size=limit))
        for path in tmp_path.glob("v.*"):
            path.unlink()


@pytest.mark.parametrize("type_", ["sentencepiece", pytest.param("wordpiece", marks=needs_text)])
def test_a_kill_at_any_time_leaves_what_the_same_command_finishes(english, tmp_path, type_):
    folder = tmp_path / "vocabulary"
    folder.mkdir()

    def train(folder, **changes):
        settings = Settings(english, str(folder / "v"), type_, vocab_size=79)
        train_vocabulary.run(dataclasses.replace(settings, **changes))

    def content(folder):
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    *kills, whole = folders_at_each_event(folder, tmp_path / "at", lambda: train(folder))
    expected = content(whole)
    assert len(expected) == (2 if type_ == "sentencepiece" else 1)
    assert len(kills) >= 2 * len(expected)
    for place in kills:
        if not expected.keys() <= content(place).keys():
            train(place)
            assert content(place) == expected, place
        with pytest.raises(ValueError, match="already exists"):
            train(place)
    if type_ == "sentencepiece":
        (whole / "v.model").unlink()
        with pytest.raises(ValueError, match=r"v\.vocab already exists"):
            train(whole, do_lower_case=False)  # other pieces
        assert content(whole) == {"v.vocab": expected["v.vocab"]}
        (whole / "v.vocab").write_text("mine")
        train(whole, overwrite=True)
        assert content(whole) == expected


@pytest.mark.ci
def test_the_command_of_googles_readme_gives_the_ids_of_the_published_models(english, tmp_path):
    command = [sys.executable, "-m", "albert_tf", "train-vocabulary"]
    command += shlex.split(
        "--vocab_size=61 --logtostderr --pad_id=0 --unk_id=1 --eos_id=-1 --bos_id=-1"
        " --control_symbols=[CLS],[SEP],[MASK]"
        r' --user_defined_symbols="(,),\",-,.,–,£,€"'
        " --shuffle_input_sentence=true --input_sentence_size=10000000"
        " --character_coverage=0.99995 --model_type=unigram"
    )
    command += ["--input", english, "--model_prefix", f"{tmp_path / 'v'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "size: 61 pieces" in done.stdout
    pieces = FullTokenizer(spm_model_file=str(tmp_path / "v.model")).pieces
    assert pieces[: len(SPECIAL_LAYOUT)] == SPECIAL_LAYOUT
