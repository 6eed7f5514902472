"""Which documents make up the corpus."""

from __future__ import annotations

import random

import package_corpus
import pytest
from installed_documentation import DOCSTRINGS, Reading, Source

WORDS = [first + second for first in "bcdfghklmn" for second in ("ame", "ill", "ore", "ust")]


def sentences(count, seed):
    """Returns sentences that do not resemble one another."""
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=9)).capitalize() + "." for _ in range(count)]


def reading(package, *documents, dropped=()):
    source = Source(package, f"{package}.py", DOCSTRINGS)
    return Reading(source, [list(document) for document in documents], list(dropped))


@pytest.fixture(scope="module")
def readings():
    """60 small packages and a large one; the small ones repeat sentences of the large one."""
    shared = sentences(8, seed=1000)
    large = [sentences(6, seed=2000 + seed) for seed in range(60)]
    small = [
        reading(f"small{index:02}", sentences(5, index), [*shared, *sentences(4, 100 + index)])
        for index in range(60)
    ]
    return [reading("large", shared, *large), *small]


@pytest.fixture(scope="module")
def corpus(readings):
    return package_corpus.select(readings)


def test_a_twentieth_is_held_out_in_whole_packages(corpus):
    train, held_out = ({one.package for one in part} for part in (corpus.train, corpus.held_out))
    assert "large" in train
    assert not train & held_out
    size = sum(one.size for one in corpus.held_out)
    total = size + sum(one.size for one in corpus.train)
    assert 0.03 < size / total < 0.08


def test_the_same_packages_are_held_out_whatever_the_order_of_the_files(corpus, readings):
    again = package_corpus.select(readings[::-1])
    assert {one.package for one in again.held_out} == {one.package for one in corpus.held_out}


def test_no_sentence_is_held_out_that_the_model_trains_on(corpus):
    parts = [
        {sentence for one in part for sentence in one.sentences}
        for part in (corpus.train, corpus.held_out)
    ]
    assert not parts[0] & parts[1]


def test_repeated_sentences_and_short_documents_are_left_out_and_counted(readings):
    first = sentences(4, seed=5001)
    changed = first[0].replace(".", " " + " ".join(sentences(3, seed=5002)))
    nearly = changed.removesuffix(".") + " indeed."
    some = [
        reading("a", [*first, changed], sentences(3, seed=5003)),
        reading("b", [first[2].upper(), nearly, *sentences(4, seed=5004)]),
    ]
    corpus = package_corpus.select([*readings, *some])
    own = {one.package: one.sentences for one in (*corpus.train, *corpus.held_out)}
    assert own["a"] == [*first, changed]
    assert own["b"] == sentences(4, seed=5004)
    assert corpus.dropped.examples(package_corpus.SHORT) == [" ".join(sentences(3, seed=5003))]
    assert corpus.dropped.counts[package_corpus.REPEATED] == 8 * 60 + 1
    assert corpus.dropped.examples(package_corpus.NEAR_REPEATED) == [f"{nearly} = {changed}"]


def test_examples_do_not_depend_on_the_order():
    parts = [str(number) for number in range(50)]
    kept = []
    for order in (parts, parts[::-1]):
        dropped = package_corpus.Dropped()
        for part in order:
            dropped.add("reason", part)
        kept.append(dropped.examples("reason"))
    assert kept[0] == kept[1]
    assert len(kept[0]) == package_corpus.EXAMPLES
    assert dropped.counts == {"reason": 50}


def test_too_little_documentation_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match=r"1 documents of 1 packages.*--source=standard_library"):
        package_corpus.select([reading("only", sentences(5, seed=1))])
