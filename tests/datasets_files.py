"""Writes the rows of a JSON file in every form that `datasets` has; runs where it is installed.

    python datasets_files.py rows.json FOLDER

The JSON has split → rows of MRPC. Each subfolder of FOLDER becomes a data set.
"""

import json
import os
import sys

import datasets

SHARDS = 2


def main(path, folder):
    """Writes the folders."""
    with open(path, encoding="utf-8") as stream:
        rows = json.load(stream)
    features = datasets.Features(
        {
            "sentence1": datasets.Value("string"),
            "sentence2": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["not_equivalent", "equivalent"]),
            "idx": datasets.Value("int32"),
        }
    )
    splits = datasets.DatasetDict(
        {
            split: datasets.Dataset.from_list(listed, features=features)
            for split, listed in rows.items()
        }
    )

    def place(*names):
        target = os.path.join(folder, *names)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        return target

    splits.save_to_disk(place("saved"), num_shards=dict.fromkeys(splits, SHARDS))
    for split, dataset in splits.items():
        for number in range(SHARDS):
            shard = dataset.shard(SHARDS, number, contiguous=True)
            name = f"{split}-{number:05}-of-{SHARDS:05}.parquet"
            shard.to_parquet(place("hub", "mrpc", name))
            shard.to_parquet(place("data_folder", "data", name))
        dataset.to_parquet(place("parquet", f"{split}.parquet"))
        dataset.to_json(place("lines", f"{split}.jsonl"))
        dataset.to_json(place("array", f"{split}.json"), lines=False)
        dataset.to_json(place("compressed", f"{split}.jsonl.gz"), compression="gzip")
        dataset.to_csv(place("csv", f"{split}.csv"))


if __name__ == "__main__":
    main(*sys.argv[1:])
