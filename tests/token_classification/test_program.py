"""Token classification from Python, without a command line."""

from __future__ import annotations

from albert_tf import token_classification
from albert_tf.config import AlbertConfig
from albert_tf.token_classification.program import make_task
from albert_tf.token_classification.task import Tags, remember_tags
from tests.script_runner import tensors

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] 河 船 雨 宽 谁 的 是 不".split()


def test_tokens_are_labeled_from_python(config_file, tmp_path):
    model, data, out = tmp_path / "albert_tiny_zh", tmp_path / "msra", tmp_path / "out"
    for folder in (model, data):
        folder.mkdir()
    (model / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    for split in ("train", "dev"):
        (data / f"{split}.txt").write_text("河 B-LOC\n的 O\n船 O\n\n雨 O\n" * 4, encoding="utf-8")
    settings = token_classification.Settings(
        data_dir=str(data),
        albert_config_file=str(config_file),
        vocab_file=str(model / "vocab.txt"),
        output_dir=str(out),
        max_seq_length=17,
        train_batch_size=5,
        train_step=3,
        precision="float32",
    )
    result = token_classification.run(settings)
    names = {"precision", "recall", "f1"}
    assert set(result.metrics) == {*names, "accuracy", *(f"{name}_LOC" for name in names)}
    assert result.output_dir == str(out)
    assert str(result).startswith(f"best checkpoint of {out}\naccuracy = ")
    assert tensors(out / "model.ckpt-best")["global_step"] == result.step


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
    assert tags(do_train=True) == Tags(("B-LOC", "O"), "iob2")
