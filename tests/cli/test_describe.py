"""Descriptions of models; tests/test_docs.py has numbers of parameters."""

from __future__ import annotations

from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.cli.describe import Settings, run
from albert_tf.model.config import AlbertConfig
from tests.conftest import TINY_SHAPE


def test_a_folder_a_checkpoint_and_a_config_are_described_alike(tmp_path):
    config = AlbertConfig(**TINY_SHAPE)
    config.to_json_file(str(tmp_path / "albert_config.json"))
    save_checkpoint(str(tmp_path / "model.ckpt-best"), {"x": [0.0]})
    names = ["", "/model.ckpt-best", "/albert_config.json"]
    texts = [run(Settings(model=f"{tmp_path}{name}", max_seq_length=7)) for name in names]
    assert len({text.partition(":")[2] for text in texts}) == 1
    assert f"{config.num_weights:,}" in texts[0]
