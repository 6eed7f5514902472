"""How fast are SQuAD features made, beside a straightforward program on the same questions?

    python benchmarks/bench_squad_features.py
    python benchmarks/bench_squad_features.py --data=train-v1.1.json --spm_model_file=spm.model

The straightforward program is the official algorithm written down plainly: each question is taken
alone, and its context aligned with the pieces by a banded dynamic program, cell by cell. To its
advantage it normalizes each character once, and not in every cell. Here, questions of one context
share its alignment. Both must give the same features.

Then the features of several copies of all questions are made with 1, 2, … processes.

Prints one JSON line; speeds in questions a second.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from albert_tf.squad.features import SquadFeatures
from albert_tf.squad.reading import SquadExample, read_squad
from albert_tf.squad.windows import WindowSettings, make_features
from albert_tf.tokenization import FullTokenizer, preprocess_text
from albert_tf.workers import available_cores

SHARED = Path(__file__).resolve().parents[2] / "shared"
Index = list[int | None]


def fill(normal: list[str], joined: str, half_width: int) -> tuple[int, list[list[int]]]:
    """Length of the longest common subsequence in a band, and the step into each cell."""
    n, m = len(normal), len(joined)
    length = [[0] * m for _ in range(n)]
    step = [[0] * m for _ in range(n)]  # 1 up, 2 left, 3 diagonal
    for i in range(n):
        for j in range(max(0, i - half_width), min(m, i + half_width)):
            best = 0
            if i > 0:
                best, step[i][j] = length[i - 1][j], 1
            if j > 0 and length[i][j - 1] > best:
                best, step[i][j] = length[i][j - 1], 2
            diagonal = length[i - 1][j - 1] if i > 0 and j > 0 else 0
            if normal[i] == joined[j] and diagonal + 1 > best:
                best, step[i][j] = diagonal + 1, 3
            length[i][j] = best
    return length[-1][-1], step


def align(text: str, joined: str, lower: bool) -> tuple[Index, Index] | None:
    """Pairs characters by a longest common subsequence in a band, cell by cell."""
    n, m = len(text), len(joined)
    if not n or not m:
        return None
    normal = [preprocess_text(char, remove_space=False, lower=lower) for char in text]
    half_width = abs(n - m) + 5
    matched, step = fill(normal, joined, half_width)
    if not matched > 0.8 * n:
        matched, step = fill(normal, joined, 2 * half_width)
    if matched < 0.8 * n:
        return None
    to_joined: Index = [None] * n
    to_text: Index = [None] * m
    i, j = n - 1, m - 1
    while i >= 0 and j >= 0 and step[i][j]:
        kind = step[i][j]
        if kind == 3:
            to_joined[i], to_text[j] = j, i
        i, j = i - (kind != 2), j - (kind != 1)
    return to_joined, to_text


def convert(index: Index, position: int, limit: int | None, is_start: bool) -> int:
    """The entry, or for an unknown one what lies between the nearest known ones."""
    known = index[position]
    if known is not None:
        return known
    rear = next((entry for entry in index[position:] if entry is not None), None)
    front = next((entry for entry in index[position::-1] if entry is not None), None)
    if front is None:
        return 0 if is_start else max((rear or 0) - 1, 0)
    if rear is None:
        if limit is None or front >= limit - 1:
            return front
        return front + 1 if is_start else limit - 1
    if rear > front + 1:
        return front + 1 if is_start else rear - 1
    return rear if is_start else front


def has_most_context(spans: list[tuple[int, int]], number: int, piece: int) -> bool:
    """Whether window `number` shows more around a piece than every other."""
    scores = [
        min(piece - begin, end - 1 - piece) + 0.01 * (end - begin) if begin <= piece < end else -1
        for begin, end in spans
    ]
    return scores.index(max(scores)) == number


def features_of(
    example: SquadExample, tokenizer: FullTokenizer, settings: WindowSettings
) -> list[dict[str, Any]]:
    """The features of one question, for training."""
    query = tokenizer.encode(example.question)[: settings.max_query_length]
    pieces = tokenizer.tokenize(example.context)
    joined = "".join(pieces).replace("▁", " ")
    piece_of = [number for number, piece in enumerate(pieces) for _ in piece]
    aligned = align(example.context, joined, tokenizer.do_lower_case)
    if aligned is None:
        return []
    to_joined, to_text = aligned
    first, last, at = [], [], 0
    for piece in pieces:
        first.append(convert(to_text, at, len(example.context), True))
        at += len(piece)
        last.append(convert(to_text, at - 1, len(example.context), False))
    end_char = example.answer_start + len(example.answers[0]) - 1
    start = piece_of[convert(to_joined, example.answer_start, None, True)]
    end = piece_of[convert(to_joined, end_char, None, False)]
    capacity = settings.max_seq_length - len(query) - 3
    spans, begin = [], 0
    while begin < len(pieces):
        spans.append((begin, min(begin + capacity, len(pieces))))
        if spans[-1][1] == len(pieces):
            break
        begin += min(capacity, settings.doc_stride)
    ids = tokenizer.convert_tokens_to_ids(pieces)
    result = []
    for number, (begin, stop) in enumerate(spans):
        row = [tokenizer.cls_id, *query, tokenizer.sep_id, *ids[begin:stop], tokenizer.sep_id]
        padding = [0] * (settings.max_seq_length - len(row))
        inside = begin <= start and end < stop
        offset = len(query) + 2 - begin
        context = [has_most_context(spans, number, piece) for piece in range(begin, stop)]
        result.append(
            {
                "input_ids": row + padding,
                "input_mask": [1] * len(row) + padding,
                "start_positions": start + offset if inside else 0,
                "end_positions": end + offset if inside else 0,
                "is_impossible": int(not inside),
                "first_char": first[begin:stop],
                "last_char": last[begin:stop],
                "is_max_context": context,
            }
        )
    return result


def check_same(plain: list[dict[str, Any]], ours: SquadFeatures, seq_length: int) -> None:
    """Raises AssertionError where a field of a feature differs."""
    assert len(plain) == len(ours), f"{len(plain)} features, {len(ours)} here"
    batch = ours.batch(np.arange(len(ours)), seq_length)
    offsets = ours.window_offsets
    for row, feature in enumerate(plain):
        window = slice(offsets[row], offsets[row + 1])
        for name, value in feature.items():
            found = batch[name][row] if name in batch else getattr(ours, name)[window]
            assert found.tolist() == value, f"feature {row}: {name} differs"


def measure(
    examples: Sequence[SquadExample],
    tokenizer: FullTokenizer,
    settings: WindowSettings,
    workers: int,
) -> tuple[SquadFeatures, float]:
    """The features of all questions, and how many questions a second were done."""
    begin = time.perf_counter()
    features = make_features(examples, tokenizer, settings, True, num_workers=workers)
    return features, len(examples) / (time.perf_counter() - begin)


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=str(SHARED / "data/squad/train-v1.1-part.json"))
    parser.add_argument("--spm_model_file", default=str(SHARED / "vocab/30k-clean.model"))
    parser.add_argument("--questions", type=int, default=200, help="for the comparison")
    parser.add_argument("--copies", type=int, default=4, help="of all questions, for the processes")
    args = parser.parse_args()
    for path in (args.data, args.spm_model_file):
        if not os.path.exists(path):
            sys.exit(f"skipped: {path} is not there; give --data and --spm_model_file")
    tokenizer = FullTokenizer(spm_model_file=args.spm_model_file)
    settings = WindowSettings()
    examples = read_squad(args.data, is_training=True).examples
    # In the order of the file, in which questions of one context follow one another.
    sample = [example for example in examples if not example.is_impossible][: args.questions]
    begin = time.perf_counter()
    plain = [row for example in sample for row in features_of(example, tokenizer, settings)]
    plain_speed = len(sample) / (time.perf_counter() - begin)
    ours, same_speed = measure(sample, tokenizer, settings, 1)
    check_same(plain, ours, settings.max_seq_length)
    # A number at the end makes each copy of a context one of its own.
    copies = [
        dataclasses.replace(example, context=f"{example.context} {number}")
        for number in range(args.copies)
        for example in examples
    ]
    speeds = {
        workers: round(measure(copies, tokenizer, settings, workers)[1])
        for workers in range(1, available_cores() + 1)
    }
    result = {
        "benchmark": "squad_features",
        "compared_questions": len(sample),
        "straightforward": round(plain_speed, 1),
        "here": round(same_speed, 1),
        "times_faster": round(same_speed / plain_speed, 1),
        "questions": len(copies),
        "by_processes": speeds,
        "load_average": round(os.getloadavg()[0], 1),
        "machine": f"{platform.machine()}, {available_cores()} cores",
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
