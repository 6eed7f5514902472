"""What the checkpoints of a folder were trained with: the file `trained_with.json` beside them.

Training writes it with its first checkpoint, and a converted checkpoint keeps the part about the
vocabulary. Whoever uses the checkpoints compares it with what is used now: a model understands the
ids of one vocabulary only, and another one of the same size gives wrong results without an error.
"""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Collection

from albert_tf import files
from albert_tf.settings import with_current_names
from albert_tf.tokenization import FullTokenizer

FILE = "trained_with.json"
VOCABULARY, LOWER_CASE = "vocabulary", "do_lower_case"  # names in the identity
OF_TEXT = frozenset({VOCABULARY, LOWER_CASE})  # what decides which ids a text becomes
_DIGEST_LENGTH = 16


@dataclasses.dataclass(frozen=True)
class TrainedWith:
    """What decided the result of a training run.

    Attributes:
        identity: name → short text: settings that decide the result, and fingerprints of contents.
        paths: name of a content → where it was, an absolute path.
        others: the settings that do not decide the result, as texts.
    """

    identity: dict[str, str]
    paths: dict[str, str] = dataclasses.field(default_factory=dict)
    others: dict[str, str] = dataclasses.field(default_factory=dict)

    def adding(self, name: str, checksum: str, path: str) -> TrainedWith:
        """Returns this with the fingerprint of one more content.

        Args:
            name: of the content.
            checksum: SHA-256 of it, hexadecimal.
            path: where it is; "" if that is not known.
        """
        identity = self.identity | {name: f"sha256 {checksum[:_DIGEST_LENGTH]}"}
        paths = self.paths | ({name: absolute(path)} if path else {})
        return TrainedWith(identity, paths, self.others)

    def only(self, names: Collection[str]) -> TrainedWith:
        """Returns the part of the identity that has one of these names, with its paths."""
        identity = {name: text for name, text in self.identity.items() if name in names}
        return TrainedWith(identity, {n: p for n, p in self.paths.items() if n in names})

    def is_same(self, other: TrainedWith, name: str) -> bool:
        """Returns whether a text of the identity is the same in another one."""
        return self.identity.get(name) == other.identity.get(name)

    def show(self, name: str) -> str:
        """Returns a text of the identity, with the path of the content if there is one."""
        path = self.paths.get(name)
        return self.identity[name] + (f" ({path})" if path else "")


def read(folder: str) -> TrainedWith | None:
    """Returns what `write` wrote; None where there is no such file, as in foreign folders.

    Raises:
        ValueError: the file is damaged.
    """
    path = os.path.join(folder, FILE)
    if not files.exists(path):
        return None
    fields = typing.get_type_hints(TrainedWith)
    values = files.read_own_json(path, fields)
    return TrainedWith(**{name: with_current_names(values[name]) for name in fields})


def write(folder: str, trained_with: TrainedWith) -> None:
    """Writes `trained_with.json`."""
    files.write_json(os.path.join(folder, FILE), dataclasses.asdict(trained_with))


def describe_vocabulary(size: int, checksum: str) -> str:
    """Returns the fingerprint of a vocabulary.

    Args:
        size: number of its entries.
        checksum: SHA-256 of its file, hexadecimal.
    """
    return f"{size} entries, sha256 {checksum[:_DIGEST_LENGTH]}"


def of_tokenizer(tokenizer: FullTokenizer, path: str) -> TrainedWith:
    """Returns the part of a `TrainedWith` that is about the vocabulary, and lower-casing.

    Args:
        tokenizer: of the vocabulary.
        path: its file.
    """
    identity = {
        VOCABULARY: describe_vocabulary(tokenizer.vocab_size, tokenizer.checksum),
        LOWER_CASE: str(tokenizer.do_lower_case),
    }
    return TrainedWith(identity, {VOCABULARY: absolute(path)})


def check_vocabulary(folder: str, vocabulary: TrainedWith) -> TrainedWith | None:
    """Compares a vocabulary with the one that the model in a folder was trained with.

    Args:
        folder: of the model's checkpoint.
        vocabulary: `of_tokenizer`.

    Returns:
        what is known of the vocabulary of the training; None if nothing is.

    Raises:
        ValueError: it was another one; names both.
    """
    known = read(folder)
    if known is None or VOCABULARY not in known.identity:
        return None
    if not known.is_same(vocabulary, VOCABULARY):
        raise ValueError(
            f"the model in {folder} was trained with another vocabulary: "
            f"{known.show(VOCABULARY)}; now it is {vocabulary.show(VOCABULARY)}. Give that one."
        )
    return known.only(OF_TEXT)


def absolute(path: str) -> str:
    """Returns a path that names the same file from any folder."""
    return path if files.is_remote(path) else os.path.abspath(path)
