"""The web page of `albert predict --web`: a form for each task of a model."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from absl import logging

from albert_tf import files
from albert_tf.checkpoints.model_source import ModelSource
from albert_tf.finetuning import registry
from albert_tf.finetuning.text_task import Result
from albert_tf.inference import web_access
from albert_tf.inference.embedding_program import search
from albert_tf.inference.model_task import find_predicted_task, possible_tasks
from albert_tf.inference.opening import make_predictor, using_devices
from albert_tf.inference.settings import Settings

if TYPE_CHECKING:
    import gradio as gr


# Columns of a form with several texts, and their labels.
LINES = {"options": "options, one per line", "texts": "texts, one per line"}


def make_form(settings: Settings, source: ModelSource, task: str) -> gr.Interface:
    """Returns the form of one of the tasks of a model."""
    import gradio as gr

    predictor = make_predictor(source, task, settings, settings.precision, settings.threads)
    parse = registry.get(task).parse
    demos = predictor.task.demos
    labels = files.quote_all(predictor.labels) if predictor.labels else ""
    output = gr.HighlightedText if predictor.task.marks_spans else gr.Label

    def answer(*values: str) -> tuple[files.Json, Result]:
        row: files.JsonObject = dict(zip(demos[0], values, strict=True))
        row |= {key: row[key].splitlines() for key in LINES if key in row}
        try:
            if "texts" in row:  # to compare with one text
                texts = [({"line": n}, (text, "")) for n, text in enumerate(row["texts"], 1)]
                found = search(predictor, row["text"], [texts], settings.top_k)
                result: Result = {"nearest": found}
            else:
                (result,) = predictor.predict([parse(row)])
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from None
        return predictor.task.show(row, result), result

    with contextlib.suppress(gr.Error):  # a task of your own may have no use for the demo
        answer(*demos[0].values())  # the first call compiles: no visitor has to wait for it
    return gr.Interface(
        answer,
        [gr.Textbox(label=LINES.get(key, key), lines=2) for key in demos[0]],
        [output(label=f"{task}: {labels}" if labels else task), gr.JSON(label="JSON")],
        examples=[list(row.values()) for row in demos],
        flagging_mode="never",
    )


def make_page(settings: Settings, source: ModelSource) -> gr.Blocks:
    """Returns a page with a form for each task of the model, or for the requested one."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    import gradio as gr

    wanted = settings.wanted_task
    names = possible_tasks(source) if wanted is None else (find_predicted_task(source, wanted),)
    forms = [make_form(settings, source, name) for name in names]
    name = os.path.basename(os.path.abspath(source.folder))
    return gr.TabbedInterface(forms, list(names), title=f"{name}: {names[0].replace('_', ' ')}")


def serve(settings: Settings, source: ModelSource) -> None:
    """Serves the page on 127.0.0.1 until Ctrl-C."""
    with using_devices(settings, source):
        page = make_page(settings, source)
        try:
            page.launch(
                server_name="127.0.0.1",
                server_port=settings.web_port,
                share=False,
                quiet=True,
                footer_links=[],
                app_kwargs={"middleware": web_access.middleware()},
                run_history=False,
                ssr_mode=False,
                prevent_thread_lock=True,
            )
        except OSError:
            raise OSError(f"--web_port={settings.web_port}: in use. Pass another one") from None
        logging.info("Serving at %s; press Ctrl-C to stop", page.local_url)
        page.block_thread()
