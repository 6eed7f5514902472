"""Serves a model over HTTP, as JSON: `pip install fastapi uvicorn`.

    albert convert --input=work/mrpc --output=mrpc_server --output_format=openvino
    MODEL_DIR=mrpc_server uvicorn --app-dir=examples server:app --port=8080
    curl localhost:8080/predict --json '{"text": "He is old.", "text_b": "He is not young."}'

A request has the fields of a row of `albert predict --input_file`, for any task. The requests that
arrive while the model computes are its next batch: docs/guides/serve.md.
"""

import asyncio
import os
from typing import Any

import fastapi

import albert_tf

MAX_BATCH = 32
app = fastapi.FastAPI()
predictor = albert_tf.load_predictor(os.environ["MODEL_DIR"])
waiting: list[tuple[Any, asyncio.Future[Any]]] = []
one_at_a_time = asyncio.Lock()


@app.post("/predict")
async def predict(row: dict[str, Any]) -> Any:
    """Returns the answer to a row, which `albert predict` would print."""
    try:
        example = predictor.task.parse_row(row)
    except ValueError as error:
        raise fastapi.HTTPException(400, str(error)) from None
    answer = asyncio.get_running_loop().create_future()
    waiting.append((example, answer))
    async with one_at_a_time:  # the first to come answers all that wait
        batch = waiting[:MAX_BATCH]
        del waiting[:MAX_BATCH]
        if batch:
            await answer_batch(*zip(*batch, strict=True))
    return await answer


async def answer_batch(examples: tuple[Any, ...], answers: tuple[asyncio.Future[Any], ...]) -> None:
    """Computes the answers in a thread, in which the server goes on to accept requests."""
    try:
        results = await asyncio.to_thread(predictor.predict, examples)
    except Exception as error:  # an answer that never came would be waited for
        for answer in answers:
            answer.set_exception(error)
        return
    for answer, result in zip(answers, results, strict=True):
        answer.set_result(result)
