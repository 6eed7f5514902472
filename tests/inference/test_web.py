"""The web page: what the form of each task shows above its JSON."""

from __future__ import annotations

import asyncio

import pytest

from albert_tf import inference
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.inference.model_task import find_task
from tests.inference.conftest import TEXTS

gr = pytest.importorskip("gradio", reason="needs the extra web")

from albert_tf.inference import web  # noqa: E402 - it needs the package above

pytestmark = pytest.mark.ci


def in_loop(make, *arguments):
    """Calls a function that makes parts of a page, in the event loop that Gradio looks for."""

    async def call():
        return make(*arguments)

    return asyncio.run(call())


def form_of(folder, task=None):
    settings = inference.Settings(model_dir=folder, web=True, precision="float32", top_k=2)
    source = ModelSource.open(folder)
    return in_loop(web.make_form, settings, source, find_task(source, task))


@pytest.mark.parametrize(
    ("kind", "values", "names"),
    [
        ("classification", [TEXTS[0], ""], {"water", "land"}),
        ("multiple_choice", ["The river", "It is _.", "old\nnew"], {"old", "new"}),
        ("embeddings", [TEXTS[1], f"{TEXTS[3]}\n{TEXTS[1]}"], {TEXTS[1], TEXTS[3]}),
    ],
)
def test_a_form_shows_a_number_for_each_name(saved, kind, values, names):
    form = form_of(saved(kind))
    shown, _ = form.fn(*values)
    assert set(shown) == names
    best = form.output_components[0].postprocess(shown).model_dump()["label"]
    assert shown[best] == max(shown.values())


@pytest.mark.parametrize(
    ("kind", "first"), [("spans", ["What waits?"]), ("token_classification", [])]
)
def test_a_form_marks_spans_in_their_text(saved, kind, first):
    form, text = form_of(saved(kind)), "\U0001f642 The boat waits."
    shown, result = form.fn(*first, text)
    parts = form.output_components[0].postprocess(shown).model_dump()
    found = [part["token"] for part in parts if part["class_or_confidence"]]
    spans = result["spans"] if "spans" in result else [{"text": result["answer"]}]
    assert found == [span["text"] for span in spans]
    assert "".join(part["token"] for part in parts) == text


def test_an_invalid_input_is_shown_as_an_error(saved):
    with pytest.raises(gr.Error, match=r"no \[MASK\] in the text"):
        form_of(saved("fill_mask"), "fill_mask").fn("It rains.")


def test_a_page_has_a_form_for_each_task(saved):
    def tabs(**given):
        settings = inference.Settings(web=True, **given)
        page = in_loop(web.make_page, settings, ModelSource.open(settings.model_dir))
        assert not page.analytics_enabled
        return [block.label for block in page.blocks.values() if isinstance(block, gr.Tab)]

    assert tabs(model_dir=saved("fill_mask")) == ["embeddings", "fill_mask"]
    assert tabs(model_dir=saved("classification")) == ["classification", "embeddings"]
