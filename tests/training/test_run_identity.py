"""The identity of a run, and the errors and logs when it has changed."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil

import pytest

from albert_tf import classification, pretraining
from albert_tf.checkpoints import trained_with
from albert_tf.checkpoints.trained_with import TrainedWith
from albert_tf.config import AlbertConfig
from albert_tf.training import run_identity

CONFIG = AlbertConfig(vocab_size=97, hidden_size=12, num_attention_heads=4)
DATA = TrainedWith(
    {"vocabulary": "97 entries, sha256 0a", "training data": "sha256 0b"},
    {"vocabulary": "/there/vocab.txt", "training data": "/there/train.tsv"},
)


@pytest.fixture(name="settings")
def make_settings(tmp_path):
    """Settings whose folder has a file named like a checkpoint of step 20."""
    CONFIG.to_json_file(str(tmp_path / "config.json"))
    add_checkpoint(tmp_path, "model.ckpt-20")
    add_checkpoint(tmp_path, "init")
    return pretraining.Settings(
        albert_config_file=str(tmp_path / "config.json"),
        input_file="unused",
        output_dir=str(tmp_path),
        init_checkpoint=str(tmp_path / "init"),
    )


def add_checkpoint(folder, name):
    (folder / f"{name}.index").write_text(f"content of {name}")
    (folder / f"{name}.data-00000-of-00001").write_text("")


def describe(settings, known=DATA, precision="float32", config=CONFIG):
    return run_identity.describe(settings, config, precision, known)


def check(settings, now, **changes):
    return run_identity.check(dataclasses.replace(settings, **changes), now)


def test_an_identity_has_only_what_affects_the_result(settings):
    found = describe(settings)
    names = {"learning_rate", "seed", "optimizer", "num_train_steps", "train_batch_size"}
    names |= {"precision", "config", "init_checkpoint", "vocabulary", "training data"}
    assert names < set(found.identity)
    assert found.identity["learning_rate"] == "0.00176"
    assert found.identity["precision"] == "float32"
    assert not {"output_dir", "log_steps", "threads", "do_eval"} & set(found.identity)
    assert found.others["log_steps"] == "0"
    assert set(found.paths) == {"config", "init_checkpoint", "vocabulary", "training data"}


def test_the_same_run_may_be_moved(settings, tmp_path, monkeypatch):
    trained_with.write(str(tmp_path), describe(settings))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "moved")
    same = dataclasses.replace(
        settings,
        albert_config_file="moved/config.json",
        init_checkpoint="moved/init",
        output_dir="moved",
        learning_rate=0.00176,
        precision="auto",
        log_steps=7,
        threads=1,
    )
    assert check(same, describe(same)) == {}


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"learning_rate": 0.5}, r"learning_rate +0\.00176 +0\.5\n"),
        ({"seed": 1}, r"seed +12345 +1\n"),
        ({"optimizer": "adamw"}, r"optimizer +lamb +adamw\n"),
        ({"train_batch_size": 8}, r"train_batch_size +4096 +8\n"),
        ({"num_train_steps": 40}, r"num_train_steps +125000 +40\n"),
        (
            {"init_checkpoint": None},
            r"init_checkpoint:?\s.*digest \w+ \(/.*/init\)\s+(now +)?none\n",
        ),
    ],
)
def test_the_error_for_another_setting_has_both_values(settings, changes, row):
    trained_with.write(settings.output_dir, describe(settings))
    now = describe(dataclasses.replace(settings, **changes))
    with pytest.raises(ValueError, match="contains a run with other settings:") as error:
        check(settings, now)
    error.match(row)
    error.match("Choose another --output_dir, or pass --allow_changed_settings")
    assert list(check(settings, now, allow_changed_settings=True)) == list(changes)


@pytest.mark.parametrize("name", ["vocabulary", "training data"])
def test_the_error_for_other_content_has_both_paths(settings, name):
    trained_with.write(settings.output_dir, describe(settings))
    other = TrainedWith(DATA.identity | {name: "other"}, DATA.paths | {name: "/here/other"})
    with pytest.raises(ValueError, match=rf"(?s){name}.*sha256 0\w \(/there/.*other \(/here/oth"):
        check(settings, describe(settings, other))


def test_another_precision_or_initial_checkpoint_is_rejected(settings, tmp_path):
    trained_with.write(str(tmp_path), describe(settings))
    with pytest.raises(ValueError, match=r"precision +float32 +bfloat16"):
        check(settings, describe(settings, precision="bfloat16"))
    (tmp_path / "init.index").write_text("trained on since")
    with pytest.raises(ValueError, match=r"(?s)init_checkpoint.*digest \w+ .* digest"):
        check(settings, describe(settings))
    with pytest.raises(FileNotFoundError, match="none: no such checkpoint"):
        describe(dataclasses.replace(settings, init_checkpoint="none"))


def test_unknown_identities_are_not_compared(settings, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    other = describe(dataclasses.replace(settings, seed=1))
    assert check(settings, other) == {}
    assert "has no trained_with.json: cannot check whether" in caplog.text
    trained_with.write(str(tmp_path), describe(settings, TrainedWith({})))
    assert check(settings, describe(settings)) == {}


def test_a_folder_without_a_checkpoint_is_a_new_run(settings, tmp_path):
    trained_with.write(str(tmp_path), describe(settings))
    (tmp_path / "model.ckpt-20.index").unlink()
    assert check(settings, describe(dataclasses.replace(settings, seed=1))) == {}
    add_checkpoint(tmp_path, "model.ckpt-best")
    with pytest.raises(ValueError, match=r"seed +12345 +1"):
        check(settings, describe(dataclasses.replace(settings, seed=1)))
    add_checkpoint(tmp_path, "model.ckpt-interrupted_3")
    with pytest.raises(ValueError, match=r"train_batch_size +4096 +8"):
        check(settings, describe(dataclasses.replace(settings, train_batch_size=8)))


def test_before_the_first_step_only_the_initialization_counts(settings, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    (tmp_path / "model.ckpt-20.index").rename(tmp_path / "model.ckpt-0.index")
    trained_with.write(str(tmp_path), describe(settings))
    assert check(settings, describe(dataclasses.replace(settings, train_batch_size=8))) == {}
    assert "nothing has been trained yet" in caplog.text
    with pytest.raises(ValueError, match=r"seed +12345 +1"):
        check(settings, describe(dataclasses.replace(settings, seed=1)))


def test_other_changes_are_logged(settings, caplog):
    caplog.set_level("INFO", logger="absl")
    trained_with.write(settings.output_dir, describe(settings))
    moved = TrainedWith(DATA.identity, DATA.paths | {"training data": "/elsewhere"})
    assert check(settings, describe(dataclasses.replace(settings, log_steps=7), moved)) == {}
    (record,) = caplog.records
    assert "do not affect the result" in record.message
    rows = [line.split() for line in record.message.splitlines()[2:]]
    assert rows == [
        ["log_steps", "0", "7"],
        ["training", "data", "/there/train.tsv", "/elsewhere"],
    ]


def test_a_model_needs_its_vocabulary_but_not_its_learning_rate(settings, tmp_path):
    trained_with.write(str(tmp_path), describe(settings))
    names = {"vocabulary", "do_lower_case"}
    other = describe(dataclasses.replace(settings, seed=1, learning_rate=0.5))
    assert run_identity.check_model(str(tmp_path), other, names, False) == {}
    other = describe(settings, TrainedWith({"vocabulary": "9 entries"}, {"vocabulary": "/here"}))
    with pytest.raises(ValueError, match="was trained with another vocabulary") as error:
        run_identity.check_model(str(tmp_path), other, names, False)
    error.match(r"vocabulary +97 entries, sha256 0a \(/there/vocab.txt\) +9 entries \(/here\)")
    assert run_identity.check_model(str(tmp_path), other, names, True).keys() == {"vocabulary"}
    assert run_identity.check_model(str(tmp_path / "foreign"), other, names, False) == {}


def test_weights_come_from_the_trained_run_or_from_the_init_checkpoint(settings, tmp_path):
    init = {"init_checkpoint": str(tmp_path / "first" / "model.ckpt-best")}
    cases = [
        ("model.ckpt-20", {}, str(tmp_path)),
        ("model.ckpt-20", init, str(tmp_path)),
        ("model.ckpt-0", init, str(tmp_path / "first")),
        ("model.ckpt-0", init | {"do_train": False}, str(tmp_path)),
        ("model.ckpt-0", {}, None),
        ("other", {}, None),
        ("other", init, str(tmp_path / "first")),
        ("other", {"init_checkpoint": str(tmp_path)}, str(tmp_path)),
    ]
    for name, changes, expected in cases:
        for path in tmp_path.glob("*.index"):
            path.rename(tmp_path / f"{name}.index")
        given = dataclasses.replace(settings, **{"init_checkpoint": None} | changes)
        assert run_identity.weights_folder(given) == expected, (name, changes)


def test_initializing_from_a_run_needs_its_vocabulary(settings, tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    add_checkpoint(first, "model.ckpt-best")
    trained_with.write(str(first), DATA)
    start = dataclasses.replace(
        settings, init_checkpoint=str(first), output_dir=str(tmp_path / "new"), do_train=True
    )
    assert run_identity.check(start, describe(start)) == {}
    other = describe(start, TrainedWith({"vocabulary": "9 entries"}))
    with pytest.raises(ValueError, match="first was trained with another vocabulary"):
        run_identity.check(start, other)


def test_labels_may_only_change_where_a_new_head_is_trained(settings, tmp_path):
    trained_with.write(str(tmp_path), describe(settings, DATA.with_labels(("no", "yes"))))
    for labels in (("yes", "no"), ("no", "yes", "?")):
        now = describe(settings, DATA.with_labels(labels))
        for changes in ({"do_train": True}, {"do_train": False, "do_eval": True}):
            with pytest.raises(ValueError, match=r'label list +\["no", "yes"\] +\["') as error:
                check(settings, now, **changes)
            error.match(re.escape(json.dumps(labels)))
        new = {"output_dir": str(tmp_path / "new"), "init_checkpoint": str(tmp_path)}
        assert check(settings, now, do_train=True, **new) == {}


def test_a_model_of_another_task_is_not_resumed_or_evaluated(settings, tmp_path):
    trained_with.write(str(tmp_path), describe(settings, DATA.with_task("spans")))
    now = describe(settings, DATA.with_task("regression"))
    for changes in ({"do_train": True}, {"do_train": False, "do_eval": True}):
        with pytest.raises(ValueError, match=r"task +spans +regression"):
            check(settings, now, **changes)
    trained_with.write(str(tmp_path), describe(settings, DATA))  # of an earlier version
    assert check(settings, now, do_train=True) == {}


def test_a_vocabulary_of_another_size_causes_a_warning(settings, tmp_path, caplog):
    run_identity.warn_of_vocabulary(settings, 97, 97)
    assert not caplog.records
    run_identity.warn_of_vocabulary(settings, 61, 97)
    (record,) = caplog.records
    assert "The vocabulary has 61 entries, but the model has vocab_size=97." in record.message
    assert record.message.endswith(f"use the vocabulary that came with {tmp_path}.")
    trained_with.write(str(tmp_path), DATA)  # then the vocabulary itself is compared
    run_identity.warn_of_vocabulary(settings, 61, 97)
    fresh = dataclasses.replace(settings, init_checkpoint=None, output_dir=str(tmp_path / "new"))
    run_identity.warn_of_vocabulary(fresh, 61, 97)
    assert len(caplog.records) == 1


def test_mean_pooling_makes_the_sequence_length_part_of_the_model():
    settings = classification.Settings(task_name="cola", data_dir="cola", output_dir="out")
    assert settings.names_for_model == {"do_lower_case", "use_pooled_output"}
    settings = dataclasses.replace(settings, use_pooled_output=False)
    assert settings.names_for_model == {"do_lower_case", "use_pooled_output", "max_seq_length"}


def test_a_table_has_the_names_that_differ_in_any_column():
    columns = {
        "worker 0": {"seed": "1", "rate": "0.1", "data": "a"},
        "worker 1": {"seed": "1", "rate": "0.25", "data": "a"},
        "worker 2": {"seed": "1", "rate": "0.1"},
    }
    assert run_identity.differences_table(columns).splitlines() == [
        "        worker 0  worker 1  worker 2",
        "  data  a         a         -",
        "  rate  0.1       0.25      0.1",
    ]
    assert run_identity.differences_table({"a": {"x": "1"}, "b": {"x": "1"}}) == ""
    wide = {"before": {"x": "1" * 60, "name": "a"}, "now": {"x": "2" * 60, "name": "b"}}
    assert run_identity.differences_table(wide).splitlines() == [
        "  name:",
        "    before  a",
        "    now     b",
        "  x:",
        f"    before  {'1' * 60}",
        f"    now     {'2' * 60}",
    ]
