"""tokenizer.json: its content, and its ids compared with Hugging Face's `tokenizers`."""

from __future__ import annotations

import json

import pytest

from albert_tf.model.tokenization import FullTokenizer
from tests.conftest import train_toy_vocabulary

tokenizers = pytest.importorskip("tokenizers", reason="needs the extra hf")

from albert_tf.checkpoints.tokenizer_json import tokenizer_json  # noqa: E402 - it imports them

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "river", "##s", "河", "σ", "##ς", "a"]
TEXTS = [
    "",
    "  The  rivers, 1999, froze. ",
    "\u0301Cafe\u0301 \u00c5 \u00b4 \ufeff",
    "\u0301first",
    "\x01\x7fboat\x01",
    "河the河,流",
    "ΟΔΟΣ Σ ΑΣ",
    "한국 \u1112\u1161\u11ab",
    "a\u2028b\u3000c\x85d",
    "x" * 201,
    "\ue000\U0001f600",
]


def load(tokenizer):
    return tokenizers.Tokenizer.from_str(tokenizer_json(tokenizer))


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_tokenizers_produces_our_ids(do_lower_case, tmp_path, toy_spm_model):
    vocab_file = tmp_path / "vocab.txt"
    vocab_file.write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    for tokenizer in (
        FullTokenizer(str(vocab_file), do_lower_case),
        FullTokenizer(None, do_lower_case, toy_spm_model),
    ):
        theirs = load(tokenizer)
        for text in TEXTS:
            ids = theirs.encode(text, add_special_tokens=False).ids
            assert ids == tokenizer.encode(text), ascii(text)
        encoded = theirs.encode("The river", "a boat")
        ours = tokenizer("The river", "a boat")
        assert encoded.ids == list(ours["input_ids"][0])
        assert encoded.type_ids == list(ours["segment_ids"][0])


def test_a_mask_replaces_a_word_and_its_space(toy_spm_model):
    tokenizer = FullTokenizer(spm_model_file=toy_spm_model)
    ids = load(tokenizer).encode("The [MASK] froze.", add_special_tokens=False).ids
    expected = tokenizer.encode("The"), [tokenizer.mask_id], tokenizer.encode("froze.")
    assert ids == [token_id for part in expected for token_id in part]
    ids = load(tokenizer).encode("[MASK].", add_special_tokens=False).ids
    assert tokenizer.convert_ids_to_tokens(ids) == ["[MASK]", "."]


def test_pieces_with_other_ids_are_told_apart_in_the_warning(tmp_path, caplog):
    path = tmp_path / "numbers.model"
    train_toy_vocabulary(path, 100, ["1,", "0,"])
    tokenizer_json(FullTokenizer(spm_model_file=str(path)))
    assert "tokenizer.json: '1,', '0,'" in caplog.text


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
@pytest.mark.parametrize("case", ["lower", "cased"])
def test_every_golden_text_has_the_official_ids(shared, kind, case):
    """Except for special tokens in the text, and ties, which float32 and float64 break apart."""
    vocabulary = (
        {"spm_model_file": str(shared / "vocab" / "30k-clean.model")}
        if kind == "sentencepiece"
        else {"vocab_file": str(shared / "vocab" / "vocab_chinese.txt")}
    )
    theirs = load(FullTokenizer(do_lower_case=case == "lower", **vocabulary))
    path = shared / "golden" / "tokenization" / f"{kind}_{case}.jsonl"
    differing = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if theirs.encode(row["text"], add_special_tokens=False).ids != row["ids"]:
            differing.append(row["text"])
    equal_scores = {"é" * len(text) for text in differing if kind == "sentencepiece"}
    assert [text for text in differing if text not in equal_scores] == [
        "[CLS] hello [SEP] [MASK] <pad> <unk>"
    ]
    assert len(differing) <= 2
