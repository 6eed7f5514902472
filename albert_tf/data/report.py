"""Logs the counts of text and instances at the end of a run, and warns if they look wrong.

Text in the wrong format or language also produces records, but models learn little from them. The
counts are therefore compared with those of well-formed text.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping
from typing import Any

from absl import logging

from albert_tf.data.corpus import SENTENCES
from albert_tf.data.settings import EncodingSettings
from albert_tf.sentence_objectives import SentenceObjective

# In well-formed text, the labels are about equally frequent (of two, 50 to 60 % are 1), and about
# 0.1 % of the tokens are unknown. The latter rises to 5 % with typographic quotes, which the
# vocabularies of the released English models lack, and to 50 % in the wrong language.
MAX_UNKNOWN = 0.07  # fraction of the tokens
MAX_LONG_SENTENCES = 0.05  # fraction of the sentences
MAX_IMBALANCE = 1 / 6  # deviation of the fraction of instances with a label from equal shares
MIN_LENGTH = 0.25  # mean length of an instance, as a fraction of max_seq_length


def log(metadata: Mapping[str, Any], settings: EncodingSettings) -> None:
    """Logs the counts of a metadata file, with a warning for each likely problem."""
    counts = collections.Counter[str](metadata["counts"])
    instances, positions = counts["instances"], counts["positions"]
    shares = (
        f", {100 * counts[f'label_{label}'] / instances:.2f} % of the instances labeled {label}"
        for label in range(1, settings.objective.num_classes)
    )
    logging.info(
        "%d documents, %d sentences, %d tokens of text -> %d instances of %.1f tokens on average; "
        "%.2f %% of the tokens to predict%s",
        counts["documents"],
        counts["sentences"],
        counts["tokens"],
        instances,
        positions / instances,
        100 * counts["predictions"] / positions,
        "".join(shares),
    )
    logging.info(
        "%.1f sentences per document, %.1f tokens per sentence; %.2f %% of the sentences are "
        "longer than a sequence, %.2f %% of the tokens are not in the vocabulary",
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
    """Returns a message for each likely problem of the records, with the flag that solves it.

    Args:
        counts: the counts of the metadata.
        settings: the settings the records were created with.
        vocabulary: file name of the vocabulary.
    """
    problems = _problems_of_labels(counts, settings.objective)
    problems += _problems_of_shape(counts, settings.max_seq_length)
    if problems:
        problems.append(_advice(settings))
    if counts["unknown"] > MAX_UNKNOWN * counts["tokens"]:
        problems.append(
            f"{counts['unknown'] / counts['tokens']:.0%} of the tokens are not in the vocabulary "
            f"{vocabulary}. Choose a vocabulary for the language of the text with --spm_model_file "
            "or --vocab_file, and match its letter case (--do_lower_case, now "
            f"{settings.do_lower_case})."
        )
    if not counts["predictions"]:
        problems.append(
            f"no token is masked (masked_lm_prob={settings.masked_lm_prob:g}): models can learn "
            "only the sentence objective from these records. Raise --masked_lm_prob."
        )
    return problems


def _problems_of_labels(
    counts: collections.Counter[str], objective: SentenceObjective
) -> list[str]:
    """Returns messages about labels that are much more or less frequent than the others."""
    instances, sentences = counts["instances"], counts["sentences"]
    # At least four standard deviations: by chance, a few instances may all have the same label.
    tolerance = max(MAX_IMBALANCE * instances, 2 * math.sqrt(instances))
    return [
        f"{counts[f'label_{label}'] / instances:.0%} of the instances are labeled "
        f"{objective.describe(label)}, so that models learn little from the labels. The second "
        "segment is random where a sentence is alone in its document or fills a sequence; "
        f"documents have {sentences / counts['documents']:.1f} sentences of "
        f"{counts['tokens'] / sentences:.0f} tokens on average."
        for label in range(1, objective.num_classes)
        if abs(counts[f"label_{label}"] - instances / objective.num_classes) > tolerance
    ]


def _problems_of_shape(counts: collections.Counter[str], max_seq_length: int) -> list[str]:
    """Returns messages about signs that sentences or documents were not split as intended."""
    instances, sentences = counts["instances"], counts["sentences"]
    length = counts["positions"] / instances
    problems = []
    if counts["long_sentences"] > MAX_LONG_SENTENCES * sentences:
        problems.append(
            f"{counts['long_sentences'] / sentences:.0%} of the sentences are longer than a "
            f"sequence and are truncated (max_seq_length={max_seq_length})."
        )
    if length < MIN_LENGTH * max_seq_length:
        problems.append(
            f"instances have {length:.0f} tokens on average: with max_seq_length={max_seq_length} "
            "most of each sequence is padding, which takes as much time to train on as text."
        )
    return problems


def _advice(settings: EncodingSettings) -> str:
    """Returns a sentence that names flags which may describe the text better."""
    flags = []
    if not settings.split_sentences:
        flags.append("--split_sentences if lines are paragraphs")
    if settings.input_format == SENTENCES:
        flags.append("--input_format=documents if blank lines do not separate documents")
    flags.append("--max_seq_length if the text is as intended")
    return f"Consider these flags: {'; '.join(flags)}."
