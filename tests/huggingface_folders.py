"""Tokenizers of small vocabularies, in folders as `transformers` writes them, and how it is run."""

from __future__ import annotations

import json
import os
import struct
import subprocess

import pytest

SPECIAL = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
SYMBOLS = ["(", ")", "-", "."]  # user-defined, as in ALBERT's vocabulary
WORDS = ["the", "river", "in", "1999,", "said", "new", "caf", "nai", "m", "M", "mu", "Mu", "", "¾"]
INNER = ["s", "e", "é", "u", "ü", "v", "l", "n", "r", "t", ",", "ve", "ller", "y", "or", "k", "Y"]
PIECES = [*SPECIAL, *SYMBOLS, *("▁" + word for word in WORDS), *INNER]
_CONTROL, _USER_DEFINED, _UNKNOWN, _NORMAL = 3, 4, 2, 1
# Line 6 of the vocabulary is white space, and so is line 8.
LINES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "\u3000", "river", "", "##s", "mu"]
LINES += ["##ller", "ü", "é", "caf", "##é", "##e", "北", "京", "##京", "1999", ",", "M", "##ü", "m"]
ALBERT_CONFIG = {
    "tokenizer_class": "AlbertTokenizer",
    "do_lower_case": True,
    "keep_accents": False,
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
    "pad_token": "<pad>",
    "unk_token": "<unk>",
}
BERT_CONFIG = {
    "tokenizer_class": "BertTokenizer",
    "do_lower_case": True,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
}


def save_file(arrays, path, **options):
    """Writes a file of safetensors."""
    safetensors = pytest.importorskip("safetensors.numpy", reason="needs the extra hf")
    safetensors.save_file(arrays, path, **options)


def score(number):
    """Rising scores of longer pieces, all different."""
    return 0.0 if number < len(SPECIAL) else -20.0 + 2 * len(PIECES[number]) - number / 100


def write_config(folder, values):
    (folder / "tokenizer_config.json").write_text(json.dumps(values))


def _field(number, value):
    """Returns a field of a protocol buffer message, of a length below 128."""
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    key = number << 3 | (0 if isinstance(value, int) else 2)
    keys = bytes([key]) if key < 128 else bytes([key & 127 | 128, key >> 7])
    return keys + (bytes([value]) if isinstance(value, int) else bytes([len(value)]) + value)


def write_spiece(folder, **options):
    """Writes `spiece.model` and its options, as version 4 of `transformers` does."""
    content = b""
    for number, piece in enumerate(PIECES):
        kind = _UNKNOWN if piece == "<unk>" else _CONTROL if number < len(SPECIAL) else _NORMAL
        kind = _USER_DEFINED if piece in SYMBOLS else kind
        fields = _field(1, piece.encode()) + _field(2, score(number)) + _field(3, kind)
        content += _field(1, fields)
    model_type, unk_id, name = _field(3, 1), _field(40, 1), _field(1, b"identity")
    content += _field(2, model_type + unk_id) + _field(3, name)
    (folder / "spiece.model").write_bytes(content)
    write_config(folder, ALBERT_CONFIG | options)


def write_vocabulary(folder, **options):
    """Writes `vocab.txt` and its options, as version 4 of `transformers` does."""
    (folder / "vocab.txt").write_text("".join(f"{line}\n" for line in LINES))
    write_config(folder, BERT_CONFIG | options)


def added(token_id, content, is_special=True, is_normalized=False):
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": is_normalized,
        "special": is_special,
    }


def template(cls_id, sep_id):
    cls, sep = ({"SpecialToken": {"id": t, "type_id": 0}} for t in ("[CLS]", "[SEP]"))
    single = [cls, {"Sequence": {"id": "A", "type_id": 0}}, sep]
    last = {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
    ids = {"[CLS]": cls_id, "[SEP]": sep_id}
    special = {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in ids.items()}
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, {"Sequence": {"id": "B", "type_id": 1}}, last],
        "special_tokens": special,
    }


def unigram_json(lower=True, accents=False, more=()):
    """Returns the content of ALBERT's `tokenizer.json` of version 5."""
    steps = [{"type": "Replace", "pattern": {"String": s}, "content": '"'} for s in ("``", "''")]
    steps += [] if accents else [{"type": "NFKD"}, {"type": "StripAccents"}]
    steps += [{"type": "Lowercase"}] if lower else []
    spaces = {
        "type": "Metaspace",
        "replacement": "▁",
        "prepend_scheme": "always",
        "split": True,
    }
    splitters = [{"type": "WhitespaceSplit"}, spaces]
    tokens = [added(i, piece) for i, piece in enumerate(SPECIAL)]
    tokens += [added(len(SPECIAL) + i, piece, False) for i, piece in enumerate(SYMBOLS)]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [*tokens, *more],
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": splitters},
        "post_processor": template(2, 3),
        "decoder": spaces,
        "model": {
            "type": "Unigram",
            "unk_id": 1,
            "vocab": [[piece, score(number)] for number, piece in enumerate(PIECES)],
            "byte_fallback": False,
        },
    }


def wordpiece_json(lower=True):
    """Returns the content of BERT's `tokenizer.json` of version 5."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(i, token) for i, token in enumerate(LINES[:5])],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": lower,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": template(2, 3),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {line.strip(): number for number, line in enumerate(LINES)},
        },
    }


def write_tokenizer(folder, content, config):
    """Writes `tokenizer.json` and its options, as version 5 of `transformers` does."""
    (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False))
    write_config(folder, {"backend": "tokenizers", **config})


def write_unigram(folder, lower=True, accents=False, more=(), **options):
    config = ALBERT_CONFIG | {"do_lower_case": lower, "keep_accents": accents} | options
    write_tokenizer(folder, unigram_json(lower, accents, more), config)


def write_wordpiece(folder, lower=True, **options):
    write_tokenizer(folder, wordpiece_json(lower), BERT_CONFIG | {"do_lower_case": lower} | options)


def run(python, code, *arguments):
    """Runs code in another Python without this one's packages; returns its output."""
    environment = {n: x for n, x in os.environ.items() if n != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", code, *map(str, arguments)],
        env=environment | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
