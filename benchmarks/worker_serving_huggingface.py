"""Runs transformers as a contender that predicts from texts; started by `contenders.py`.

The engines are "pipeline" (`transformers.pipeline` on PyTorch) and "openvino" (the same model and
tokenizer, with the model converted by OpenVINO). Both process the texts in batches without
reordering them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import contenders
import torch
import transformers
import worker_huggingface

BATCH_SIZE = 32
MAX_LENGTH = 128

Pairs = list[tuple[str, str]]


def make_pipeline(job: dict[str, Any]) -> Callable[[Pairs], Any]:
    """Returns a function that predicts the probabilities for pairs of texts with the pipeline."""
    pipeline = transformers.pipeline(
        "text-classification",
        model=job["folder"],
        dtype=getattr(torch, job["precision"]),
        batch_size=BATCH_SIZE,
        top_k=None,
        truncation=True,
        max_length=MAX_LENGTH,
    )

    def answer(pairs: Pairs) -> Any:
        results = pipeline([{"text": first, "text_pair": second} for first, second in pairs])
        return [[entry["score"] for entry in sorted(row, key=_label)] for row in results]

    return answer


def _label(entry: dict[str, Any]) -> str:
    return str(entry["label"])


def make_openvino(job: dict[str, Any]) -> Callable[[Pairs], Any]:
    """Returns a function that predicts the probabilities for pairs of texts with OpenVINO."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(job["folder"])
    model = transformers.AutoModelForSequenceClassification.from_pretrained(job["folder"])
    predict = worker_huggingface.make_openvino(model, job["precision"])

    def answer(pairs: Pairs) -> Any:
        probabilities = []
        for begin in range(0, len(pairs), BATCH_SIZE):
            batch = tokenizer(
                pairs[begin : begin + BATCH_SIZE],
                padding=True,
                truncation=True,
                max_length=MAX_LENGTH,
                return_tensors="np",
            )
            probabilities += predict(batch).tolist()
        return probabilities

    return answer


def main() -> None:
    """Runs the job."""
    job = contenders.read_job()
    make = {"pipeline": make_pipeline, "openvino": make_openvino}[job["engine"]]
    contenders.serve_texts(make(job), job, versions=worker_huggingface.versions_of(job))


if __name__ == "__main__":
    main()
