"""Descriptions of models: parameters as in the tables of the paper."""

from __future__ import annotations

import dataclasses

import pytest

from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.cli.describe import Settings, run
from albert_tf.model.config import AlbertConfig
from tests.conftest import TINY_SHAPE

# Tables 1, 3 and 4 of the paper: model, what is shared, embedding size, million parameters. It has
# 60 and 235 million for xlarge and xxlarge, which no way of counting their weights gives.
PARAMETERS = [
    *(("base", "all", 128, 12), ("large", "all", 128, 18)),
    *(("xlarge", "all", 128, 59), ("xxlarge", "all", 128, 223)),
    *(("base", "all", 64, 10), ("base", "all", 256, 16), ("base", "all", 768, 31)),
    *(("base", "none", 64, 87), ("base", "none", 128, 89), ("base", "none", 256, 93)),
    *(("base", "attention", 128, 64), ("base", "attention", 768, 83)),
    *(("base", "ffn", 128, 38), ("base", "ffn", 768, 57)),
    *(("base", "none", 768, 108), ("large", "none", 1024, 334)),  # BERT
]


@pytest.mark.parametrize(("name", "share", "size", "parameters"), PARAMETERS)
def test_models_have_the_papers_numbers_of_parameters(name, share, size, parameters):
    """Without the pooler if nothing is shared."""
    albert = AlbertConfig.from_json_file(f"albert_{name}")
    config = dataclasses.replace(albert, embedding_size=size, share=share)
    pooler = config.weights_by_part["pooler"] if share == "none" else 0
    assert round((config.num_weights - pooler) / 1e6) == parameters


def test_a_folder_a_checkpoint_and_a_config_are_described_alike(tmp_path):
    config = AlbertConfig(**TINY_SHAPE)
    config.to_json_file(str(tmp_path / "albert_config.json"))
    save_checkpoint(str(tmp_path / "model.ckpt-best"), {"x": [0.0]})
    names = ["", "/model.ckpt-best", "/albert_config.json"]
    texts = [run(Settings(model=f"{tmp_path}{name}", max_seq_length=7)) for name in names]
    assert len({text.partition(":")[2] for text in texts}) == 1
    assert f"{config.num_weights:,}" in texts[0]


def test_errors_name_the_model(tmp_path):
    with pytest.raises(FileNotFoundError, match="albert_bse: neither a file nor a config"):
        run(Settings(model="albert_bse"))
    with pytest.raises(FileNotFoundError, match="contains no checkpoint"):
        run(Settings(model=str(tmp_path)))
    with pytest.raises(ValueError, match="513"):
        run(Settings(model="albert_base", max_seq_length=513))
