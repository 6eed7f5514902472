"""Tokenizers of Google's vocabularies: pieces and ids, batches, and text from ids."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import random
import unicodedata

import numpy as np
import pytest
import sentencepiece

from albert_tf.model.tokenization import (
    BasicTokenizer,
    FullTokenizer,
    WordpieceTokenizer,
    characters,
    encode_pieces,
    preprocess_text,
)
from albert_tf.model.tokenization.sentencepiece_encoder import has_number_comma
from albert_tf.model.tokenization.tokenizer import truncated_lengths
from albert_tf.model.tokenization.wordpiece_encoder import load_vocab

TOY_VOCABULARY = "[UNK] [CLS] [SEP] want ##want ##ed wa un runn ##ing , 博 推 ##7 [MASK]".split()


def write_vocabulary(path, tokens):
    path.write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    return str(path)


def train_sentencepiece(path, **overrides):
    settings = {
        "sentence_iterator": iter(
            ["one 7, two 17, three", "four x7, 1999, five", "so it goes"] * 9
        ),
        "vocab_size": 43,
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "control_symbols": ["[CLS]", "[SEP]", "[MASK]"],
        "user_defined_symbols": ["9,"],
        "hard_vocab_limit": False,
        "minloglevel": 2,
    }
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(model_writer=model, **{**settings, **overrides})
    path.write_bytes(model.getvalue())
    return str(path)


@pytest.fixture(scope="module")
def comma_model(tmp_path_factory):
    """A SentencePiece model that has a piece "9," that the digit-comma rule splits."""
    return train_sentencepiece(tmp_path_factory.mktemp("model") / "comma.model")


@pytest.fixture
def toy_vocabulary(tmp_path):
    return write_vocabulary(tmp_path / "vocab.txt", TOY_VOCABULARY)


@pytest.mark.parametrize(
    ("text", "cased", "lower"),
    [
        ("", "", ""),
        (" \t ", "", ""),
        ("  multiple \t  spaces\n", "multiple spaces", "multiple spaces"),
        ("\u3000全角\u3000空格\u00a0", "全角 空格", "全角 空格"),
        ("Café ÅNGSTRÖM", "Cafe ANGSTROM", "cafe angstrom"),
        ("ﬁne ﬂuffy ½ ² ™ …", "fine fluffy 1⁄2 2 TM ...", "fine fluffy 1⁄2 2 tm ..."),
        ("I’m “quoted”", "I’m “quoted”", "i’m “quoted”"),
        ("``as in TeX''", "``as in TeX''", "``as in tex''"),
        ("2020年，１０，０００人", "2020年,10,000人", "2020年,10,000人"),
        ("İstanbul", "Istanbul", "istanbul"),
        ("Straße", "Straße", "straße"),
        ("ガ", "カ", "カ"),
        ("नमस्ते", "नमसते", "नमसते"),
        ("한", "\u1112\u1161\u11ab", "\u1112\u1161\u11ab"),
        ("´x", " x", " x"),
        ("\x00null\x07", "\x00null\x07", "\x00null\x07"),
    ],
)
def test_preprocess_text_normalizes_like_the_official_program(text, cased, lower):
    assert preprocess_text(text) == cased
    assert preprocess_text(text, lower=True) == lower


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\u00a0b\n c", "a b\n c"), ("´", " "), ("\u0301", ""), ("½", "1⁄2"), (" ", " ")],
)
def test_preprocess_text_can_keep_whitespace(text, expected):
    assert preprocess_text(text, remove_space=False, lower=True) == expected


class _SpaceModel:
    """A fake SentencePiece model: every word is a piece, except for those in `splits`."""

    def __init__(self, splits):
        self.splits = splits

    def encode(self, text, out_type):
        assert out_type is str
        return [piece for word in text.split() for piece in self.splits.get(word, ["▁" + word])]


@pytest.mark.parametrize(
    ("text", "splits", "expected"),
    [
        ("x3,", {"x3,": ["▁x", "3,"], "3": ["▁", "3"]}, ["▁x", "▁", "3", ","]),
        ("12,", {"12": ["▁", "12"]}, ["▁", "12", ","]),
        ("1998,", {"1998,": ["▁199", "8,"], "8": ["▁", "8"]}, ["▁199", "▁", "8", ","]),
        ("2,000, a", {}, ["▁2,000", ",", "▁a"]),
        ("a, ,", {}, ["▁a,", "▁,"]),
        ("٢,", {"٢,": ["٢,"]}, ["▁٢", ","]),
        ("7,", {"7": ["▁8,"]}, ["▁8,", ","]),
    ],
    ids=["inside", "start", "end", "inner comma", "no digit", "any script", "once only"],
)
def test_a_number_is_encoded_again_without_its_comma(text, splits, expected):
    assert encode_pieces(_SpaceModel(splits), text) == expected


def plain_basic_tokenizer(text, lower):
    """BERT's rules, applied to each character one after the other."""
    cleaned = ""
    for char in text:
        category = unicodedata.category(char)
        if char in " \t\n\r" or category == "Zs":
            cleaned += " "
        elif char not in "\0\ufffd" and category not in ("Cc", "Cf"):
            code = ord(char)
            cjk = 0x4E00 <= code <= 0x9FFF or 0x3400 <= code <= 0x4DBF or 0xF900 <= code <= 0xFAFF
            cjk = cjk or 0x20000 <= code <= 0x2A6DF or 0x2A700 <= code <= 0x2CEAF
            cjk = cjk or 0x2F800 <= code <= 0x2FA1F
            cleaned += f" {char} " if cjk else char
    words = []
    for word in cleaned.split():
        if lower:
            marks = unicodedata.normalize("NFD", word.lower())
            word = "".join(char for char in marks if unicodedata.category(char) != "Mn")
        for char in word:
            ascii_sign = 33 <= ord(char) <= 126 and not char.isalnum()
            if ascii_sign or unicodedata.category(char).startswith("P"):
                words += [" ", char, " "]
            else:
                words.append(char)
        words.append(" ")
    return "".join(words).split()


@pytest.mark.parametrize("lower", [True, False])
def test_basic_tokenizer_follows_its_rules_on_random_text(lower):
    edges = "aZ5 \t\r\n\0\u0085\u00a0\u00adÅéİẞß,.$^`|~€—\u200b\u2028\u3000\ufeff\ufffd가か゛ー〇々"
    edges += "一\u9fff\ua000㐀䶿\uf8ff\uf900\ufaff\ufb00\U00020000\U0002a6df\U0002a6e0"
    edges += "\U0002a700\U0002ceaf\U0002ceb0\U0002f800\U0002fa1f"
    rng = random.Random(5)
    anything = [chr(code) for code in range(0x30000) if not 0xD800 <= code < 0xE000]
    tokenizer = BasicTokenizer(lower)
    for _ in range(400):
        text = "".join(rng.choices(edges, k=17) + rng.choices(anything, k=11))
        assert tokenizer.tokenize(text) == plain_basic_tokenizer(text, lower)


def test_wordpiece_makes_words_of_more_than_200_characters_unknown():
    tokenizer = WordpieceTokenizer({"a": 0, "##a": 1})
    assert tokenizer.tokenize("a" * 200) == ["a"] + ["##a"] * 199
    assert tokenizer.tokenize("a" * 201) == ["[UNK]"]


def test_full_tokenizer_agrees_with_the_official_unit_test(toy_vocabulary):
    tokenizer = FullTokenizer(toy_vocabulary)
    tokens = tokenizer.tokenize("UNwant\u00e9d,running")
    assert tokens == ["un", "##want", "##ed", ",", "runn", "##ing"]
    assert tokenizer.convert_tokens_to_ids(tokens) == [7, 4, 5, 10, 8, 9]
    assert tokenizer.encode("UNwant\u00e9d,running") == [7, 4, 5, 10, 8, 9]
    assert tokenizer.convert_ids_to_tokens([7, 4, 5, 10, 8, 9]) == tokens
    assert FullTokenizer(toy_vocabulary, do_lower_case=False).tokenize("UNwanted") == ["[UNK]"]


def test_a_full_word_cache_does_not_change_wordpiece(toy_vocabulary, monkeypatch):
    texts = ["unwanted running", "running 博推", "wa unwanted want", "博7, wax"]
    expected = FullTokenizer(toy_vocabulary).encode_batch(texts)
    monkeypatch.setattr(characters, "MAX_REMEMBERED", 2)
    limited = FullTokenizer(toy_vocabulary)
    assert limited.encode_batch(texts) == expected
    assert len(limited._encoder._ids_of) <= 2


def test_sentencepiece_text_is_normalized_as_configured(toy_spm_model):
    lower = FullTokenizer(spm_model_file=toy_spm_model)
    cased = FullTokenizer(spm_model_file=toy_spm_model, do_lower_case=False)
    assert lower.preprocess(" The  RIVÉR") == "the river"
    assert cased.preprocess(" The  RIVÉR") == "The RIVER"
    assert lower.tokenize("The RIVER") == lower.tokenize("the river")
    assert lower.tokenize("The") == ["▁the"]
    assert "▁the" not in cased.tokenize("The")
    assert lower.encode("The") == lower.encode("the") == [lower.vocab["▁the"]]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_encode_and_encode_batch_agree_with_tokenize(comma_model, do_lower_case):
    tokenizer = FullTokenizer(spm_model_file=comma_model, do_lower_case=do_lower_case)
    texts = ["one 1999, two", "", "ONE 9,", "x9,9, 五 9,", "so it goes", "五[CLS]9,", "  ", "٩,"]
    expected = []
    for text in texts:
        tokens = tokenizer.tokenize_preprocessed(tokenizer.preprocess(text))
        expected.append([tokenizer.vocab.get(token, 1) for token in tokens])
    assert tokenizer.vocab["9,"] not in {piece_id for row in expected for piece_id in row}
    assert tokenizer.encode_batch(texts) == expected
    assert [tokenizer.encode(text) for text in texts] == expected
    assert tokenizer.encode_batch(iter(texts[:1])) == expected[:1]
    assert tokenizer.encode_batch([]) == []


def test_texts_with_unknown_pieces_are_spelled_by_sentencepiece(comma_model, toy_vocabulary):
    tokenizer = FullTokenizer(spm_model_file=comma_model)
    texts = ["so it goes", "五 one 9, 五六, two", "", "one 五"]
    ids, spelled = tokenizer.encode_and_spell(texts)
    assert ids == tokenizer.encode_batch(texts)
    assert set(spelled) == {1, 3}
    for row, pieces in spelled.items():
        assert pieces == tokenizer.tokenize(texts[row])
        assert ids[row] == tokenizer.convert_tokens_to_ids(pieces)
        assert tokenizer.unk_id in ids[row]
    tokenizer = FullTokenizer(toy_vocabulary)
    assert tokenizer.encode_and_spell(["zz want"]) == (tokenizer.encode_batch(["zz want"]), {})


@pytest.mark.parametrize(
    ("overrides", "are_doubtful"),
    [
        ({}, True),  # "[CLS]" may be spelled by unknown characters
        ({"model_type": "word"}, True),  # any word may be unknown, such as "8,"
        ({"model_type": "unigram"}, False),
    ],
)
def test_only_unknown_pieces_that_may_spell_others_are_looked_up(
    tmp_path, monkeypatch, overrides, are_doubtful
):
    sentences = ["one 7, two 17, three", "four x7, 1999, five", "so it goes"] * 9
    if not are_doubtful or "model_type" in overrides:
        sentences += ["[ C L S ] < p a d >"] * 9
    path = train_sentencepiece(
        tmp_path / "x.model", sentence_iterator=iter(sentences), vocab_size=60, **overrides
    )
    tokenizer = FullTokenizer(spm_model_file=path, do_lower_case=False)
    rng = random.Random(3)
    texts = ["".join(rng.choices("七五 19,8[CLS]e", k=9)) for _ in range(500)]
    pieces = map(tokenizer.tokenize, texts)
    expected = [[tokenizer.vocab.get(piece, tokenizer.unk_id) for piece in row] for row in pieces]
    assert tokenizer.encode_batch(texts) == expected
    assert sum(tokenizer.unk_id in row for row in expected) > 100
    encode, kinds = tokenizer._encoder._encode, []
    monkeypatch.setattr(
        tokenizer._encoder,
        "_encode",
        lambda some, kind: kinds.append((kind, len(some))) or encode(some, kind),
    )
    tokenizer.encode_batch(["one 五", "two 七"])
    assert kinds == [(int, 2), (str, 2 if are_doubtful else 0)]


def test_a_special_token_in_the_text_has_its_id_only_if_its_characters_are_unknown(
    comma_model, toy_tokenizer
):
    # As in the official program, which looks up the unknown piece in the vocabulary.
    cased = FullTokenizer(spm_model_file=comma_model, do_lower_case=False)
    for ids in (cased.encode("one [CLS] two"), cased.encode_batch(["one [CLS] two", "so"])[0]):
        assert ids.count(cased.cls_id) == 1
    ids = toy_tokenizer.encode("the [SEP] of [MASK]")
    assert not {toy_tokenizer.sep_id, toy_tokenizer.mask_id} & set(ids)


@pytest.mark.parametrize("kind", ["spm_model_file", "vocab_file"])
def test_a_tokenizer_is_pickled_and_has_the_checksum_of_its_file(kind, comma_model, toy_vocabulary):
    path = comma_model if kind == "spm_model_file" else toy_vocabulary
    tokenizer = FullTokenizer(**{kind: path})
    text = "one 9, unwanted 博"
    ids = tokenizer.encode(text)
    assert pickle.loads(pickle.dumps(tokenizer)).encode(text) == ids
    with open(path, "rb") as stream:
        assert tokenizer.checksum == hashlib.sha256(stream.read()).hexdigest()


def test_load_vocab_reads_lines_like_the_official_program(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\ufeff[PAD]\r\n  the \t-3.5\n\nthe\n▁of -1\n \nend".encode())
    assert load_vocab(str(path)) == {"[PAD]": 0, "the": 1, " ": 2, "▁of": 3, "end": 4}


def replaced(model, old, new):
    """The content of a SentencePiece model with some bytes replaced once."""
    with open(model, "rb") as stream:
        return stream.read().replace(old, new, 1)


@pytest.mark.parametrize(
    ("argument", "change", "said"),
    [
        (
            "vocab_file",
            lambda _: b"[UNK]\n[SEP]\n[MASK]\n",
            r"file: the vocabulary .* lacks \[CLS\]\.",
        ),
        ("vocab_file", lambda _: b"", "file: the file is empty"),
        ("vocab_file", lambda _: "[PAD]\n中\n".encode("gb18030"), "file, line 2: not UTF-8"),
        (
            "vocab_file",
            lambda model: replaced(model, b"", b""),
            "Pass a SentencePiece .model as --spm",
        ),
        ("spm_model_file", lambda _: b"", "file: not a SentencePiece model.*--vocab_file"),
        (
            "spm_model_file",
            lambda model: replaced(model, "\u2581".encode(), b"\xff\x96\x81"),
            "file: this SentencePiece model is damaged",
        ),
        (
            "spm_model_file",
            lambda model: replaced(model, b"[CLS]", b"[XXX]"),
            r"file: .* lacks \[CLS\]\.",
        ),
    ],
)
def test_a_file_that_is_no_vocabulary_is_named(tmp_path, comma_model, argument, change, said):
    path = tmp_path / "file"
    path.write_bytes(change(comma_model))
    with pytest.raises(ValueError, match=said):
        FullTokenizer(**{argument: str(path)})


def test_a_vocabulary_beside_a_model_is_ignored(comma_model):
    pieces = FullTokenizer(spm_model_file=comma_model).pieces
    assert FullTokenizer("absent.vocab", spm_model_file=comma_model).pieces == pieces


def test_unknown_tokens_and_ids_are_refused(toy_vocabulary):
    tokenizer = FullTokenizer(toy_vocabulary)
    with pytest.raises(ValueError, match="token 'missing' is not in the vocabulary"):
        tokenizer.convert_tokens_to_ids(["want", "missing"])
    for ids in ([3, 15], [-1, 3]):
        with pytest.raises(ValueError, match="expected 0 to 14"):
            tokenizer.convert_ids_to_tokens(ids)


@pytest.mark.parametrize("case", ["lower", "cased"])
@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
def test_golden_texts_have_the_official_pieces_and_ids(shared, kind, case):
    names = {"sentencepiece": "30k-clean.model", "wordpiece": "vocab_chinese.txt"}
    argument = "spm_model_file" if kind == "sentencepiece" else "vocab_file"
    vocabulary = {argument: str(shared / "vocab" / names[kind])}
    tokenizer = FullTokenizer(do_lower_case=case == "lower", **vocabulary)
    golden = shared / "golden" / "tokenization" / f"{kind}_{case}.jsonl"
    rows = [json.loads(line) for line in golden.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 575
    for row in rows:
        preprocessed = tokenizer.preprocess(row["text"])
        assert preprocessed == row["preprocessed"]
        assert tokenizer.tokenize_preprocessed(preprocessed) == row["tokens"]
        assert tokenizer.tokenize(row["text"]) == row["tokens"]
        assert tokenizer.convert_tokens_to_ids(row["tokens"]) == row["ids"]
        assert tokenizer.encode(row["text"]) == row["ids"]
    assert tokenizer.encode_batch(row["text"] for row in rows) == [row["ids"] for row in rows]


@pytest.mark.parametrize("do_lower_case", [True, False])
@pytest.mark.parametrize(
    ("argument", "name", "text"),
    [
        ("spm_model_file", "30k-clean.model", "doyle_adventures.txt"),
        ("vocab_file", "vocab_chinese.txt", "journey_to_the_west_zh.txt"),
    ],
)
def test_text_that_is_already_normalized_has_the_same_pieces(
    shared, argument, name, text, do_lower_case
):
    # Programs written for Google's class call `preprocess_text` before `tokenize`.
    tokenizer = FullTokenizer(
        do_lower_case=do_lower_case, **{argument: str(shared / "vocab" / name)}
    )
    lines = (shared / "data" / "text" / text).read_text(encoding="utf-8").splitlines()
    for line in lines[:1000]:
        preprocessed = tokenizer.preprocess(line)
        pieces = tokenizer.tokenize_preprocessed(preprocessed)
        assert tokenizer.tokenize(preprocessed) == tokenizer.tokenize(line) == pieces


def official_truncation(first, second, limit):
    while first + second > limit:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def test_truncation_shortens_the_longer_or_the_second_text():
    for limit in range(2, 14):
        for first in range(14):
            for second in range(14):
                expected = official_truncation(first, second, limit)
                assert truncated_lengths(first, second, limit) == expected


def test_a_call_returns_a_padded_batch(toy_vocabulary):
    tokenizer = FullTokenizer(toy_vocabulary)
    batch = tokenizer([("UNwanted, 博", "running"), ("推", "")])
    assert batch["input_ids"].tolist() == [[1, 7, 4, 5, 10, 11, 2, 8, 9, 2], [1, 12, 2] + [0] * 7]
    assert batch["input_mask"].tolist() == [[1] * 10, [1] * 3 + [0] * 7]
    assert batch["segment_ids"].tolist() == [[0] * 7 + [1] * 3, [0] * 10]
    assert all(array.dtype == "int32" for array in batch.values())


def test_texts_and_pairs_are_accepted_in_several_forms(toy_vocabulary):
    tokenizer = FullTokenizer(toy_vocabulary)

    def same(one, other):
        assert one.keys() == other.keys() == {"input_ids", "input_mask", "segment_ids"}
        assert all((one[name] == other[name]).all() for name in one)

    same(tokenizer("want"), tokenizer(["want"]))
    same(tokenizer("want", "wa"), tokenizer([("want", "wa")]))
    same(tokenizer([["want", "wa"]]), tokenizer([("want", "wa")]))
    same(tokenizer(["want", "un"], ["wa", "博"]), tokenizer([("want", "wa"), ("un", "博")]))
    same(tokenizer(["want", ("un", "博")]), tokenizer([("want", ""), ("un", "博")]))
    assert tokenizer([])["input_ids"].shape == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "length"),
    [
        ({}, 7),
        ({"max_length": 6}, 6),
        ({"pad_to_multiple": 4}, 8),
        ({"pad_to_multiple": 4, "max_length": 7}, 7),
        ({"padding": "max_length", "max_length": 9}, 9),
        ({"padding": "max_length"}, 11),
        ({"truncation": False, "max_length": 7}, 7),
    ],
)
def test_a_batch_is_padded_as_requested(toy_vocabulary, arguments, length):
    tokenizer = FullTokenizer(toy_vocabulary, max_length=11)
    batch = tokenizer([("want wa", "un wa"), "un"], **arguments)
    assert batch["input_ids"].shape == (2, length)


@pytest.mark.parametrize(
    ("pair", "max_length", "tokens"),
    [
        (("want wa un running", "博 推 wa"), 9, "[CLS] want wa un [SEP] 博 推 wa [SEP]"),
        (("want wa un running", "博 推 wa"), 8, "[CLS] want wa un [SEP] 博 推 [SEP]"),
        (("want wa un running", "博"), 8, "[CLS] want wa un runn [SEP] 博 [SEP]"),
        (("want wa un", ""), 4, "[CLS] want wa [SEP]"),
        (("want", "wa"), 3, "[CLS] [SEP]"),
    ],
)
def test_long_texts_are_truncated_like_in_the_fine_tuning_programs(
    toy_vocabulary, pair, max_length, tokens
):
    tokenizer = FullTokenizer(toy_vocabulary)
    batch = tokenizer([pair], max_length=max_length)
    assert tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist()) == tokens.split()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"texts": ("want", "wa")}, "a tuple of texts is ambiguous"),
        ({"texts": ["want", None]}, r"texts\[1\] is None: expected a str"),
        ({"texts": [("want", "wa", "un")]}, r"texts\[0\] is \('want', 'wa', 'un'\)"),
        ({"texts": ["want", "wa"], "text_pair": ["un"]}, "expected a list of 2"),
        ({"max_length": 2}, "max_length=2"),
        ({"padding": False}, "^padding=False: expected one of True, 'longest', 'max_length'$"),
        ({"truncation": "only_first"}, "truncation='only_first'"),
        ({"texts": "want wa un", "max_length": 4, "truncation": False}, "has 5 tokens .*_length=4"),
    ],
)
def test_invalid_arguments_are_named(toy_vocabulary, arguments, said):
    with pytest.raises(ValueError, match=said):
        FullTokenizer(toy_vocabulary)(**{"texts": "want"} | arguments)


def test_a_row_may_be_as_long_as_the_limit(toy_vocabulary):
    tokenizer = FullTokenizer(toy_vocabulary)
    whole = tokenizer("want wa un", max_length=5, truncation=False)
    assert whole["input_ids"].shape == (1, 5)
    shortest = tokenizer("want wa un", max_length=3)
    assert tokenizer.convert_ids_to_tokens(shortest["input_ids"][0]) == ["[CLS]", "want", "[SEP]"]


@pytest.mark.parametrize(
    ("piece", "expected"), [(",", False), ("7,", True), ("▁19,", True), ("a,", False), ("7", False)]
)
def test_a_number_with_a_comma_ends_in_both(piece, expected):
    assert has_number_comma(piece) == expected


def test_a_call_takes_the_arguments_of_transformers(toy_vocabulary):
    tokenizer = FullTokenizer(toy_vocabulary)
    texts, pairs = ["want", "un running"], ["wa un", "博"]
    expected = tokenizer(texts, pairs)
    found = tokenizer(
        texts, text_pair=pairs, padding=True, truncation="longest_first", return_tensors="tf"
    )
    for name, values in expected.items():
        assert found[name].dtype == "int32"
        np.testing.assert_array_equal(found[name].numpy(), values)
    cut = tokenizer(texts, pairs, max_length=5, padding="max_length", return_tensors="np")
    assert cut["input_ids"].shape == (2, 5)


def test_sentencepiece_ids_are_decoded(toy_tokenizer):
    batch = toy_tokenizer([("The RIVÉR was  wider.", "old people")])
    ids = batch["input_ids"][0]
    assert toy_tokenizer.decode(ids) == "the river was wider. old people"
    assert toy_tokenizer.decode(ids, skip_special_tokens=False).count("[SEP]") == 2
    assert toy_tokenizer.decode([]) == ""
    assert toy_tokenizer.batch_decode([ids, []]) == ["the river was wider. old people", ""]


def test_wordpiece_ids_are_decoded(tmp_path):
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] un ##want ##ed , run 博 推 。".split()
    tokenizer = FullTokenizer(write_vocabulary(tmp_path / "vocab.txt", words))
    text = "unwanted, run 博推。run"
    assert tokenizer.decode(tokenizer(text)["input_ids"][0]) == "unwanted, run博推。run"
    assert tokenizer.decode([2, 5, 4, 3], skip_special_tokens=False) == "[CLS] un [MASK] [SEP]"
    with pytest.raises(ValueError, match="expected 0 to 12"):
        tokenizer.decode([13])
