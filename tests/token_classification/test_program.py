"""Which labels the program uses."""

from __future__ import annotations

from albert_tf.token_classification.program import make_task

from albert_tf import token_classification
from albert_tf.config import AlbertConfig
from albert_tf.token_classification.tags import Tags
from albert_tf.token_classification.task import remember_tags


def test_a_trained_model_has_its_labels_and_training_reads_them(tmp_path, config_file):
    config = AlbertConfig.from_json_file(str(config_file))
    remembered = Tags(("B-PER", "O"), "iob2")
    (tmp_path / "model").mkdir()
    remember_tags(str(tmp_path / "model"), remembered)
    (tmp_path / "train.txt").write_text("河 B-LOC\n的 O\n", encoding="utf-8")

    def tags(**values):
        settings = token_classification.Settings(
            data_dir=str(tmp_path),
            init_checkpoint=str(tmp_path / "model" / "model.ckpt-best"),
            output_dir=str(tmp_path / "out"),
            **values,
        )
        return make_task(settings, config, None).tags

    assert tags(do_predict=True) == remembered
    assert tags(do_train=True) == Tags(("B-LOC", "O"), "iob2", "characters")
