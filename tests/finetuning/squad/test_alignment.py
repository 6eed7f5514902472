"""Pieces of texts are aligned with their characters as in Google's program."""

import io
import random
import unicodedata

import numpy as np
import pytest
import sentencepiece

from albert_tf.finetuning.squad import alignment
from albert_tf.finetuning.squad.alignment import UNKNOWN, align_characters
from albert_tf.model.tokenization import FullTokenizer, preprocess_text
from tests.finetuning.squad.word_tokenizer import WordTokenizer

ACCENTED = "A  café … costs ½?\nYes x3, No"


def test_pieces_are_aligned_as_in_googles_program():
    text = alignment.tokenize(WordTokenizer(), ACCENTED)
    assert text.first_char.tolist() == [0, 1, 7, 9, 15, 18, 22, 25, 26]
    assert text.last_char.tolist() == [0, 6, 8, 14, 17, 21, 24, 25, 28]
    begin = ACCENTED.index("costs ½?")
    assert text.first_token[begin] == 3
    assert text.last_token[begin + len("costs ½?") - 1] == 4


def align_by_cells(text, joined):
    """Computes Google's table cell by cell; returns the pairs or None."""
    n, m = len(text), len(joined)
    half_width = abs(n - m) + 5
    for _ in range(2):
        length, step = {}, {}
        for i in range(n):
            for j in range(max(0, i - half_width), min(m, i + half_width)):
                best = 0
                if i > 0:
                    best, step[i, j] = length.get((i - 1, j), 0), (1, 0)
                if j > 0 and length.get((i, j - 1), 0) > best:
                    best, step[i, j] = length[i, j - 1], (0, 1)
                diagonal = length.get((i - 1, j - 1), 0)
                if text[i] == joined[j] and diagonal + 1 > best:
                    best, step[i, j] = diagonal + 1, (1, 1)
                length[i, j] = best
        matched = length.get((n - 1, m - 1), 0)
        if matched > 0.8 * n:
            break
        half_width *= 2
    pairs = np.full(n, UNKNOWN)
    i, j = n - 1, m - 1
    while (i, j) in step:
        down, right = step[i, j]
        if down and right:
            pairs[i] = j
        i, j = i - down, j - right
    return None if matched < 0.8 * n or not matched else pairs.tolist()


def mutate(rng, text, alphabet, rate):
    result = []
    for char in text:
        draw = rng.random()
        if draw > rate / 3:
            result.append(char if draw > rate * 2 / 3 else rng.choice(alphabet))
        while rng.random() < rate / 3:
            result.append(rng.choice(alphabet))
    return "".join(result)


@pytest.mark.parametrize("block_rows", [3, 256])
@pytest.mark.parametrize("alphabet", ["ab ", "abcdefgh \udfff"])
def test_the_pairs_are_those_of_googles_table(monkeypatch, block_rows, alphabet):
    monkeypatch.setattr(alignment, "BLOCK_ROWS", block_rows)
    rng = random.Random(7)
    found = 0
    for _ in range(80):
        text = "".join(rng.choice(alphabet) for _ in range(rng.randint(0, 41)))
        joined = mutate(rng, text, alphabet, rng.choice([0, 0.1, 0.4])).replace("\udfff", "x")
        joined = rng.choice(["", " "]) + joined
        expected = align_by_cells(text, joined)
        got = align_characters(text, joined)
        assert (None if got is None else got.tolist()) == expected, (text, joined)
        found += expected is not None
    assert 20 < found < 80  # both outcomes occur


@pytest.mark.parametrize("block_rows", [3, 256])
@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("abcdefghij", "abcdefgh"),  # exactly four of five characters
        ("abcdefghij", "abcdefg"),
        ("abcde", "abcd"),
        ("abcde", "abc"),
        ("a", "a"),
        ("a", "b"),
        ("ab", "b"),
        ("abcdefghij", "jabcdefgh"),
        ("abcdefghij", "hgfedcba"),  # as many equal characters, in another order
        (" ab", "  ab"),
        # Longer subsequences lie just outside of the band, on either side.
        ("abbbbbababbbbaabaababababba", "abbababbbbbababbbbaabaababa"),
        ("bbbbaabbbaaabbabaaaababbaa", "bbbbaaabbabaaaababbaababab"),
        ("bbaabababbbababaabbabbbabbb", "bbabbbababaabbabbbabbbaabbb"),
        (
            "nfhreqpcrlqrdoryjavjrqisg",
            "ciaexnfhreqpcrlqrdoryjavj",
        ),  # in the band of twice the width
    ],
)
def test_at_least_four_of_five_characters_are_aligned(monkeypatch, block_rows, text, joined):
    monkeypatch.setattr(alignment, "BLOCK_ROWS", block_rows)
    expected = align_by_cells(text, joined)
    found = align_characters(text, joined)
    assert (None if found is None else found.tolist()) == expected
    matched = 0 if expected is None else sum(place != UNKNOWN for place in expected)
    assert expected is None or matched >= 0.8 * len(text)


def fill(index, limit, is_start):
    """Fills in unknown entries one by one, as `convert_index` describes."""
    known = [place for place, other in enumerate(index) if other != UNKNOWN]
    filled = list(index)
    for place in set(range(len(index))) - set(known):
        left = max((at for at in known if at < place), default=None)
        right = min((at for at in known if at > place), default=None)
        begin = 0 if left is None else index[left] + 1
        end = (limit or 0) if right is None else index[right]
        if begin < end:
            filled[place] = begin if is_start else end - 1
        elif right is None or (left is not None and not is_start):
            filled[place] = index[left]
        else:
            filled[place] = index[right]
    return filled


@pytest.mark.parametrize("is_start", [True, False])
@pytest.mark.parametrize("limit", [None, 0, 1])
def test_unknown_entries_lie_between_their_neighbors(is_start, limit):
    rng = random.Random(5)
    for _ in range(200):
        size = rng.randint(1, 9)
        places = sorted(rng.sample(range(size + 3), size))
        index = [place if rng.random() < 0.6 else UNKNOWN for place in places]
        index[rng.randrange(size)] = UNKNOWN
        if all(place == UNKNOWN for place in index):
            index[0] = rng.randint(0, 2)
        length = None if limit is None else max(index) + 1 + limit
        found = alignment.convert_index(np.array(index, np.int32), length, is_start)
        assert found.tolist() == fill(index, length, is_start), (index, length)


def test_texts_that_differ_much_are_aligned_with_twice_the_band():
    # Seven extra characters at the start and seven fewer at the end: too far for a band of five.
    text = "abcdefghijklmnopqrstuvwxyz" * 3
    joined = "0123456" + text[:-7]
    pairs = align_characters(text, joined)
    assert pairs.tolist() == align_by_cells(text, joined)
    assert pairs[0] == 7
    assert align_characters(text, "0" * 20 + text[:-20]) is None


# Contexts with answers that begin and end with words, some of them with marks.
SENTENCES = {
    "Korean": ("안나는 로마에서 살고 빵을 팔아요.", ["안나는", "로마", "빵을 팔아요"]),
    "Vietnamese": ("Bà Hường sống ở Huế và bán bánh mì ở chợ cũ.", ["Bà Hường", "Huế", "chợ cũ"]),
    "Hindi": ("अन्ना रोम में रहती है। विद्वान् सड़क पर पढ़ते हैं।", ["अन्ना", "विद्वान्", "सड़क"]),
    "Thai": ("แอนนาอยู่ที่โรมและขายขนมปังริมแม่น้ำใหญ่", ["โรม", "อยู่", "แม่น้ำ"]),
    "Tamil": ("அன்னா ரோமில் வாழ்கிறாள், ரொட்டி விற்கிறாள். சொல்", ["ரோமில்", "ரொட்டி", "சொல்"]),
    "Bengali": ("আন্না রোমে থাকে, বড় রুটি বিক্রি করে। কোন পথ", ["রোমে", "বড়", "কোন"]),
    "Arabic": ("تَعِيشُ آنَّا فِي رُومَا وَتَبِيعُ الخُبْزَ", ["آنَّا", "رُومَا", "الخُبْزَ"]),
    "Japanese": ("アンナはローマでパンをうる。", ["ローマ", "パン"]),
    "French": ("À Rome, Zoé vend du café.", ["À Rome", "Zoé", "café"]),
}


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """A tokenizer that knows each letter of the sentences, after SentencePiece's NFKC."""
    texts = [preprocess_text(text, lower=True) for text, _ in SENTENCES.values()]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type="char",
        vocab_size=1000,
        hard_vocab_limit=False,
        character_coverage=1.0,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2,
    )
    path = tmp_path_factory.mktemp("letters") / "letters.model"
    path.write_bytes(model.getvalue())
    return FullTokenizer(spm_model_file=str(path))


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("language", SENTENCES)
def test_answers_are_found_and_whole_in_every_script(letters, language, form):
    sentence, parts = SENTENCES[language]
    context, *answers = (unicodedata.normalize(form, text) for text in (sentence, *parts))
    aligned = alignment.tokenize(letters, context)
    assert aligned.token_ids.tolist() == letters.encode(context)
    for answer in answers:
        begin = context.index(answer)
        first = aligned.first_token[begin]
        last = aligned.last_token[begin + len(answer) - 1]
        assert context[aligned.first_char[first] : aligned.last_char[last] + 1] == answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("한국어 문장", True),
        (unicodedata.normalize("NFD", "Huế ở chợ"), True),
        ("Anna lives in Seoul (서울).", False),  # most of it, as Google's program aligns it
        ("Zoe\u0301 pays ½ for the bread …", False),
        ("中文，１２３", False),
        ("a" + " " * 99 + "b", False),  # skipped by both
    ],
)
def test_what_google_skips_is_known(letters, chinese, text, expected):
    assert alignment.is_skipped_by_google(letters, text) == expected
    assert not alignment.is_skipped_by_google(chinese, text)


@pytest.mark.parametrize("text", ["", "\n\t", "\u0301"])
def test_a_text_removed_by_normalization_is_skipped(text):
    assert alignment.tokenize(WordTokenizer(), text) is None


def test_a_table_too_large_is_refused_at_once():
    text = "ab" * 300_000
    assert align_characters(text, text + "c" * 600_000) is None


@pytest.fixture(scope="module")
def chinese(tmp_path_factory):
    vocabulary = "[PAD] [UNK] [CLS] [SEP] [MASK] 中 国 nex ##on 10 ##0 . cafe σ ##ας % 한".split()
    vocabulary += ["\u1112", "##\u1161", "##\u11ab"]
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_text("".join(f"{piece}\n" for piece in vocabulary), encoding="utf-8")
    return FullTokenizer(str(path), do_lower_case=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("中国", ["中", "国"]),
        (" 中 \u3000国\n", ["中", "国"]),
        ("Nexon中100%.", ["Nex", "on", "中", "10", "0", "%", "."]),
        ("N\x00exo\u200bn", ["N\x00ex", "o\u200bn"]),  # removed characters stay inside pieces
        ("café 中", ["café", "中"]),
        ("cafe\u0301 中", ["cafe\u0301", "中"]),  # a removed accent belongs to its letter
        ("Σας", ["Σ", "ας"]),
        ("中\U0001f600国", ["中", "\U0001f600", "国"]),  # an unknown word is one piece
        ("unknown中", ["unknown", "中"]),
        ("한.", ["한", "한", "한", "."]),  # three pieces of one syllable
    ],
)
def test_wordpieces_are_aligned_with_their_characters(chinese, text, expected):
    aligned = alignment.tokenize(chinese, text)
    spans = zip(aligned.first_char.tolist(), aligned.last_char.tolist(), strict=True)
    assert [text[first : last + 1] for first, last in spans] == expected
    assert aligned.token_ids.tolist() == chinese.encode(text)


def test_wordpieces_of_an_answer_are_those_that_overlap_it(chinese):
    aligned = alignment.tokenize(chinese, " Nexon中100 ")
    # " Nexon中100 ": nex ##on 中 10 ##0
    assert aligned.first_token.tolist() == [0, 0, 0, 0, 1, 1, 2, 3, 3, 4, 5]
    assert aligned.last_token.tolist() == [-1, 0, 0, 0, 1, 1, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("text", ["", " \n", "\x00\u200b"])
def test_a_text_without_wordpieces_is_skipped(chinese, text):
    assert alignment.tokenize(chinese, text) is None
