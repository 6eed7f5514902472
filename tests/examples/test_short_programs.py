"""The short examples do what their pages say: pairs, search, masks, a client, notebooks."""

from __future__ import annotations

import json
import subprocess
import sys

import compare_pairs
import fill_mask
import pytest
import semantic_search
import serving_client
import tensorflow as tf

import albert_tf
from albert_tf.export.signatures import TEXTS as TEXT_INPUTS
from tests.checkpoints.serving_rest import served
from tests.conftest import ROOT
from tests.inference.conftest import TEXTS, write_folder

PAIRS = [("The river", "The sea"), ("A boat", "The boat"), ("nobody", "the landing")]


@pytest.mark.ci
def test_pairs_are_ordered_by_their_probability(tmp_path, config_file, toy_spm_model):
    heads = {"output_weights": (2, 12), "output_bias": (2,)}
    model_dir = str(write_folder(tmp_path, config_file, toy_spm_model, heads))
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{first}\t{second}\n" for first, second in PAIRS))
    text = compare_pairs.run(compare_pairs.Settings(model_dir, str(path)))
    answers = albert_tf.load_predictor(model_dir)(PAIRS)
    scores = [answer["probabilities"]["1"] for answer in answers]
    expected = sorted(zip(scores, PAIRS, strict=True), reverse=True)
    assert text.splitlines() == [f"{score:.4f}\t{a}\t{b}" for score, (a, b) in expected]


@pytest.mark.ci
def test_every_mask_gets_its_best_words(pretrained_dir):
    settings = fill_mask.Settings(str(pretrained_dir), "The [MASK] of the [MASK].", count=2)
    text, *words = fill_mask.run(settings).split("\n")
    assert "[MASK]" not in text
    assert [line.split()[:2] for line in words] == [["[MASK]", n] for n in "1122"]
    scores = [float(line.split()[2]) for line in words]
    assert scores[0] >= scores[1] > 0


@pytest.mark.ci
def test_the_same_text_is_the_most_similar_one(pretrained_dir, tmp_path):
    texts, queries = tmp_path / "texts.txt", tmp_path / "queries.txt"
    texts.write_text("\n".join(TEXTS))
    queries.write_text(f"{TEXTS[3].upper()}\n{TEXTS[1]}\n")
    settings = semantic_search.Settings(str(pretrained_dir), str(texts), str(queries), 2)
    lines = semantic_search.run(settings).split("\n")
    assert len(lines) == 2 * (1 + 2)
    assert lines[:2] == [TEXTS[3].upper(), f"  1.0000  {TEXTS[3]}"]
    assert lines[3:5] == [TEXTS[1], f"  1.0000  {TEXTS[1]}"]


class LongerText:
    """A signature that knows the longer text of a pair."""

    structured_input_signature = (
        (),
        dict.fromkeys(("text_a", "text_b"), tf.TensorSpec([None], tf.string)),
    )

    def __call__(self, text_a, text_b):
        lengths = tf.strings.length(tf.stack([text_a, text_b], axis=1), "UTF8_CHAR")
        longer = tf.argmax(lengths, axis=1)
        return {
            "probabilities": tf.nn.softmax(tf.cast(lengths, tf.float32)),
            "predictions": longer,
            "labels": tf.gather(["first", "second"], longer),
        }


@pytest.mark.ci
def test_the_client_of_tensorflow_serving_labels_every_line_of_a_file(tmp_path, capsys):
    path = tmp_path / "pairs.tsv"
    lines = ["多大了\t你", "one\tmore", "alone", *(["one\tmore"] * serving_client.BATCH_SIZE)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with served({TEXT_INPUTS: LongerText()}, "pairs") as url:
        serving_client.main([f"--url={url}", f"--input_file={path}"])
        printed = capsys.readouterr().out.splitlines()
        with pytest.raises(OSError, match=r"/v1/models/other: .*Malformed request"):
            serving_client.predict(url.replace("pairs", "other"), [("a", "")])
    expected = ["first\t0.8808\t多大了\t你", "second\t0.7311\tone\tmore", "first\t0.9933\talone"]
    assert printed[:3] == expected
    assert len(printed) == len(lines)


NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# In a process of its own: the warnings of the client are not ours.
EXECUTE = """
import sys
import nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
NotebookClient(notebook, timeout=600, resources={"metadata": {"path": sys.argv[2]}}).execute()
nbformat.write(notebook, sys.argv[3])
"""


def kinds_of_outputs(path):
    """What each cell of code shows: text, plots or an error; notes on standard error aside."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        {output["output_type"] for output in cell["outputs"] if output.get("name") != "stderr"}
        for cell in cells
        if cell["cell_type"] == "code"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_showed(path, tmp_path):
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package)
    (tmp_path / "empty").mkdir()
    command = [sys.executable, "-c", EXECUTE, path, tmp_path / "empty", tmp_path / "result.ipynb"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert kinds_of_outputs(tmp_path / "result.ipynb") == kinds_of_outputs(path)
