"""Serves a web page to try a model, made with Gradio: `albert predict --web`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import gradio as gr
from absl import logging

from albert_tf import tasks
from albert_tf.inference import program
from albert_tf.inference.model_folder import ModelFolder
from albert_tf.inference.settings import Settings

# Fields with several texts, and their labels.
LINES = {"options": "options, one per line", "texts": "texts, one per line"}


class Form(NamedTuple):
    """The form of a task.

    Attributes:
        examples: values of its fields, which are columns of `--input_file`.
        show: (row, result) → value of `output`.
        output: shows a result, above its JSON.
    """

    examples: list[dict[str, str]]
    show: Callable[[dict[str, Any], dict[str, Any]], Any]
    output: Any = gr.Label


def _mark(text: str, spans: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a text with its spans, as `gr.HighlightedText` expects them."""
    keys = {"entity": "type", "start": "begin", "end": "end"}
    found = [span for span in spans if span["begin"] >= 0]
    return {"text": text, "entities": [{k: span[v] for k, v in keys.items()} for span in found]}


TEXTS = Form(
    [{"text": "What a lovely day!", "text_b": ""}, {"text": "你多大了", "text_b": "你几岁"}],
    lambda row, result: result.get("probabilities", result.get("score")),
)
SPANS = Form(
    [{"question": "Who lives in Rome?", "context": "Anna lives in Rome and sells bread."}],
    lambda row, result: _mark(row["context"], [{"type": "answer", **result}]),
    gr.HighlightedText,
)
FORMS = {
    tasks.TOKEN_CLASSIFICATION: Form(
        [{"text": "Anna lives in Rome and sells bread."}, {"text": "王小明住在北京。"}],
        lambda row, result: _mark(row["text"], result["spans"]),
        gr.HighlightedText,
    ),
    tasks.MULTIPLE_CHOICE: Form(
        [{"passage": "Anna sells bread.", "question": "Anna sells _.", "options": "bread\ntea"}],
        lambda row, result: dict(zip(row["options"], result["probabilities"], strict=True)),
    ),
    tasks.SPANS: SPANS,
    tasks.ANSWERABLE_SPANS: SPANS,
    tasks.FILL_MASK: Form(
        [{"text": "The capital of France is [MASK]."}, {"text": "北京是[MASK]国的首都"}],
        lambda row, result: {
            f"{number}. {word['token']}": word["score"]
            for number, words in enumerate(result["masks"], 1)
            for word in words
        },
    ),
    tasks.EMBEDDINGS: Form(
        [{"text": "A small boat.", "texts": "A little ship.\nThe price of tea."}],
        lambda row, result: {near["text"]: near["similarity"] for near in result["nearest"]},
    ),
}


def make_form(settings: Settings, model_folder: ModelFolder, task: str) -> gr.Interface:
    """Returns the form of one of the tasks of a model."""
    predictor: Any = program.load(settings, model_folder, task)
    form = FORMS.get(task, TEXTS)

    def answer(*values: str) -> tuple[Any, dict[str, Any]]:
        row: Any = dict(zip(form.examples[0], values, strict=True))
        row |= {key: row[key].splitlines() for key in LINES if key in row}
        try:
            if task == tasks.EMBEDDINGS:
                texts = [(line, (text, "")) for line, text in enumerate(row["texts"], 1)]
                found = program.search(predictor, row["text"], [texts], settings.top_k)
                return form.show(row, {"nearest": found}), {"nearest": found}
            (result,) = predictor.predict([predictor.parse(row)])
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from None
        return form.show(row, result), result

    return gr.Interface(
        answer,
        [gr.Textbox(label=LINES.get(key, key), lines=2) for key in form.examples[0]],
        [form.output(label=task), gr.JSON(label="JSON")],
        examples=[list(row.values()) for row in form.examples],
        flagging_mode="never",
    )


def make_page(settings: Settings) -> gr.Blocks:
    """Returns a page with a form for each task of the model, or for the requested one."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    folder = ModelFolder(settings.model_dir)
    wanted = settings.wanted_task
    names = folder.possible_tasks() if wanted is None else (folder.find_task(wanted),)
    forms = [make_form(settings, folder, name) for name in names]
    return gr.TabbedInterface(forms, list(names), title=os.path.basename(folder.folder))


def serve(settings: Settings) -> None:
    """Serves the page on 127.0.0.1 until Ctrl-C."""
    with program.use_devices(settings, ModelFolder(settings.model_dir)):
        page = make_page(settings)
        options: Any = {"server_port": settings.web_port, "share": False, "run_history": False}
        options |= {"server_name": "127.0.0.1", "quiet": True, "footer_links": []}
        try:
            page.launch(**options, ssr_mode=False, prevent_thread_lock=True)
        except OSError:
            raise OSError(f"--web_port={settings.web_port}: in use. Pass another one") from None
        logging.info("Serving at %s; press Ctrl-C to stop", page.local_url)
        page.block_thread()
