"""Descriptions of models, compared with the tables of the paper and with models in folders."""

from __future__ import annotations

import dataclasses

import pytest

from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.cli.describe import Settings, run
from albert_tf.config import AlbertConfig
from tests.conftest import TINY_SHAPE

# Table 1 of the paper: layers, hidden size, million parameters. It has 60 and 235 million for
# xlarge and xxlarge, which no way of counting their weights gives.
ALBERT = {
    "base": (12, 768, 12),
    "large": (24, 1024, 18),
    "xlarge": (24, 2048, 59),
    "xxlarge": (12, 4096, 223),
}
BERT = {"base": 108, "large": 334}
# Tables 3 and 4, million parameters of base: what is shared → embedding size → parameters.
SHARED = {
    "none": {64: 87, 128: 89, 256: 93, 768: 108},
    "all": {64: 10, 128: 12, 256: 16, 768: 31},
    "attention": {128: 64, 768: 83},
    "ffn": {128: 38, 768: 57},
}


def millions(config):
    """Million parameters as the paper counts them: without the pooler if nothing is shared."""
    is_shared = config.num_hidden_groups < config.num_hidden_layers or config.share != "groups"
    pooler = 0 if is_shared else config.weights_by_part["pooler"]
    return round((config.num_weights - pooler) / 1e6)


@pytest.mark.parametrize("name", ALBERT)
def test_the_models_of_the_paper_have_its_sizes(name):
    layers, hidden, parameters = ALBERT[name]
    config = AlbertConfig.from_json_file(f"albert_{name}")
    assert (config.num_hidden_layers, config.hidden_size) == (layers, hidden)
    assert (config.embedding_size, millions(config)) == (128, parameters)


@pytest.mark.parametrize("name", BERT)
def test_bert_is_an_albert_that_shares_nothing(name):
    albert = AlbertConfig.from_json_file(f"albert_{name}")
    config = dataclasses.replace(albert, embedding_size=albert.hidden_size, share="none")
    assert millions(config) == BERT[name]


@pytest.mark.parametrize("share", SHARED)
def test_sharing_and_embedding_sizes_have_the_papers_parameters(share):
    base = AlbertConfig.from_json_file("albert_base")
    for size, parameters in SHARED[share].items():
        config = dataclasses.replace(base, embedding_size=size, share=share)
        assert millions(config) == parameters, size


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
