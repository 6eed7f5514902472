"""The client of TensorFlow Serving, beside a small server that answers as it does."""

from __future__ import annotations

import pytest
import serving_client
import tensorflow as tf

from albert_tf.serving.signatures import TEXTS
from tests.serving.serving_rest import served


class Signature:
    """Knows the longer text of a pair."""

    structured_input_signature = (
        (),
        dict.fromkeys(("text_a", "text_b"), tf.TensorSpec([None], tf.string)),
    )

    def __call__(self, text_a, text_b):
        lengths = tf.strings.length(tf.stack([text_a, text_b], axis=1), "UTF8_CHAR")
        longer = tf.argmax(lengths, axis=1)
        return {
            "probabilities": tf.nn.softmax(tf.cast(lengths, tf.float32)),
            "predictions": longer,
            "labels": tf.gather(["first", "second"], longer),
        }


def test_every_line_of_a_file_gets_its_label(tmp_path, capsys):
    path = tmp_path / "pairs.tsv"
    lines = ["多大了\t你", "one\tmore", "alone", *(["one\tmore"] * serving_client.BATCH_SIZE)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with served({TEXTS: Signature()}, "pairs") as url:
        serving_client.main([f"--url={url}", f"--input_file={path}"])
        printed = capsys.readouterr().out.splitlines()
        with pytest.raises(OSError, match=r"/v1/models/other: .*Malformed request"):
            serving_client.predict(url.replace("pairs", "other"), [("a", "")])
    assert printed[:3] == [
        "first\t0.8808\t多大了\t你",
        "second\t0.7311\tone\tmore",
        "first\t0.9933\talone",
    ]
    assert len(printed) == len(lines)
    with pytest.raises(OSError, match="refused"):
        serving_client.predict(url, [("a", "")])
