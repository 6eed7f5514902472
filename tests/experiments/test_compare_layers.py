"""What the layers of models do: compared with plain formulas, and what must not change it."""

from __future__ import annotations

import dataclasses
import math
import shutil

import compare_layers
import numpy as np
import pytest
from compare_layers import MEASURES, Settings, measure, sum_over_tokens

from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertEncoder
from tests.conftest import TINY_SHAPE
from tests.numpy_albert import NumpyAlbert
from tests.test_sharing import random_weights, save

TEXTS = ["The sea", "Old people say that the river", "A small boat", "They measured it once"]
TINY = AlbertConfig(**TINY_SHAPE | {"num_hidden_groups": 1})
PRE_LN = dataclasses.replace(TINY, layout="albert_zh", ln_type="preln")
CONFIGS = {
    "groups": AlbertConfig(**TINY_SHAPE),
    **{share: dataclasses.replace(TINY, share=share) for share in ("all", "none")},
    **{share: dataclasses.replace(TINY, share=share) for share in ("attention", "ffn")},
    "two blocks per layer": dataclasses.replace(TINY, inner_group_num=2),
    "pre-LN": PRE_LN,
    "dropout in training": dataclasses.replace(
        TINY, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3
    ),
}


class RecordingAlbert(NumpyAlbert):
    """Keeps the input, the output and the attention probabilities of every block."""

    def __init__(self, config, weights):
        super().__init__(config, weights)
        self.transitions, self.probs = [], []

    def block(self, x, *arguments):
        y = super().block(x, *arguments)
        self.transitions.append((x, y))
        return y

    def dropout(self, x, rate):  # nothing is dropped here; only the probabilities have four axes
        self.probs += [x] if x.ndim == 4 else []
        return x


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
    config = CONFIGS[name]
    encoder = AlbertEncoder(config)
    weights = random_weights(encoder)
    expected = plain_sums(config, weights, tiny_batch)
    assert len(expected) == config.num_hidden_layers * config.inner_group_num
    np.testing.assert_allclose(sum_over_tokens(encoder, tiny_batch), expected, rtol=1e-4)


def test_padding_and_the_size_of_batches_do_not_change_the_means(toy_tokenizer):
    encoder = AlbertEncoder(TINY)
    random_weights(encoder)
    alone = measure(encoder, toy_tokenizer, TEXTS, 13, batch_size=1)  # without padding
    assert alone.shape == (TINY.num_hidden_layers, len(MEASURES))
    for batch_size in (3, 4):
        found = measure(encoder, toy_tokenizer, TEXTS, 13, batch_size)
        np.testing.assert_allclose(found, alone, rtol=1e-5)


def test_what_is_at_padding_does_not_change_the_sums(tiny_batch):
    encoder = AlbertEncoder(TINY)
    random_weights(encoder)
    others = np.where(tiny_batch["input_mask"] == 1, tiny_batch["input_ids"], 17)
    found = sum_over_tokens(encoder, tiny_batch | {"input_ids": others})
    np.testing.assert_array_equal(found, sum_over_tokens(encoder, tiny_batch))


def test_layers_that_add_nothing_and_attend_evenly(tiny_batch):
    encoder = AlbertEncoder(PRE_LN)
    random_weights(encoder)
    for block in encoder.blocks:
        attention, ffn = block.attention, block.feed_forward
        for linear in (attention.query, attention.projection, ffn.projection):
            linear.set_weights([np.zeros_like(array) for array in linear.get_weights()])
    distance, angle, cosine, entropy, gap = sum_over_tokens(encoder, tiny_batch).T
    lengths = tiny_batch["input_mask"].sum(1)
    gaps = [np.abs(np.subtract.outer(np.arange(n), np.arange(n))).sum() / n for n in lengths]
    np.testing.assert_array_equal(distance, 0)
    np.testing.assert_allclose(angle, 0, atol=1e-3)
    np.testing.assert_allclose(cosine, lengths.sum())
    np.testing.assert_allclose(entropy, (lengths * np.log(lengths)).sum(), rtol=1e-6)
    np.testing.assert_allclose(gap, sum(gaps), rtol=1e-6)


@pytest.fixture(scope="module")
def home(tmp_path_factory, toy_spm_model):
    """A text, and three models, the last without a vocabulary."""
    folder = tmp_path_factory.mktemp("layers")
    (folder / "text.txt").write_text("\n\n".join(TEXTS) + "\n \n", encoding="utf-8")
    (folder / "empty.txt").write_text("\n  \n", encoding="utf-8")
    models = {"a|b": {"share": "none"}, "deep": {"num_hidden_layers": 5}, "c": {}}
    for name, changes in models.items():
        config = dataclasses.replace(TINY, **changes)
        save(folder / name, config, random_weights(AlbertEncoder(config)))
        if name != "c":
            shutil.copy(toy_spm_model, folder / name)
    return folder


def settings_of(home, out, models="a|b,deep", text="text.txt", **changes):
    """Settings with paths in the folder; models are separated by commas."""
    paths = tuple(str(home / name) for name in models.split(","))
    return Settings(
        model_dir=paths,
        input_file=str(home / text),
        output_dir=str(out),
        **{"max_seq_length": 13, "batch_size": 3} | changes,
    )


@pytest.mark.ci
def test_the_table_has_a_row_for_every_layer_of_every_model(home, tmp_path):
    out = tmp_path / "new" / "out"
    path = compare_layers.run(settings_of(home, out))
    text = (out / "layers.md").read_text(encoding="utf-8")
    assert path == str(out / "layers.md")
    models, layers = (part.split("\n\n")[0] for part in text.split("| --- |\n")[1:])
    shapes = [line.replace("\\|", "/").split(" | ")[:4] for line in models.splitlines()]
    assert shapes == [["| a/b", "3", "12", "3 + 3"], ["| deep", "5", "12", "1 + 1"]]
    numbers = [line.replace("\\|", "/").split(" | ")[:2] for line in layers.splitlines()]
    expected = [["| a/b", str(n)] for n in range(1, 4)] + [["| deep", str(n)] for n in range(1, 6)]
    assert numbers == expected
    assert "4 lines of text.txt" in text
    assert compare_layers.PAPER in text
    for name in compare_layers.PLOTS:
        assert (out / name).read_bytes().startswith(b"\x89PNG")
        assert f"]({name})" in text
    assert len(list(out.iterdir())) == 3


def test_models_of_one_name_have_their_paths_in_the_table(home, tmp_path):
    shutil.copytree(home / "deep", tmp_path / "deep")
    configs = compare_layers.read_configs([str(home / "deep"), str(tmp_path / "deep")], 13)
    assert list(configs) == [str(home / "deep"), str(tmp_path / "deep")]


def test_only_the_first_lines_are_used(home):
    path = str(home / "text.txt")
    assert compare_layers.read_texts(path, 2) == TEXTS[:2]
    assert compare_layers.read_texts(path, 0) == sorted(TEXTS, key=len)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": "a|b,nothing"}, r"nothing: no such checkpoint\. Expected: a TensorFlow"),
        ({"models": "deep,c"}, r"/c: no vocabulary found\. Looked for .*Add the file"),
        ({"models": "deep,a|b,deep"}, "a model is given twice"),
        ({"text": "empty.txt"}, r"--input_file: .*empty\.txt has no text: expected a sequence"),
        ({"text": "nothing.txt"}, r"--input_file: .*nothing\.txt: no such file"),
        ({"max_seq_length": 14}, r"albert_config\.json: --max_seq_length=14 is larger .*smaller"),
    ],
)
def test_bad_inputs_are_named_before_anything_is_measured(home, tmp_path, changes, message):
    with pytest.raises((ValueError, OSError), match=message) as raised:
        compare_layers.run(settings_of(home, tmp_path / "out", **changes))
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_the_text_is_not_replaced(home, tmp_path):
    shutil.copy(home / "text.txt", tmp_path / "layers.md")
    settings = settings_of(home, tmp_path)
    settings = dataclasses.replace(settings, input_file=str(tmp_path / "layers.md"))
    with pytest.raises(ValueError, match="is an input, --input_file, and would be replaced"):
        compare_layers.run(settings)
