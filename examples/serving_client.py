r"""Classifies texts with TensorFlow Serving. Requires only Python's standard library.

    python examples/serving_client.py --url=http://localhost:8501/v1/models/mrpc \
        --input_file=pairs.tsv

Each line of the file is a text, or two texts separated by a tab. Prints the label of each line, its
probability and the line itself. docs/serving.md describes how to start the server.
"""

import argparse
import json
import urllib.error
import urllib.request
from typing import Any

BATCH_SIZE = 32
TIMEOUT = 60  # seconds


def predict(url: str, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Returns the outputs of the signature `texts`, name → one value per pair of texts.

    Args:
        url: URL of the model, `http://<host>:8501/v1/models/<name>`.
        pairs: first and second texts; the second text is "" if there is none.

    Raises:
        OSError: the server cannot be reached or refuses the request; the message has the reason.
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
    """Classifies the lines of a file in batches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", required=True, help="URL of the model on the server")
    parser.add_argument(
        "--input_file",
        required=True,
        help="file with one text, or two separated by a tab, per line",
    )
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
