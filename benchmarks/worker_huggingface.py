"""Runs transformers on PyTorch as a contender; started by `contenders.py` with the peer Python."""

from __future__ import annotations

import contextlib
from typing import Any

import contenders
import torch
import transformers


def make_model(job: dict[str, Any]) -> Any:
    """Returns the model of the job, with random weights."""
    config = transformers.AlbertConfig(**job["config"] | {"hidden_act": "gelu_new"})
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


def read_batches(path: str, device: str) -> list[dict[str, Any]]:
    """Returns the batches of the job as tensors, integers as int64, as PyTorch requires."""
    found = []
    for arrays in contenders.load_batches(path):
        tensors = {name: torch.from_numpy(value).to(device) for name, value in arrays.items()}
        found.append(
            {name: x if x.is_floating_point() else x.long() for name, x in tensors.items()}
        )
    return found


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


def main() -> None:
    """Computes the steps of the job."""
    job = contenders.read_job()
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

    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    contenders.serve(run, job, device_megabytes, versions=versions)


if __name__ == "__main__":
    main()
