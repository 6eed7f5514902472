"""Tokenizers of Hugging Face folders: their ids are those of `transformers`."""

from __future__ import annotations

import itertools
import json
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert_tf import huggingface_tokenizer
from albert_tf.data import instances, masking
from albert_tf.finetuning.examples import Examples
from albert_tf.huggingface_tokenizer import HuggingFaceTokenizer, load_tokenizer
from albert_tf.race.reading import Question
from albert_tf.race.task import option_sequences
from albert_tf.squad import alignment
from albert_tf.squad.reading import SquadExample
from albert_tf.squad.windows import WindowSettings
from albert_tf.squad.windows import make_features as make_windows
from albert_tf.tokenization import find_words
from tests import huggingface_folders as folders
from tests.checkpoints.test_huggingface import run

PAIR = ("The  Müller café in 1999, said (New York). ¾", "the river 北京 [MASK] Mürs")
NEW_YORK = folders.added(len(folders.PIECES), "new york", False, True)
# The ids of `AutoTokenizer` of transformers 5.24 for PAIR, in these folders.
UNIGRAM = [2, 9, 19, 35, 15, 24, 11, 12, 13, 5, 14, 21, 36, 37, 38, 6, 8, 21, 1, 3, 9, 10, 21, 1]
UNIGRAM += [4, 19, 31, 23, 3]
UNIGRAM_ACCENTS = [2, 9, 17, 27, 35, 15, 25, 11, 12, 13, 5, 14, 21, 36, 37, 38, 6, 8, 22, 3, 9, 10]
UNIGRAM_ACCENTS += [21, 1, 4, 17, 27, 31, 23, 3]
UNIGRAM_CASED = [2, 21, 1, 24, 20, 35, 15, 24, 11, 12, 13, 5, 21, 1, 24, 1, 21, 39, 37, 38, 6, 8]
UNIGRAM_CASED += [21, 1, 3, 9, 10, 21, 1, 4, 20, 31, 23, 3]
UNIGRAM_ADDED = [2, 9, 19, 35, 15, 24, 11, 12, 13, 5, 40, 6, 8, 21, 1, 3, 9, 10, 21, 1, 4, 19, 31]
UNIGRAM_ADDED += [23, 3]
REST = [1, 20, 21, 1, 1, 1, 1, 1, 1, 1, 3, 5, 7]
WORDPIECE = [2, 5, 10, 11, 14, 16, *REST, 17, 18, 4, 1, 3]
WORDPIECE_ACCENTS = [2, 5, 24, 23, 11, 14, 15, *REST, 17, 18, 4, 1, 3]
WORDPIECE_CASED = [2, 1, 22, 23, 11, 14, 15, *REST, 17, 18, 4, 1, 3]
NO_CHINESE = [2, 5, 10, 11, 14, 16, *REST, 17, 19, 4, 1, 3]
NO_SEGMENTS = {"model_input_names": ["input_ids", "attention_mask"]}
SEGMENTS = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}


# Saves the tokenizer of a folder of version 4 in another one, and writes the ids of both.
RUN_TOKENIZERS = """
import json, sys
from transformers import AutoTokenizer

earlier, saved, texts, more = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(earlier)
lines = open(texts, encoding="utf-8").read().split("\\n")
rows = [tokenizer(*pair)["input_ids"] for pair in zip(lines[::2], lines[1::2])]
tokenizer.add_tokens(json.loads(more))
tokenizer.save_pretrained(saved)
tokenizer = AutoTokenizer.from_pretrained(saved)
others = [tokenizer(line)["input_ids"] for line in lines]
words = [tokenizer(line.split(), is_split_into_words=True)["input_ids"] for line in lines[:100]]
with open(saved + "/ids.json", "w") as stream:
    json.dump([rows, others, words], stream)
"""
ENGLISH = ("wikitext2_valid.txt", "doyle_adventures.txt")
CHINESE = ("journey_to_the_west_zh.txt",)
ACCENTS, CASED = {"keep_accents": True}, {"do_lower_case": False}
REAL_LINES = 1500  # of each text


def load(folder, max_length=512):
    names = ("tokenizer.json", "tokenizer_config.json")
    path = next(folder / name for name in names if (folder / name).exists())
    return load_tokenizer(str(path), max_length=max_length)


@pytest.mark.parametrize(
    ("write", "options", "expected"),
    [
        (folders.write_unigram, {}, UNIGRAM),
        (folders.write_unigram, {"accents": True}, UNIGRAM_ACCENTS),
        (folders.write_unigram, {"lower": False}, UNIGRAM_CASED),
        (folders.write_unigram, {"more": [NEW_YORK]}, UNIGRAM_ADDED),
        (folders.write_wordpiece, {}, WORDPIECE),
        (folders.write_wordpiece, {"lower": False}, WORDPIECE_CASED),
        (folders.write_spiece, {}, UNIGRAM),
        (folders.write_spiece, {"keep_accents": True}, UNIGRAM_ACCENTS),
        (folders.write_spiece, {"do_lower_case": False}, UNIGRAM_CASED),
        (folders.write_vocabulary, {}, WORDPIECE),
        (folders.write_vocabulary, {"strip_accents": False}, WORDPIECE_ACCENTS),
        (folders.write_vocabulary, {"do_lower_case": False}, WORDPIECE_CASED),
        (folders.write_vocabulary, {"tokenize_chinese_chars": False}, NO_CHINESE),
    ],
)
def test_ids_are_those_of_transformers(tmp_path, write, options, expected):
    write(tmp_path, **options)
    tokenizer = load(tmp_path)
    assert tokenizer([PAIR])["input_ids"].tolist() == [expected]
    first, second = map(tokenizer.encode, PAIR)
    assert tokenizer.join(first, second)[0] == expected
    assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize(PAIR[0])) == first
    is_lower = options.get("lower", options.get("do_lower_case", True))
    assert tokenizer.do_lower_case == is_lower
    restored = pickle.loads(pickle.dumps(tokenizer))
    assert restored.encode_batch(PAIR) == [first, second]


def test_tokens_that_a_folder_of_version_4_adds_have_their_ids(tmp_path):
    folders.write_spiece(tmp_path)
    (tmp_path / "added_tokens.json").write_text('{"new york": 40}')
    assert load(tmp_path)([PAIR])["input_ids"].tolist() == [UNIGRAM_ADDED]
    (tmp_path / "added_tokens.json").unlink()
    entry = {"content": "new york", "normalized": True, "special": False}
    folders.write_spiece(tmp_path, added_tokens_decoder={"40": entry})
    assert load(tmp_path)([PAIR])["input_ids"].tolist() == [UNIGRAM_ADDED]


@pytest.mark.parametrize(
    ("write", "options", "has_segments"),
    [
        (folders.write_unigram, {}, False),  # AlbertTokenizer of version 5 has none
        (folders.write_unigram, SEGMENTS, True),
        (folders.write_spiece, {}, True),  # of version 4
        (folders.write_spiece, NO_SEGMENTS, False),
        (folders.write_wordpiece, {}, True),
        (folders.write_wordpiece, NO_SEGMENTS, False),
    ],
)
def test_second_texts_have_the_segment_that_the_model_was_trained_with(
    tmp_path, write, options, has_segments
):
    write(tmp_path, **options)
    tokenizer = load(tmp_path)
    batch = tokenizer([("the river", "in"), ("in", "")])
    first, second = tokenizer.encode_batch(["the river", "in"])
    expected = [0] * (len(first) + 2) + [int(has_segments)] * (len(second) + 1)
    assert batch["segment_ids"].tolist() == [expected, [0] * len(expected)]
    assert tokenizer.has_segments == has_segments


WORDS = ["Müller", "cafe\u0301", "1999,", "U.N.", "（１２３）", "ＡＢＣ", "½¾", "x", "well-known"]
WORDS += ["😀", "👍🏽", "北京", "の", "한국어", "in", "ﬁn", "İs", "\u200b", "e\u0301\u0323x"]


@given(
    words=st.lists(st.sampled_from(WORDS), min_size=1),
    spaces=st.lists(st.sampled_from([" ", "  ", "\t", "\u3000", "\n "]), min_size=1),
)
@pytest.mark.parametrize("kind", ["unigram", "accents", "wordpiece"])
def test_pieces_lead_back_to_the_words_of_a_text(tokenizers_of_kinds, kind, words, spaces):
    """The law: the pieces from the first to the last character of a word are its span."""
    tokenizer = tokenizers_of_kinds[kind]
    text, places = "", []
    for number, word in enumerate(words):
        text += spaces[number % len(spaces)] if number % 3 else " "
        places.append((len(text), len(text) + len(word)))
        text += word
    aligned = alignment.tokenize(tokenizer, text)
    has_ids = [bool(tokenizer.encode(word)) for word in words]
    assert (aligned is None) == (not any(has_ids))
    for (begin, end), has_id in zip(places, has_ids, strict=True):
        if has_id:  # "\u200b" may have none
            first, last = aligned.first_token[begin], aligned.last_token[end - 1]
            span = aligned.first_char[first], aligned.last_char[last] + 1
            assert text[slice(*span)] == text[begin:end]
    if aligned is not None:
        assert aligned.token_ids.tolist() == tokenizer.encode(text)


@pytest.fixture(scope="module")
def tokenizers_of_kinds(tmp_path_factory):
    made = {}
    for kind, write, options in (
        ("unigram", folders.write_unigram, {}),
        ("accents", folders.write_unigram, {"accents": True}),
        ("wordpiece", folders.write_wordpiece, {}),
    ):
        folder = tmp_path_factory.mktemp(kind)
        write(folder, **options)
        made[kind] = load(folder)
    return made


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_questions_and_options_have_the_segments_of_the_tokenizer(tokenizers_of_kinds, kind):
    tokenizer = tokenizers_of_kinds[kind]
    second = int(tokenizer.has_segments)
    question = SquadExample("q", "in", "the river Müller 1999", ("Müller",), 10)
    spans = make_windows([question], tokenizer, WindowSettings(17, 4, 3), is_training=True)
    batch = spans.batch(np.array([0]), 17)
    length, first = int(spans.lengths[0]), int(spans.query_lengths[0]) + 2
    expected = [0] * first + [second] * (length - first) + [0] * (17 - length)
    assert batch["segment_ids"][0].tolist() == expected
    start, end = (batch[f"{name}_positions"][0] - first for name in ("start", "end"))
    assert question.context[spans.first_char[start] : spans.last_char[end] + 1] == "Müller"

    data = Examples("", "dev", [Question("", "the river", "in _", ("the", "1999"), 0)])
    for ids, first_length in option_sequences(data, tokenizer, 20, 9):
        place = ids.index(tokenizer.sep_id) + 1
        assert first_length == (place if second else len(ids))


def test_a_text_without_pieces_is_not_aligned(tokenizers_of_kinds):
    for tokenizer in tokenizers_of_kinds.values():
        assert alignment.tokenize(tokenizer, "") is None
        assert alignment.tokenize(tokenizer, " \n ") is None


def test_words_of_a_text_are_tokenized_alone_as_in_training(tokenizers_of_kinds):
    tokenizer = tokenizers_of_kinds["unigram"]
    words = [word for word, _ in find_words("the river, in 1999")]
    (comma,) = tokenizer.encode_batch([words[2]])
    assert tokenizer.convert_ids_to_tokens(comma) == ["▁", ","]


def test_masks_in_a_text_are_found(tokenizers_of_kinds):
    for tokenizer in tokenizers_of_kinds.values():
        ids, places = tokenizer.encode_masked("the [MASK] in [MASK], river")
        assert [ids[place] for place in places] == [tokenizer.mask_id] * 2
        assert tokenizer.encode_masked("the river") == (tokenizer.encode("the river"), [])


def test_unknown_pieces_are_spelled(tokenizers_of_kinds):
    tokenizer = tokenizers_of_kinds["unigram"]
    ids, spelled = tokenizer.encode_and_spell(["the river", "the qq"])
    assert list(spelled) == [1]
    assert spelled[1] == ["▁the", "▁", "qq"]
    table = masking.word_start_table(tokenizer.pieces, tokenizer.is_sentencepiece)
    documents = instances.tokenize_documents([["the river", "the qq"]], tokenizer, table)
    assert documents.ids.tolist() == ids[0] + ids[1]
    assert documents.word_starts.tolist() == [True, True, True, True, False]
    assert tokenizers_of_kinds["wordpiece"].encode_and_spell(["qq"]) == ([[1]], {})


def test_truncation_and_padding_in_the_file_do_not_matter(tmp_path):
    content = folders.unigram_json()
    content["truncation"] = {
        "direction": "Right",
        "max_length": 4,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    content["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Left",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<pad>",
    }
    folders.write_tokenizer(tmp_path, content, folders.ALBERT_CONFIG)
    assert load(tmp_path)([PAIR])["input_ids"].tolist() == [UNIGRAM]


def test_the_vocabulary_ends_with_its_last_id(tmp_path):
    folders.write_vocabulary(tmp_path)
    tokenizer = load(tmp_path)
    assert tokenizer.vocab_size == len(folders.LINES) > len(tokenizer.vocab)
    assert tokenizer.pieces[7] == "river"


def test_the_checksum_is_that_of_what_decides_the_inputs(tmp_path):
    checksums = []
    for number, (write, options) in enumerate(
        [
            (folders.write_unigram, {}),
            (folders.write_unigram, SEGMENTS),
            (folders.write_unigram, {"accents": True}),
            (folders.write_spiece, {}),
            (folders.write_spiece, {"keep_accents": True}),
            (folders.write_wordpiece, {}),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, **options)
        checksums.append(load(folder).checksum)
    assert len(set(checksums)) == len(checksums)
    folders.write_unigram(tmp_path / "0", name_or_path="elsewhere")
    assert load(tmp_path / "0").checksum == checksums[0]


def test_its_files_make_the_same_tokenizer_in_another_folder(tmp_path):
    for write in (folders.write_unigram, folders.write_spiece, folders.write_vocabulary):
        source, target = tmp_path / write.__name__, tmp_path / f"{write.__name__} copied"
        source.mkdir()
        target.mkdir()
        write(source, keep_accents=False)
        tokenizer = load(source)
        for name, content in tokenizer.vocabulary_files.items():
            (target / name).write_bytes(content)
        copied = load(target)
        assert copied.checksum == tokenizer.checksum
        assert copied.encode(PAIR[0]) == tokenizer.encode(PAIR[0])


@pytest.mark.parametrize(
    ("write", "options"),
    [
        (folders.write_unigram, {"truncation_side": "left"}),
        (folders.write_unigram, {"split_special_tokens": True}),
        (folders.write_wordpiece, {"padding_side": "left"}),
        (folders.write_spiece, {"remove_space": False}),
        (folders.write_spiece, {"sp_model_kwargs": {"enable_sampling": True, "alpha": 0.1}}),
        (folders.write_spiece, {"add_prefix_space": False}),
        (folders.write_spiece, {"tokenizer_class": "XLNetTokenizer"}),
        (folders.write_vocabulary, {"never_split": ["[X]"]}),
        (folders.write_vocabulary, {"do_basic_tokenize": False}),
        (folders.write_vocabulary, {"tokenizer_class": "BertJapaneseTokenizer"}),
    ],
)
def test_options_that_would_change_ids_are_refused_by_name(tmp_path, write, options):
    write(tmp_path, **options)
    with pytest.raises(ValueError, match=next(iter(options))) as error:
        load(tmp_path)
    assert "tokenizer_config.json" in str(error.value)
    assert str(error.value).count("\n") < 2


@pytest.mark.parametrize(
    ("write", "option", "value"),
    [
        (folders.write_unigram, "do_lower_case", False),
        (folders.write_unigram, "keep_accents", True),
        (folders.write_wordpiece, "do_lower_case", False),
        (folders.write_wordpiece, "strip_accents", False),
        (folders.write_wordpiece, "tokenize_chinese_chars", False),
    ],
)
def test_options_that_contradict_the_tokenizer_are_refused(tmp_path, write, option, value):
    write(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {option: value}))
    with pytest.raises(ValueError, match=f"contradicts {option}=") as error:
        load(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_flag_that_contradicts_the_tokenizer_is_refused(tmp_path):
    folders.write_unigram(tmp_path)
    path = str(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="do_lower_case=False"):
        load_tokenizer(path, do_lower_case=False)
    assert load_tokenizer(path, do_lower_case=True).do_lower_case


def change(content, name, value):
    if name == "post_processor":
        return content | {name: value}
    vocab = [[value if piece == name else piece, x] for piece, x in content["model"]["vocab"]]
    tokens = [token for token in content["added_tokens"] if token["content"] != name]
    return content | {"model": content["model"] | {"vocab": vocab}, "added_tokens": tokens}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("post_processor", None, "template"),
        ("post_processor", folders.template(3, 2), "template"),
        ("[MASK]", "<mask>", r"lacks the tokens \[MASK\]"),
    ],
)
def test_other_special_tokens_are_refused(tmp_path, name, value, message):
    content = change(folders.unigram_json(), name, value)
    folders.write_tokenizer(tmp_path, content, folders.ALBERT_CONFIG)
    with pytest.raises(ValueError, match=message) as error:
        load(tmp_path)
    assert str(tmp_path) in str(error.value)


def test_a_template_with_another_separator_is_refused(tmp_path):
    content = folders.unigram_json()
    pair = content["post_processor"]["pair"]
    pair.insert(3, pair[2])  # RoBERTa's [SEP] [SEP]
    folders.write_tokenizer(tmp_path, content, folders.ALBERT_CONFIG)
    with pytest.raises(ValueError, match=r"\[SEP\] \[SEP\]"):
        load(tmp_path)


def test_a_damaged_file_is_named(tmp_path):
    folders.write_unigram(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model"')
    with pytest.raises(ValueError, match=r"tokenizer\.json: not a tokenizer"):
        load(tmp_path)


def test_options_without_a_vocabulary_are_an_error(tmp_path):
    folders.write_config(tmp_path, folders.ALBERT_CONFIG)
    with pytest.raises(FileNotFoundError, match=r"spiece\.model or vocab\.txt"):
        HuggingFaceTokenizer(str(tmp_path / "tokenizer_config.json"))


@pytest.mark.parametrize("write", [folders.write_unigram, folders.write_spiece])
def test_without_the_library_the_error_says_what_to_install(tmp_path, monkeypatch, write):
    write(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"pip install 'albert-tf2\[hf\]'"):
        load(tmp_path)


def test_a_vocabulary_has_googles_tokenizer(tmp_path, toy_spm_model):
    tokenizer = load_tokenizer(spm_model_file=toy_spm_model)
    assert not isinstance(tokenizer, HuggingFaceTokenizer)
    assert tokenizer.do_lower_case
    assert not load_tokenizer(None, False, toy_spm_model).do_lower_case
    assert huggingface_tokenizer.list_files(toy_spm_model) == [toy_spm_model]
    assert huggingface_tokenizer.checksum_of(toy_spm_model) == tokenizer.checksum
    assert np.array_equal(list(tokenizer.vocabulary_files), ["spiece.model"])


def real_lines(shared, names):
    texts = [(shared / "data" / "text" / name).read_text(encoding="utf-8") for name in names]
    lines = [[line for line in text.split("\n") if line.strip()][:REAL_LINES] for text in texts]
    return [line for some in lines for line in some]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("vocabulary", "name", "config", "options", "texts"),
    [
        ("30k-clean.model", "spiece.model", folders.ALBERT_CONFIG, {}, ENGLISH),
        ("30k-clean.model", "spiece.model", folders.ALBERT_CONFIG, {"keep_accents": True}, ENGLISH),
        (
            "30k-clean.model",
            "spiece.model",
            folders.ALBERT_CONFIG,
            {"do_lower_case": False},
            ENGLISH,
        ),
        ("vocab_chinese.txt", "vocab.txt", folders.BERT_CONFIG, {}, CHINESE),
        ("vocab_chinese.txt", "vocab.txt", folders.BERT_CONFIG, {"strip_accents": False}, CHINESE),
    ],
)
def test_ids_of_real_lines_are_those_of_transformers(
    transformers_python, shared, tmp_path, vocabulary, name, config, options, texts
):
    earlier, saved = tmp_path / "earlier", tmp_path / "saved"
    earlier.mkdir()
    (earlier / name).write_bytes((shared / "vocab" / vocabulary).read_bytes())
    folders.write_config(earlier, config | options)
    lines = real_lines(shared, texts)
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    more = json.dumps(["Holmes", "Project Gutenberg", "行者"])
    run(transformers_python, RUN_TOKENIZERS, earlier, saved, tmp_path / "lines.txt", more)
    pairs, singles, words = json.loads((saved / "ids.json").read_text())

    tokenizer = load(earlier, 10**6)
    rows = tokenizer.sequences(list(zip(lines[::2], lines[1::2], strict=False)), None, 10**6)
    assert [ids for ids, _ in rows] == pairs
    tokenizer = load(saved, 10**6)
    assert [ids for ids, _ in tokenizer.sequences(lines, None, 10**6)] == singles
    for line, expected in zip(lines, words, strict=False):
        pieces = tokenizer.encode_batch(line.split())
        assert tokenizer.join([*itertools.chain(*pieces)], [])[0] == expected
