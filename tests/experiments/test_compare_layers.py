"""What the layers of models do: compared with plain formulas, and what must not change it."""

from __future__ import annotations

import dataclasses
import math
import shutil

import compare_layers
import numpy as np
import pytest
from compare_layers import MEASURES, Settings, sum_over_tokens

from albert_tf.model.config import AlbertConfig
from albert_tf.model.modeling import AlbertEncoder
from tests.conftest import TINY_SHAPE
from tests.model.test_sharing import random_weights, save
from tests.numpy_albert import RecordingAlbert

TEXTS = ["The sea", "Old people say that the river", "A small boat", "They measured it once"]
TINY = AlbertConfig(**TINY_SHAPE)
CONFIGS = {
    "two blocks per layer": dataclasses.replace(TINY, inner_group_num=2),
    "pre-LN": dataclasses.replace(TINY, layout="albert_zh", ln_type="preln", num_hidden_groups=1),
    "dropout in training": dataclasses.replace(
        TINY, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3
    ),
}


def plain_sums(config, weights, batch):
    """The sums of all measures, by loops over tokens and heads."""
    model = RecordingAlbert(config, weights)
    model.encode(*(batch[name] for name in ("input_ids", "input_mask", "segment_ids")))
    sums = np.zeros((len(model.transitions), len(MEASURES)))
    for layer, ((x, y), probs) in enumerate(zip(model.transitions, model.probs, strict=True)):
        for b, i in zip(*np.nonzero(batch["input_mask"]), strict=True):
            u, v = x[b, i], y[b, i]
            cosine = sum(u * v) / math.sqrt(sum(u * u) * sum(v * v))
            entropy = gap = 0
            for head in probs[b, :, i, : batch["input_mask"][b].sum()]:
                entropy -= sum(p * math.log(p) for p in head) / len(probs[b])
                gap += sum(p * abs(i - j) for j, p in enumerate(head)) / len(probs[b])
            distance = math.sqrt(sum((u - v) ** 2))
            sums[layer] += distance, math.degrees(math.acos(cosine)), cosine, entropy, gap
    return sums


@pytest.mark.ci
@pytest.mark.parametrize("name", CONFIGS)
def test_numbers_are_those_of_plain_formulas(name, tiny_batch):
    encoder = AlbertEncoder(CONFIGS[name])
    weights = random_weights(encoder)
    expected = plain_sums(CONFIGS[name], weights, tiny_batch)
    assert len(expected) == TINY.num_hidden_layers * CONFIGS[name].inner_group_num
    np.testing.assert_allclose(sum_over_tokens(encoder, tiny_batch), expected, rtol=1e-4)


@pytest.mark.ci
def test_the_table_has_a_row_for_every_layer_of_every_model(tmp_path, toy_spm_model):
    (tmp_path / "text.txt").write_text("\n\n".join(TEXTS) + "\n \n", encoding="utf-8")
    for name, layers in {"a|b": 3, "deep": 5}.items():
        config = dataclasses.replace(TINY, num_hidden_layers=layers, num_hidden_groups=1)
        save(tmp_path / name, config, random_weights(AlbertEncoder(config)))
        shutil.copy(toy_spm_model, tmp_path / name)
    out = tmp_path / "new" / "out"
    settings = Settings(
        model_dir=(str(tmp_path / "a|b"), str(tmp_path / "deep")),
        input_file=str(tmp_path / "text.txt"),
        output_dir=str(out),
        max_seq_length=13,
    )
    assert compare_layers.run(settings) == str(out / "layers.md")
    text = (out / "layers.md").read_text(encoding="utf-8").replace("\\|", "/")
    layers = text.split("| --- |\n")[2].split("\n\n")[0]
    numbers = [line.split(" | ")[:2] for line in layers.splitlines()]
    expected = [["| a/b", str(n)] for n in range(1, 4)] + [["| deep", str(n)] for n in range(1, 6)]
    assert numbers == expected
    for name in compare_layers.PLOTS:
        assert (out / name).read_bytes().startswith(b"\x89PNG")
