"""Margins of a pre-trained model over constant answers, and its answers by kind of pair."""

from __future__ import annotations

import numpy as np
import pretraining_errors
import pytest
from pretraining_errors import IN_ORDER, OTHER_DOCUMENT, SWAPPED, Answers

from albert_tf import data

pytestmark = pytest.mark.ci

TEXT = """the river flows by the landing.
a boat lies at the landing.
nobody was in the boat.

the sea was grey that day.
the boat went down the river.
it came to the sea.
"""


def ids(*values):
    return np.array(values)


@pytest.fixture
def documents():
    return pretraining_errors.Documents([ids(5, 6, 7, 8, 5, 6), ids(9, 10, 256 * 9, 7), ids(5, 6)])


def test_a_segment_is_found_in_every_document_at_every_place(documents):
    assert documents.places(ids(5, 6)) == {0: [0, 4], 2: [0]}
    assert documents.places(ids(6, 9)) == {}  # not across documents
    assert documents.places(ids(9)) == {1: [0]}  # nor in the middle of the bytes of 256 · 9


def test_the_kind_of_a_pair_follows_from_the_places_of_its_segments(documents):
    assert documents.origin(ids(9), ids(7), 0) == (1, IN_ORDER)
    assert documents.origin(ids(7), ids(9, 10), 1) == (1, SWAPPED)
    assert documents.origin(ids(7, 8), ids(9, 10), 1) == (0, OTHER_DOCUMENT)


def test_the_label_decides_if_a_segment_occurs_twice(documents):
    assert documents.origin(ids(7, 8), ids(5, 6), 0) == (0, IN_ORDER)
    assert documents.origin(ids(7, 8), ids(5, 6), 1) == (0, SWAPPED)


@pytest.mark.parametrize(
    ("first", "second", "label"), [((5, 9), (7,), 0), ((7,), (11,), 0), ((9,), (10,), 1)]
)
def test_records_of_another_text_are_refused(documents, first, second, label):
    with pytest.raises(ValueError, match="--text_file: the records were not made of this text"):
        documents.origin(ids(*first), ids(*second), label)


def test_segments_are_cut_out_of_a_padded_record():
    record = (
        ids(2, 11, 12, 3, 13, 3, 0, 0),
        ids(1, 1, 1, 1, 1, 1, 0, 0),
        ids(0, 0, 0, 0, 1, 1, 0, 0),
    )
    first, second = pretraining_errors.segments_of(*record)
    assert (first.tolist(), second.tolist()) == ([11, 12], [13])


def test_the_interval_is_that_of_drawing_documents():
    """Ten answers of one document are no more certain than one."""
    rng = np.random.default_rng(3)
    hits = (rng.random(200) < 0.7).astype(float)
    constant = (rng.random(200) < 0.5).astype(float)
    one = pretraining_errors.margin_of(hits, constant, np.ones(200))
    ten = pretraining_errors.margin_of(10 * hits, 10 * constant, np.full(200, 10.0))
    assert one == ten
    deviation = (hits - constant).std() / np.sqrt(200)
    assert one.high - one.low == pytest.approx(2 * 1.96 * deviation, rel=0.1)
    assert one.low < one.accuracy - one.constant < one.high


def answer(document, kind, order, words=(4, 4), word_labels=(4, 5)):
    label = pretraining_errors.LABELS[kind]
    return Answers(document, kind, order, label, ids(*words), ids(*word_labels))


def test_the_report_has_both_tables():
    answers = [answer(7, IN_ORDER, 0), answer(7, SWAPPED, 0), answer(9, SWAPPED, 1)]
    text = pretraining_errors.describe(answers)
    assert text.startswith("3 held-out pairs from 2 documents\n")
    assert "| sentence-order accuracy | 0.667 | 0.667 | +0.0 (" in text
    assert "| masked-LM accuracy | 0.500 | 0.500 | +0.0 (+0.0 to +0.0) |" in text
    assert "| in order | 1 | 1.000 | 0.000 |" in text
    assert "| swapped | 2 | 0.500 | 0.500 |" in text
    assert "of two documents" not in text


def test_every_record_of_a_text_is_answered_and_its_pair_is_found(
    tmp_path, pretrained_dir, toy_spm_model
):
    text_file, record_file = tmp_path / "text.txt", tmp_path / "held_out.tfrecord"
    text_file.write_text(TEXT)
    data.run(
        data.Settings(
            input_file=str(text_file),
            output_file=str(record_file),
            spm_model_file=toy_spm_model,
            max_seq_length=24,
            max_predictions_per_seq=4,
            dupe_factor=30,
            num_workers=1,
        )
    )
    settings = pretraining_errors.Settings(str(pretrained_dir), str(record_file), str(text_file))
    answers = pretraining_errors.predict(settings)
    kinds = {a.kind for a in answers}
    assert {IN_ORDER, SWAPPED} <= kinds
    assert all(len(a.words) == len(a.word_labels) > 0 for a in answers)
    (tmp_path / "held_out.tfrecord.records.json").unlink()
    with pytest.raises(ValueError, match=r"held_out\.tfrecord: expected a file of create_pre"):
        pretraining_errors.predict(settings)
