"""Serves a model over HTTP, as JSON: `pip install fastapi uvicorn`.

    albert convert --input=work/mrpc --output=mrpc_server --output_format=openvino
    MODEL_DIR=mrpc_server uvicorn --app-dir=examples server:app --port=8080
    curl localhost:8080/predict --json '[{"text": "He is old.", "text_b": "He is not young."}]'

A request is a list of rows, with the fields of those of `albert predict --input_file`, for any
task. Rows of a request are one batch, and requests run in threads: docs/guides/serve.md.
"""

import os
from typing import Any

import fastapi

import albert_tf

app = fastapi.FastAPI()
predictor = albert_tf.load_predictor(os.environ["MODEL_DIR"])


@app.post("/predict")
def predict(rows: list[dict[str, Any]]) -> list[Any]:
    """Returns the answers to rows, as `albert predict` prints them."""
    examples = []
    for number, row in enumerate(rows):
        try:
            examples.append(predictor.task.parse_row(row))
        except ValueError as error:
            raise fastapi.HTTPException(400, f"row {number}: {error}") from None
    return list(predictor.predict(examples))
