r"""Asks a classifier behind TensorFlow Serving for the labels of texts. Needs nothing but Python.

    python examples/serving_client.py --url=http://localhost:8501/v1/models/mrpc \
        --input_file=pairs.tsv

A line of the file is a text, or two texts with a tab between them. Prints the label of each line,
its probability and the line. docs/serving.md says how to start the server.
"""

import argparse
import json
import urllib.error
import urllib.request
from typing import Any

BATCH_SIZE = 32
TIMEOUT = 60  # seconds


def predict(url: str, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Returns the outputs of the signature `texts`, name → a value for each pair of texts.

    Args:
        url: of the model, `http://<host>:8501/v1/models/<name>`.
        pairs: texts and their second texts, "" where there is none.

    Raises:
        OSError: the server cannot be reached, or does not take the request; says why.
    """
    first, second = zip(*pairs, strict=True)
    columns = {"signature_name": "texts", "inputs": {"text_a": first, "text_b": second}}
    request = urllib.request.Request(f"{url}:predict", json.dumps(columns).encode())
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            outputs: dict[str, Any] = json.load(response)["outputs"]
            return outputs
    except urllib.error.HTTPError as error:
        raise OSError(f"{url}: {error.read().decode(errors='replace')}") from None
    except urllib.error.URLError as error:
        raise OSError(f"{url}: {error.reason}") from None


def main(arguments: list[str] | None = None) -> None:
    """Labels the lines of a file, a batch at a time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", required=True, help="URL of the model at the server")
    parser.add_argument("--input_file", required=True, help="a text a line, or two with a tab")
    given = parser.parse_args(arguments)
    with open(given.input_file, encoding="utf-8") as stream:
        lines = stream.read().splitlines()
    for begin in range(0, len(lines), BATCH_SIZE):
        batch = lines[begin : begin + BATCH_SIZE]
        pairs = [(text, second) for text, _, second in (line.partition("\t") for line in batch)]
        outputs = predict(given.url, pairs)
        for line, label, scores in zip(
            batch, outputs["labels"], outputs["probabilities"], strict=True
        ):
            print(f"{label}\t{max(scores):.4f}\t{line}")


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        raise SystemExit(f"serving_client.py: {error}") from None
