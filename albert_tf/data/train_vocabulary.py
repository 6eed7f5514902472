r"""Trains a vocabulary for ALBERT on text.

For English and most other languages, as for the published English models (SentencePiece, unigram):

    albert train-vocabulary --input_file='corpus/*.txt' --vocab_size=30000 \
        --output_prefix=vocabulary/30k

writes vocabulary/30k.model (for --spm_model_file) and vocabulary/30k.vocab. For Chinese, as for the
published Chinese models (characters, and pieces of Latin words and numbers):

    albert train-vocabulary --type=wordpiece --input_file=data/sample_zh.txt \
        --vocab_size=21128 --output_prefix=vocabulary/zh

writes vocabulary/zh.txt (for --vocab_file). The input is UTF-8 text with one sentence per line, as
for create_pretraining_data.py, and is normalized in the same way: pass the same --do_lower_case to
both programs. Training is deterministic.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from absl import logging

from albert_tf import files, tensorflow_packages
from albert_tf.data.chunks import read_chunks
from albert_tf.data.sentences import sentences_of
from albert_tf.data.settings import TextSettings
from albert_tf.data.sources import find_sources
from albert_tf.model.tokenization import (
    SPECIAL_TOKENS,
    BasicTokenizer,
    FullTokenizer,
    LostMarks,
    MarkRemoval,
    preprocess_text,
)
from albert_tf.settings import REQUIRED, setting

WORDPIECE_SYMBOLS = ["[PAD]", "[UNK]", *SPECIAL_TOKENS]
# Rounding depends on the number of threads; a fixed number makes results equal on all machines.
TRAINING_THREADS = 16
MIN_PIECE_COUNT = 2  # a model learns nothing from a piece that occurs once
TOO_SMALL = (
    "--vocab_size={} is too small for this text: the minimum for its characters and the special "
    "symbols is {}. Raise it, or lower --character_coverage."
)
# Pattern of SentencePiece's message → what is wrong, given `vocab_size` and the number in it.
SENTENCEPIECE_ERRORS = {
    r"value <= (\d+)": (
        "--vocab_size={} is too large for this text: the maximum is {}. Lower it, add more text, "
        "or pass --nohard_vocab_limit to accept a smaller vocabulary."
    ),
    r"required_chars\. \d+ vs (\d+)": TOO_SMALL,
    r"sentences_\.empty\(\)": (
        "no lines left to train on: all are empty after normalization or longer than "
        "--max_sentence_length bytes. Raise it, or split the lines."
    ),
}
_LISTED = ".vocab"  # the pieces of a SentencePiece model and their scores
OUTPUT_ENDINGS = {"sentencepiece": [".model", _LISTED], "wordpiece": [".txt"]}
CHUNK_BYTES = 1 << 20  # how much text is in memory at a time
SUMMARY_LINES = 10_000
SUMMARY_IDS = 16


@dataclasses.dataclass(frozen=True)
class Settings(TextSettings):
    """What to train."""

    input_file: str = setting(REQUIRED, "Text files: paths or glob patterns, separated by commas.")
    output_prefix: str = setting(
        REQUIRED,
        "Path of the vocabulary to write, without the ending (.model and .vocab, or .txt).",
    )
    type: str = setting("sentencepiece", "Kind of vocabulary to train.", choices=OUTPUT_ENDINGS)
    vocab_size: int = setting(
        30_000, "Number of pieces in the vocabulary, including special symbols.", minimum=1
    )
    hard_vocab_limit: bool = setting(
        True,
        "Fail if the text has too few pieces for vocab_size, instead of writing a smaller "
        "SentencePiece vocabulary; one of WordPieces may always be smaller.",
    )
    do_lower_case: bool = setting(
        True, "Lower-case the text, and for WordPiece strip accents as well."
    )
    character_coverage: float = setting(
        0.99995,
        "Fraction of the characters of the text that the vocabulary must cover.",
        minimum=0,
        maximum=1,
    )
    input_sentence_size: int = setting(
        10_000_000, "Maximum number of lines to train SentencePiece on.", minimum=101
    )
    shuffle_input_sentence: bool = setting(
        True,
        "Sample input_sentence_size lines at random for SentencePiece, instead of taking the "
        "first ones.",
    )
    user_defined_symbols: tuple[str, ...] = setting(
        ("(", ")", '"', "-", ".", "–", "£", "€"),
        "Pieces that are always in a SentencePiece vocabulary, with the ids from 5 on, separated "
        "by commas.",
    )
    max_sentence_length: int = setting(
        4192, "Maximum length of a line for SentencePiece, in bytes; longer lines are left out."
    )
    overwrite: bool = setting(False, "Overwrite an existing vocabulary of the same name.")

    @property
    def outputs(self) -> list[str]:
        """The files to write."""
        return [self.output_prefix + ending for ending in OUTPUT_ENDINGS[self.type]]


@dataclasses.dataclass(frozen=True)
class VocabularyResult:
    """The outcome of a run.

    Attributes:
        outputs: the files written.
        tokenizer: the tokenizer of the new vocabulary.
        num_lines: number of lines at the start of the text that the shares are of.
        known_share: fraction of the pieces in these lines that are in the vocabulary.
        characters_per_piece: mean length of a piece in these lines.
        lost_marks: the words in these lines whose marks normalization removes.
    """

    outputs: list[str]
    tokenizer: FullTokenizer
    num_lines: int
    known_share: float
    characters_per_piece: float
    lost_marks: LostMarks

    def __str__(self) -> str:
        first = enumerate(self.tokenizer.pieces[:SUMMARY_IDS])
        return (
            f"wrote {' and '.join(self.outputs)}\n"
            f"size: {self.tokenizer.vocab_size} pieces; the model's vocab_size must be no less\n"
            f"coverage: {self.known_share:.3%} of the pieces in the first {self.num_lines} lines "
            f"are known; {self.characters_per_piece:.2f} characters a piece\n"
            f"marks: {self.lost_marks.share:.1%} of the words in these lines lose accents or other "
            "marks\n"
            f"first ids: {'  '.join(f'{i} {piece}' for i, piece in first)}"
        )


def read_lines(paths: list[str], settings: TextSettings) -> Iterator[str]:
    """Yields the lines that are not blank, as create_pretraining_data.py reads them.

    Raises:
        ValueError: a line is not UTF-8; the message names the file and the line.
    """
    for chunk in read_chunks(find_sources(paths), CHUNK_BYTES, settings.input_format):
        for lines in sentences_of(chunk.parts, settings):
            yield from filter(None, map(str.strip, lines))


def train_sentencepiece(lines: Iterable[str], settings: Settings) -> bytes:
    """Returns a SentencePiece unigram model with ALBERT's special ids, trained on normalized lines.

    The symbols are passed as lists, because current SentencePiece parses a comma-separated string
    as CSV, in which the quotation mark of the published command quotes the symbols after it.

    Raises:
        ValueError: `vocab_size` is too large or too small for the text; the message has the limit.
            Errors of `lines` are raised as they are.
    """
    import sentencepiece

    model = io.BytesIO()
    reading_errors: list[Exception] = []

    def read() -> Iterator[str]:
        try:
            yield from lines
        except Exception as error:
            reading_errors.append(error)  # SentencePiece replaces it with a RuntimeError
            raise

    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=read(),
            model_writer=model,
            model_type="unigram",
            vocab_size=settings.vocab_size,
            hard_vocab_limit=settings.hard_vocab_limit,
            character_coverage=settings.character_coverage,
            input_sentence_size=settings.input_sentence_size,
            shuffle_input_sentence=settings.shuffle_input_sentence,
            max_sentence_length=settings.max_sentence_length,
            num_threads=TRAINING_THREADS,
            pad_id=0,
            unk_id=1,
            bos_id=-1,  # no such symbol
            eos_id=-1,
            control_symbols=list(SPECIAL_TOKENS),
            user_defined_symbols=list(settings.user_defined_symbols),
            minloglevel=2,
        )
    except RuntimeError as error:
        if reading_errors:
            raise reading_errors[0] from None
        raise ValueError(_explain(str(error), settings.vocab_size)) from None
    return model.getvalue()


def _explain(message: str, vocab_size: int) -> str:
    """Returns what is wrong, given the message of SentencePiece."""
    for pattern, explanation in SENTENCEPIECE_ERRORS.items():
        if found := re.search(pattern, message):
            return explanation.format(vocab_size, *found.groups())
    return f"SentencePiece training failed: {message}"


def train_wordpiece(word_counts: Counter[str], settings: Settings) -> list[str]:
    """Returns a BERT-style vocabulary for the words of `BasicTokenizer` and their counts.

    The pieces are learned by TensorFlow Text: special symbols first, then the characters that cover
    the text, alone and with the prefix "##", and pieces of words, at most `vocab_size` in all.

    Raises:
        ValueError: `vocab_size` is too small for the characters.
    """
    # Unlike the words of `bert_vocab_from_dataset`, those of `BasicTokenizer` are what
    # `FullTokenizer` splits.
    tensorflow_packages.require_text("a WordPiece vocabulary")
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib

    vocabulary: list[str] = wordpiece_tokenizer_learner_lib.learn(
        word_counts,
        settings.vocab_size,
        WORDPIECE_SYMBOLS,
        lower_thresh=MIN_PIECE_COUNT,
        max_unique_chars=_count_covering(word_counts, settings.character_coverage),
    )
    if len(vocabulary) > settings.vocab_size:
        raise ValueError(TOO_SMALL.format(settings.vocab_size, len(vocabulary)))
    return vocabulary


def _count_covering(word_counts: Counter[str], coverage: float) -> int:
    """Returns how many of the most frequent characters are that fraction of the text."""
    counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for char in word:
            counts[char] += count
    covered = itertools.accumulate((count for _, count in counts.most_common()), initial=0)
    return sum(count < coverage * counts.total() for count in covered)


def _write_sentencepiece(lines: Iterable[str], settings: Settings) -> FullTokenizer:
    import sentencepiece

    normalized = (preprocess_text(line, lower=settings.do_lower_case) for line in lines)
    model = train_sentencepiece(normalized, settings)
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    model_file, vocab_file = settings.outputs
    listed = "".join(
        f"{sp.id_to_piece(piece_id)}\t{sp.get_score(piece_id):g}\n"
        for piece_id in range(sp.get_piece_size())
    )
    # The model is written last: where it exists, the vocabulary is whole.
    if files.exists(vocab_file) and not settings.overwrite:
        if files.read_text(vocab_file) != listed:
            raise ValueError(_exists(vocab_file))
    else:
        files.write_file(vocab_file, listed)
    files.write_file(model_file, model)
    return FullTokenizer(vocab_file, settings.do_lower_case, model_file)


def _write_wordpiece(lines: Iterable[str], settings: Settings) -> FullTokenizer:
    basic = BasicTokenizer(settings.do_lower_case)
    counts = Counter(word for line in lines for word in basic.tokenize(line))
    (vocab_file,) = settings.outputs
    with files.write_atomically(vocab_file) as stream:
        stream.writelines(f"{token}\n" for token in train_wordpiece(counts, settings))
    return FullTokenizer(vocab_file, settings.do_lower_case)


def _summarize(tokenizer: FullTokenizer, lines: list[str], outputs: list[str]) -> VocabularyResult:
    removal = MarkRemoval(tokenizer.is_sentencepiece, tokenizer.do_lower_case)
    lost_marks = removal.count(lines)
    if problem := lost_marks.problem("the text"):
        logging.warning("%s", problem)
    ids = [piece_id for row in tokenizer.encode_batch(lines) for piece_id in row]
    return VocabularyResult(
        outputs=outputs,
        tokenizer=tokenizer,
        num_lines=len(lines),
        known_share=1 - ids.count(tokenizer.unk_id) / max(1, len(ids)),
        characters_per_piece=sum(map(len, lines)) / max(1, len(ids)),
        lost_marks=lost_marks,
    )


def _check_settings(paths: list[str], settings: Settings) -> None:
    if not os.path.basename(settings.output_prefix):
        raise ValueError(
            f"--output_prefix={settings.output_prefix!r} must end with a file name, for example "
            "vocabulary/30k"
        )
    files.check_outputs({"--output_prefix": settings.outputs}, {"--input_file": paths})
    present = [path for path in settings.outputs if files.exists(path)]
    if present and not settings.overwrite and not _is_unfinished(present):
        raise ValueError(_exists(present[0]))
    files.ensure_directory(os.path.dirname(settings.output_prefix), "--output_prefix")
    files.remove_half_written(settings.outputs)


def _exists(path: str) -> str:
    return (
        f"{path} already exists, and records and models created with it depend on it. Choose "
        "another --output_prefix, or pass --overwrite to replace it."
    )


def _is_unfinished(present: list[str]) -> bool:
    """Returns whether the outputs that exist may be those of this command, killed at the end.

    A kill leaves the list of pieces without the model. Whether they are the pieces of this command
    is known after training.
    """
    (path, *others) = present
    if others or not path.endswith(_LISTED):
        return False
    start = "".join(f"{piece}\t0\n" for piece in ("<pad>", "<unk>", *SPECIAL_TOKENS))
    return files.read_text(path).startswith(start)


def run(settings: Settings) -> VocabularyResult:
    """Trains and writes a vocabulary.

    Returns:
        A summary, whose text the program prints.

    Raises:
        OSError, ValueError: the input, the output or the settings are invalid; the message says
            which.
    """
    paths = files.expand_patterns(settings.input_file, "--input_file")
    _check_settings(paths, settings)
    first_lines = list(itertools.islice(read_lines(paths, settings), SUMMARY_LINES))
    if not first_lines:
        raise ValueError(f"--input_file: no text in {', '.join(paths)}")
    write = _write_wordpiece if settings.type == "wordpiece" else _write_sentencepiece
    tokenizer = write(read_lines(paths, settings), settings)
    return _summarize(tokenizer, first_lines, settings.outputs)
