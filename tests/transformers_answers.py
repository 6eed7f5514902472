"""Saves ALBERTs of many kinds with `transformers`, and writes its answers to real lines.

Runs in a Python that has PyTorch and transformers, which need not be that of the tests:

    python transformers_answers.py cases.json

Each case is a dict of `folder`, `class` (of the model), `rows` (the inputs) and, to create the
folder first, `config`, `vocabulary` (a folder with a tokenizer of version 4), `added` (tokens),
`shard_size`, `dtype`, and `keeps_version_4`: whether to copy the tokenizer's files as they are.
Beside the folder, writes the answers in `<folder>-answers.json` and the probabilities or embeddings
from which they follow in `<folder>-raw.npz`.
"""

import copy
import functools
import json
import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
import transformers

MAX_ANSWER_LENGTH, MOST_ANSWERS, TOP_K = 30, 20, 5


@functools.cache
def load_vocabulary(folder):
    return transformers.AutoTokenizer.from_pretrained(folder)


def create(case):
    folder = Path(case["folder"])
    tokenizer = copy.deepcopy(load_vocabulary(case["vocabulary"]))
    tokenizer.add_tokens(case["added"])
    config = transformers.AlbertConfig(**case["config"], vocab_size=len(tokenizer))
    torch.manual_seed(zlib.crc32(folder.name.encode()))
    model = getattr(transformers, case["class"])(config)
    for name, value in model.named_parameters():
        scale = 1.0 if "embeddings.weight" in name else 0.3
        value.data.copy_(("orm.weight" in name) + scale * torch.randn_like(value))
    if config.embedding_size == config.hidden_size:  # Google's ALBERT then has no projection
        mapping = model.base_model.encoder.embedding_hidden_mapping_in
        torch.nn.init.eye_(mapping.weight)
        torch.nn.init.zeros_(mapping.bias)
    if case["class"] == "AlbertForSequenceClassification":
        standardize(model.eval(), tokenizer, case["rows"])
    model = model.to(getattr(torch, case["dtype"]))
    model.save_pretrained(folder, max_shard_size=case["shard_size"])
    if case["keeps_version_4"]:
        for path in Path(case["vocabulary"]).iterdir():
            shutil.copy(path, folder)
    else:
        tokenizer.save_pretrained(folder)


def standardize(model, tokenizer, rows):
    """Gives each logit a mean of 0 and a variance of 1, so that the answers differ."""
    with torch.no_grad():
        logits = [model(**tokenizer(*row, return_tensors="pt")).logits[0] for row in rows]
    deviation, mean = torch.std_mean(torch.stack(logits), 0)
    head = model.classifier
    head.weight.data /= deviation[:, None]
    head.bias.data = (head.bias.data - mean) / deviation


def classify(model, tokenizer, row):
    logits = model(**tokenizer(*row, return_tensors="pt")).logits[0]
    names = model.config.id2label
    if model.config.problem_type == "regression":
        return logits.tolist(), [], {"probabilities": logits}
    if model.config.problem_type == "multi_label_classification":
        scores = logits.sigmoid()
        words = [names[n] for n, score in enumerate(scores.tolist()) if score > 0.5]
    else:
        scores = logits.softmax(-1)
        words = [names[int(scores.argmax())]]
    return scores.tolist(), words, {"probabilities": scores}


def tag(model, tokenizer, row):
    encoded = tokenizer(row, is_split_into_words=True, return_tensors="pt")
    scores = model(**encoded).logits[0].softmax(-1)
    places = [encoded.word_ids().index(number) for number in range(len(row))]
    best = scores[places].max(-1)
    words = [model.config.id2label[n] for n in best.indices.tolist()]
    return best.values.tolist(), words, {"probabilities": scores}


def answer(model, tokenizer, row):
    encoded = tokenizer(*row, return_tensors="pt", return_offsets_mapping=True)
    offsets = encoded.pop("offset_mapping")[0].tolist()
    outputs = model(**encoded)
    logits = [outputs.start_logits[0], outputs.end_logits[0]]
    inside = [number == 1 for number in encoded.sequence_ids(0)]
    best = [np.argsort(-x.numpy(), kind="stable")[:MOST_ANSWERS].tolist() for x in logits]
    spans = [
        (float(logits[0][begin] + logits[1][end]), offsets[begin][0], offsets[end][1])
        for begin in best[0]
        for end in best[1]
        if inside[begin] and inside[end] and begin <= end < begin + MAX_ANSWER_LENGTH
    ]
    found = {}
    for score, begin, end in sorted(spans, key=lambda span: -span[0]):
        found.setdefault(row[1][begin:end], score)
    texts = list(found)[:MOST_ANSWERS]
    scores = torch.tensor([found[text] for text in texts], dtype=torch.float64).softmax(-1)
    raw = {"starts": logits[0].softmax(-1), "ends": logits[1].softmax(-1)}
    return scores.tolist()[:TOP_K], texts[:TOP_K], raw


def fill(model, tokenizer, row):
    encoded = tokenizer(*row, return_tensors="pt")
    outputs = model(**encoded)
    place = int((encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero())
    logits = outputs["prediction_logits" if "sop_logits" in outputs else "logits"]
    scores = logits[0, place].softmax(-1)
    raw = {"words": scores}
    if "sop_logits" in outputs:
        raw["order"] = outputs.sop_logits[0].softmax(-1)
    order = scores.argsort(descending=True)[:50].tolist()
    order = [n for n in order if n not in tokenizer.all_special_ids]
    words = [tokenizer.decode([n]).strip() for n in order]
    kept = [(n, word) for n, word in zip(order, words, strict=True) if word][:TOP_K]
    return [float(scores[n]) for n, _ in kept], [word for _, word in kept], raw


def embed(model, tokenizer, row):
    outputs = model(**tokenizer(*row, return_tensors="pt"))
    mean = outputs.last_hidden_state[0].mean(0)
    return mean.tolist(), [], {"embeddings": mean, "pooled": outputs.pooler_output[0]}


ANSWERS = {
    "AlbertForSequenceClassification": classify,
    "AlbertForTokenClassification": tag,
    "AlbertForQuestionAnswering": answer,
    "AlbertForMaskedLM": fill,
    "AlbertForPreTraining": fill,
    "AlbertModel": embed,
}


def padded(rows):
    """Rows of different lengths as an array, which ends with zeros."""
    length = max(len(row) for row in rows)
    return np.stack(
        [np.pad(row, [(0, length - len(row))] + [(0, 0)] * (row.ndim - 1)) for row in rows]
    )


def main():
    torch.set_num_threads(1)  # the models are small
    for case in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")):
        if "config" in case:
            create(case)
        folder = case["folder"]
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model, report = getattr(transformers, case["class"]).from_pretrained(
            folder, output_loading_info=True
        )
        model = model.float().eval()
        assert not any(report[name] for name in ("missing_keys", "unexpected_keys")), report
        (architecture,) = model.config.architectures
        assert architecture == case["class"]
        with torch.no_grad():
            rows = [ANSWERS[architecture](model, tokenizer, row) for row in case["rows"]]
        answers = [{"scores": scores, "words": words} for scores, words, _ in rows]
        Path(f"{folder}-answers.json").write_text(json.dumps(answers), encoding="utf-8")
        raw = {name: padded([raw[name].numpy() for *_, raw in rows]) for name in rows[0][2]}
        np.savez(f"{folder}-raw.npz", **raw)


main()
