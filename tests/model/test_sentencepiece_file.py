"""The reader of SentencePiece models finds what the package sentencepiece finds in them."""

import pathlib

import numpy as np
import pytest
import sentencepiece

from albert_tf.model.tokenization.sentencepiece_encoder import (
    CONTROL,
    NORMAL,
    UNIGRAM,
    USER_DEFINED,
    read_sentencepiece_file,
)
from albert_tf.protobuf_wire import fields


def test_pieces_are_those_of_the_library(toy_spm_model):
    content = pathlib.Path(toy_spm_model).read_bytes()
    sp = sentencepiece.SentencePieceProcessor(model_proto=content)
    ids = range(sp.get_piece_size())
    pieces = read_sentencepiece_file(content).pieces
    assert [piece.text for piece in pieces] == sp.id_to_piece(list(ids))
    np.testing.assert_array_equal([piece.score for piece in pieces], sp.get_score(list(ids)))
    assert [piece.kind == CONTROL for piece in pieces] == sp.is_control(list(ids))


@pytest.mark.parametrize(
    "options",
    [
        {"model_type": "bpe", "normalization_rule_name": "identity"},
        {"model_type": "unigram", "byte_fallback": True, "user_defined_symbols": ["<x>"]},
        {"add_dummy_prefix": False, "remove_extra_whitespaces": False},
        {"treat_whitespace_as_suffix": True},
    ],
)
def test_options_are_those_of_the_training(tmp_path, options):
    text = tmp_path / "text"
    text.write_text("the river and the sea\n" * 9)
    prefix = str(tmp_path / "model")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=prefix, hard_vocab_limit=False, vocab_size=300, **options
    )
    model = read_sentencepiece_file(pathlib.Path(f"{prefix}.model").read_bytes())
    assert (model.model_type == UNIGRAM) == (options.get("model_type") != "bpe")
    assert (model.precompiled_charsmap == b"") == ("normalization_rule_name" in options)
    assert model.escape_whitespaces
    defaults = {"byte_fallback": False, "treat_whitespace_as_suffix": False}
    defaults |= {"add_dummy_prefix": True, "remove_extra_whitespaces": True}
    for name, default in defaults.items():
        assert getattr(model, name) == options.get(name, default), name
    symbols = [piece.text for piece in model.pieces if piece.kind == USER_DEFINED]
    assert symbols == options.get("user_defined_symbols", [])


def test_values_that_are_left_out_have_the_defaults_of_the_format():
    model = read_sentencepiece_file(b"\x0a\x03\x0a\x01a")  # pieces { piece: "a" }
    (piece,) = model.pieces
    assert (piece.text, piece.score, piece.kind) == ("a", 0.0, NORMAL)
    assert model.model_type == UNIGRAM
    assert model.add_dummy_prefix


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x0a\x05a", "it is cut off"),
        (b"\x0a", "damaged near byte 1"),
        (b"\x0b\x00", "damaged near byte 1"),  # a wire type that no file has
        (b"\x15\x00\x00", "damaged near byte 1"),  # a number of four bytes
        (b"\x0a\x02\x18\x01", "a piece without text"),
        (b"\x1a\x02\x10\x01", "its normalization is a number"),
    ],
)
def test_damaged_files_are_refused(content, said):
    with pytest.raises(ValueError, match=said):
        read_sentencepiece_file(content)


def test_fields_of_every_width_are_read():
    message = b"\x08\xac\x02" + b"\x15\x00\x00\x80\x3f" + b"\x19" + b"\x00" * 6 + b"\xf0\x3f"
    assert list(fields(message + b"\x22\x01x")) == [(1, 300), (2, 1.0), (3, 1.0), (4, b"x")]
