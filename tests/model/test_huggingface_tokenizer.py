"""Tokenizers of Hugging Face folders: their ids are those of `transformers`."""

from __future__ import annotations

import base64
import io
import json
import pickle
import sys

import numpy as np
import pytest
import sentencepiece
from hypothesis import given
from hypothesis import strategies as st

from albert_tf.finetuning.race.questions import Question
from albert_tf.finetuning.race.sequences import OptionEncoder
from albert_tf.finetuning.squad import alignment
from albert_tf.finetuning.squad.questions import SquadExample
from albert_tf.finetuning.squad.settings import WindowSettings
from albert_tf.finetuning.squad.windows import make_features as make_windows
from albert_tf.model.tokenization import (
    HuggingFaceTokenizer,
    checksum_of,
    list_files,
    load_tokenizer,
)
from albert_tf.model.tokenization.sentencepiece_encoder import read_sentencepiece_file
from tests import huggingface_folders as folders

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra hf")
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
    assert tokenizer.convert_tokens_to_ids(tokenizer.tokenize(PAIR[0])) == first
    is_lower = options.get("lower", options.get("do_lower_case", True))
    assert tokenizer.do_lower_case == is_lower
    restored = pickle.loads(pickle.dumps(tokenizer))
    assert restored.encode_batch(PAIR) == [first, second]


@pytest.mark.parametrize("name", ["added_tokens.json", "tokenizer_config.json"])
def test_tokens_that_a_folder_of_version_4_adds_have_their_ids(tmp_path, name):
    folders.write_spiece(tmp_path)
    if name == "added_tokens.json":
        (tmp_path / name).write_text('{"new york": 40}')
    else:
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
    spans, answered = (
        make_windows([question], tokenizer, WindowSettings(17, 4, 3), is_training=is_training)
        for is_training in (True, False)
    )
    batch = spans.batch(np.array([0]), 17)
    length, first = int(spans.lengths[0]), int(spans.query_lengths[0]) + 2
    expected = [0] * first + [second] * (length - first) + [0] * (17 - length)
    assert batch["segment_ids"][0].tolist() == expected
    start, end = (batch[f"{name}_positions"][0] - first for name in ("start", "end"))
    assert question.context[answered.first_char[start] : answered.last_char[end] + 1] == "Müller"

    encoder = OptionEncoder(tokenizer, 20, 9)
    encoder.add([Question("", "the river", "in _", ("the", "1999"), 0)])
    batch = encoder.features([0]).batch(np.array([0]), 20)
    names = ("input_ids", "input_mask", "segment_ids")
    for ids, mask, segments in zip(*(batch[name][0].tolist() for name in names), strict=True):
        place, length = ids.index(tokenizer.sep_id) + 1, sum(mask)
        assert segments == [0] * place + [second] * (length - place) + [0] * (20 - length)


def test_masks_in_a_text_are_found(tokenizers_of_kinds):
    for tokenizer in tokenizers_of_kinds.values():
        ids, places = tokenizer.encode_masked("the [MASK] in [MASK], river")
        assert [ids[place] for place in places] == [tokenizer.mask_id] * 2
        assert tokenizer.encode_masked("the river") == (tokenizer.encode("the river"), [])


def test_unknown_pieces_are_spelled(tokenizers_of_kinds):
    ids, spelled = tokenizers_of_kinds["unigram"].encode_and_spell(["the river", "the qq"])
    assert ids[1][-1] == 1
    assert spelled == {1: ["▁the", "▁", "qq"]}
    assert tokenizers_of_kinds["wordpiece"].encode_and_spell(["qq"]) == ([[1]], {})


def test_truncation_and_padding_in_the_file_do_not_matter(tmp_path):
    folders.write_unigram(tmp_path)
    path = str(tmp_path / "tokenizer.json")
    edited = tokenizers.Tokenizer.from_file(path)
    edited.enable_truncation(4)
    edited.enable_padding(length=64)
    edited.save(path)
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
    ("write", "option", "value"),
    [
        (folders.write_unigram, "truncation_side", "left"),
        (folders.write_spiece, "remove_space", False),
        (folders.write_spiece, "sp_model_kwargs", {"enable_sampling": True, "alpha": 0.1}),
        (folders.write_vocabulary, "never_split", ["[X]"]),
        (folders.write_vocabulary, "tokenizer_class", "BertJapaneseTokenizer"),
        # Those of tokenizer.json say something else.
        (folders.write_unigram, "do_lower_case", False),
        (folders.write_unigram, "keep_accents", True),
        (folders.write_wordpiece, "strip_accents", False),
        (folders.write_wordpiece, "tokenize_chinese_chars", False),
    ],
)
def test_options_that_would_change_ids_are_refused_by_name(tmp_path, write, option, value):
    write(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {option: value}))
    with pytest.raises(ValueError, match=rf"{tmp_path}.*\b{option}=") as error:
        load(tmp_path)
    assert str(error.value).count("\n") < 2


def test_a_flag_that_contradicts_the_tokenizer_is_refused(tmp_path):
    folders.write_unigram(tmp_path)
    path = str(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="do_lower_case=False"):
        load_tokenizer(path, do_lower_case=False)
    assert load_tokenizer(path, do_lower_case=True).do_lower_case


def with_template(template):
    return folders.unigram_json() | {"post_processor": template}


def with_two_separators():
    template = folders.template(2, 3)
    template["pair"].insert(3, template["pair"][2])  # as RoBERTa has
    return with_template(template)


def without_mask():
    return json.loads(json.dumps(folders.unigram_json()).replace("[MASK]", "<mask>"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (with_template(None), "template"),
        (with_template(folders.template(3, 2)), "template"),
        (with_two_separators(), r"\[SEP\] \[SEP\]"),
        (without_mask(), r"lacks the tokens \[MASK\]"),
        ({"version": "1.0"}, r"tokenizer\.json: not a tokenizer"),
    ],
)
def test_other_tokenizers_are_refused(tmp_path, content, said):
    folders.write_tokenizer(tmp_path, content, folders.ALBERT_CONFIG)
    with pytest.raises(ValueError, match=rf"{tmp_path}.*{said}|{said}"):
        load(tmp_path)


def test_without_the_library_the_error_says_what_to_install(tmp_path, monkeypatch):
    folders.write_spiece(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"pip install 'albert-tf2\[hf\]'"):
        load(tmp_path)


def test_a_vocabulary_has_googles_tokenizer(toy_spm_model):
    tokenizer = load_tokenizer(spm_model_file=toy_spm_model)
    assert not isinstance(tokenizer, HuggingFaceTokenizer)
    assert tokenizer.do_lower_case
    assert not load_tokenizer(None, False, toy_spm_model).do_lower_case
    assert list_files(toy_spm_model) == [toy_spm_model]
    assert checksum_of(toy_spm_model) == tokenizer.checksum
    assert list(tokenizer.vocabulary_files) == ["spiece.model"]


def with_steps(*steps):
    """A tokenizer whose texts first go through these steps."""
    content = folders.unigram_json()
    content["normalizer"] = {"type": "Sequence", "normalizers": [*steps, content["normalizer"]]}
    return content


def replaced(pattern, content, kind="Regex"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def without_unknown():
    content = folders.wordpiece_json()
    del content["model"]["vocab"]["[UNK]"]  # which stays an added token
    return content


DOUBLED = [replaced("a", "aa", "String")] * 28
SPREAD = [replaced("[a-z]", "b.c"), replaced("[bc]", "d.e")] * 5


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            with_steps(replaced("^(([a-z])+.)+[A-Z]([a-z])+$", "x")),
            "expression in it takes too many",
        ),
        (with_steps(*DOUBLED), "normalizer makes 'a' more than 256 times as long"),
        (with_steps({"type": "Sequence", "normalizers": DOUBLED}), "more than 256 times as long"),
        (with_steps(*SPREAD), "more than 256 times as long"),
        (without_unknown(), "the library tokenizers cannot use it .*Missing"),
    ],
)
@pytest.mark.parametrize(
    "use",
    [
        lambda tokenizer, text: tokenizer.encode(text),
        lambda tokenizer, text: tokenizer.tokenize(text),
        lambda tokenizer, text: tokenizer.encode_with_offsets(text),
    ],
)
def test_a_tokenizer_that_fails_for_a_text_is_named_with_the_reason(tmp_path, content, said, use):
    folders.write_tokenizer(tmp_path, content, {})
    with pytest.raises(ValueError, match=rf"tokenizer\.json: .*{said}"):
        use(load(tmp_path), "a" * 60 + "!")


def test_steps_that_insert_what_others_replace_are_read_if_they_end(tmp_path):
    content = with_steps(*DOUBLED[:5], replaced("a+", "the", "Regex"))
    folders.write_tokenizer(tmp_path, content, folders.ALBERT_CONFIG)
    assert load(tmp_path).tokenize("a") == ["▁the"]


def test_a_damaged_table_of_normalization_is_an_error_of_one_line(tmp_path):
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["the river in the sea", "a boat waits for rain"] * 9),
        model_writer=written,
        vocab_size=40,
        hard_vocab_limit=False,
        normalization_rule_name="nmt_nfkc",
        minloglevel=2,
    )
    table = read_sentencepiece_file(written.getvalue()).precompiled_charsmap
    end = 4 + int.from_bytes(table[:4], "little")  # of the trie, which points into the texts
    for damaged in (table[: end + 1], table[:7]):
        encoded = base64.b64encode(damaged).decode()
        content = with_steps({"type": "Precompiled", "precompiled_charsmap": encoded})
        folders.write_tokenizer(tmp_path, content, folders.ALBERT_CONFIG)
        with pytest.raises(ValueError, match=r"tokenizer\.json: .*charsmap( is damaged)? \("):
            load_tokenizer(str(tmp_path / "tokenizer.json")).encode("ＡＢ ﬁ")
