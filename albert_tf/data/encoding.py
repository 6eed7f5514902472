"""Encodes a chunk of text as serialized instances, each with a slot for the shuffle.

This step is shared by `create` and `beam`, which write the same records because its result depends
only on the chunk and the settings.

1. Parse the chunk into lists of sentences.
2. Tokenize them once (`instances`) and optionally mark Chinese words (`masking`).
3. Build and mask the instances of all passes (`instances`, `masking`) and serialize them
   (`records`).
"""

from __future__ import annotations

import collections
import dataclasses
import html
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from albert_tf import files
from albert_tf.data import corpus
from albert_tf.data.instances import create_batches, tokenize_documents
from albert_tf.data.masking import AlbertZhWords, ChineseWords, WordMarker, word_start_table
from albert_tf.data.records import encode_examples, frame_records
from albert_tf.data.settings import (
    EncodingSettings,
    InstanceSettings,
    TextSettings,
    VocabularySettings,
)
from albert_tf.model.huggingface_tokenizer import load_tokenizer as load
from albert_tf.model.tokenization import Tokenizer

_SLOTS = 1  # mixed into the seed, so that slots have a separate random stream


def load_tokenizer(settings: VocabularySettings) -> Tokenizer:
    """Returns the tokenizer that the settings describe.

    Raises:
        FileNotFoundError, ValueError: see `huggingface_tokenizer.load_tokenizer`.
    """
    return load(settings.vocab_file, settings.do_lower_case, settings.spm_model_file)


@dataclasses.dataclass(frozen=True)
class EncodedBatch:
    """Some instances of a chunk, serialized.

    Attributes:
        records: serialized examples in TFRecord frames.
        slots: int64 [number of records], the shuffle slot of each record; see `draw_slots`.
        counts: what this batch adds to the counts in the metadata.
    """

    records: list[bytes]
    slots: NDArray[np.int64]
    counts: collections.Counter[str]


def load_word_marker(settings: InstanceSettings, tokenizer: Tokenizer) -> WordMarker | None:
    """Returns an object that marks Chinese words, or None if the settings do not enable it.

    Raises:
        ValueError: jieba is not installed, or the vocabulary is unsuitable.
    """
    if not settings.segment_chinese_words:
        return None
    return AlbertZhWords(tokenizer) if settings.albert_zh_compat else ChineseWords(tokenizer)


def _count(batch: dict[str, np.ndarray], records: list[bytes]) -> collections.Counter[str]:
    labels = np.bincount(batch["next_sentence_labels"][:, 0], minlength=2).tolist()
    return collections.Counter(
        instances=len(records),
        positions=int(batch["input_mask"].sum()),
        predictions=int(batch["masked_lm_weights"].sum()),
        **{f"label_{label}": count for label, count in enumerate(labels) if label},
        record_bytes=sum(map(len, records)),
    )


def make_chunk_encoder(
    settings: EncodingSettings, num_outputs: int
) -> Callable[[corpus.Chunk], Iterator[EncodedBatch]]:
    """Returns a function that yields the encoded instances of a chunk, in batches.

    The first batch of a chunk has no instances, only the counts of the text.

    Args:
        settings: the vocabulary, which is loaded once, here, and how to build instances.
        num_outputs: number of record files.
    """
    tokenizer = load_tokenizer(settings)
    table = word_start_table(tokenizer.pieces, tokenizer.is_sentencepiece)
    marker = load_word_marker(settings, tokenizer)
    longest = settings.max_seq_length - settings.num_special_tokens

    def encode(chunk: corpus.Chunk) -> Iterator[EncodedBatch]:
        sentences = sentences_of(chunk.parts, settings)
        documents = tokenize_documents(sentences, tokenizer, table, marker)
        counts: collections.Counter[str] = collections.Counter(
            instances=0,
            documents=documents.num_documents,
            sentences=len(documents.sentence_starts) - 1,
            tokens=len(documents.ids),
            unknown=int((documents.ids == tokenizer.unk_id).sum()),
            long_sentences=int((np.diff(documents.sentence_starts) > longest).sum()),
        )
        yield EncodedBatch([], np.zeros(0, np.int64), counts)
        rng = np.random.default_rng([settings.random_seed, *chunk.position, _SLOTS])
        made = 0
        for batch in create_batches(documents, settings, tokenizer, chunk.position):
            encoded = frame_records(encode_examples(batch))
            slots = draw_slots(len(encoded), made, num_outputs, rng)
            made += len(encoded)
            yield EncodedBatch(encoded, slots, _count(batch, encoded))

    return encode


# Parses chunks of text: lines with sentences or paragraphs, whole documents, or JSON objects.
#
# `corpus` splits files of these formats into chunks. Here each chunk is converted to lists of
# sentences, with an empty string between documents.

_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can encode a lone surrogate: not a character
_ARTICLE = re.compile(r'<doc id=.*\btitle="(?P<title>.*)">\s*$')
_REPLACEMENT = "\ufffd"


def split_paragraph(paragraph: str, language: str) -> list[str]:
    """Splits a paragraph into sentences, stripped of surrounding whitespace.

    Args:
        paragraph: a line of text.
        language: see `TextSettings`.
    """
    import sentencex  # an optional dependency

    return [
        sentence for part in sentencex.segment(language, paragraph) if (sentence := part.strip())
    ]


def sentences_of(parts: Iterable[corpus.Part], settings: TextSettings) -> Iterator[list[str]]:
    """Yields the sentences of each part, with "" between documents.

    Args:
        parts: parts of a chunk read by `corpus.read_job` with `settings.input_format`.
        settings: how to parse it.

    Raises:
        ValueError: the text is not UTF-8 or not JSON, lacks the field, or has a line too long for a
            sentence; the message names the file and the line.
    """
    for part in parts:
        lines: list[str] = []
        for number, paragraph in _paragraphs(part, settings):
            sentences = [paragraph]
            if settings.split_sentences and paragraph:
                sentences = split_paragraph(paragraph, settings.language)
            for sentence in sentences:
                part.check_sentence(sentence, number)
            lines += sentences
        yield lines


def _paragraphs(part: corpus.Part, settings: TextSettings) -> Iterator[tuple[int, str]]:
    """Yields (index of the line, paragraph), with "" after a document.

    All paragraphs of a JSON object have the index of that object's line.
    """
    numbered = enumerate(part.lines())
    if settings.input_format == corpus.SENTENCES:
        # A line of spaces ends a document just like an empty line.
        yield from ((number, line if line.strip() else "") for number, line in numbered)
    elif settings.input_format == corpus.DOCUMENTS:
        yield from ((number, line) for number, line in numbered if line.strip())
    elif settings.input_format == corpus.WIKIEXTRACTOR:
        yield from _paragraphs_of_articles(numbered)
    else:
        for number, line in numbered:
            if line.strip():
                text = _text_of_record(line, settings.text_field, part, number)
                paragraphs = re.split("\r\n?|\n", text)
                yield from ((number, paragraph) for paragraph in paragraphs if paragraph.strip())
                yield number, ""


def _paragraphs_of_articles(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yields the paragraphs of WikiExtractor's articles, without the titles above them."""
    title = ""
    for number, line in numbered:
        text = html.unescape(line).strip()
        if start := _ARTICLE.match(line):
            title = html.unescape(start["title"]).strip()
        elif line.strip() == "</doc>":
            yield number, ""
        elif text:
            if text != title:
                yield number, text
            title = ""


def _text_of_record(line: str, field: str, part: corpus.Part, number: int) -> str:
    """Returns the text in a JSON object, with lone surrogates replaced by U+FFFD.

    Raises:
        ValueError: the line is not a JSON object with this text field; the message names the file
            and the line.
    """

    def error(reason: str) -> ValueError:
        return ValueError(f"{part.path}, line {part.first_line + number}: {reason}")

    try:
        record = json.loads(line, strict=False)  # tolerates raw tabs and NUL bytes
    except ValueError as cause:
        raise error(f"expected a JSON object: {cause}") from None
    if not isinstance(record, dict):
        raise error(f"expected a JSON object, found a {type(record).__name__}")
    if field not in record:
        raise error(
            f"no field {field!r}; its fields: {files.quote_all(record)}. Set --text_field to "
            "the one that contains the text."
        )
    text = record[field]
    if not isinstance(text, str):
        raise error(f"field {field!r}: expected text, found a {type(text).__name__}")
    return _SURROGATE.sub(_REPLACEMENT, text)


# Shuffles more records than fit in memory.
#
# Each record is spilled to disk, to a random slot of its output file. Later, the slots of an output
# are read back in groups as large as memory allows, and each group is shuffled. Random slots
# combined with a random order within each group make a uniformly random permutation of all records.
#
# A block is a file of records sorted by slot, written under a temporary name and then renamed, so
# that it is either complete or does not exist. Little-endian integers of 8 bytes precede the
# records: the number of records before each slot and after the last one, and the offset in bytes of
# each record and of the end.

NUM_SLOTS = 4096  # in all outputs together; an output has at most as many groups as slots
SPILL_BYTES = 32 << 20  # bytes of records that a process buffers before it writes a block

_ORDER = 2  # mixed into the seed, so that this order has a separate random stream


def slots_per_output(num_outputs: int) -> int:
    """Returns the number of slots per output: an equal share of NUM_SLOTS, at least one."""
    return max(1, NUM_SLOTS // num_outputs)


def draw_slots(
    count: int, first: int, num_outputs: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draws a random slot for each record of a batch.

    The slots of output i start at `i * slots_per_output(num_outputs)`. Records are distributed
    evenly: within a chunk, the outputs' numbers of records differ by at most one.

    Args:
        count: number of records in the batch.
        first: index within the chunk of the batch's first record.
        num_outputs: number of outputs.
        rng: random generator.

    Returns:
        int64 [count].
    """
    each = slots_per_output(num_outputs)
    outputs = rng.permutation((first + np.arange(count)) % num_outputs)
    return outputs * each + rng.integers(0, each, count)


def spill(
    batches: Iterable[EncodedBatch], stem: str, num_outputs: int
) -> tuple[list[str], collections.Counter[str]]:
    """Writes the records of a chunk to disk, in blocks.

    Args:
        batches: the instances of the chunk.
        stem: path prefix of the blocks, which are named `<stem>-000.spill`, …
        num_outputs: number of output files.

    Returns:
        The paths of the blocks, in order, and the counts of the chunk.
    """
    paths: list[str] = []
    counts: collections.Counter[str] = collections.Counter()
    buffered: list[EncodedBatch] = []

    def flush() -> None:
        if records := [record for batch in buffered for record in batch.records]:
            paths.append(f"{stem}-{len(paths):03d}.spill")
            slots = np.concatenate([batch.slots for batch in buffered])
            _write_block(paths[-1], records, slots, num_outputs)
        buffered.clear()

    for batch in batches:
        counts.update(batch.counts)
        buffered.append(batch)
        if sum(batch.counts["record_bytes"] for batch in buffered) >= SPILL_BYTES:
            flush()
    flush()
    return paths, counts


def _write_block(
    path: str, records: list[bytes], slots: NDArray[np.int64], num_outputs: int
) -> None:
    order = np.argsort(slots, kind="stable")
    records_before = np.searchsorted(slots[order], np.arange(_num_slots(num_outputs) + 1))
    sorted_records = [records[at] for at in order.tolist()]
    offsets = np.cumsum([0, *map(len, sorted_records)])
    with files.write_atomically(path, "wb") as stream:
        stream.write(np.concatenate([records_before, offsets]).astype("<i8").tobytes())
        stream.writelines(sorted_records)


def shuffled(
    blocks: Sequence[str], output: int, num_outputs: int, groups: int, random_seed: int
) -> Iterator[bytes]:
    """Yields the records of an output from all blocks, in random order.

    Args:
        blocks: paths of the blocks. The result depends on their order.
        output: index of the output, starting at 0.
        num_outputs: number of outputs.
        groups: number of groups into which the slots are divided; one is in memory at a time.
        random_seed: the run's seed.
    """
    each = slots_per_output(num_outputs)
    bounds = [output * each + each * group // groups for group in range(groups + 1)]
    for group, (begin, end) in enumerate(itertools.pairwise(bounds)):
        records = [
            record for path in blocks for record in _read_slots(path, num_outputs, begin, end)
        ]
        yield from map(records.__getitem__, random_order(len(records), random_seed, output, group))


def random_order(count: int, random_seed: int, output: int, group: int = 0) -> list[int]:
    """Returns a random permutation of 0 to `count - 1`, the order in which a group is written."""
    rng = np.random.default_rng([random_seed, output, _ORDER, group])
    order: list[int] = rng.permutation(count).tolist()
    return order


def _read_slots(path: str, num_outputs: int, begin: int, end: int) -> Iterator[bytes]:
    """Yields the records of the slots `begin` (inclusive) to `end` (exclusive) of one block."""
    num_slots = _num_slots(num_outputs)
    with open(path, "rb") as stream:

        def integers(start: int, count: int) -> list[int]:
            stream.seek(8 * start)
            found: list[int] = np.frombuffer(stream.read(8 * count), "<i8").tolist()
            return found

        (first,), (last,), (total,) = (integers(slot, 1) for slot in (begin, end, num_slots))
        offsets = integers(num_slots + 1 + first, last - first + 1)
        stream.seek(8 * (num_slots + 1 + total + 1) + offsets[0])
        data = stream.read(offsets[-1] - offsets[0])
    for start, stop in itertools.pairwise(offsets):
        yield data[start - offsets[0] : stop - offsets[0]]


def _num_slots(num_outputs: int) -> int:
    return num_outputs * slots_per_output(num_outputs)
