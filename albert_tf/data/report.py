"""Logs some instances and the counts at the end of a run, and warns if the counts look wrong.

Text in the wrong format or language also produces records, but models learn little from them. The
counts are therefore compared with those of well-formed text. There, the labels are about equally
frequent (of two, 50 to 60 % are 1), and about 0.1 % of the tokens are unknown. The latter rises to
5 % with typographic quotes, which the vocabularies of the released English models lack, and to 50 %
in the wrong language.
"""

from __future__ import annotations

import collections
import itertools
import math

from absl import logging

from albert_tf.data.create import RecordOutputs
from albert_tf.data.encoding import load_tokenizer
from albert_tf.data.inspect_records import LEGEND, render
from albert_tf.data.records import read_records
from albert_tf.data.settings import EncodingSettings, Settings
from albert_tf.data.tf_example import decode_example
from albert_tf.files import JsonObject
from albert_tf.model.tokenization import LostMarks

MAX_UNKNOWN = 0.07  # fraction of the tokens
MAX_LONG_SENTENCES = 0.05  # fraction of the sentences
MAX_IMBALANCE = 1 / 6  # deviation of the fraction of instances with a label from equal shares
MIN_LENGTH = 0.25  # mean length of an instance, as a fraction of max_seq_length


def log_instances(settings: Settings) -> None:
    """Logs the first instances, cycling through the outputs."""
    paths = RecordOutputs.parse(settings.output_file).paths
    tokenizer = load_tokenizer(settings)
    interleaved = itertools.zip_longest(*map(read_records, paths))
    present = filter(None, itertools.chain.from_iterable(interleaved))
    for number, record in enumerate(itertools.islice(present, settings.num_logged_instances)):
        features = decode_example(record)
        shown = render(features, tokenizer, settings.objective, tokenizer.mask_id)
        logging.info("%s%s", "" if number else f"{LEGEND}\n", shown)


def log_counts(metadata: JsonObject, settings: EncodingSettings) -> None:
    """Logs the counts of a metadata file, with a warning for each likely problem."""
    counts = collections.Counter[str](metadata["counts"])
    instances, sentences, tokens = counts["instances"], counts["sentences"], counts["tokens"]
    labels = "".join(
        f", {counts[f'label_{label}'] / instances:.2%} of the instances labeled {label}"
        for label in range(1, settings.objective.num_classes)
    )
    logging.info(
        f"{counts['documents']} documents, {sentences} sentences, {tokens} tokens of text -> "
        f"{instances} instances of {counts['positions'] / instances:.1f} tokens on average; "
        f"{counts['predictions'] / counts['positions']:.2%} of the tokens to predict{labels}"
    )
    logging.info(
        f"{sentences / counts['documents']:.1f} sentences per document, "
        f"{tokens / sentences:.1f} tokens per sentence; "
        f"{counts['long_sentences'] / sentences:.2%} of the sentences are longer than a sequence, "
        f"{counts['unknown'] / tokens:.2%} of the tokens are not in the vocabulary"
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
    instances, sentences = counts["instances"], counts["sentences"]
    objective, max_seq_length = settings.objective, settings.max_seq_length
    # At least four standard deviations: by chance, a few instances may all have the same label.
    tolerance = max(MAX_IMBALANCE * instances, 2 * math.sqrt(instances))
    problems = [
        f"{counts[f'label_{label}'] / instances:.0%} of the instances are labeled "
        f"{objective.describe(label)}: the second segment is random where a sentence is alone in "
        f"its document ({sentences / counts['documents']:.1f} on average) or fills a sequence."
        for label in range(1, objective.num_classes)
        if abs(counts[f"label_{label}"] - instances / objective.num_classes) > tolerance
    ]
    if counts["long_sentences"] > MAX_LONG_SENTENCES * sentences:
        problems.append(
            f"{counts['long_sentences'] / sentences:.0%} of the sentences are longer than a "
            f"sequence and are truncated (max_seq_length={max_seq_length})."
        )
    length = counts["positions"] / instances
    if length < MIN_LENGTH * max_seq_length:
        problems.append(
            f"instances have {length:.0f} tokens on average: with max_seq_length={max_seq_length} "
            "most of each sequence is padding, which takes as much time to train on as text."
        )
    if problems:
        problems.append(
            "Consider --split_sentences if lines are paragraphs, --input_format=documents if "
            "blank lines do not separate documents, or another --max_seq_length."
        )
    if counts["unknown"] > MAX_UNKNOWN * counts["tokens"]:
        problems.append(
            f"{counts['unknown'] / counts['tokens']:.0%} of the tokens are not in the vocabulary "
            f"{vocabulary}. Choose one for the language and the letter case of the text with "
            f"--spm_model_file or --vocab_file (now --do_lower_case={settings.do_lower_case})."
        )
    lost = LostMarks(counts["checked_words"], counts["changed_words"])
    if problem := lost.problem("the text"):
        problems.append(problem)
    return problems
