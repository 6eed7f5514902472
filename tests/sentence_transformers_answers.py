"""Saves folders of five kinds with `sentence-transformers`, and its embeddings of texts.

Runs in a Python that has sentence-transformers, which need not be that of the tests:

    python sentence_transformers_answers.py MODEL OUTPUT TEXTS

MODEL is a folder that transformers opens, TEXTS a file of one text per line. Writes the folders
`mean`, `cls`, `max`, `concatenated` and `old` (with the files of version 2) below OUTPUT,
and the embeddings of the texts in `<folder>.npy`.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

model, output, texts = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]).read_text().splitlines()
size = json.loads((Path(model) / "config.json").read_text())["hidden_size"]


def save(name, poolings, *others):
    modules = [Transformer(model), Pooling(size, pooling_mode=poolings), *others]
    made = SentenceTransformer(modules=modules, device="cpu")
    if name == "max":
        made.max_seq_length = 7
    made.save(str(output / name))
    answer(name)


def answer(name):
    opened = SentenceTransformer(str(output / name), device="cpu")
    np.save(output / f"{name}.npy", opened.encode(texts))


def age(folder):
    """Turns the files of a folder into those of version 2: the model in `0_Transformer`."""
    (folder / "0_Transformer").mkdir()
    for path in folder.iterdir():
        if path.is_file() and path.name not in (
            "modules.json",
            "config_sentence_transformers.json",
        ):
            shutil.move(path, folder / "0_Transformer")
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = "0_Transformer"
    for module in modules:
        module["type"] = "sentence_transformers.models." + module["type"].rpartition(".")[2]
    (folder / "modules.json").write_text(json.dumps(modules))
    names = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    pooling = {f"pooling_mode_{key}": key == "mean_tokens" for key in names}
    pooling["word_embedding_dimension"] = size
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    options = {"max_seq_length": 9, "do_lower_case": True}
    (folder / "0_Transformer" / "sentence_bert_config.json").write_text(json.dumps(options))


save("mean", "mean", Normalize())
save("cls", "cls")
save("max", "max")
save("concatenated", ("cls", "mean"), Normalize())
save("old", "mean", Normalize())
age(output / "old")
answer("old")
