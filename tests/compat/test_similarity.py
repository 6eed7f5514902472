"""Similarity of sentences by a fine-tuned classifier."""

from __future__ import annotations

import pytest
import similarity

from tests.inference.conftest import write_folder

PAIRS = [("The river", "The sea"), ("A boat", "The boat")]
HEAD = {"output_weights": (2, 12), "output_bias": (2,)}


@pytest.mark.ci
def test_the_program_prints_a_table_of_a_file(tmp_path, config_file, toy_spm_model):
    path = tmp_path / "pairs.tsv"
    path.write_text("".join("\t".join(pair) + "\t1\n" for pair in PAIRS))
    task = {"name": "classification", "labels": ["no", "yes"]}
    folder = write_folder(tmp_path, config_file, toy_spm_model, HEAD, {"task": task})
    settings = similarity.Settings(str(folder), input_file=str(path), max_seq_length=11)
    header, *rows = similarity.run(settings).split("\n")
    assert header.split("\t") == ["text_a", "text_b", "prediction", "no", "yes"]
    cells = [row.split("\t") for row in rows]
    assert [tuple(row[:2]) for row in cells] == PAIRS
    for row in cells:
        assert row[2] == ("yes" if float(row[4]) > 0.5 else "no")
