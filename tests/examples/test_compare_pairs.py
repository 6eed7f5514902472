"""Pairs of sentences, the most similar first."""

from __future__ import annotations

import compare_pairs
import pytest

import albert_tf
from tests.inference.conftest import write_folder

PAIRS = [("The river", "The sea"), ("A boat", "The boat"), ("nobody", "the landing")]


def test_pairs_are_ordered_by_their_probability(tmp_path, config_file, toy_spm_model):
    heads = {"output_weights": (2, 12), "output_bias": (2,)}
    model_dir = str(write_folder(tmp_path, config_file, toy_spm_model, heads))
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{first}\t{second}\n" for first, second in PAIRS))
    text = compare_pairs.run(compare_pairs.Settings(model_dir, str(path)))
    rows = [line.split("\t") for line in text.splitlines()]
    classify = albert_tf.load_predictor(model_dir)
    expected = {pair: classify([pair])[0]["probabilities"]["1"] for pair in PAIRS}
    assert [tuple(row[1:]) for row in rows] == sorted(PAIRS, key=expected.get, reverse=True)
    for probability, *pair in rows:
        assert float(probability) == pytest.approx(expected[tuple(pair)], abs=1e-4)


def test_a_line_without_a_pair_is_named(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\nc\n")
    with pytest.raises(ValueError, match=r"pairs\.tsv, line 2: expected two sentences"):
        compare_pairs.read_pairs(str(tmp_path / "pairs.tsv"))
