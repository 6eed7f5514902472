"""Reports held-out accuracies of a pre-trained model with intervals, and by kind of pair.

    python examples/pretraining_errors.py --model_dir=work/pretrain_small/model \
        --record_file=work/pretrain_small/held_out.tfrecord \
        --text_file=work/pretrain_small/corpus/held_out.txt

Predicts every record, and finds the document of each segment in the text that the records were made
of. Prints masked-LM and sentence-order accuracy beside the best constant answers, with intervals
that come from drawing other documents (bootstrap), and the answers to each kind of pair: segments
in order, swapped, or of two documents.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

import albert_tf
from albert_tf import files
from albert_tf.cli import program
from albert_tf.data import records
from albert_tf.settings import REQUIRED, SettingsGroup, setting
from albert_tf.tokenization import Tokenizer

IN_ORDER = "in order"
SWAPPED = "swapped"
OTHER_DOCUMENT = "of two documents"
LABELS = {IN_ORDER: 0, SWAPPED: 1, OTHER_DOCUMENT: 1}
BATCH_SIZE = 64
SAMPLES = 2000
INTERVAL = 2.5, 97.5  # percentiles


@dataclasses.dataclass(frozen=True)
class Settings(SettingsGroup):
    """The model, the records and their text."""

    model_dir: str = setting(REQUIRED, "Folder of a run of run_pretraining.py.")
    record_file: str = setting(REQUIRED, "One file of create_pretraining_data.py.")
    text_file: str = setting(
        REQUIRED, "The text that the records were made of, with one sentence per line."
    )


class Documents:
    """The documents of a text as ids, which can be searched for segments.

    Args:
        documents: the ids of each document, int [length].
    """

    def __init__(self, documents: Sequence[np.ndarray]) -> None:
        self._starts = np.cumsum([0, *(len(ids) + 1 for ids in documents)])[:-1]
        separator = np.full(1, -1)
        parts = [part for ids in documents for part in (ids, separator)]
        self._bytes = np.concatenate(parts).astype(np.int32).tobytes()

    def places(self, segment: np.ndarray) -> dict[int, list[int]]:
        """Returns document → positions in it where the segment, int [length], occurs."""
        wanted = segment.astype(np.int32).tobytes()
        width = np.dtype(np.int32).itemsize
        places: dict[int, list[int]] = collections.defaultdict(list)
        at = self._bytes.find(wanted)
        while at >= 0:
            if at % width == 0:
                position = at // width
                document = int(np.searchsorted(self._starts, position, side="right")) - 1
                places[document].append(position - int(self._starts[document]))
            at = self._bytes.find(wanted, at + 1)
        return places

    def origin(self, first: np.ndarray, second: np.ndarray, label: int) -> tuple[int, str]:
        """Returns the document of the first segment, and the kind of the pair.

        Args:
            first: ids of segment A.
            second: ids of segment B.
            label: the sentence-order label, which decides if several origins are possible.

        Raises:
            ValueError: the pair is not from these documents.
        """
        places = self.places(first)
        others = self.places(second)
        origins = []
        for document, starts in places.items():
            for start in starts:
                for other in others.get(document, []):
                    origins.append((document, IN_ORDER if start < other else SWAPPED))
        for document in places:
            if others.keys() - {document}:
                origins.append((document, OTHER_DOCUMENT))
        for document, kind in origins:
            if LABELS[kind] == label:
                return document, kind
        raise ValueError("--text_file: the records were not made of this text")


def read_documents(text_file: str, tokenizer: Tokenizer) -> Documents:
    """Returns the documents of a text, which blank lines separate."""
    documents = []
    for block in files.read_text(text_file).split("\n\n"):
        lines = [tokenizer.tokenize(line) for line in block.splitlines()]
        ids = [tokenizer.convert_tokens_to_ids(tokens) for tokens in lines if tokens]
        if ids:
            documents.append(np.concatenate(ids))
    return Documents(documents)


@dataclasses.dataclass(frozen=True)
class Answers:
    """The model's answers to a record.

    Attributes:
        document: index of the document of the first segment.
        kind: kind of the pair.
        order: predicted sentence-order label.
        order_label: the correct one.
        words: predicted ids of the masked tokens, int [masked].
        word_labels: the correct ones.
    """

    document: int
    kind: str
    order: int
    order_label: int
    words: np.ndarray
    word_labels: np.ndarray


def segments_of(
    ids: np.ndarray, input_mask: np.ndarray, segment_ids: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of segments A and B of [CLS] A [SEP] B [SEP], int [S]."""
    second = np.flatnonzero(input_mask * segment_ids)
    return ids[1 : second[0] - 1], ids[second[0] : second[-1]]


def answers_to(
    batch: dict[str, np.ndarray],
    outputs: dict[str, np.ndarray],
    documents: Documents,
) -> Iterator[Answers]:
    """Yields the answers to each record of a batch.

    Args:
        batch: the features of the records.
        outputs: the outputs of `AlbertForPretraining`.
        documents: the documents of the text.

    Raises:
        ValueError: a record was not made of these documents.
    """
    words = outputs["masked_lm_logits"].argmax(-1)  # [B, P]
    orders = outputs["sentence_order_logits"].argmax(-1)  # [B]
    for row, label in enumerate(batch["next_sentence_labels"][:, 0]):
        masked = batch["masked_lm_weights"][row] > 0  # [P]
        word_labels = batch["masked_lm_ids"][row][masked]
        ids = batch["input_ids"][row].copy()
        ids[batch["masked_lm_positions"][row][masked]] = word_labels
        pair = segments_of(ids, batch["input_mask"][row], batch["segment_ids"][row])
        document, kind = documents.origin(*pair, int(label))
        yield Answers(document, kind, int(orders[row]), int(label), words[row][masked], word_labels)


def lengths_of(record_file: str) -> tuple[int, int]:
    """Returns the numbers of tokens and of masked positions of each record.

    Raises:
        ValueError: create_pretraining_data.py did not write the file.
    """
    info = records.read_metadata([record_file]).get(record_file)
    if info is None:
        raise ValueError(
            f"--record_file={record_file}: expected a file of create_pretraining_data.py with its "
            f"{records.METADATA_SUFFIX} beside it"
        )
    return info.settings["max_seq_length"], info.settings["max_predictions_per_seq"]


def predict(settings: Settings) -> list[Answers]:
    """Returns the model's answers to every record.

    Raises:
        OSError: a file is missing.
        ValueError: the files do not belong together.
    """
    lengths = lengths_of(settings.record_file)
    import tensorflow as tf

    from albert_tf.pretraining import input_pipeline
    from albert_tf.pretraining.task import PretrainingTask

    model, tokenizer = albert_tf.from_pretrained(settings.model_dir, "pretraining")
    documents = read_documents(settings.text_file, tokenizer)
    task = PretrainingTask(model.config, *lengths)
    record_files = task.find_records(settings.record_file, "record_file")
    dataset = input_pipeline.evaluation_dataset(record_files, task.features, BATCH_SIZE)
    compute = tf.function(lambda batch: model(batch, training=False))
    answers: list[Answers] = []
    for batch in input_pipeline.batches(dataset, record_files):
        outputs = {name: output.numpy() for name, output in compute(batch).items()}
        arrays = {name: feature.numpy() for name, feature in batch.items()}
        answers += answers_to(arrays, outputs, documents)
    return answers


@dataclasses.dataclass(frozen=True)
class Margin:
    """An accuracy beside that of the best constant answer, in [0, 1].

    Attributes:
        accuracy: of the model.
        constant: of the best constant answer.
        low, high: 95 % interval of the difference of the two.
    """

    accuracy: float
    constant: float
    low: float
    high: float


def margin_of(hits: np.ndarray, constant_hits: np.ndarray, counts: np.ndarray) -> Margin:
    """Returns the margin over the constant answer, with an interval over documents.

    The answers within a document are not independent, so documents are drawn, not records.

    Args:
        hits: number of correct answers of the model to each document, float [D].
        constant_hits: those of the constant answer, float [D].
        counts: number of answers, float [D].
    """
    rng = np.random.default_rng(1)
    drawn = rng.integers(len(counts), size=(SAMPLES, len(counts)))  # [SAMPLES, D]
    gains = (hits - constant_hits)[drawn].sum(1) / counts[drawn].sum(1)  # [SAMPLES]
    low, high = np.percentile(gains, INTERVAL)
    total = counts.sum()
    return Margin(hits.sum() / total, constant_hits.sum() / total, float(low), float(high))


def _margin(parts: Iterable[tuple[int, np.ndarray, np.ndarray]]) -> Margin:
    """Returns the margin for (document, predictions, labels)."""
    documents, predictions, labels = zip(*parts, strict=True)
    sizes = [len(part) for part in labels]
    index = np.unique(np.repeat(documents, sizes), return_inverse=True)[1]
    predicted = np.concatenate(predictions)
    correct = np.concatenate(labels)
    constant = np.bincount(correct).argmax()
    hits = np.bincount(index, predicted == correct)
    constant_hits = np.bincount(index, correct == constant)
    return margin_of(hits, constant_hits, np.bincount(index).astype(float))


def order_margin(answers: Sequence[Answers]) -> Margin:
    """Returns the margin of sentence-order accuracy."""
    return _margin(
        (answer.document, np.array([answer.order]), np.array([answer.order_label]))
        for answer in answers
    )


def word_margin(answers: Sequence[Answers]) -> Margin:
    """Returns the margin of masked-LM accuracy."""
    return _margin((answer.document, answer.words, answer.word_labels) for answer in answers)


def describe(answers: Sequence[Answers]) -> str:
    """Returns the report as a text of two Markdown tables."""
    documents = len({answer.document for answer in answers})
    lines = [
        f"{len(answers)} held-out pairs from {documents} documents",
        "",
        "| held out | model | best constant answer | difference in points (95 % interval) |",
        "|---|---|---|---|",
    ]
    for name, margin in (
        ("masked-LM accuracy", word_margin(answers)),
        ("sentence-order accuracy", order_margin(answers)),
    ):
        gain = 100 * (margin.accuracy - margin.constant)
        interval = f"({100 * margin.low:+.1f} to {100 * margin.high:+.1f})"
        row = f"{margin.accuracy:.3f} | {margin.constant:.3f} | {gain:+.1f} {interval}"
        lines.append(f"| {name} | {row} |")
    lines += ["", '| pair | number | answer "in order" | answer "swapped" |', "|---|---|---|---|"]
    for kind in LABELS:
        orders = [answer.order for answer in answers if answer.kind == kind]
        if orders:
            share = np.mean(orders)
            lines.append(f"| {kind} | {len(orders)} | {1 - share:.3f} | {share:.3f} |")
    return "\n".join(lines)


def run(settings: Settings) -> str:
    """Returns the report."""
    return describe(predict(settings))


if __name__ == "__main__":
    program.start(Settings, run, __doc__)
