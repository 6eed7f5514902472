r"""Prints the content of pre-training records: instances as text, and counts.

    albert inspect-records --input_file='records/train-*' --spm_model_file=30k-clean.model

prints the first instances, with the tokens to predict in brackets, and then statistics of all
records. For Chinese records, use --vocab_file. Without a vocabulary, token ids are printed. Records
created by Google's and albert_zh's programs can be read as well.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albert_tf.cli import console
from albert_tf.data import records
from albert_tf.data.records import FoundRecords, decode_example
from albert_tf.data.settings import InputSettings, VocabularyFileSettings
from albert_tf.model.huggingface_tokenizer import load_tokenizer as load
from albert_tf.model.objectives import NONE, OBJECTIVES, SOP, SentenceObjective
from albert_tf.model.tokenization import SPIECE_UNDERLINE, Tokenizer
from albert_tf.settings import redefined, setting

LEGEND = "[word] masked, [word=] to predict but unchanged, [word>other] replaced by another word"

Features = Mapping[str, NDArray[Any]]


def read_examples(paths: Iterable[str]) -> Iterator[dict[str, NDArray[Any]]]:
    """Yields the features of all records.

    Raises:
        ValueError: a file is not a TFRecord file, or a record is not a pre-training record; the
            message names the file.
    """
    needed = set(records.FEATURES) - {"token_boundary"}  # albert_zh's records lack this feature
    for path in paths:
        for number, record in enumerate(records.read_records(path), 1):
            try:
                features = decode_example(record)
            except ValueError as error:
                raise ValueError(f"{path}, record {number}: {error}") from None
            if missing := sorted(needed - set(features)):
                names = ", ".join(missing)
                raise ValueError(
                    f"{path}, record {number} is not a pre-training record: missing {names}"
                )
            yield features


def segment_ends(features: Features) -> tuple[int, int]:
    """Returns the ends (exclusive) of segments A and B, each including its [SEP]."""
    length = int(features["input_mask"].sum())
    return length - int(features["segment_ids"].sum()), length


def predictions(features: Features) -> list[tuple[int, int]]:
    """Returns the position and the id of each token to predict."""
    used = features["masked_lm_weights"] > 0
    positions = features["masked_lm_positions"][used]
    ids = features["masked_lm_ids"][used]
    return list(zip(positions.tolist(), ids.tolist(), strict=True))


def _is_kept(token_id: int, label: int, tokenizer: Tokenizer | None) -> bool:
    """Returns whether a token to predict is unchanged; albert_zh's label for 字 may be ##字."""
    if tokenizer is None or token_id == label:
        return token_id == label
    return "##" + tokenizer.pieces[token_id] == tokenizer.pieces[label]


def _is_joined(piece: str, before: str) -> bool:
    """Returns whether a WordPiece piece follows the previous one without a space."""
    return piece.startswith("##") or (len(piece) == 1 and not (piece + before[-1:]).isascii())


def render(features: Features, tokenizer: Tokenizer | None, objective: SentenceObjective) -> str:
    """Returns an instance as readable text, with predicted tokens in brackets (see LEGEND).

    Args:
        features: features of one record.
        tokenizer: the tokenizer; None to render ids.
        objective: the sentence objective, which names the label.
    """

    def piece_of(token_id: int) -> str:
        return tokenizer.convert_ids_to_tokens([token_id])[0] if tokenizer else str(token_id)

    labels = dict(predictions(features))
    end_a, end_b = segment_ends(features)
    words = []
    before = ""
    for position, token_id in enumerate(features["input_ids"][:end_b].tolist()):
        label = labels.get(position, token_id)
        piece = piece_of(label)
        input_piece = piece_of(token_id)
        if tokenizer and tokenizer.is_sentencepiece:
            space = " " if piece.startswith(SPIECE_UNDERLINE) or piece.startswith("[") else ""
            shown, input_piece = (
                text.removeprefix(SPIECE_UNDERLINE) for text in (piece, input_piece)
            )
        else:
            space = "" if tokenizer and _is_joined(piece, before) else " "
            shown = piece if position in labels else piece.removeprefix("##")
        before = piece
        if position in labels:
            is_mask = bool(tokenizer) and input_piece == "[MASK]"
            is_kept = _is_kept(token_id, label, tokenizer)
            became = "" if is_mask else "=" if is_kept else f">{input_piece or SPIECE_UNDERLINE}"
            shown = f"[{shown or SPIECE_UNDERLINE}{became}]"
        words.append(space + shown)
    meaning = objective.describe(int(features["next_sentence_labels"][0]))
    return (
        f"{end_b} tokens, {len(labels)} to predict, label {meaning}\n"
        f"  A {''.join(words[:end_a])}\n  B {''.join(words[end_a:])}"
    )


class Statistics:
    """Statistics of records.

    Attributes:
        values: title → one value per instance (or per run of adjacent positions).
        labels: label of the sentence objective → number of instances.
        replacements: kind of replacement → number of predicted positions.
        inner_labels: number of positions whose label is a piece inside a word ("##").
    """

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = collections.defaultdict(list)
        self.labels = collections.Counter[int]()
        self.replacements = collections.Counter[str]()
        self.inner_labels = 0

    def add(self, features: Features, tokenizer: Tokenizer | None) -> None:
        """Counts one record."""
        end_a, end_b = segment_ends(features)
        predicted = predictions(features)
        self.labels[int(features["next_sentence_labels"][0])] += 1
        self.values["tokens of an instance"].append(end_b)
        self.values["tokens to predict in an instance"].append(len(predicted))
        self.values["share of segment A, %"].append(100 * end_a / max(1, end_b))
        # Position minus rank is constant within a run of adjacent positions.
        places = [position - rank for rank, (position, _) in enumerate(predicted)]
        stretches = collections.Counter(places).values()
        self.values["neighbors to predict in a stretch"].extend(stretches)
        for position, label in predicted:
            token_id = int(features["input_ids"][position])
            is_kept = _is_kept(token_id, label, tokenizer)
            kind = "the piece itself" if is_kept else "another piece"
            if tokenizer:
                kind = "[MASK]" if token_id == tokenizer.mask_id else kind
                self.inner_labels += tokenizer.pieces[label].startswith("##")
            self.replacements[kind] += 1

    def summary(self, objective: SentenceObjective) -> str:
        """Returns the counts as lines of text; `objective` names the labels."""
        lengths = self.values["tokens of an instance"]
        instances = len(lengths)
        tokens = int(sum(lengths))
        predicted = self.replacements.total()
        lines = [
            f"{instances:,} instances, {tokens:,} tokens, {predicted:,} to predict "
            f"({100 * predicted / max(1, tokens):.2f} %)"
        ]
        for label, count in sorted(self.labels.items()):
            name = objective.describe(label)
            lines.append(f"label {name}: {count:,} ({100 * count / instances:.1f} %)")
        for kind, count in self.replacements.most_common():
            lines.append(f"predicted at {kind}: {count:,} ({100 * count / predicted:.1f} %)")
        if self.inner_labels:
            share = 100 * self.inner_labels / predicted
            lines.append(f'labels that begin with "##": {self.inner_labels:,} ({share:.1f} %)')
        for title, values in self.values.items():
            if values:
                least = min(values)
                most = max(values)
                lines.append(f"{title}: {least:.4g} to {most:.4g}, mean {np.mean(values):.2f}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(InputSettings, VocabularyFileSettings):
    """What to show."""

    GROUP = "data"

    spm_model_file: str | None = redefined(
        VocabularyFileSettings,
        "spm_model_file",
        None,
        "SentencePiece model that the records were created with; required to print their text, "
        "unless vocab_file is given.",
    )
    num_instances: int = setting(5, "Number of instances to print; 0 prints none.", minimum=0)
    max_records: int = setting(
        0, "Maximum number of records to read for the statistics; 0 reads all.", minimum=0
    )


def load_tokenizer(settings: Settings, found: FoundRecords) -> Tokenizer | None:
    """Returns the tokenizer of the settings; None without a vocabulary.

    Raises:
        ValueError: the records were created with another vocabulary.
    """
    if not settings.vocabulary_file:
        return None
    tokenizer = load(settings.vocab_file, spm_model_file=settings.spm_model_file)
    for path, info in found.items():
        if info and info.vocabulary["checksum"] != tokenizer.checksum:
            raise ValueError(
                f"{path} was created with the vocabulary {info.vocabulary['file']}, SHA-256 "
                f"{info.vocabulary['checksum'][:16]}…, not with "
                f"{settings.vocabulary_file}, {tokenizer.checksum[:16]}…"
            )
    return tokenizer


def find_objective(found: FoundRecords) -> SentenceObjective:
    """Returns the sentence objective in the metadata of records; `sop` if there is none.

    If it is not registered here, this is `none`, without names of labels.
    """
    for info in filter(None, found.values()):
        name = info.settings.get("sentence_objective", SOP)
        return OBJECTIVES.get(name, OBJECTIVES[NONE])
    return OBJECTIVES[SOP]


def run(settings: Settings) -> None:
    """Prints instances and statistics of the records."""
    found = records.find_records(settings.input_file, "--input_file")
    tokenizer = load_tokenizer(settings, found)
    objective = find_objective(found)
    statistics = Statistics()
    examples = itertools.islice(read_examples(found), settings.max_records or None)
    with console.ending_with_reader():
        for number, features in enumerate(examples):
            if number < settings.num_instances:
                legend = "" if number else f"{LEGEND}\n"
                print(f"{legend}\n{render(features, tokenizer, objective)}")
            statistics.add(features, tokenizer)
        if not statistics.labels:
            raise ValueError(f"--input_file: no records in {', '.join(found)}")
        print(f"\n{statistics.summary(objective)}")
