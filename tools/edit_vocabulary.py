r"""Prunes or extends the vocabulary of a trained model, and resizes its checkpoints to match.

    python tools/edit_vocabulary.py --input=albert_tiny_zh --output=albert_tiny_small \
        --corpus_file=lcqmc/train.txt

keeps the pieces that a corpus uses. The ids of that corpus map one to one, so the model's outputs
for it do not change. Single-character pieces are kept as well, so that other texts have no more
unknown characters than before; --nokeep_characters drops the unused ones. Pruning pays off most in
small Chinese models, whose weights are mostly embeddings.

    python tools/edit_vocabulary.py --input=albert_base --output=albert_base_covid \
        --new_tokens_file=words.txt

adds words from a file with one word per line. The embedding of a new word is initialized to the
mean embedding of the pieces that it was split into.

The input is the folder of a run or of a released model, or one checkpoint in it. The variables of
the TensorFlow checkpoint must have Google's or albert_zh's names; convert other checkpoints with
tools/convert_checkpoint.py first. The new folder contains the vocabulary, the config, all
checkpoints (with resized embeddings, masked-LM bias and optimizer moments), run.json, and
vocabulary_edit.json, which lists what was kept, dropped and added. Metrics of the old model,
feature caches and exports are not copied. The old folder is not changed.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np
from absl import logging

from albert_tf import files, tokenization
from albert_tf.checkpoints import finding, run_record
from albert_tf.cli import program
from albert_tf.cli.convert_checkpoint import SourceSettings, check_new_folder
from albert_tf.config import AlbertConfig
from albert_tf.data import corpus
from albert_tf.settings import REQUIRED, setting
from albert_tf.tokenization import SPIECE_UNDERLINE, BasicTokenizer, FullTokenizer

if TYPE_CHECKING:
    from albert_tf.checkpoints.pretrained import ModelSource

REPORT_FILE = "vocabulary_edit.json"
CONVERT_FIRST = "convert the model with tools/convert_checkpoint.py first"
COPIED_FILES = ("labels.txt", "tokenizer_config.json")
CHUNK_BYTES = 1 << 20  # text in memory at a time
# Enum values in SentencePiece's files: type of a piece, type of a model.
NORMAL = 1
UNIGRAM = 1
UNKNOWN_PENALTY = 10.0  # SentencePiece scores an unknown piece this far below the worst piece
MARGIN = 0.1  # a new piece scores this much better than the pieces that spelled it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SourceSettings):
    """What to edit."""

    input: str = setting(REQUIRED, "Folder of a model, or one checkpoint in it.")
    output: str = setting(REQUIRED, "Folder to write, which must be new or empty.")
    corpus_file: str | None = setting(
        None,
        "Text files (paths or glob patterns, separated by commas); pieces that they do not use are "
        "dropped. If not given, all pieces are kept.",
    )
    keep_characters: bool = setting(
        True,
        "Also keep all single-character pieces, so that other texts get no new unknown characters.",
    )
    new_tokens_file: str | None = setting(
        None, "Text file with the words to add to the vocabulary, one per line."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.corpus_file or self.new_tokens_file):
            raise ValueError(
                "nothing to do: set --corpus_file to drop unused pieces, or --new_tokens_file to "
                "add words"
            )


@dataclasses.dataclass(frozen=True)
class Edit:
    """A new vocabulary in terms of the old one.

    Attributes:
        kept: old ids of the kept pieces, ascending; their positions are the new ids.
        added: new piece → old ids of the pieces that spelled it. The ids of new pieces follow
            those of the kept ones.
    """

    kept: list[int]
    added: dict[str, list[int]]

    @property
    def size(self) -> int:
        """Number of pieces in the new vocabulary."""
        return len(self.kept) + len(self.added)

    def rows(self, table: np.ndarray) -> np.ndarray:
        """Returns an array [V, ...] with its rows selected and extended for the new vocabulary."""
        kept = table[self.kept]
        if not self.added:
            return kept
        means = [table[ids].mean(axis=0, dtype=np.float64) for ids in self.added.values()]
        return np.concatenate([kept, np.stack(means).astype(table.dtype)])


# Selecting pieces


def read_lines(paths: list[str]) -> Iterator[list[str]]:
    """Yields lists of lines that are not blank.

    Raises:
        ValueError: a line is not UTF-8; the message names it.
    """
    for chunk in corpus.read_chunks(paths, CHUNK_BYTES):
        for lines in chunk.lines():
            yield list(filter(None, map(str.strip, lines)))


def used_ids(tokenizer: FullTokenizer, paths: list[str]) -> set[int]:
    """Returns the old ids that occur in a text.

    SentencePiece finds "▁1999," before ALBERT splits off the comma; such pieces count as used, too.

    Raises:
        ValueError: the files contain no text.
    """
    import sentencepiece

    ids: set[int] = set()
    model = tokenizer.sentencepiece_model
    processor = sentencepiece.SentencePieceProcessor(model_proto=model) if model else None
    for lines in read_lines(paths):
        ids.update(*tokenizer.encode_batch(lines))
        if processor is not None:
            ids.update(*processor.encode([tokenizer.preprocess(line) for line in lines]))
    if not ids:
        raise ValueError(f"--corpus_file: no text in {', '.join(paths)}")
    return ids


def parse_model(tokenizer: FullTokenizer) -> Any:
    """Returns the parsed SentencePiece model.

    Raises:
        ValueError: it is not a unigram model.
    """
    from sentencepiece import sentencepiece_model_pb2

    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.sentencepiece_model)
    if model.trainer_spec.model_type != UNIGRAM:
        raise ValueError("only unigram SentencePiece models, such as ALBERT's, can be edited")
    return model


def required_ids(tokenizer: FullTokenizer, keep_characters: bool) -> set[int]:
    """Returns the ids of the pieces that are always kept.

    These are the special symbols and, if requested, the single characters. For a SentencePiece
    model, they also include all pieces that were not learned (control and user-defined symbols,
    bytes) and the two pieces with the best and the worst score, because SentencePiece derives the
    scores of user-defined and of unknown pieces from these two.
    """
    kept = {tokenizer.pad_id, tokenizer.unk_id}
    kept |= {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    if tokenizer.is_sentencepiece:
        pieces = parse_model(tokenizer).pieces
        kept |= {i for i, piece in enumerate(pieces) if piece.type != NORMAL}
        scores = {i: piece.score for i, piece in enumerate(pieces) if piece.type == NORMAL}
        kept |= {min(scores, key=scores.__getitem__), max(scores, key=scores.__getitem__)}
    if keep_characters:
        kept |= {i for i, piece in enumerate(tokenizer.pieces) if _is_character(piece)}
    return kept


def _is_character(piece: str) -> bool:
    """Returns whether a piece is a single character, with "##" only if it can continue a word."""
    body = piece.removeprefix("##") or piece
    if len(body) != 1:
        return False
    return body == piece or not (tokenization.is_cjk(body) or tokenization.is_punctuation(body))


def read_new_tokens(path: str, tokenizer: FullTokenizer) -> dict[str, str]:
    """Returns new piece → the text that is tokenized into it.

    A new SentencePiece piece begins a word ("▁covid"), unless it is a single character.

    Raises:
        ValueError: a token is already in the vocabulary, or the tokenizer would never find it; the
            message names the line.
    """
    tokens: dict[str, str] = {}
    for number, line in enumerate(files.read_text(path).split("\n"), 1):
        text = line.strip().removeprefix(SPIECE_UNDERLINE)
        if not text:
            continue
        place = f"{path}, line {number}: {text!r}"
        piece = text
        if tokenizer.is_sentencepiece:
            words = [tokenizer.preprocess(text)]
            is_word = len(text) > 1 or line.strip() != text
            piece = (SPIECE_UNDERLINE if is_word else "") + text.replace(" ", SPIECE_UNDERLINE)
        else:
            words = BasicTokenizer(tokenizer.do_lower_case).tokenize(text)
        if words != [text]:
            raise ValueError(
                f"{place} would never be looked up, because the tokenizer turns it into {words}. "
                "Write words in their normalized form."
            )
        if piece in tokenizer.vocab or piece in tokens:
            raise ValueError(f"{place} is already in the vocabulary. Remove this line.")
        tokens[piece] = text
    if not tokens:
        raise ValueError(f"{path}: no token to add; expected one per line")
    return tokens


def make_edit(settings: Settings, tokenizer: FullTokenizer, texts: dict[str, str]) -> Edit:
    """Returns the new vocabulary.

    Args:
        settings: what to edit.
        tokenizer: the old tokenizer.
        texts: new piece → the text that is tokenized into it.

    Raises:
        ValueError: the corpus is empty.
    """
    kept = set(range(tokenizer.vocab_size))
    if settings.corpus_file:
        paths = files.expand_patterns(settings.corpus_file, "--corpus_file")
        kept = used_ids(tokenizer, paths) | required_ids(tokenizer, settings.keep_characters)
    added = {piece: _spell(tokenizer, piece, text) for piece, text in texts.items()}
    return Edit(sorted(kept), added)


def _spell(tokenizer: FullTokenizer, piece: str, text: str) -> list[int]:
    """Returns the old ids of the pieces that spell a new piece."""
    ids = tokenizer.encode(text)
    if tokenizer.is_sentencepiece and not piece.startswith(SPIECE_UNDERLINE):
        ids = [i for i in ids if tokenizer.pieces[i] != SPIECE_UNDERLINE]
    if set(ids) == {tokenizer.unk_id}:
        logging.warning(
            "%r was unknown: its embedding is initialized with that of the unknown token", text
        )
    return ids


# Writing the output


def tokenizer_of(source: ModelSource) -> FullTokenizer:
    """Returns the tokenizer of a model, if it has a vocabulary.

    Raises:
        ValueError: it has a Hugging Face tokenizer.
    """
    tokenizer = source.tokenizer
    if not isinstance(tokenizer, FullTokenizer):
        raise ValueError(
            f"{source.vocabulary_file}: expected a SentencePiece model or a WordPiece vocabulary; "
            "a Hugging Face tokenizer cannot be edited"
        )
    return tokenizer


def write_vocabulary(folder: str, source: ModelSource, edit: Edit) -> FullTokenizer:
    """Writes the new vocabulary under the name of the old one, and returns its tokenizer."""
    old = tokenizer_of(source)
    vocabulary = os.path.join(folder, os.path.basename(source.vocabulary_file))
    if not old.is_sentencepiece:
        with files.write_atomically(vocabulary) as stream:
            pieces = [*(old.pieces[i] for i in edit.kept), *edit.added]
            stream.writelines(f"{piece}\n" for piece in pieces)
        return FullTokenizer(vocabulary, old.do_lower_case)
    model = edit_model(old, edit)
    with files.write_atomically(vocabulary, "wb") as stream:
        stream.write(model.SerializeToString())
    listing = os.path.splitext(source.vocabulary_file)[0] + ".vocab"
    if files.exists(listing):
        with files.write_atomically(os.path.join(folder, os.path.basename(listing))) as stream:
            stream.writelines(f"{piece.piece}\t{piece.score:g}\n" for piece in model.pieces)
    return FullTokenizer(None, old.do_lower_case, vocabulary)


def edit_model(tokenizer: FullTokenizer, edit: Edit) -> Any:
    """Returns the SentencePiece model of the new vocabulary."""
    model = parse_model(tokenizer)
    old_pieces = list(model.pieces)
    scores = [piece.score for piece in model.pieces]
    learned = [piece.score for piece in old_pieces if piece.type == NORMAL]
    scores[tokenizer.unk_id] = min(learned) - UNKNOWN_PENALTY
    del model.pieces[:]
    model.pieces.extend(old_pieces[i] for i in edit.kept)
    for piece, ids in edit.added.items():
        score = sum(scores[i] for i in ids) + MARGIN
        # The score is clipped because that of unknown pieces is derived from the worst score.
        model.pieces.add(piece=piece, score=min(max(score, min(learned)), max(learned)))
    model.trainer_spec.vocab_size = edit.size
    return model


def write_checkpoint(prefix: str, target: str, config: AlbertConfig, edit: Edit) -> None:
    """Writes a checkpoint for the new vocabulary.

    The rows of the embeddings, of the masked-LM bias and of their optimizer moments are selected
    and extended; all other tensors are copied.

    Raises:
        ValueError: the checkpoint has no embeddings under Google's name, or their size differs from
            the config's.
    """
    from albert_tf.checkpoints import containers, store
    from albert_tf.checkpoints.names import MASKED_LM_BIAS, WORDS

    reader = containers.open_checkpoint(prefix)
    names = sorted(reader.get_variable_to_shape_map())
    if WORDS not in names:
        raise ValueError(f"{prefix} has no {WORDS}: {CONVERT_FIRST}")
    tensors = {name: containers.read_tensor(reader, name, prefix) for name in names}
    for name, value in tensors.items():
        if f"{name}/".startswith((f"{WORDS}/", f"{MASKED_LM_BIAS}/")):
            if len(value) != config.vocab_size:
                raise ValueError(
                    f"{prefix}: {name} has {len(value)} rows, but the config has vocab_size="
                    f"{config.vocab_size}"
                )
            tensors[name] = edit.rows(value)
    store.save_checkpoint(target, tensors)


def write_record(
    temporary: str, output: str, source: ModelSource, new: FullTokenizer, config: AlbertConfig
) -> None:
    """Writes the record of the run, with the new vocabulary and config.

    The fingerprints of pre-training records are left out, because they must be created again.

    Args:
        temporary: the folder to write to.
        output: the path that the folder will be renamed to.
        source: the old model.
        new: the new tokenizer.
        config: the new config.
    """
    record = run_record.content(source.folder)
    vocabulary = os.path.join(output, os.path.basename(source.vocabulary_file))
    name = "spm_model_file" if new.is_sentencepiece else "vocab_file"
    if name in record.get("flags", {}):
        record["flags"][name] = run_record.absolute(vocabulary)
    if "config" in record:
        record["config"] = config.to_dict()
    before = run_record.read(source.folder) or run_record.TrainedWith({})
    is_pretraining = "max_predictions_per_seq" in before.identity
    left_out = {run_record.TRAINING_DATA} if is_pretraining else set()
    kept = before.only(before.identity.keys() - left_out)
    now = run_record.of_tokenizer(new, vocabulary)
    after = run_record.TrainedWith(kept.identity | now.identity, kept.paths | now.paths)
    if run_record.CONFIG in before.identity:
        path = os.path.join(output, os.path.basename(source.config_file))
        after = after.adding_config(config, path)
    record |= {run_record.IDENTITY: after.identity, run_record.PATHS: after.paths}
    run_record.write_content(temporary, record)


def write_folder(
    temporary: str, output: str, source: ModelSource, prefixes: list[str], edit: Edit
) -> FullTokenizer:
    """Writes everything except the report, and returns the new tokenizer; see `write_record`."""
    new = write_vocabulary(temporary, source, edit)
    config_file = os.path.join(temporary, os.path.basename(source.config_file))
    values = files.read_json(source.config_file) | {"vocab_size": edit.size}
    files.write_json(config_file, values)
    for prefix in prefixes:
        target = os.path.join(temporary, os.path.basename(prefix))
        write_checkpoint(prefix, target, source.config, edit)
    for name in COPIED_FILES:
        if files.exists(os.path.join(source.folder, name)):
            files.copy(os.path.join(source.folder, name), os.path.join(temporary, name))
    write_record(temporary, output, source, new, AlbertConfig.from_json_file(config_file))
    return new


# Comparing before and after


def compare(
    old: FullTokenizer, new: FullTokenizer, edit: Edit, paths: list[str]
) -> tuple[int, int]:
    """Returns the number of tokens of a corpus, and how many of them are now tokenized differently.

    Args:
        old: the old tokenizer.
        new: the new tokenizer.
        edit: the new vocabulary.
        paths: the text files.
    """
    old_id_of = dict(enumerate(edit.kept))
    total = changed = 0
    for lines in read_lines(paths):
        pairs = zip(old.encode_batch(lines), new.encode_batch(lines), strict=True)
        for before, after in pairs:
            mapped = [old_id_of.get(i, -1) for i in after]
            total += len(before)
            if mapped != before:
                changed += max(1, (Counter(before) - Counter(mapped)).total())
    return total, changed


def _check_new_tokens(new: FullTokenizer, texts: dict[str, str]) -> None:
    """Raises ValueError if the tokenizer does not find a new piece in its own text."""
    for piece, text in texts.items():
        if piece not in new.tokenize(text):
            raise ValueError(
                f"{text!r} cannot be added: it is still tokenized as {new.tokenize(text)}"
            )


def run(settings: Settings) -> str:
    """Edits a vocabulary, and returns what was done.

    Raises:
        OSError, ValueError: the input, the output or the settings are invalid; the message says
            which.
    """
    if logging.get_verbosity() == logging.INFO:
        logging.set_verbosity(logging.WARNING)
    check_new_folder(settings.output)
    output = files.real_path(settings.output)
    source = settings.open(settings.input)
    if not files.exists(source.weights.path + ".index"):
        raise ValueError(f"{source.weights.path} is not a TensorFlow checkpoint: {CONVERT_FIRST}")
    # All checkpoints of a folder are edited, or the one that was named.
    numbered = finding.list_checkpoints(settings.input).values()
    prefixes = sorted({source.weights.path, *numbered})
    old = tokenizer_of(source)
    texts = read_new_tokens(settings.new_tokens_file, old) if settings.new_tokens_file else {}
    edit = make_edit(settings, old, texts)
    dropped = [old.pieces[i] for i in sorted(set(range(old.vocab_size)) - set(edit.kept))]
    report = {
        "input": run_record.absolute(source.folder),
        "old_ids": edit.kept,
        "dropped": dropped,
        "added": {piece: [old.pieces[i] for i in ids] for piece, ids in edit.added.items()},
    }
    lines = [
        f"wrote {settings.output}",
        f"vocabulary: {old.vocab_size} pieces before, {edit.size} now: {len(edit.kept)} kept, "
        f"{len(dropped)} dropped, {len(texts)} added; see {REPORT_FILE}",
    ]
    with files.new_directory(output, "--output") as temporary:
        new = write_folder(temporary, output, source, prefixes, edit)
        _check_new_tokens(new, texts)
        if settings.corpus_file:
            paths = files.expand_patterns(settings.corpus_file, "--corpus_file")
            total, changed = compare(old, new, edit, paths)
            report["corpus_tokens"] = {"all": total, "changed": changed}
            share = changed / max(1, total)
            lines.append(
                f"corpus: {changed} of {total} tokens ({share:.2%}) are tokenized differently"
            )
        files.write_json(os.path.join(temporary, REPORT_FILE), report)
    return "\n".join(lines)


if __name__ == "__main__":
    program.start(Settings, run, __doc__)
