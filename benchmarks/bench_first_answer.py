r"""Measures the first answers of an opened model, for texts of lengths that it has not met.

    ALBERT_PEER_PYTHON=peers/bin/python python benchmarks/bench_first_answer.py work/mrpc \
        --before=../base --exports=work/mrpc_openvino --hugging_face=work/mrpc_hf

Each contender has a process of its own for each turn, which opens the model and answers one text of
each length twice. Contenders alternate. The table has the medians, in CPU seconds of all threads:
the first answer, the second one to the same text, the first and the second answers to all lengths.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import contenders
import reporting

ENGINES = ("tensorflow", "openvino")
LENGTHS = range(6, 126, 8)  # tokens: each in another multiple of 8
TRANSFORMERS = "transformers"


def opened(kind: str, folder: str) -> Callable[[str], object]:
    """Returns what answers a text: a predictor with an engine, or transformers."""
    if kind != TRANSFORMERS:
        import albert_tf

        return albert_tf.load_predictor(folder, engine=kind)
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def answer(text: str) -> object:
        with torch.inference_mode():
            return model(**tokenizer([text], return_tensors="pt")).logits.softmax(-1).tolist()

    return answer


def work(kind: str, folder: str) -> None:
    """Answers all lengths twice, and prints the CPU seconds of each answer."""
    answer = opened(kind, folder)
    seconds = []
    for length in LENGTHS:
        for _ in range(2):
            begin = time.process_time()
            answer(" ".join(["river"] * (length - 2)))
            seconds.append(time.process_time() - begin)
    print(json.dumps(seconds))


def measure(python: str, checkout: str, kind: str, folder: str) -> list[float]:
    """Returns first answer, second answer, and the sums of both for all lengths."""
    done = subprocess.run(
        [python, os.path.abspath(__file__), "--worker", kind, folder],
        env=os.environ | {"PYTHONPATH": checkout, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    seconds = json.loads(done.stdout.splitlines()[-1])
    return [*seconds[:2], sum(seconds[::2]), sum(seconds[1::2])]


def main() -> None:
    """Measures, and prints a JSON line for each contender."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="folder of a classifier")
    parser.add_argument("--exports", default="", help="exported folders, separated by commas")
    parser.add_argument("--hugging_face", default="", help="the same model, for transformers")
    parser.add_argument("--before", default="", help="another checkout of this repository")
    parser.add_argument("--rounds", type=int, default=3, help="number of turns")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    reporting.add_flag(parser)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker, arguments.folder)
        return
    here, ours = sys.executable, contenders.ROOT
    acts = {kind: (here, ours, kind, arguments.folder) for kind in ENGINES}
    if arguments.before:
        before = os.path.abspath(arguments.before)
        acts["before, tensorflow"] = (here, before, ENGINES[0], arguments.folder)
    for folder in filter(None, arguments.exports.split(",")):
        acts[os.path.basename(folder)] = (here, ours, "auto", folder)
    if arguments.hugging_face:
        peer = os.environ.get(contenders.PEER_PYTHON, sys.executable)
        acts[TRANSFORMERS] = (peer, ours, TRANSFORMERS, arguments.hugging_face)
    turns = [{name: measure(*act) for name, act in acts.items()} for _ in range(arguments.rounds)]
    names = "first answer", "second", f"first to {len(LENGTHS)} lengths", "second to each"
    rows = []
    for name in acts:
        medians = map(statistics.median, zip(*(turn[name] for turn in turns), strict=True))
        figures = dict(zip(names, (round(value, 3) for value in medians), strict=True))
        reporting.print_line("first_answer", contender=name, **figures)
        rows.append({"contender": name} | figures)
    reporting.write_table(arguments.results, rows)


if __name__ == "__main__":
    main()
