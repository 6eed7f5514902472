"""The files of a tokenizer in a folder that Hugging Face's `transformers` has written.

`tokenizer.json` describes the whole way from text to ids. Folders without that file have a
vocabulary (`spiece.model` or `vocab.txt`) and options in `tokenizer_config.json`. An option that
would change the ids and is not supported is an error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from albert_tf import files
from albert_tf.files import JsonObject
from albert_tf.model.tokenization.full_tokenizer import SENTENCEPIECE_NAME, WORDPIECE_NAME

TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
_SPECIAL_FILE = "special_tokens_map.json"  # earlier than version 5
_ADDED_FILE = "added_tokens.json"  # token → id, earlier than version 4.34
ALBERT, BERT = "AlbertTokenizer", "BertTokenizer"
_SEGMENTS = "token_type_ids"
NAMED_TOKENS = tuple(f"{name}_token" for name in ("pad", "unk", "cls", "sep", "mask"))
# Option → its only supported value. The second ones are part of tokenizer.json, where there is one.
_REQUIRED = {"truncation_side": "right", "padding_side": "right", "split_special_tokens": False}
_REQUIRED_OF_VOCABULARIES = {
    "remove_space": True,
    "sp_model_kwargs": {},  # sampling
    "never_split": [],
    "do_basic_tokenize": True,
    "add_prefix_space": True,
}


def is_tokenizer_file(path: str) -> bool:
    """Returns whether the path is that of a Hugging Face folder's tokenizer."""
    return os.path.basename(path) in (TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)


def list_files(path: str) -> list[str]:
    """Returns the files of the tokenizer with this file: for a vocabulary, just itself.

    The last one makes a folder with the others one with a tokenizer.
    """
    if not is_tokenizer_file(path):
        return [path]
    folder = os.path.dirname(path)
    names = [TOKENIZER_CONFIG_FILE, _SPECIAL_FILE, _ADDED_FILE, SENTENCEPIECE_NAME, WORDPIECE_NAME]
    if os.path.basename(path) == TOKENIZER_FILE:
        names = [TOKENIZER_CONFIG_FILE, TOKENIZER_FILE]
    paths = [os.path.join(folder, name) for name in names]
    return list(filter(files.exists, paths))


def read_files(path: str) -> dict[str, bytes]:
    """Returns name → content of the files of the tokenizer with this file.

    Of a vocabulary whose ids are the numbers of its lines (`has_ids_of_lines`), empty options are
    among them, with which its copy has the same ids.
    """
    found = {os.path.basename(place): files.read_bytes(place) for place in list_files(path)}
    if os.path.basename(path) == TOKENIZER_CONFIG_FILE and TOKENIZER_CONFIG_FILE not in found:
        return {TOKENIZER_CONFIG_FILE: b"{}\n", **found}
    return found


def has_ids_of_lines(path: str) -> bool:
    """Returns whether a `vocab.txt` of a Hugging Face folder has other ids than in Google's code.

    In `transformers`, the id of a token is the number of its line, and of repeated tokens the last
    one counts; in Google's code, blank and repeated lines have no number.
    """
    lines = [line.rstrip() for line in files.read_text(path).removesuffix("\n").split("\n")]
    return len({line.split()[0] if line.split() else "" for line in lines}) < len(lines)


def read_options(path: str) -> JsonObject:
    """Returns the options of `tokenizer_config.json` and its companions, after checking them.

    Raises:
        ValueError: an option is not supported.
    """
    folder = os.path.dirname(path)

    def read(name: str) -> JsonObject:
        place = os.path.join(folder, name)
        return files.read_json(place) if files.exists(place) else {}

    config = read(TOKENIZER_CONFIG_FILE)
    required = dict(_REQUIRED)
    if os.path.basename(path) == TOKENIZER_CONFIG_FILE:
        required |= _REQUIRED_OF_VOCABULARIES
        if "added_tokens_decoder" not in config:
            named = read(_SPECIAL_FILE)
            config |= {name: named[name] for name in NAMED_TOKENS if name in named}
            config["added_tokens_decoder"] = {
                str(number): {"content": token} for token, number in read(_ADDED_FILE).items()
            }
    for name, expected in required.items():
        value = config.get(name)
        if value is not None and value != expected:
            raise ValueError(
                f"{os.path.join(folder, TOKENIZER_CONFIG_FILE)}: {name}={json.dumps(value)} is not "
                f"supported; expected {json.dumps(expected)}"
            )
    return config


def class_of(options: Mapping[str, object]) -> str:
    """Returns the class of the tokenizer, of which there were a slow and a fast version."""
    return str(options.get("tokenizer_class") or "").removesuffix("Fast")


def has_segments_of(options: Mapping[str, object]) -> bool:
    """Returns whether the model was trained with `token_type_ids`.

    In version 5 of `transformers` (which writes `backend`), only BERT's tokenizer has them, unless
    `model_input_names` says otherwise; in earlier versions all had them.
    """
    names = options.get("model_input_names")
    if isinstance(names, list):
        return _SEGMENTS in names
    return "backend" not in options or class_of(options) == BERT
