"""Runs transformers as a contender; started by `contenders.py` with the peer Python.

The engine of the job is "" (PyTorch) or "openvino", which predicts only.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

import contenders
import numpy as np
import torch
import transformers

# Names in `albert_config.json` → names in transformers.
ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}


def make_model(job: dict[str, Any]) -> Any:
    """Returns the model of the job, with random weights."""
    activation = ACTIVATIONS[job["config"]["hidden_act"]]
    config = transformers.AlbertConfig(**job["config"] | {"hidden_act": activation})
    if job["task"] == "classification":
        config.num_labels = 2
        return transformers.AlbertForSequenceClassification(config)
    return transformers.AlbertForPreTraining(config)


def pretraining_loss(model: Any, batch: dict[str, Any]) -> Any:
    """Returns the masked-LM plus the sentence-order loss; logits at masked positions only."""
    outputs = model.albert(
        batch["input_ids"], attention_mask=batch["input_mask"], token_type_ids=batch["segment_ids"]
    )
    x = outputs.last_hidden_state  # [B, S, H]
    positions = batch["masked_lm_positions"][:, :, None].expand(-1, -1, x.shape[-1])
    logits = model.predictions(torch.gather(x, 1, positions))  # [B, P, V]
    order = model.sop_classifier(outputs.pooler_output)  # [B, 2]
    loss = torch.nn.functional.cross_entropy
    return loss(logits.float().flatten(0, 1), batch["masked_lm_ids"].flatten()) + loss(
        order.float(), batch["next_sentence_labels"][:, 0]
    )


def logits_of(model: Any, batch: dict[str, Any]) -> Any:
    """Returns the logits of a classifier, [B, 2]."""
    return model(
        batch["input_ids"], attention_mask=batch["input_mask"], token_type_ids=batch["segment_ids"]
    ).logits


def versions_of(job: dict[str, Any]) -> dict[str, str]:
    """Returns package → version, of the packages that run the job."""
    packages = ["torch", "transformers"]
    if job["engine"] == "openvino":
        packages.append("openvino")
    return {package: importlib.metadata.version(package) for package in packages}


def make_openvino(model: Any, precision: str) -> Callable[[Mapping[str, Any]], Any]:
    """Converts a classifier with OpenVINO.

    Args:
        model: the classifier.
        precision: "float32" or "bfloat16".

    Returns:
        A function that returns the probabilities, float32 [B, 2], for `input_ids`,
        `attention_mask` and `token_type_ids` as NumPy arrays.
    """
    import openvino

    names = ("input_ids", "attention_mask", "token_type_ids")
    example = {name: torch.ones(2, 9, dtype=torch.long) for name in names}
    with torch.no_grad():
        converted = openvino.convert_model(model.eval(), example_input=example)
    hints = {
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision],
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = openvino.compile_model(converted, "CPU", hints).create_infer_request()

    def predict(batch: Mapping[str, Any]) -> Any:
        logits = request.infer({name: batch[name] for name in names})[0]
        exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return exponents / exponents.sum(axis=-1, keepdims=True)

    return predict


def read_batches(path: str, device: str) -> list[dict[str, Any]]:
    """Returns the batches of the job as tensors, integers as int64, as PyTorch requires."""
    batches = []
    for arrays in contenders.load_batches(path):
        tensors = {name: torch.from_numpy(value).to(device) for name, value in arrays.items()}
        batches.append(
            {name: x if x.is_floating_point() else x.long() for name, x in tensors.items()}
        )
    return batches


def make_forward(model: Any, job: dict[str, Any]) -> Any:
    """Returns a function of a batch that computes the loss, or in prediction the probabilities."""
    casts = job["precision"] == "bfloat16" and job["training"]

    def forward(batch: dict[str, Any]) -> Any:
        with torch.autocast(job["device"], torch.bfloat16) if casts else contextlib.nullcontext():
            if job["task"] == "pretraining":
                return pretraining_loss(model, batch)
            logits = logits_of(model, batch).float()
            if not job["training"]:
                return logits.softmax(-1)
            return torch.nn.functional.cross_entropy(logits, batch["label_ids"])

    return forward


def serve_openvino(job: dict[str, Any]) -> None:
    """Computes the steps of a job of prediction with OpenVINO."""
    predict = make_openvino(make_model(job), job["precision"])
    batches = [
        {
            "input_ids": batch["input_ids"].astype(np.int64),
            "attention_mask": batch["input_mask"].astype(np.int64),
            "token_type_ids": batch["segment_ids"].astype(np.int64),
        }
        for batch in contenders.load_batches(job["batches"])
    ]
    for batch in batches:  # the first use of a shape takes longer
        predict(batch)
    contenders.serve(
        lambda number: predict(batches[number % len(batches)]), job, versions=versions_of(job)
    )


def main() -> None:
    """Computes the steps of the job."""
    job = contenders.read_job()
    if job["engine"] == "openvino":
        serve_openvino(job)
        return
    batches = read_batches(job["batches"], job["device"])
    model = make_model(job).train(job["training"]).to(job["device"])
    if job["precision"] == "bfloat16" and not job["training"]:
        model = model.to(torch.bfloat16)  # faster than converting the weights in every step
    if job["recompute"]:
        model.gradient_checkpointing_enable()
    forward = make_forward(model, job)
    if job["compiled"]:
        is_dynamic = len({tuple(batch["input_ids"].shape) for batch in batches}) > 1
        forward = torch.compile(forward, dynamic=is_dynamic or None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def run(number: int) -> None:
        batch = batches[number % len(batches)]
        if not job["training"]:
            with torch.inference_mode():
                forward(batch)
            return
        optimizer.zero_grad(set_to_none=True)
        forward(batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if job["device"] == "cuda":
            torch.cuda.synchronize()

    for number in range(len(batches) if job["compiled"] else 0):
        run(number)

    def device_megabytes() -> int:
        """Returns the peak memory on a GPU; 0 on a CPU."""
        return torch.cuda.max_memory_allocated() // 2**20 if job["device"] == "cuda" else 0

    contenders.serve(run, job, device_megabytes, versions=versions_of(job))


if __name__ == "__main__":
    main()
