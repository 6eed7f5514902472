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
vocabulary_edit.json, which lists what was kept, dropped and added. Metrics
of the old model, feature caches and exports are not copied. The old folder is not changed.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from absl import logging

from albert_tf import files
from albert_tf.checkpoints import finding, run_record
from albert_tf.cli import program
from albert_tf.config import AlbertConfig, is_hugging_face
from albert_tf.data import corpus
from albert_tf.settings import REQUIRED, SettingsGroup, setting
from albert_tf.tokenization import (
    SPIECE_UNDERLINE,
    BasicTokenizer,
    FullTokenizer,
    is_cjk,
    is_punctuation,
)

REPORT_FILE = "vocabulary_edit.json"
COPIED_FILES = ("labels.txt", "tokenizer_config.json")
CHUNK_BYTES = 1 << 20  # text in memory at a time
LINES_AT_ONCE = 1000
NORMAL, UNIGRAM = 1, 1  # enum values in SentencePiece's files: type of a piece, type of a model
UNKNOWN_PENALTY = 10.0  # SentencePiece scores an unknown piece this far below the worst piece
MARGIN = 0.1  # a new piece scores this much better than the pieces that spelled it
SHOWN = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(SettingsGroup):
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
    albert_config_file: str | None = setting(
        None, "JSON config of the input model; if not given, the one beside the input."
    )
    vocab_file: str | None = setting(
        None, "WordPiece vocabulary of the input; if not given, the one beside the input."
    )
    spm_model_file: str | None = setting(
        None, "SentencePiece model of the input; if not given, the one beside the input."
    )
    do_lower_case: bool | None = setting(
        None,
        "Whether the vocabulary is uncased; if not given, as recorded with the input, or true if "
        "nothing is recorded.",
    )


@dataclasses.dataclass(frozen=True)
class Model:
    """The model to edit.

    Attributes:
        folder: folder of the model.
        prefixes: checkpoint prefixes.
        config_file: path of the config.
        config: content of the config.
        vocabulary: path of the SentencePiece model or of vocab.txt.
        tokenizer: tokenizer with this vocabulary.
    """

    folder: str
    prefixes: list[str]
    config_file: str
    config: AlbertConfig
    vocabulary: str
    tokenizer: FullTokenizer


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


def open_model(settings: Settings) -> Model:
    """Finds the files of a model and checks that they belong together.

    Raises:
        OSError, ValueError: a file is missing, or belongs to another model.
    """
    from albert_tf.checkpoints import containers, pretrained

    path = settings.input
    found = finding.find_checkpoint(path)
    folder = path if files.is_directory(path) else os.path.dirname(path) or "."
    if not files.exists(found + ".index"):
        raise ValueError(
            f"{found} is not a TensorFlow checkpoint: convert it with tools/convert_checkpoint.py "
            "first"
        )
    numbered = finding.list_checkpoints(folder).values() if folder == path else ()
    prefixes = sorted({found, *numbered})
    config_file = settings.albert_config_file or finding.find_config(folder)
    if is_hugging_face(files.read_json(config_file)):
        raise ValueError(
            f"{config_file} is a Hugging Face config: convert the model with "
            "tools/convert_checkpoint.py first"
        )
    config = AlbertConfig.from_json_file(config_file)
    vocab_file, spm_model_file = settings.vocab_file, settings.spm_model_file
    if not (vocab_file or spm_model_file):
        vocab_file, spm_model_file = finding.find_vocabulary(folder)
    is_lower = settings.do_lower_case
    if is_lower is None:
        is_lower = pretrained.find_do_lower_case(folder, containers.open_weights(found))
    tokenizer = FullTokenizer(None if spm_model_file else vocab_file, is_lower, spm_model_file)
    vocabulary = spm_model_file or vocab_file or ""
    pretrained.check_vocabulary(tokenizer, vocabulary, config, config_file, folder)
    return Model(folder, prefixes, config_file, config, vocabulary, tokenizer)


# Selecting pieces


def read_lines(paths: list[str]) -> Iterator[list[str]]:
    """Yields lists of lines that are not blank.

    Raises:
        ValueError: a line is not UTF-8; the message names it.
    """
    for chunk in corpus.read_chunks(paths, CHUNK_BYTES):
        lines = (line.strip() for lines in chunk.lines() for line in lines)
        texts = filter(None, lines)
        while batch := list(itertools.islice(texts, LINES_AT_ONCE)):
            yield batch


def used_ids(tokenizer: FullTokenizer, paths: list[str]) -> set[int]:
    """Returns the old ids that occur in a text.

    SentencePiece finds "▁1999," before ALBERT splits off the comma; such pieces count as used, too.

    Raises:
        ValueError: the files contain no text.
    """
    import sentencepiece

    found: set[int] = set()
    model = tokenizer.sentencepiece_model
    processor = sentencepiece.SentencePieceProcessor(model_proto=model) if model else None
    for lines in read_lines(paths):
        found.update(*tokenizer.encode_batch(lines))
        if processor is not None:
            found.update(*processor.encode([tokenizer.preprocess(line) for line in lines]))
    if not found:
        raise ValueError(f"--corpus_file: no text in {', '.join(paths)}")
    return found


def _model_proto(tokenizer: FullTokenizer) -> Any:
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
        pieces = _model_proto(tokenizer).pieces
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
    return body == piece or not (is_cjk(body) or is_punctuation(body))


def read_new_tokens(path: str, tokenizer: FullTokenizer) -> dict[str, str]:
    """Returns new piece → the text that is tokenized into it.

    A new SentencePiece piece begins a word ("▁covid"), unless it is a single character.

    Raises:
        ValueError: a token is already in the vocabulary, or the tokenizer would never find it; the
            message names the line.
    """
    found: dict[str, str] = {}
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
        if piece in tokenizer.vocab or piece in found:
            raise ValueError(
                f"{place} is already in the vocabulary. Remove this line from the file."
            )
        found[piece] = text
    if not found:
        raise ValueError(f"{path}: no token to add; expected one per line")
    return found


def plan(settings: Settings, tokenizer: FullTokenizer) -> tuple[Edit, dict[str, str]]:
    """Returns the new vocabulary and the texts of its new pieces.

    Raises:
        ValueError: there is nothing to do, the corpus is empty, or a token cannot be added.
    """
    if not (settings.corpus_file or settings.new_tokens_file):
        raise ValueError(
            "nothing to do: set --corpus_file to drop unused pieces, or --new_tokens_file to add "
            "words"
        )
    texts: dict[str, str] = {}
    if settings.new_tokens_file:
        texts = read_new_tokens(settings.new_tokens_file, tokenizer)
    kept = list(range(tokenizer.vocab_size))
    if settings.corpus_file:
        paths = files.expand_patterns(settings.corpus_file, "--corpus_file")
        used = used_ids(tokenizer, paths)
        kept = sorted(used | required_ids(tokenizer, settings.keep_characters))
    added = {piece: _spell(tokenizer, piece, text) for piece, text in texts.items()}
    return Edit(kept, added), texts


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


def write_vocabulary(path: str, tokenizer: FullTokenizer, edit: Edit) -> None:
    """Writes the new vocabulary file or SentencePiece model."""
    if not tokenizer.is_sentencepiece:
        with files.write_atomically(path) as stream:
            pieces = [*(tokenizer.pieces[i] for i in edit.kept), *edit.added]
            stream.writelines(f"{piece}\n" for piece in pieces)
        return
    model = _model_proto(tokenizer)
    old_pieces, scores = list(model.pieces), [piece.score for piece in model.pieces]
    learned = [piece.score for piece in old_pieces if piece.type == NORMAL]
    scores[tokenizer.unk_id] = min(learned) - UNKNOWN_PENALTY
    del model.pieces[:]
    model.pieces.extend(old_pieces[i] for i in edit.kept)
    for piece, ids in edit.added.items():
        score = sum(scores[i] for i in ids) + MARGIN
        # The score is clipped because that of unknown pieces is derived from the worst score.
        model.pieces.add(piece=piece, score=min(max(score, min(learned)), max(learned)))
    model.trainer_spec.vocab_size = edit.size
    with files.write_atomically(path, "wb") as stream:
        stream.write(model.SerializeToString())


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
        raise ValueError(
            f"{prefix} has no {WORDS}: convert it with tools/convert_checkpoint.py first"
        )
    tensors = {}
    for name in names:
        value = containers.read_tensor(reader, name, prefix)
        if name.startswith((WORDS + "/", MASKED_LM_BIAS + "/")) or name in (WORDS, MASKED_LM_BIAS):
            if len(value) != config.vocab_size:
                raise ValueError(
                    f"{prefix}: {name} has {len(value)} rows, but the config has vocab_size="
                    f"{config.vocab_size}"
                )
            value = edit.rows(value)
        tensors[name] = value
    store.save_checkpoint(target, tensors)


def write_folder(temporary: str, output: str, model: Model, edit: Edit) -> FullTokenizer:
    """Writes everything except the report to a folder.

    Args:
        temporary: the folder to write to.
        output: the path that the folder will be renamed to.
        model: the old model.
        edit: the new vocabulary.

    Returns:
        The new tokenizer.
    """
    old = model.tokenizer
    name = os.path.basename(model.vocabulary)
    path = os.path.join(temporary, name)
    write_vocabulary(path, old, edit)
    sentencepiece = path if old.is_sentencepiece else None
    new = FullTokenizer(None if sentencepiece else path, old.do_lower_case, sentencepiece)
    listing = os.path.splitext(model.vocabulary)[0] + ".vocab"
    if old.is_sentencepiece and files.exists(listing):
        with files.write_atomically(os.path.join(temporary, os.path.basename(listing))) as stream:
            for piece in _model_proto(new).pieces:
                stream.write(f"{piece.piece}\t{piece.score:g}\n")
    config_name = os.path.basename(model.config_file)
    values = files.read_json(model.config_file) | {"vocab_size": edit.size}
    files.write_json(os.path.join(temporary, config_name), values)
    for prefix in model.prefixes:
        target = os.path.join(temporary, os.path.basename(prefix))
        write_checkpoint(prefix, target, model.config, edit)
    for copied in COPIED_FILES:
        if files.exists(os.path.join(model.folder, copied)):
            files.copy(os.path.join(model.folder, copied), os.path.join(temporary, copied))
    config = AlbertConfig.from_json_file(os.path.join(temporary, config_name))
    _write_record(temporary, model, new, config, output)
    return new


def _write_record(
    temporary: str, model: Model, new: FullTokenizer, config: AlbertConfig, output: str
) -> None:
    """Writes the record of the run, with the new vocabulary and config.

    The fingerprints of pre-training records are left out, because records must be created again.
    """
    record = run_record.content(model.folder)
    vocabulary = os.path.join(output, os.path.basename(model.vocabulary))
    name = "spm_model_file" if model.tokenizer.is_sentencepiece else "vocab_file"
    if name in record.get("flags", {}):
        record["flags"][name] = run_record.absolute(vocabulary)
    if "config" in record:
        record["config"] = config.to_dict()
    known = run_record.read(model.folder) or run_record.TrainedWith({})
    is_pretraining = "max_predictions_per_seq" in known.identity
    left_out = {run_record.TRAINING_DATA} if is_pretraining else set()
    known = known.only(known.identity.keys() - left_out)
    now = run_record.of_tokenizer(new, vocabulary)
    found = run_record.TrainedWith(known.identity | now.identity, known.paths | now.paths)
    if run_record.CONFIG in known.identity:
        found = found.adding_config(
            config, os.path.join(output, os.path.basename(model.config_file))
        )
    record |= {run_record.IDENTITY: found.identity, run_record.PATHS: found.paths}
    run_record.write_content(temporary, record)


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


def _report(
    model: Model, edit: Edit, sizes: tuple[int, int], counts: tuple[int, int] | None
) -> tuple[dict[str, Any], str]:
    """Returns what was done, as the content of the report file and as text to print."""
    pieces = model.tokenizer.pieces
    dropped = [pieces[i] for i in sorted(set(range(len(pieces))) - set(edit.kept))]
    added = {piece: [pieces[i] for i in ids] for piece, ids in edit.added.items()}
    content = {
        "input": run_record.absolute(model.folder),
        "old_ids": edit.kept,
        "dropped": dropped,
        "added": added,
        "checkpoint_bytes": {"before": sizes[0], "after": sizes[1]},
    }
    lines = [
        f"vocabulary: {len(pieces)} pieces before, {edit.size} now: {len(edit.kept)} kept, "
        f"{len(dropped)} dropped{_some(dropped)}, {len(added)} added{_some(list(added))}",
        f"checkpoints: {sizes[0] / 1e6:.1f} MB before, {sizes[1] / 1e6:.1f} MB now",
    ]
    if counts is not None:
        total, changed = counts
        content["corpus_tokens"] = {"all": total, "changed": changed}
        lines.append(
            f"corpus: {changed} of {total} tokens ({changed / max(1, total):.2%}) are tokenized "
            "differently"
        )
    return content, "\n".join(lines)


def _some(pieces: Sequence[str]) -> str:
    if not pieces:
        return ""
    more = ", …" if len(pieces) > SHOWN else ""
    return f" ({', '.join(pieces[:SHOWN])}{more})"


def _checkpoint_bytes(prefixes: Iterable[str]) -> int:
    names = [
        os.path.join(os.path.dirname(prefix), name)
        for prefix in prefixes
        for name in files.list_directory(os.path.dirname(prefix) or ".")
        if name.startswith(
            (f"{os.path.basename(prefix)}.data-", f"{os.path.basename(prefix)}.index")
        )
    ]
    return sum(files.file_size(name) for name in names)


def run(settings: Settings) -> None:
    """Edits a vocabulary, and prints what was done.

    Raises:
        OSError, ValueError: the input, the output or the settings are invalid; the message says
            which.
    """
    if logging.get_verbosity() == logging.INFO:
        logging.set_verbosity(logging.WARNING)
    files.check_path(settings.output, "--output")
    output = files.real_path(settings.output)
    if files.is_file(output) or (files.is_directory(output) and files.list_directory(output)):
        raise ValueError(f"--output={settings.output} already exists. Name a new folder.")
    files.make_directory(os.path.dirname(output), "--output")
    model = open_model(settings)
    edit, texts = plan(settings, model.tokenizer)
    with files.new_directory(output, "--output") as temporary:
        new = write_folder(temporary, output, model, edit)
        _check_new_tokens(new, texts)
        counts = None
        if settings.corpus_file:
            paths = files.expand_patterns(settings.corpus_file, "--corpus_file")
            counts = compare(model.tokenizer, new, edit, paths)
        written = [os.path.join(temporary, os.path.basename(prefix)) for prefix in model.prefixes]
        sizes = _checkpoint_bytes(model.prefixes), _checkpoint_bytes(written)
        content, text = _report(model, edit, sizes, counts)
        files.write_json(os.path.join(temporary, REPORT_FILE), content)
    print(f"wrote {settings.output}\n{text}")


def main() -> None:
    """Runs the command line of this process."""
    program.start(Settings, run, __doc__)


if __name__ == "__main__":
    main()
