"""What the data program says at its end: counts of text and instances, and what looks wrong.

Text in another format or another language than the settings say gives records as well, and models
learn little from them. So the counts are compared with what text in good order gives.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping
from typing import Any

from absl import logging

from albert_tf.data.corpus import SENTENCES
from albert_tf.data.settings import EncodingSettings

# In good order, 50 to 60 % of the labels are 1, and about 0.1 % of the tokens are unknown: 5 % with
# typographic quotes, which the released English models lack, 50 % in the wrong language.
MAX_UNKNOWN = 0.07  # share of the tokens
MAX_LONG_SENTENCES = 0.05  # share of the sentences
MAX_IMBALANCE = 1 / 6  # distance of the share of the labels 1 from a half
MIN_LENGTH = 0.25  # of an instance on average, as a share of max_seq_length


def log(metadata: Mapping[str, Any], settings: EncodingSettings) -> None:
    """Logs the counts of a metadata file, and warnings about what looks wrong."""
    counts = collections.Counter[str](metadata["counts"])
    instances, positions = counts["instances"], counts["positions"]
    logging.info(
        "%d documents, %d sentences, %d tokens of text -> %d instances of %.1f tokens on average; "
        "%.2f %% of the tokens to predict, %.2f %% of the instances labeled 1",
        counts["documents"],
        counts["sentences"],
        counts["tokens"],
        instances,
        positions / instances,
        100 * counts["predictions"] / positions,
        100 * counts["label_1"] / instances,
    )
    logging.info(
        "%.1f sentences per document, %.1f tokens per sentence; %.2f %% of the sentences longer "
        "than a sequence, %.2f %% of the tokens unknown to the vocabulary",
        counts["sentences"] / counts["documents"],
        counts["tokens"] / counts["sentences"],
        100 * counts["long_sentences"] / counts["sentences"],
        100 * counts["unknown"] / counts["tokens"],
    )
    for problem in find_problems(counts, settings, metadata["vocabulary"]["file"]):
        logging.warning(problem)


def find_problems(
    counts: collections.Counter[str], settings: EncodingSettings, vocabulary: str
) -> list[str]:
    """Returns what is wrong with the records of these counts, each with the flag that helps.

    Args:
        counts: as in the metadata.
        settings: that the records were made with.
        vocabulary: name of its file.
    """
    problems = _problems_of_shape(counts, settings.max_seq_length)
    if problems:
        problems.append(_advice(settings))
    if counts["unknown"] > MAX_UNKNOWN * counts["tokens"]:
        problems.append(
            f"{counts['unknown'] / counts['tokens']:.0%} of the tokens are unknown to {vocabulary}."
            " Name a vocabulary of the language of the text with --spm_model_file or --vocab_file, "
            f"and use the letter case that it has (--do_lower_case, now {settings.do_lower_case})."
        )
    if not counts["predictions"]:
        problems.append(
            f"no token is masked (masked_lm_prob={settings.masked_lm_prob:g}): the records have no "
            "masked words to predict, only the order of sentences. Raise --masked_lm_prob."
        )
    return problems


def _problems_of_shape(counts: collections.Counter[str], max_seq_length: int) -> list[str]:
    """What tells that sentences or documents are not where they are looked for."""
    instances, sentences = counts["instances"], counts["sentences"]
    length = counts["positions"] / instances
    problems = []
    # Four standard deviations at least: a few instances may all have one label by chance.
    tolerance = max(MAX_IMBALANCE * instances, 2 * math.sqrt(instances))
    if abs(counts["label_1"] - instances / 2) > tolerance:
        problems.append(
            f"{counts['label_1'] / instances:.0%} of the instances are labeled 1, so that little "
            "is learned about the order of sentences. A second segment is random (label 1) where a "
            "sentence is alone in its document or fills a sequence; documents have "
            f"{sentences / counts['documents']:.1f} sentences of "
            f"{counts['tokens'] / sentences:.0f} tokens on average."
        )
    if counts["long_sentences"] > MAX_LONG_SENTENCES * sentences:
        problems.append(
            f"{counts['long_sentences'] / sentences:.0%} of the sentences are longer than a "
            f"sequence and are truncated (max_seq_length={max_seq_length})."
        )
    if length < MIN_LENGTH * max_seq_length:
        problems.append(
            f"instances have {length:.0f} tokens on average: with max_seq_length={max_seq_length} "
            "most of a sequence is padding, which costs as much to train on."
        )
    return problems


def _advice(settings: EncodingSettings) -> str:
    """Which flags may describe the text better."""
    flags = []
    if not settings.split_sentences:
        flags.append("--split_sentences if lines are paragraphs")
    if settings.input_format == SENTENCES:
        flags.append("--input_format=documents if blank lines do not separate documents")
    flags.append("--max_seq_length if the text is as it should be")
    return f"Flags that help: {'; '.join(flags)}."
