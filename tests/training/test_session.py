"""Setup of devices, precision and trainer from the settings of a program."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf import classification, pretraining
from albert_tf.checkpoints import run_record, store
from albert_tf.checkpoints.names import variable_name
from albert_tf.checkpoints.run_record import TrainedWith
from albert_tf.config import AlbertConfig
from albert_tf.modeling import AlbertForPretraining
from albert_tf.optimization import LambAlbertZh, WarmUpPolynomialDecay
from albert_tf.training import session
from albert_tf.training.settings import RunSettings

CONFIG = AlbertConfig(vocab_size=97, hidden_size=12, num_attention_heads=4)
DATA = TrainedWith(
    {"vocabulary": "97 entries, sha256 0a", "training data": "sha256 0b"},
    {"vocabulary": "/there/vocab.txt", "training data": "/there/train.tsv"},
)
SCHEDULE = WarmUpPolynomialDecay(1e-3, 7, 2)


class Task:
    """A model that is never trained."""

    def __init__(self, config):
        self.config = config

    def build_model(self):
        return AlbertForPretraining(self.config)


@pytest.fixture(scope="module", name="task")
def make_task(tiny_config):
    return Task(dataclasses.replace(tiny_config, num_hidden_layers=1, num_hidden_groups=1))


@pytest.fixture(name="settings")
def make_settings(tmp_path):
    return RunSettings(output_dir=str(tmp_path), precision="float32", train_batch_size=6)


def write_config(path, **changes):
    shape = {"vocab_size": 97, "hidden_size": 12, "num_attention_heads": 4} | changes
    AlbertConfig(**shape).to_json_file(str(path))
    return str(path)


def test_the_config_is_kept_in_the_output_folder(tmp_path):
    path = write_config(tmp_path / "a.json")
    config = session.read_config(str(tmp_path / "new"), path)
    assert not (tmp_path / "new").exists()
    session.keep_config(str(tmp_path), config)
    assert AlbertConfig.from_json_file(str(tmp_path / "albert_config.json")) == config
    assert session.read_config(str(tmp_path), path) == config


def test_the_folder_of_another_model_is_rejected(tmp_path):
    path = write_config(tmp_path / "a.json")
    session.keep_config(str(tmp_path), session.read_config(str(tmp_path), path))
    other = write_config(tmp_path / "b.json", hidden_size=16)
    with pytest.raises(ValueError, match=r"another model .*hidden_size is 12 there, but 16 in .*b"):
        session.read_config(str(tmp_path), other)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_precision_is_restored_after_the_block(precision):
    settings = RunSettings(output_dir="unused", precision=precision)
    with session.use_devices(settings) as (strategy, name):
        assert name == precision
        assert strategy.num_replicas_in_sync == 1
        expected = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[precision]
        assert tf_keras.mixed_precision.global_policy().name == expected
    assert tf_keras.mixed_precision.global_policy().name == "float32"


def test_the_precision_is_restored_after_an_error():
    settings = RunSettings(output_dir="unused", precision="bfloat16")
    with pytest.raises(KeyError), session.use_devices(settings):
        raise KeyError
    assert tf_keras.mixed_precision.global_policy().name == "float32"


def test_a_session_locks_the_directory_and_describes_a_valid_run(settings, task, tmp_path):
    with session.open_session(settings, task.config) as opened:
        assert opened.is_chief
        assert os.listdir(tmp_path) == [".lock"]
        opened.begin_work()
        opened.begin_work()
        run = json.loads((tmp_path / "run.json").read_text())
    assert run["flags"] == json.loads(json.dumps(settings.to_dict()))
    assert run["config"]["hidden_size"] == 12
    assert run["device"] == {"devices": "one CPU", "precision": "float32"}
    assert "changed_settings" not in run
    assert len((tmp_path / "runs.jsonl").read_text().splitlines()) == 1
    assert AlbertConfig.from_json_file(str(tmp_path / "albert_config.json")) == task.config


def test_accepted_changes_are_recorded(settings, task, tmp_path):
    path = str(tmp_path / "a.json")
    task.config.to_json_file(path)
    settings = dataclasses.replace(settings, albert_config_file=path, do_train=True)
    known = TrainedWith({"vocabulary": "97 entries"})

    def identify(**changes):
        with session.open_session(settings, task.config) as opened:
            identity = opened.identify(dataclasses.replace(settings, **changes), known)
            opened.begin_work()
            return identity

    run_record.write(str(tmp_path), identify())
    store.save_checkpoint(str(tmp_path / "model.ckpt-4"), {"x": np.zeros(1)})
    with pytest.raises(ValueError, match=r"learning_rate +5e-05 +0\.5"):
        identify(learning_rate=0.5)
    identify(learning_rate=0.5, allow_changed_settings=True)
    runs = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    changes = {str(tmp_path): {"learning_rate": ["5e-05", "0.5"]}}
    assert [run.get("changed_settings") for run in runs] == [None, changes]


def start(settings, task):
    with session.use_devices(settings) as (strategy, _):
        return session.make_trainer(settings, task, SCHEDULE, strategy)


def weights(trainer):
    return {variable_name(v): v.numpy() for v in trainer.model.variables}


def test_random_weights_only_depend_on_the_seed(settings, task):
    first, again = weights(start(settings, task)), weights(start(settings, task))
    other = weights(start(dataclasses.replace(settings, seed=7), task))
    name = "bert/embeddings/word_embeddings"
    np.testing.assert_array_equal(first[name], again[name])
    assert np.abs(first[name] - other[name]).max() > 0


def test_training_starts_from_init_checkpoint_or_resumes(settings, task, tmp_path):
    prefix = str(tmp_path / "weights")
    trainer = start(settings, task)
    store.save_checkpoint(prefix, {variable_name(v): v for v in trainer.model.variables})
    settings = dataclasses.replace(settings, seed=7, init_checkpoint=prefix)
    again = start(settings, task)
    for name, value in weights(trainer).items():
        np.testing.assert_array_equal(weights(again)[name], value, err_msg=name)
    again.step = 3
    again.save()
    assert run_record.read(str(tmp_path)) is None
    assert start(settings, task).step == 3


def test_the_identity_of_a_run_is_stored_with_its_first_checkpoint(settings, task, tmp_path):
    identity = TrainedWith({"seed": "7"})
    with session.use_devices(settings) as (strategy, _):
        trainer = session.make_trainer(settings, task, SCHEDULE, strategy, identity=identity)
    assert not list(tmp_path.iterdir())
    trainer.save()
    assert run_record.read(str(tmp_path)) == identity


def test_the_plan_of_a_run_is_logged_in_aligned_lines(settings, task, caplog):
    caplog.set_level("INFO", logger="absl")
    trainer = start(settings, task)
    session.log_plan(trainer, SCHEDULE, 3 * settings.train_batch_size)
    lines = dict(message.split(maxsplit=1) for message in caplog.messages)
    assert list(lines) == ["device", "model", "data", "batch", "schedule", "output"]
    assert "float32" in lines["device"]
    assert lines["model"].endswith(" parameters, random weights")
    assert lines["data"].endswith(" examples, 3 steps per epoch")
    assert lines["schedule"].startswith("7 steps, 2.33 epochs; adamw, learning rate ")
    assert lines["output"] == settings.output_dir
    for message, text in zip(caplog.messages, lines.values(), strict=True):
        assert message.index(text) == 10


def test_settings_reach_the_trainer(settings, task):
    settings = dataclasses.replace(
        settings,
        optimizer="lamb_albert_zh",
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        log_steps=9,
    )
    trainer = start(settings, task)
    assert type(trainer.optimizer) is LambAlbertZh
    assert trainer.take_step.options.micro_batches == 2
    assert trainer.settings.log_steps == 9
    assert trainer.num_train_steps == 7
    assert not trainer.take_step.options.jit_compile
    assert trainer.model.encoder.recompute
    jitted = start(dataclasses.replace(settings, jit_compile="true"), task)
    assert jitted.take_step.options.jit_compile


def test_the_number_of_threads_cannot_change_after_initialization(settings):
    tf.zeros(()).numpy()  # initializes TensorFlow
    settings = dataclasses.replace(settings, threads=3)
    with (
        pytest.raises(ValueError, match=r"--threads=3: TensorFlow is already initialized"),
        session.use_devices(settings),
    ):
        pass


@pytest.mark.parametrize(
    ("steps", "warm_up", "start", "is_said"),
    [(7, 9, 0, True), (7, 5, 3, True), (7, 7, 0, False), (7, 0, 9, False)],
)
def test_a_warm_up_longer_than_the_training_causes_a_warning(
    task, settings, steps, warm_up, start, is_said, caplog, monkeypatch
):
    def resume(trainer):
        trainer.step = start
        return True

    monkeypatch.setattr(session.loop.Trainer, "restore_latest", resume)
    schedule = WarmUpPolynomialDecay(1e-3, steps, warm_up, start)
    session.make_trainer(settings, task, schedule, tf.distribute.get_strategy())
    assert (f"warm-up ends at step {start + warm_up}, but training at step 7" in caplog.text) == (
        is_said
    )


def test_training_before_the_warm_up_is_refused(task, settings):
    schedule = WarmUpPolynomialDecay(1e-3, 7, 5, start_warmup_step=10**9)
    with pytest.raises(ValueError, match=r"^--start_warmup_step=1000000000: .* from step 0, and"):
        session.make_trainer(settings, task, schedule, tf.distribute.get_strategy())


# The identity of a run, and the errors and logs when it has changed


@pytest.fixture(name="run")
def make_run(tmp_path):
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


def describe(run, known=DATA, precision="float32", config=CONFIG):
    return session.describe_identity(run, config, precision, known)


def check(run, now, **changes):
    return session.check_identity(dataclasses.replace(run, **changes), now)


def test_an_identity_has_only_what_affects_the_result(run):
    found = describe(run)
    names = {"learning_rate", "seed", "optimizer", "num_train_steps", "train_batch_size"}
    names |= {"precision", "config", "init_checkpoint", "vocabulary", "training data"}
    assert names < set(found.identity)
    assert found.identity["learning_rate"] == "0.00176"
    assert found.identity["precision"] == "float32"
    assert not {"output_dir", "log_steps", "threads", "do_eval"} & set(found.identity)
    assert found.others["log_steps"] == "None"
    assert set(found.paths) == {"config", "init_checkpoint", "vocabulary", "training data"}


def test_the_same_run_may_be_moved(run, tmp_path, monkeypatch):
    run_record.write(str(tmp_path), describe(run))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tmp_path, tmp_path / "moved")
    same = dataclasses.replace(
        run,
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
def test_the_error_for_another_setting_has_both_values(run, changes, row):
    run_record.write(run.output_dir, describe(run))
    now = describe(dataclasses.replace(run, **changes))
    with pytest.raises(ValueError, match="contains a run with other settings:") as error:
        check(run, now)
    error.match(row)
    error.match("Choose another --output_dir, or pass --allow_changed_settings")
    assert list(check(run, now, allow_changed_settings=True)) == list(changes)


@pytest.mark.parametrize("name", ["vocabulary", "training data"])
def test_the_error_for_other_content_has_both_paths(run, name):
    run_record.write(run.output_dir, describe(run))
    other = TrainedWith(DATA.identity | {name: "other"}, DATA.paths | {name: "/here/other"})
    with pytest.raises(ValueError, match=rf"(?s){name}.*sha256 0\w \(/there/.*other \(/here/oth"):
        check(run, describe(run, other))


def test_another_precision_or_initial_checkpoint_is_rejected(run, tmp_path):
    run_record.write(str(tmp_path), describe(run))
    with pytest.raises(ValueError, match=r"precision +float32 +bfloat16"):
        check(run, describe(run, precision="bfloat16"))
    (tmp_path / "init.index").write_text("trained on since")
    with pytest.raises(ValueError, match=r"(?s)init_checkpoint.*digest \w+ .* digest"):
        check(run, describe(run))
    with pytest.raises(FileNotFoundError, match="none: no such checkpoint"):
        describe(dataclasses.replace(run, init_checkpoint="none"))


def test_unknown_identities_are_not_compared(run, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    other = describe(dataclasses.replace(run, seed=1))
    assert check(run, other) == {}
    assert "nothing records what it was trained with" in caplog.text
    run_record.write(str(tmp_path), describe(run, TrainedWith({})))
    assert check(run, describe(run)) == {}


def test_a_folder_without_a_checkpoint_is_a_new_run(run, tmp_path):
    run_record.write(str(tmp_path), describe(run))
    (tmp_path / "model.ckpt-20.index").unlink()
    assert check(run, describe(dataclasses.replace(run, seed=1))) == {}
    add_checkpoint(tmp_path, "model.ckpt-best")
    with pytest.raises(ValueError, match=r"seed +12345 +1"):
        check(run, describe(dataclasses.replace(run, seed=1)))
    add_checkpoint(tmp_path, "model.ckpt-interrupted_3")
    with pytest.raises(ValueError, match=r"train_batch_size +4096 +8"):
        check(run, describe(dataclasses.replace(run, train_batch_size=8)))


def test_before_the_first_step_only_the_initialization_counts(run, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    (tmp_path / "model.ckpt-20.index").rename(tmp_path / "model.ckpt-0.index")
    run_record.write(str(tmp_path), describe(run))
    assert check(run, describe(dataclasses.replace(run, train_batch_size=8))) == {}
    assert "nothing has been trained yet" in caplog.text
    with pytest.raises(ValueError, match=r"seed +12345 +1"):
        check(run, describe(dataclasses.replace(run, seed=1)))


def test_other_changes_are_logged(run, caplog):
    caplog.set_level("INFO", logger="absl")
    run_record.write_content(run.output_dir, {"flags": {"log_steps": None, "threads": None}})
    run_record.write(run.output_dir, describe(run))
    moved = TrainedWith(DATA.identity, DATA.paths | {"training data": "/elsewhere"})
    assert check(run, describe(dataclasses.replace(run, log_steps=7), moved)) == {}
    (record,) = caplog.records
    assert "do not affect the result" in record.message
    rows = [line.split() for line in record.message.splitlines()[2:]]
    assert rows == [
        ["log_steps", "None", "7"],
        ["training", "data", "/there/train.tsv", "/elsewhere"],
    ]


def test_a_model_needs_its_vocabulary_but_not_its_learning_rate(run, tmp_path):
    run_record.write(str(tmp_path), describe(run))
    names = {"vocabulary", "do_lower_case"}
    other = describe(dataclasses.replace(run, seed=1, learning_rate=0.5))
    assert run_record.check_model(str(tmp_path), other, names, False) == {}
    other = describe(run, TrainedWith({"vocabulary": "9 entries"}, {"vocabulary": "/here"}))
    with pytest.raises(ValueError, match="was trained with another vocabulary") as error:
        run_record.check_model(str(tmp_path), other, names, False)
    error.match(r"vocabulary +97 entries, sha256 0a \(/there/vocab.txt\) +9 entries \(/here\)")
    assert run_record.check_model(str(tmp_path), other, names, True).keys() == {"vocabulary"}
    assert run_record.check_model(str(tmp_path / "foreign"), other, names, False) == {}


def test_weights_come_from_the_trained_run_or_from_the_init_checkpoint(run, tmp_path):
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
        given = dataclasses.replace(run, **{"init_checkpoint": None} | changes)
        assert session.weights_folder(given) == expected, (name, changes)


def test_initializing_from_a_run_needs_its_vocabulary(run, tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    add_checkpoint(first, "model.ckpt-best")
    run_record.write(str(first), DATA)
    start = dataclasses.replace(
        run, init_checkpoint=str(first), output_dir=str(tmp_path / "new"), do_train=True
    )
    assert session.check_identity(start, describe(start)) == {}
    other = describe(start, TrainedWith({"vocabulary": "9 entries"}))
    with pytest.raises(ValueError, match="first was trained with another vocabulary"):
        session.check_identity(start, other)


def test_labels_may_only_change_where_a_new_head_is_trained(run, tmp_path):
    run_record.write(str(tmp_path), describe(run, DATA.with_labels(("no", "yes"))))
    for labels in (("yes", "no"), ("no", "yes", "?")):
        now = describe(run, DATA.with_labels(labels))
        for changes in ({"do_train": True}, {"do_train": False, "do_eval": True}):
            with pytest.raises(ValueError, match=r'label list +\["no", "yes"\] +\["') as error:
                check(run, now, **changes)
            error.match(re.escape(json.dumps(labels)))
        new = {"output_dir": str(tmp_path / "new"), "init_checkpoint": str(tmp_path)}
        assert check(run, now, do_train=True, **new) == {}


def test_a_model_of_another_task_is_not_resumed_or_evaluated(run, tmp_path):
    run_record.write(str(tmp_path), describe(run, DATA.with_task("spans")))
    now = describe(run, DATA.with_task("regression"))
    for changes in ({"do_train": True}, {"do_train": False, "do_eval": True}):
        with pytest.raises(ValueError, match=r"task +spans +regression"):
            check(run, now, **changes)
    run_record.write(str(tmp_path), describe(run, DATA))  # of an earlier version
    assert check(run, now, do_train=True) == {}


def test_a_vocabulary_of_another_size_causes_a_warning(run, tmp_path, caplog):
    session.warn_of_vocabulary(run, 97, 97)
    assert not caplog.records
    session.warn_of_vocabulary(run, 61, 97)
    (record,) = caplog.records
    assert "The vocabulary has 61 entries, but the model has vocab_size=97." in record.message
    assert record.message.endswith(f"use the vocabulary that came with {tmp_path}.")
    run_record.write(str(tmp_path), DATA)  # then the vocabulary itself is compared
    session.warn_of_vocabulary(run, 61, 97)
    fresh = dataclasses.replace(run, init_checkpoint=None, output_dir=str(tmp_path / "new"))
    session.warn_of_vocabulary(fresh, 61, 97)
    assert len(caplog.records) == 1


def test_mean_pooling_makes_the_sequence_length_part_of_the_model():
    run = classification.Settings(task_name="cola", data_dir="cola", output_dir="out")
    assert run.names_for_model == {"do_lower_case", "use_pooled_output"}
    run = dataclasses.replace(run, use_pooled_output=False)
    assert run.names_for_model == {"do_lower_case", "use_pooled_output", "max_seq_length"}
