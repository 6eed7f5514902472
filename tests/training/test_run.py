"""A run: opened, compared with its folder and its weights, trained, resumed and evaluated."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import classification, pretraining
from albert_tf.checkpoints import store
from albert_tf.checkpoints.names import variable_name
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.config import AlbertConfig
from albert_tf.optimization import LambAlbertZh
from albert_tf.pretraining.task import PretrainingTask
from albert_tf.training.devices import Devices
from albert_tf.training.hooks import Hook
from albert_tf.training.loop import Trainer
from albert_tf.training.run import Run
from albert_tf.training.settings import RunSettings
from albert_tf.training.tracking import Tracker
from tests.script_runner import interrupted, killed_at, stopped_at, tensors
from tests.training.one_weight import METRIC, OneWeightTask

CONFIG = AlbertConfig(vocab_size=97, hidden_size=12, num_attention_heads=4)


def known(name="", labels=(), **changed):
    """The record of files and task that a program finds out; `changed` is name → FileRecord."""
    recorded = {
        "vocabulary": FileRecord("97 entries, sha256 0a", "/there/vocab.txt"),
        "training data": FileRecord("sha256 0b", "/there/train.tsv"),
    }
    return RunRecord(files=recorded | changed, task={"name": name, "labels": list(labels)})


def admit(settings, record=None, precision="float32"):
    """Returns a run after the comparison of its record."""
    opened = Devices(tf.distribute.get_strategy(), precision)
    folder = RunFolder(settings.output_dir)
    run = Run(settings, folder, CONFIG, opened, Tracker(folder.path))
    run.admit(known() if record is None else record)
    return run


def record(settings, *arguments):
    """Leaves the record of a training in the folder."""
    os.makedirs(settings.output_dir, exist_ok=True)
    made = admit(settings, *arguments).record
    RunFolder(settings.output_dir).write_record(made)
    return made


def add_checkpoint(folder, name):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.index").write_text(f"content of {name}")
    (folder / f"{name}.data-00000-of-00001").write_text("")


def rename_checkpoint(folder, name):
    for path in folder.glob("model.ckpt-*.index"):
        path.rename(folder / f"{name}.index")


@pytest.fixture(name="settings")
def make_settings(tmp_path):
    """Settings whose folder has a file named like a checkpoint of step 20."""
    CONFIG.to_json_file(str(tmp_path / "config.json"))
    add_checkpoint(tmp_path, "init")
    add_checkpoint(tmp_path / "out", "model.ckpt-20")
    return pretraining.Settings(
        albert_config_file=str(tmp_path / "config.json"),
        input_file="unused",
        output_dir=str(tmp_path / "out"),
        init_checkpoint=str(tmp_path / "init"),
    )


# The record, and the errors and logs when it has changed


def test_a_record_has_all_settings_and_what_they_name(settings):
    found = admit(settings).record
    assert found.settings == settings.to_dict() | {"precision": "float32"}
    assert found.config == CONFIG.to_dict()
    assert set(found.files) == {"config", "init_checkpoint", "vocabulary", "training data"}
    assert found.start["device"] == {"devices": "one CPU", "precision": "float32"}
    assert "changed_settings" not in found.start
    with pytest.raises(FileNotFoundError, match="none: no such checkpoint"):
        admit(dataclasses.replace(settings, init_checkpoint="none"))


def test_the_same_run_may_be_moved(settings, tmp_path, monkeypatch):
    record(settings)
    monkeypatch.chdir(tmp_path)
    shutil.move("out", "moved")
    same = dataclasses.replace(
        settings,
        albert_config_file="config.json",
        init_checkpoint="init",
        output_dir="moved",
        precision="auto",
        log_steps=7,
        threads=1,
    )
    assert "changed_settings" not in admit(same).record.start


OTHER = FileRecord("other", "/here/other")
CHANGES = {  # name → settings, record, precision, row of the table
    "learning_rate": ({"learning_rate": 0.5}, None, "", r"learning_rate +0\.00176 +0\.5\n"),
    "seed": ({"seed": 1}, None, "", r"seed +12345 +1\n"),
    "optimizer": ({"optimizer": "adamw"}, None, "", r"optimizer +lamb +adamw\n"),
    "train_batch_size": ({"train_batch_size": 8}, None, "", r"train_batch_size +4096 +8\n"),
    "num_train_steps": ({"num_train_steps": 40}, None, "", r"num_train_steps +125000 +40\n"),
    "precision": ({}, None, "bfloat16", r"precision +float32 +bfloat16\n"),
    "init_checkpoint": (
        {"init_checkpoint": None},
        None,
        "",
        r"init_checkpoint:?\s.*digest \w+ \(/.*/init\)\s+(now +)?none\n",
    ),
    "vocabulary": (
        {},
        known("spans", ("no", "yes"), vocabulary=OTHER),
        "",
        r"(?s)vocabulary.*sha256 0a \(/there/voc.*other \(/here/oth",
    ),
    "training data": (
        {},
        known("spans", ("no", "yes"), **{"training data": OTHER}),
        "",
        r"(?s)training data.*sha256 0b \(/there/train.*other \(/here/oth",
    ),
    "task": ({}, known("regression", ("no", "yes")), "", r"task +spans +regression\n"),
    "label list": (
        {},
        known("spans", ("yes", "no", "?")),
        "",
        r'label list +\["no", "yes"\] +\["yes", "no", "\?"\]\n',
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_error_for_a_change_has_both_values(settings, name):
    record(settings, known("spans", ("no", "yes")))
    changes, other, precision, row = CHANGES[name]
    other = other or known("spans", ("no", "yes"))
    changed = dataclasses.replace(settings, **changes), other, precision or "float32"
    with pytest.raises(ValueError, match="out contains a run with other settings:\n") as error:
        admit(*changed)
    error.match(row)
    error.match("Choose another --output_dir, or pass --allow_changed_settings to resume")
    allowed = dataclasses.replace(changed[0], allow_changed_settings=True)
    assert list(admit(allowed, *changed[1:]).record.start["changed_settings"]) == [name]


def test_weights_that_have_been_trained_since_are_others(settings, tmp_path):
    record(settings)
    (tmp_path / "init.index").write_text("trained on since")
    with pytest.raises(ValueError, match=r"(?s)init_checkpoint.*digest \w+ .* digest"):
        admit(settings)


def test_what_is_not_recorded_is_not_compared(settings, caplog):
    caplog.set_level("INFO", logger="absl")
    changed = dataclasses.replace(settings, seed=1)
    admit(changed)
    assert "out: nothing records what it was trained with" in caplog.text
    record(settings, RunRecord())
    admit(settings, known("spans", ("no", "yes")))


def test_before_the_first_step_only_the_initialization_counts(settings, tmp_path, caplog):
    caplog.set_level("INFO", logger="absl")
    record(settings)
    other_seed = dataclasses.replace(settings, seed=1)
    other_size = dataclasses.replace(settings, train_batch_size=8)
    rename_checkpoint(tmp_path / "out", "model.ckpt-0")
    admit(other_size)
    assert "nothing has been trained yet" in caplog.text
    with pytest.raises(ValueError, match=r"seed +12345 +1"):
        admit(other_seed)
    for name in ("model.ckpt-best", "model.ckpt-interrupted_3"):
        rename_checkpoint(tmp_path / "out", name)
        with pytest.raises(ValueError, match=r"train_batch_size +4096 +8"):
            admit(other_size)
    (tmp_path / "out" / "model.ckpt-interrupted_3.index").unlink()
    admit(other_seed)  # a new run


def test_changes_that_do_not_affect_the_result_are_logged(settings, caplog):
    record(settings)
    caplog.set_level("INFO", logger="absl")
    moved = known(**{"training data": FileRecord("sha256 0b", "/elsewhere")})
    admit(dataclasses.replace(settings, log_steps=7), moved)
    (line,) = caplog.records
    assert "do not affect the result" in line.message
    rows = [row.split() for row in line.message.splitlines()[2:]]
    assert rows == [
        ["log_steps", "None", "7"],
        ["training", "data", "/there/train.tsv", "/elsewhere"],
    ]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (known("spans", ("no", "yes"), vocabulary=OTHER), r"vocabulary +97 ent.* other \(/here/ot"),
        (known("regression", ("no", "yes")), r"task +spans +regression"),
        (known("spans", ("yes", "no")), r'label list +\["no", "yes"\] +\["yes", "no"\]'),
    ],
)
def test_a_model_is_used_with_its_vocabulary_task_and_labels(settings, other, message):
    record(settings, known("spans", ("no", "yes")))
    used = dataclasses.replace(settings, do_train=False, do_eval=True, learning_rate=0.5, seed=1)
    admit(used, known("spans", ("no", "yes")))
    with pytest.raises(ValueError, match="out was trained with another ") as error:
        admit(used, other)
    error.match(message)
    admit(dataclasses.replace(used, allow_changed_settings=True), other)


def test_training_from_a_run_needs_only_its_vocabulary(settings, tmp_path):
    record(settings, known("spans", ("no", "yes")))
    new = dataclasses.replace(
        settings, output_dir=str(tmp_path / "new"), init_checkpoint=settings.output_dir
    )
    admit(new, known("regression", ("?",)))
    with pytest.raises(ValueError, match="out was trained with another vocabulary"):
        admit(new, known(vocabulary=OTHER))


def test_weights_come_from_the_trained_run_or_from_the_init_checkpoint(settings, tmp_path):
    out, first = tmp_path / "out", tmp_path / "first"
    init = {"init_checkpoint": str(first / "model.ckpt-best")}
    cases = [
        ("model.ckpt-20", {}, out),
        ("model.ckpt-20", init, out),
        ("model.ckpt-0", init, first),
        ("model.ckpt-0", init | {"do_train": False}, out),
        ("model.ckpt-0", {}, None),
        ("other", {}, None),
        ("other", init, first),
        ("other", {"init_checkpoint": str(out)}, out),
    ]
    opened = Devices(tf.distribute.get_strategy(), "float32")
    for name, changes, expected in cases:
        for path in out.glob("*.index"):
            path.rename(out / f"{name}.index")
        given = dataclasses.replace(settings, **{"init_checkpoint": None} | changes)
        found = Run(given, RunFolder(str(out)), CONFIG, opened, Tracker(str(out))).trained
        assert (found and found.path) == (expected and str(expected)), (name, changes)


def test_mean_pooling_makes_the_sequence_length_part_of_the_model():
    run = classification.Settings(task_name="cola", data_dir="cola", output_dir="out")
    assert run.names_for_model == {"do_lower_case", "use_pooled_output"}
    run = dataclasses.replace(run, use_pooled_output=False)
    assert run.names_for_model == {"do_lower_case", "use_pooled_output", "max_seq_length"}


# Opening, and the files of a valid run


def settings_of(folder):
    """Settings of a run that trains one weight in a new folder, and evaluates it."""
    CONFIG.to_json_file(str(folder / "config.json"))
    return RunSettings(
        albert_config_file=str(folder / "config.json"),
        output_dir=str(folder / "run"),
        precision="float32",
        train_batch_size=6,
        save_checkpoints_steps=3,
        log_steps=1,
        do_train=True,
        do_eval=True,
    )


@pytest.fixture(name="small")
def make_small_settings(tmp_path):
    return settings_of(tmp_path)


def test_opening_makes_and_locks_the_folder_and_beginning_describes_the_run(small, tmp_path):
    folder = tmp_path / "run"
    with Run.open(small) as run:
        assert run.is_chief
        assert os.listdir(folder) == [".lock"]
        run.admit(known("spans"))
        assert os.listdir(folder) == [".lock"]
        run.begin()
        run.begin()
    assert RunFolder(str(folder)).record == run.record
    assert AlbertConfig.from_json_file(str(folder / "albert_config.json")) == CONFIG
    (start,) = map(json.loads, (folder / "runs.jsonl").read_text().splitlines())
    assert start["settings"] == run.record.settings


def test_the_folder_of_another_model_is_rejected(small, tmp_path):
    with Run.open(small) as run:
        run.begin()
    other = str(tmp_path / "b.json")
    dataclasses.replace(CONFIG, hidden_size=16).to_json_file(other)
    with (
        pytest.raises(ValueError, match=r"another model .*hidden_size is 12 there, but 16 in .*b"),
        Run.open(dataclasses.replace(small, albert_config_file=other)),
    ):
        pass


def test_accepted_changes_are_recorded_but_not_those_of_a_mere_evaluation(settings, tmp_path):
    settings = dataclasses.replace(settings, precision="float32", allow_changed_settings=True)

    def begin(**changes):
        with Run.open(dataclasses.replace(settings, **changes)) as run:
            run.admit(known())
            run.begin()

    begin()
    begin(learning_rate=0.5)
    begin(learning_rate=0.25, do_train=False, do_eval=True)
    lines = (tmp_path / "out" / "runs.jsonl").read_text().splitlines()
    changes = [json.loads(line).get("changed_settings") for line in lines]
    assert changes == [None, {"learning_rate": ["0.00176", "0.5"]}, None]
    assert RunFolder(settings.output_dir).record.settings["learning_rate"] == 0.5


# Training


class StartedError(Exception):
    """Training would begin with this trainer."""


class LookAtStart(Hook):
    def on_start(self, trainer):
        raise StartedError(trainer)


def start(settings, task):
    """Returns the trainer with which training would begin."""
    with Run.open(settings) as run, pytest.raises(StartedError) as started:
        run.train(task, [LookAtStart()])
    return started.value.args[0]


class UntrainedTask(PretrainingTask):
    """A real model without records."""

    def schedule(self, settings):
        return OneWeightTask().learning_rates

    def count_examples(self):
        return 18

    def keep_files(self, folder):
        return


@pytest.fixture(scope="module", name="untrained")
def make_untrained_task(tiny_config):
    config = dataclasses.replace(tiny_config, num_hidden_layers=1, num_hidden_groups=1)
    return UntrainedTask(config, 11, 7)


def weights(trainer):
    return {variable_name(v): v.numpy() for v in trainer.model.variables}


def test_training_starts_from_random_or_given_weights_or_resumes(small, untrained, tmp_path):
    small = dataclasses.replace(small, do_eval=False)
    first, again = start(small, untrained), start(small, untrained)
    small = dataclasses.replace(small, seed=7)
    other = start(small, untrained)
    name = "bert/embeddings/word_embeddings"
    np.testing.assert_array_equal(weights(first)[name], weights(again)[name])
    assert np.abs(weights(first)[name] - weights(other)[name]).max() > 0

    prefix = str(tmp_path / "weights")
    store.save_checkpoint(prefix, weights(first))
    small = dataclasses.replace(small, init_checkpoint=prefix)
    loaded = start(small, untrained)
    for name, value in weights(first).items():
        np.testing.assert_array_equal(weights(loaded)[name], value, err_msg=name)
    loaded.step = 3
    loaded.save()
    assert start(small, untrained).step == 3


def test_settings_reach_the_trainer(small, untrained):
    changed = dataclasses.replace(
        small,
        do_eval=False,
        optimizer="lamb_albert_zh",
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        jit_compile="true",
    )
    trainer = start(changed, untrained)
    assert type(trainer.optimizer) is LambAlbertZh
    assert trainer.take_step.options.micro_batches == 2
    assert trainer.take_step.options.jit_compile
    assert trainer.num_train_steps == 7
    assert trainer.model.encoder.recompute
    assert not start(small, OneWeightTask()).take_step.options.jit_compile


def test_the_plan_of_a_run_is_logged_in_aligned_lines(small, caplog):
    caplog.set_level("INFO", logger="absl")
    start(small, OneWeightTask())
    lines = dict(message.split(maxsplit=1) for message in caplog.messages)
    assert list(lines) == ["device", "model", "data", "batch", "schedule", "output"]
    assert "float32" in lines["device"]
    assert lines["model"] == "1 parameters, random weights"
    assert lines["data"] == "21 examples, 3.5 steps per epoch"
    assert lines["schedule"] == "7 steps, 2 epochs; adamw, learning rate 0.1, no warm-up"
    assert lines["output"] == small.output_dir
    for message, text in zip(caplog.messages, lines.values(), strict=True):
        assert message.index(text) == 10


@pytest.mark.parametrize(
    ("warm_up", "first", "is_said"), [(9, 0, True), (5, 3, True), (7, 0, False), (0, 9, False)]
)
def test_a_warm_up_longer_than_the_training_causes_a_warning(
    small, warm_up, first, is_said, caplog, monkeypatch
):
    def resume(trainer):
        trainer.step = first
        return True

    monkeypatch.setattr(Trainer, "restore_latest", resume)
    if first < 7:
        start(small, OneWeightTask(7, warm_up, first))
    text = f"warm-up ends at step {first + warm_up}, but training at step 7"
    assert (text in caplog.text) == is_said


def test_training_before_the_warm_up_is_refused(small):
    with (
        Run.open(small) as run,
        pytest.raises(ValueError, match=r"^--start_warmup_step=1000000000: .* from step 0, and"),
    ):
        run.train(OneWeightTask(7, 5, 10**9))


def do_run(settings, hooks=()):
    """Trains and evaluates one weight, and returns the task and the evaluations."""
    task = OneWeightTask()
    with Run.open(settings) as run:
        run.admit(known("one weight"))
        run.train(task, hooks)
        return task, run.evaluate(task)


def files_of(folder):
    """What a run leaves, without times."""
    checkpoints = {p.name: tensors(p.with_suffix("")) for p in sorted(folder.glob("*.index"))}
    rows = RunFolder(str(folder)).metrics()
    timeless = [{k: v for k, v in row.items() if not k.endswith("_per_second")} for row in rows]
    texts = [(folder / name).read_bytes() for name in ("checkpoint", "eval_results.txt")]
    return checkpoints, timeless, texts, RunFolder(str(folder)).evaluations()


@pytest.fixture(scope="module", name="through")
def run_through(tmp_path_factory):
    folder = tmp_path_factory.mktemp("through")
    do_run(settings_of(folder))
    return files_of(folder / "run")


@pytest.mark.parametrize(
    ("how", "step"), [(killed_at, 2), (killed_at, 6), (stopped_at, 1), (stopped_at, 5)]
)
def test_an_interrupted_run_ends_with_the_files_of_one_that_was_not(small, through, how, step):
    with interrupted():
        do_run(small, [how(step)])
    folder = RunFolder(small.output_dir)
    assert folder.step == (step if how is stopped_at else (step - 1) // 3 * 3)
    do_run(small)
    assert files_of(Path(folder.path)) == through


def test_each_checkpoint_is_evaluated_once_when_it_is_saved(small, tmp_path):
    steps, lines = [], tmp_path / "run" / "evaluations.jsonl"

    class Look(Hook):
        def on_save(self, trainer, prefix):
            known_before = lines.read_text().count("\n") if lines.exists() else 0
            steps.append((trainer.step, known_before))

    task, evaluations = do_run(small, [Look()])
    assert steps == [(0, 0), (3, 0), (6, 1), (7, 2)]
    assert [e.step for e in evaluations] == [3, 6, 7]
    assert task.seen == [round(e.metrics[METRIC], 3) for e in evaluations]
    before = files_of(tmp_path / "run")
    task, again = do_run(small)
    assert (task.seen, again, files_of(tmp_path / "run")) == ([], evaluations, before)
