"""Measures how fast texts become token ids, relative to Hugging Face's `tokenizers` (Rust).

    python benchmarks/bench_tokenization.py

English texts with a SentencePiece model and Chinese texts with a WordPiece vocabulary are encoded
by both libraries by turns. `tokenizers` runs on all cores, in two forms: with the `tokenizer.json`
that `albert convert` writes, which has the ids of this library, and with the normalizers
for BERT and ALBERT that are built into `tokenizers`. Every round starts with new tokenizers, so
that none remembers the words of an earlier round. Prints a JSON line for each text with millions of
tokens per second of wall time and of CPU time, the speed of this library relative to the faster
form (the median over the rounds), and the number of lines to which the two forms give other ids.
"""

from __future__ import annotations

import argparse
import operator
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import contenders
import reporting
import sentencepiece
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from albert_tf.checkpoints.tokenizer_json import tokenizer_json
from albert_tf.model.tokenization import FullTokenizer

DATA = Path(contenders.SHARED) / "data"
VOCABULARIES = Path(contenders.SHARED) / "vocab"
USE_ALL_CORES = "TOKENIZERS_PARALLELISM"  # environment variable of `tokenizers`
CASES = {  # vocabulary and files
    "SentencePiece, prose": ("30k-clean.model", ("text/doyle_adventures.txt",)),
    "SentencePiece, WikiText-2": ("30k-clean.model", ("text/wikitext2_valid.txt",)),
    "WordPiece, novel": ("vocab_chinese.txt", ("text/journey_to_the_west_zh.txt",)),
    "WordPiece, LCQMC": ("vocab_chinese.txt", ("lcqmc/dev.txt", "lcqmc/test.txt")),
}
Encode = Callable[[list[str]], list[list[int]]]


def read_lines(files: tuple[str, ...]) -> list[str]:
    """Returns the lines of the files that are not blank."""
    text = "\n".join((DATA / file).read_text("utf-8") for file in files)
    # In WikiText, "<unk>" is written out; `tokenizers` would take it for the unknown token.
    return [line for line in text.replace("<unk>", "").splitlines() if line.strip()]


def load_tokenizer(vocabulary: str) -> FullTokenizer:
    """Returns this library's tokenizer."""
    path = str(VOCABULARIES / vocabulary)
    is_model = vocabulary.endswith(".model")
    return FullTokenizer(spm_model_file=path) if is_model else FullTokenizer(path)


def make_ours(vocabulary: str) -> Encode:
    """Returns a function that encodes texts with this library."""
    return load_tokenizer(vocabulary).encode_batch


def make_rust(vocabulary: str) -> Encode:
    """Returns a function that encodes texts with `tokenizers` and `tokenizer.json`."""
    content = tokenizer_json(load_tokenizer(vocabulary))
    return encoder_of(tokenizers.Tokenizer.from_str(content))


def make_built_in(vocabulary: str) -> Encode:
    """Returns a function that encodes texts with the built-in normalizers of `tokenizers`."""
    ours = load_tokenizer(vocabulary)
    if not ours.is_sentencepiece:
        rust = tokenizers.Tokenizer(models.WordPiece(ours.vocab, unk_token="[UNK]"))
        rust.normalizer = normalizers.BertNormalizer(lowercase=True)
        rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return encoder_of(rust)
    model = sentencepiece.SentencePieceProcessor(model_proto=ours.sentencepiece_model)
    scores = [(piece, model.get_score(number)) for number, piece in enumerate(ours.pieces)]
    rust = tokenizers.Tokenizer(models.Unigram(scores, ours.unk_id, False))
    steps = [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase()]
    rust.normalizer = normalizers.Sequence(
        [*steps, normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
    )
    rust.pre_tokenizer = pre_tokenizers.Metaspace()
    return encoder_of(rust)


def encoder_of(rust: tokenizers.Tokenizer) -> Encode:
    """Returns a function that encodes texts in the fastest way, which omits character offsets."""

    def encode(texts: list[str]) -> list[list[int]]:
        return [row.ids for row in rust.encode_batch_fast(texts, add_special_tokens=False)]

    return encode


CONTENDERS = {"ours": make_ours, "tokenizer.json": make_rust, "built in": make_built_in}


def measure(encode: Encode, texts: list[str]) -> tuple[float, float, list[list[int]]]:
    """Returns the seconds of wall time and of CPU time of encoding the texts, and the ids."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    ids = encode(texts)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, ids


def compare(vocabulary: str, texts: list[str], rounds: int) -> list[str]:
    """Returns the cells of a table's row: tokens per second, ratio and differing lines."""
    walls: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    cpus: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    ids: dict[str, list[list[int]]] = {}
    for _ in range(rounds):
        for name, make in CONTENDERS.items():
            wall, cpu, ids[name] = measure(make(vocabulary), texts)
            walls[name].append(wall)
            cpus[name].append(cpu)
    tokens = sum(map(len, ids["ours"]))
    cells = [f"{tokens:,}"]
    for name in CONTENDERS:
        rates = (tokens / statistics.median(times[name]) / 1e6 for times in (walls, cpus))
        cells.append(" / ".join(f"{rate:.2f}" for rate in rates))
    others = list(CONTENDERS)[1:]
    rounds_of = zip(*walls.values(), strict=True)
    ratio = statistics.median(min(theirs) / ours for ours, *theirs in rounds_of)
    differing = [sum(map(operator.ne, ids["ours"], ids[name])) for name in others]
    return [*cells, f"{ratio:.2f}", " / ".join(map(str, differing))]


def main() -> None:
    """Measures all cases and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="number of measurements of each")
    reporting.add_flag(parser)
    arguments = parser.parse_args()
    os.environ[USE_ALL_CORES] = "true"
    header = ["text", "tokens", *(f"{name}, M tokens/s (wall / CPU)" for name in CONTENDERS)]
    header += ["ours / the faster of them", "lines with other ids"]
    rows = []
    for name, (vocabulary, files) in CASES.items():
        cells = compare(vocabulary, read_lines(files), arguments.rounds)
        rows.append(dict(zip(header, [name, *cells], strict=True)))
        reporting.print_line("tokenization", **rows[-1])
    reporting.write_table(arguments.results, rows, {"tokenizers": tokenizers.__version__})


if __name__ == "__main__":
    main()
