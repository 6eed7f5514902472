"""The task of sentences that follow one another, made of a corpus."""

from __future__ import annotations

import collections

import pair_task
import pytest

DOCUMENTS = [[f"Sentence {i} of document {d}." for i in range(7)] for d in range(60)]


@pytest.fixture
def corpus_dir(tmp_path):
    for name, documents in (("train.txt", DOCUMENTS), ("held_out.txt", DOCUMENTS[:2])):
        text = "\n\n".join("\n".join(document) for document in documents) + "\n"
        (tmp_path / name).write_text(text)
    return tmp_path


def place(sentence):
    words = sentence.rstrip(".").split()
    return int(words[4]), int(words[1])


def test_half_of_the_seconds_follow_and_the_others_are_from_documents_nearby():
    pairs = list(pair_task.pairs_of(DOCUMENTS))
    assert len(pairs) == 60 * 3
    for first, second, label in pairs:
        (document, number), (other, other_number) = place(first), place(second)
        if label == pair_task.FOLLOWS:
            assert (other, other_number) == (document, number + 1)
        else:
            assert 0 < abs(document - other) <= pair_task.NEIGHBORS
    counts = collections.Counter(label for _, _, label in pairs)
    assert abs(counts[pair_task.FOLLOWS] - 90) < 4 * (180 / 4) ** 0.5
    firsts = [first for first, _, _ in pairs]
    assert len(set(firsts)) == len(firsts)


def test_train_and_dev_come_from_the_two_parts_of_the_corpus(corpus_dir):
    settings = pair_task.Settings(str(corpus_dir), str(corpus_dir / "task"))
    text = pair_task.run(settings)
    assert "train.tsv: 180 pairs of 60 documents" in text
    assert "dev.tsv: 6 pairs of 2 documents" in text
    header, *rows = (corpus_dir / "task" / "dev.tsv").read_text().splitlines()
    assert header.split("\t") == ["sentence1", "sentence2", "label"]
    assert [row.split("\t") for row in rows] == list(map(list, pair_task.pairs_of(DOCUMENTS[:2])))


def test_a_part_of_one_document_is_refused(corpus_dir):
    (corpus_dir / "held_out.txt").write_text("One sentence.\nAnother sentence.\n")
    with pytest.raises(ValueError, match=r"held_out\.txt: expected two documents or more.*got 1"):
        pair_task.run(pair_task.Settings(str(corpus_dir), str(corpus_dir / "task")))
