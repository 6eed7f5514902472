"""Tests the web page: its forms through Gradio's own client, over a real socket."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys

import pytest

import albert_tf
from albert_tf import inference, tasks
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.inference.model_folder import ModelFolder
from albert_tf.squad.task import QuestionAnswering
from tests.conftest import ROOT
from tests.inference.conftest import CONTEXTS, TEXTS, write_folder

gr = pytest.importorskip("gradio", reason="needs the extra web")

from albert_tf.inference import web  # noqa: E402 - it needs the package above


def in_loop(make, *arguments):
    """Calls a function that makes parts of a page, in the event loop that Gradio looks for."""

    async def call():
        return make(*arguments)

    return asyncio.run(call())


def form_of(folder, task=None, **given):
    settings = inference.Settings(model_dir=str(folder), web=True, precision="float32", **given)
    model_folder = ModelFolder(str(folder))
    return in_loop(web.make_form, settings, model_folder, model_folder.find_task(task))


def shown_by(form, *values):
    """Returns what a form shows above the JSON, as Gradio serializes it, and the JSON."""
    value, result = form.fn(*values)
    serialized = form.output_components[0].postprocess(value)
    return serialized.model_dump() if hasattr(serialized, "model_dump") else serialized, result


@pytest.fixture(scope="module")
def choices_dir(tmp_path_factory, config_file, toy_spm_model):
    heads = {"output_weights": (1, 12), "output_bias": (1,)}
    folder = tmp_path_factory.mktemp("choices")
    record = RunRecord(settings={"max_qa_length": 29}, task={"name": "multiple_choice"})
    RunFolder(str(folder)).write_record(record)
    return write_folder(folder, config_file, toy_spm_model, heads)


@pytest.fixture(scope="module")
def tags_dir(tmp_path_factory, config_file, toy_spm_model):
    heads = {"output_weights": (3, 12), "output_bias": (3,)}
    folder = tmp_path_factory.mktemp("tags")
    task = {"name": "token_classification", "labels": ["B-LOC", "I-LOC", "B-PER"]}
    RunFolder(str(folder)).write_record(RunRecord(task=task))
    return write_folder(folder, config_file, toy_spm_model, heads)


@pytest.fixture(scope="module")
def spans_dir(tmp_path_factory, config_file, toy_spm_model):
    heads = {"cls/squad/output_weights": (2, 12), "cls/squad/output_bias": (2,)}
    folder = tmp_path_factory.mktemp("spans")
    settings = {"max_query_length": 9, "doc_stride": 31, "max_answer_length": 5}
    RunFolder(str(folder)).write_record(RunRecord(settings=settings))
    return write_folder(folder, config_file, toy_spm_model, heads)


def test_labels_have_their_probabilities(classifier_dir):
    expected = albert_tf.load_predictor(str(classifier_dir))(TEXTS[0])
    shown, result = shown_by(form_of(classifier_dir), TEXTS[0], "")
    assert result["label"] == shown["label"] == expected["label"]
    found = {row["label"]: row["confidence"] for row in shown["confidences"]}
    assert found == pytest.approx(expected["probabilities"], abs=1e-6)


def test_a_score_is_shown_alone(regression_dir):
    shown, result = shown_by(form_of(regression_dir), TEXTS[0], TEXTS[1])
    assert shown["label"] == str(result["score"])


def marked(shown):
    return [row["token"] for row in shown if row["class_or_confidence"]]


def test_an_answer_is_marked_in_its_context(spans_dir):
    context = f"🙂 {CONTEXTS[0]}"
    shown, result = shown_by(form_of(spans_dir), "What waits?", context)
    assert marked(shown) == [result["answer"]]
    assert "".join(row["token"] for row in shown) == context


def test_no_answer_marks_nothing():
    row, result = {"context": "It rains."}, {"answer": "", "begin": -1, "end": -1}
    value = QuestionAnswering.show(row, result)
    assert value == {"text": "It rains.", "entities": []}


def test_spans_of_tags_are_marked(tags_dir):
    shown, result = shown_by(form_of(tags_dir), "🙂 The boat waits.")
    assert marked(shown) == [span["text"] for span in result["spans"]]
    assert "".join(row["token"] for row in shown) == "🙂 The boat waits."


def test_options_have_their_probabilities(choices_dir):
    shown, result = shown_by(form_of(choices_dir), "The river", "It is _.", "old\nnew")
    assert {row["label"] for row in shown["confidences"]} == {"old", "new"}
    assert shown["label"] == result["answer"]


def test_each_mask_has_its_words(pretrained_dir):
    form = form_of(pretrained_dir, "fill_mask", top_k=2)
    shown, result = shown_by(form, "The [MASK] waits at [MASK].")
    names = [
        f"{number}. {word['token']}" for number in (1, 2) for word in result["masks"][number - 1]
    ]
    assert {row["label"] for row in shown["confidences"]} == set(names)


def test_texts_are_sorted_by_similarity(pretrained_dir):
    shown, _ = shown_by(form_of(pretrained_dir, top_k=2), TEXTS[1], "\n".join(TEXTS))
    assert len(shown["confidences"]) == 2
    assert shown["confidences"][0] == {"label": TEXTS[1], "confidence": pytest.approx(1)}


def test_an_invalid_input_is_shown_as_an_error(pretrained_dir, choices_dir):
    with pytest.raises(gr.Error, match=r"no \[MASK\] in the text"):
        form_of(pretrained_dir, "fill_mask").fn("It rains.")
    with pytest.raises(gr.Error, match="options"):
        form_of(choices_dir).fn("The river", "It is _.", "")


@pytest.mark.parametrize("spec", tasks.rows(), ids=lambda spec: spec.name)
def test_demos_have_the_same_columns(spec):
    assert len({tuple(row) for row in tasks.resolve(spec.task).demos}) == 1


def tabs(page):
    return [block.label for block in page.blocks.values() if isinstance(block, gr.Tab)]


def test_a_page_has_a_form_for_each_task(pretrained_dir, classifier_dir):
    def page_of(folder, **given):
        return in_loop(web.make_page, inference.Settings(model_dir=str(folder), web=True, **given))

    assert tabs(page_of(pretrained_dir)) == ["embeddings", "fill_mask"]
    page = page_of(classifier_dir)
    assert tabs(page) == ["classification", "embeddings"]
    assert not page.analytics_enabled
    assert tabs(page_of(pretrained_dir, mask=True)) == ["fill_mask"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_program_serves_on_the_loopback_interface(classifier_dir):
    from gradio_client import Client

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "run_predict.py", "--web", f"--model_dir={classifier_dir}"]
    process = subprocess.Popen(
        [*command, f"--web_port={port}"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        found = next(
            re.search(r"Serving at (\S+);", line) for line in process.stderr if "Serv" in line
        )
        assert found[1] == f"http://127.0.0.1:{port}/"
        client = Client(found[1], verbose=False)
        shown, result = client.predict(TEXTS[0], "", fn_index=0)
        assert shown["label"] == result["label"]
        second = subprocess.run(
            [*command, f"--web_port={port}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert (second.returncode, second.stderr.splitlines()[-1]) == (
            1,
            f"run_predict.py: --web_port={port}: in use. Pass another one",
        )
        process.send_signal(2)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.communicate()
