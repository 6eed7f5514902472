r"""Prints the content of pre-training records: instances as text, and counts.

    albert inspect-records --input_file='records/train-*' --spm_model_file=30k-clean.model

prints the first instances, with the tokens to predict in brackets, and then statistics of a sample
of the records; of all with --max_records=0, which takes five minutes for a million. For Chinese
records, use --vocab_file. Without a vocabulary, token ids are printed. Records created by Google's
and albert_zh's programs can be read as well.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from albert_tf.data.record_metadata import FoundRecords, find_records
from albert_tf.data.records import FEATURES, read_records
from albert_tf.data.settings import InputSettings, VocabularyFileSettings
from albert_tf.data.tf_example import Features, decode_example
from albert_tf.model.objectives import NONE, OBJECTIVES, SOP, SentenceObjective
from albert_tf.model.tokenization import MASK_TOKEN, SPIECE_UNDERLINE, Tokenizer
from albert_tf.model.tokenization import load_tokenizer as load
from albert_tf.settings import redefined, setting

MAX_FILES = 100  # of a sample
LEGEND = "[word] masked, [word=] to predict but unchanged, [word>other] replaced by another word"


def segment_ends(features: Features) -> tuple[int, int]:
    """Returns the ends (exclusive) of segments A and B, each including its [SEP]."""
    length = int(features["input_mask"].sum())
    return length - int(features["segment_ids"].sum()), length


def spell(ids: NDArray[np.integer], tokenizer: Tokenizer | None) -> list[str]:
    """Returns the tokens with these ids, or the ids as text without a tokenizer."""
    return [tokenizer.pieces[number] if tokenizer else str(number) for number in ids.tolist()]


class Prediction(NamedTuple):
    """A token to predict.

    Attributes:
        position: its position in the instance.
        found: the token that stands in its place.
        label: the token.
        replacement: what `found` is: `MASK_TOKEN`, KEPT, ANOTHER or UNKNOWN.
    """

    position: int
    found: str
    label: str
    replacement: str


KEPT, ANOTHER, UNKNOWN = "kept", "another", "masked or another"


def predictions(
    features: Features, tokenizer: Tokenizer | None, mask_id: int | None
) -> list[Prediction]:
    """Returns the tokens to predict of an instance.

    Args:
        features: features of one record.
        tokenizer: the tokenizer; None to give ids as tokens.
        mask_id: id of [MASK]; None if it is not known.
    """
    used = features["masked_lm_weights"] > 0
    positions = features["masked_lm_positions"][used]
    ids = features["input_ids"][positions]
    found = spell(ids, tokenizer)
    labels = spell(features["masked_lm_ids"][used], tokenizer)
    kinds = [
        MASK_TOKEN if number == mask_id else _replacement(token, label, mask_id is not None)
        for number, token, label in zip(ids.tolist(), found, labels, strict=True)
    ]
    return list(map(Prediction, positions.tolist(), found, labels, kinds))


def _replacement(found: str, label: str, is_mask_known: bool) -> str:
    if label in (found, f"##{found}"):  # albert_zh predicts ##字 for 字
        return KEPT
    return ANOTHER if is_mask_known else UNKNOWN


def in_brackets(predicted: Prediction) -> str:
    """Returns a token to predict in brackets; see LEGEND."""
    _, found, label, kind = predicted
    ends = {MASK_TOKEN: "", KEPT: "="}
    start = next((sign for sign in ("##", SPIECE_UNDERLINE) if label.startswith(sign)), "")
    other = f">{found.removeprefix(SPIECE_UNDERLINE)}"
    return f"{start}[{label.removeprefix(start)}{ends.get(kind, other)}]"


def render(
    features: Features,
    tokenizer: Tokenizer | None,
    objective: SentenceObjective,
    mask_id: int | None,
) -> str:
    """Returns an instance as readable text, with predicted tokens in brackets (see LEGEND).

    Args:
        features: features of one record.
        tokenizer: the tokenizer; None to render ids.
        objective: the sentence objective, which names the label.
        mask_id: id of [MASK]; None if it is not known.
    """
    end_a, end_b = segment_ends(features)
    pieces = spell(features["input_ids"][:end_b], tokenizer)
    predicted = predictions(features, tokenizer, mask_id)
    for one in predicted:
        pieces[one.position] = in_brackets(one)
    join = tokenizer.detokenize if tokenizer else " ".join
    meaning = objective.describe(int(features["next_sentence_labels"][0]))
    return (
        f"{end_b} tokens, {len(predicted)} to predict, label {meaning}\n"
        f"  A {join(pieces[:end_a])}\n  B {join(pieces[end_a:])}"
    )


class RecordSample:
    """Some of the records of files, or all of them.

    These are the first ones of files that are evenly spaced. The data programs shuffle the records
    of all files, so that they are as good as any others, and nothing else of a file is read.

    Args:
        found: the files, with their metadata.
        max_records: how many records to read; 0 reads all.
    """

    def __init__(self, found: FoundRecords, max_records: int) -> None:
        paths = list(found)
        every = math.ceil(len(paths) / min(MAX_FILES, max_records)) if max_records else 1
        self._found = found
        self._paths = paths[::every]
        self._max_records = max_records
        self._is_whole = every == 1
        self._num_read = 0

    def read(self) -> Iterator[Features]:
        """Yields the features of the records.

        Raises:
            ValueError: a file is not a TFRecord file, or a record is not a pre-training record; the
                message names the file.
        """
        for number, path in enumerate(self._paths):
            left = self._max_records - self._num_read
            share = math.ceil(left / (len(self._paths) - number)) if self._max_records else None
            examples = _read_examples(path)
            for features in itertools.islice(examples, share):
                self._num_read += 1
                yield features
            self._is_whole &= next(examples, None) is None
            examples.close()

    def describe(self) -> str:
        """Returns what was read, after reading; "" if these are all records."""
        if self._is_whole:
            return ""
        counts = [info.instances for info in self._found.values() if info]
        known = f" of {sum(counts):,}" if len(counts) == len(self._found) else ""
        read, every = len(self._paths), len(self._found)
        return (
            f"A sample of {self._num_read:,}{known} records, the first ones of {read:,} of "
            f"{every:,} files; --max_records=0 reads all."
        )


def _read_examples(path: str) -> Generator[Features, None, None]:
    needed = set(FEATURES) - {"token_boundary"}  # albert_zh's records lack this feature
    for number, record in enumerate(read_records(path), 1):
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


class Statistics:
    """Counts of records.

    Attributes:
        lengths: number of tokens of each instance.
        predicted: number of tokens to predict of each instance.
        labels: label of the sentence objective → number of instances.
        replacements: what stands in the place of a token to predict → number of tokens.
    """

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.predicted: list[int] = []
        self.labels = collections.Counter[int]()
        self.replacements = collections.Counter[str]()

    def add(self, features: Features, tokenizer: Tokenizer | None, mask_id: int | None) -> None:
        """Counts one record; the arguments are those of `predictions`."""
        predicted = predictions(features, tokenizer, mask_id)
        self.lengths.append(segment_ends(features)[1])
        self.predicted.append(len(predicted))
        self.labels[int(features["next_sentence_labels"][0])] += 1
        self.replacements.update(one.replacement for one in predicted)

    def summary(self, objective: SentenceObjective) -> str:
        """Returns the counts as lines of text; `objective` names the labels."""
        instances, tokens, predicted = len(self.lengths), sum(self.lengths), sum(self.predicted)
        lines = [
            f"{instances:,} instances, {tokens:,} tokens, {predicted:,} to predict "
            f"({100 * predicted / max(1, tokens):.2f} %)"
        ]
        for label, count in sorted(self.labels.items()):
            name = objective.describe(label)
            lines.append(f"label {name}: {count:,} ({100 * count / instances:.1f} %)")
        for kind, count in self.replacements.most_common():
            lines.append(f"to predict, {kind}: {count:,} ({100 * count / predicted:.1f} %)")
        for title, counts in (
            ("tokens of an instance", self.lengths),
            ("tokens to predict in an instance", self.predicted),
        ):
            mean = sum(counts) / instances
            lines.append(f"{title}: {min(counts)} to {max(counts)}, mean {mean:.2f}")
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
        10_000,
        "Maximum number of records to read for the statistics, from up to 100 files; 0 reads all.",
        minimum=0,
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


def find_mask_id(found: FoundRecords, tokenizer: Tokenizer | None) -> int | None:
    """Returns the id of [MASK], of the tokenizer or the metadata; None if neither tells it."""
    if tokenizer is not None:
        return tokenizer.mask_id
    return next((info.mask_id for info in found.values() if info), None)


def run(settings: Settings) -> Iterator[str]:
    """Yields instances and statistics of the records."""
    settings.check_paths()
    found = find_records(settings.input_file, "--input_file")
    tokenizer = load_tokenizer(settings, found)
    objective = find_objective(found)
    mask_id = find_mask_id(found, tokenizer)
    statistics = Statistics()
    sample = RecordSample(found, settings.max_records)
    for number, features in enumerate(sample.read()):
        if number < settings.num_instances:
            legend = "" if number else f"{LEGEND}\n"
            yield f"{legend}\n{render(features, tokenizer, objective, mask_id)}"
        statistics.add(features, tokenizer, mask_id)
    if not statistics.labels:
        raise ValueError(f"--input_file: no records in {', '.join(found)}")
    yield "\n".join(["", *filter(None, [sample.describe()]), statistics.summary(objective)])
