"""Finds sentences that nearly repeat an earlier one, by MinHash.

Two sentences are compared by the share of three-word sequences that they have in common (Jaccard
similarity of their shingles). MinHash (Broder, 1997) finds the pairs worth comparing: the smallest
hash of the shingles of two sentences is the same with a probability equal to their similarity.
Bands of several such values make similar sentences meet in at least one bucket of a hash table.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SHINGLE_WORDS = 3
SIMILAR = 0.7  # Jaccard similarity from which a sentence counts as a near duplicate
BANDS = 8
ROWS = 3  # values in a band; 8 bands of 3 miss one pair in thirty at the bound, fewer above it

_WORD = re.compile(r"[a-z]+|\d+")


def normalized(sentence: str) -> str:
    """Returns a sentence in lower case, without punctuation, every number as 0."""
    words = _WORD.findall(sentence.lower())
    return " ".join("0" if word.isdigit() else word for word in words)


def near_duplicates(sentences: Sequence[str]) -> list[int]:
    """Returns for each sentence the index of an earlier one that it nearly repeats, or -1.

    Args:
        sentences: in the order of preference; of two similar sentences the first is kept. Those
            found to be duplicates are not compared with later ones.
    """
    shingles = [_shingles(sentence) for sentence in sentences]
    bands = _band_keys(shingles)
    buckets: dict[tuple[int, int], int] = {}
    originals = [-1] * len(sentences)
    for index, keys in enumerate(bands.tolist()):
        own = shingles[index]
        for candidate in {buckets[key] for key in enumerate(keys) if key in buckets}:
            other = shingles[candidate]
            if len(own & other) >= SIMILAR * len(own | other):
                originals[index] = candidate
                break
        else:
            for key in enumerate(keys):
                buckets.setdefault(key, index)
    return originals


def _shingles(sentence: str) -> frozenset[int]:
    """Returns the hashes of the sequences of SHINGLE_WORDS words of a sentence; at least one."""
    words = normalized(sentence).split()
    starts = range(max(1, len(words) - SHINGLE_WORDS + 1))
    return frozenset(
        zlib.crc32(" ".join(words[start : start + SHINGLE_WORDS]).encode()) for start in starts
    )


def _band_keys(shingles: Sequence[frozenset[int]]) -> npt.NDArray[np.uint64]:
    """Returns the keys of the buckets of every sentence, [sentences, BANDS]."""
    if not shingles:
        return np.zeros((0, BANDS), np.uint64)
    lengths = np.array([len(hashes) for hashes in shingles])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    values = np.fromiter((value for hashes in shingles for value in hashes), np.uint64)
    random = np.random.default_rng(1)
    keys = np.zeros((len(shingles), BANDS), np.uint64)
    for band in range(BANDS):
        for _ in range(ROWS):
            factor, offset = random.integers(1, 2**64, 2, np.uint64)
            # Multiply-shift hashing: the upper half of the product, modulo 2**64.
            hashes = (values * (factor | np.uint64(1)) + offset) >> np.uint64(32)
            smallest = np.minimum.reduceat(hashes, starts)
            keys[:, band] = keys[:, band] * np.uint64(0x9E3779B97F4A7C15) + smallest
    return keys
