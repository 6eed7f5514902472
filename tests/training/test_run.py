"""A run: opened, compared with its folder and its weights, trained, resumed and evaluated."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf

from albert_tf import classification, pretraining
from albert_tf.checkpoints import store
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord, RunRecord
from albert_tf.model.config import AlbertConfig
from albert_tf.model.optimization import LambAlbertZh
from albert_tf.training import preparation
from albert_tf.training.devices import Devices
from albert_tf.training.hooks import Hook
from albert_tf.training.run import Run
from albert_tf.training.settings import RunSettings
from albert_tf.training.step import StepOptions
from albert_tf.training.tracker import Tracker
from tests.script_runner import interrupted, killed_at, stopped_at, tensors
from tests.training.one_weight import OneWeightTask

CONFIG = AlbertConfig(vocab_size=97, hidden_size=12, num_attention_heads=4)


def known(name="spans", labels=("no", "yes"), **changed):
    """The record of files and task that a program finds out; `changed` is name → FileRecord."""
    recorded = {
        "vocabulary": FileRecord("97 entries, sha256 0a", "/there/vocab.txt"),
        "training data": FileRecord("sha256 0b", "/there/train.tsv"),
    }
    changed = {changed_name.replace("_", " "): record for changed_name, record in changed.items()}
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
    RunFolder(settings.output_dir).write_record(admit(settings, *arguments).record)


def add_checkpoint(folder, name):
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.index").write_text(f"content of {name}")
    (folder / f"{name}.data-00000-of-00001").write_text("")


def rename_checkpoint(folder, name):
    for path in folder.glob("*.index"):
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


# Settings


def test_init_checkpoint_is_only_needed_by_a_new_run(tmp_path):
    settings = RunSettings(
        albert_config_file="albert_base",
        output_dir=str(tmp_path),
        init_checkpoint=f"{tmp_path}/none",
    )
    with pytest.raises(FileNotFoundError, match=r"^--init_checkpoint: .*none: no such checkpoint"):
        settings.completed()
    (tmp_path / "model.ckpt-5.index").touch()
    settings.completed()


def test_mean_pooling_makes_the_sequence_length_part_of_the_model():
    run = classification.Settings(task_name="cola", data_dir="cola", output_dir="out")
    assert run.names_for_model == {"do_lower_case", "use_pooled_output"}
    run = dataclasses.replace(run, use_pooled_output=False)
    assert run.names_for_model == {"do_lower_case", "use_pooled_output", "max_seq_length"}


# The record, and what has changed


def test_a_record_has_all_settings_and_what_they_name(settings):
    found = admit(settings).record
    assert found.settings == settings.to_dict() | {"precision": "float32"}
    assert found.config == CONFIG.to_dict()
    assert set(found.files) == {"config", "init_checkpoint", "vocabulary", "training data"}
    device = found.start["device"]
    assert device.pop("processor")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    threads = tf.config.threading.get_intra_op_parallelism_threads() or cores
    assert device == {
        "devices": "one CPU with oneDNN",
        "precision": "float32",
        "threads": threads,
    }
    assert found.start["command"] == sys.argv
    assert "changed_settings" not in found.start
    with pytest.raises(FileNotFoundError, match="none: no such checkpoint"):
        admit(dataclasses.replace(settings, init_checkpoint="none"))


def test_the_same_run_may_be_moved_and_log_otherwise(settings, tmp_path, monkeypatch):
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
    )
    moved = known(training_data=FileRecord("sha256 0b", "/elsewhere"))
    assert "changed_settings" not in admit(same, moved).record.start


OTHER = FileRecord("other", "/here/other")


@pytest.mark.parametrize(
    ("name", "settings_now", "record_now", "line"),
    [
        ("learning_rate", {"learning_rate": 0.5}, {}, r"learning_rate: 0\.00176 → 0\.5\n"),
        ("num_train_steps", {"num_train_steps": 40}, {}, r"num_train_steps: 125000 → 40\n"),
        ("init_checkpoint", {"init_checkpoint": None}, {}, r"digest \w+ \(/.*/init\) → none\n"),
        ("vocabulary", {}, {"vocabulary": OTHER}, r"sha256 0a \(/there/voc.* → other \(/here/oth"),
        ("training data", {}, {"training_data": OTHER}, r"0b \(/there/train.* → other \(/here/ot"),
        ("task", {}, {"name": "regression"}, r"task: spans → regression\n"),
        ("label list", {}, {"labels": ("yes", "no")}, r'list: \["no", "yes"\] → \["yes", "no"\]\n'),
        ("label list", {}, {"labels": ["a" * 500]}, "label list: too long to show\n"),
    ],
)
def test_a_change_is_refused_with_both_values_or_allowed(
    settings, name, settings_now, record_now, line
):
    record(settings)
    changed = dataclasses.replace(settings, **settings_now)
    with pytest.raises(ValueError, match="out contains a run with other settings:\n") as error:
        admit(changed, known(**record_now))
    error.match(line)
    error.match("--output_dir, or pass --allow_changed_settings to resume")
    allowed = dataclasses.replace(changed, allow_changed_settings=True)
    assert list(admit(allowed, known(**record_now)).record.start["changed_settings"]) == [name]


def test_another_precision_and_weights_trained_since_are_changes(settings, tmp_path):
    record(settings)
    with pytest.raises(ValueError, match=r"precision: float32 → bfloat16\n"):
        admit(settings, precision="bfloat16")
    (tmp_path / "init.index").write_text("trained on since")
    with pytest.raises(ValueError, match=r"init_checkpoint: digest \w+ .* → digest"):
        admit(settings)


def test_what_is_not_recorded_is_not_compared(settings):
    admit(dataclasses.replace(settings, seed=1))
    record(settings, RunRecord())
    admit(settings)


def test_what_somebody_removed_from_the_record_is_said(settings, tmp_path, caplog):
    caplog.set_level("WARNING")
    record(settings)
    path = tmp_path / "out" / "run.json"
    values = json.loads(path.read_text())
    del values["files"]["vocabulary"], values["settings"]["seed"], values["task"]["labels"]
    path.write_text(json.dumps(values))
    for changes, missing in (
        ({}, "label list, seed, vocabulary"),
        ({"do_train": False, "do_eval": True}, "label list, vocabulary"),
    ):
        caplog.clear()
        admit(dataclasses.replace(settings, **changes), known(vocabulary=OTHER))
        assert f"out/run.json has no entry for {missing}, which" in caplog.text
    caplog.clear()
    RunFolder(settings.output_dir).write_record(known().only("vocabulary"))  # of a conversion
    admit(dataclasses.replace(settings, do_train=False, do_eval=True))
    assert not caplog.text


def test_what_changes_the_rounding_of_a_resumed_training_is_said(settings, caplog):
    caplog.set_level("WARNING")
    record(settings)
    folder = RunFolder(settings.output_dir)
    start = dict(folder.record.start)
    start["device"] = start["device"] | {"devices": "2 x CPU", "threads": 96}
    folder.write_record(dataclasses.replace(folder.record, start=start))
    admit(dataclasses.replace(settings, gradient_accumulation_steps=2))
    said = caplog.text
    for name, before, now in (
        ("devices", "2 x CPU", "one CPU with oneDNN"),
        ("threads", "96", r"\d+"),
        ("gradient_accumulation_steps", "1", "2"),
    ):
        assert re.search(rf"{name}: {before} → {now}", said), said
    assert "processor" not in said
    assert "precision" not in said


def test_before_the_first_step_only_the_initialization_counts(settings, tmp_path):
    record(settings)
    other_seed = dataclasses.replace(settings, seed=1)
    other_size = dataclasses.replace(settings, train_batch_size=8)
    rename_checkpoint(tmp_path / "out", "model.ckpt-0")
    admit(other_size)
    with pytest.raises(ValueError, match="seed: 12345 → 1"):
        admit(other_seed)
    for name in ("model.ckpt-best", "model.ckpt-interrupted_3"):
        rename_checkpoint(tmp_path / "out", name)
        with pytest.raises(ValueError, match="train_batch_size: 4096 → 8"):
            admit(other_size)
    (tmp_path / "out" / "model.ckpt-interrupted_3.index").unlink()
    admit(other_seed)  # a new run


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (known(vocabulary=OTHER), r"vocabulary: 97 ent.* → other \(/here/ot"),
        (known("regression"), "task: spans → regression"),
        (known(labels=("yes", "no")), r'label list: \["no", "yes"\] → \["yes", "no"\]'),
    ],
)
def test_a_model_is_used_with_its_vocabulary_task_and_labels(settings, other, said):
    record(settings)
    used = dataclasses.replace(settings, do_train=False, do_eval=True, learning_rate=0.5, seed=1)
    admit(used)
    with pytest.raises(ValueError, match="out was trained with another ") as error:
        admit(used, other)
    error.match(said)
    admit(dataclasses.replace(used, allow_changed_settings=True), other)


def test_training_from_a_run_needs_only_its_vocabulary(settings, tmp_path):
    record(settings)
    new = dataclasses.replace(
        settings, output_dir=str(tmp_path / "new"), init_checkpoint=settings.output_dir
    )
    admit(new, known("regression", ("?",)))
    with pytest.raises(ValueError, match="out was trained with another vocabulary"):
        admit(new, known(vocabulary=OTHER))


def test_weights_come_from_the_trained_run_or_from_the_init_checkpoint(settings, tmp_path):
    out, first = tmp_path / "out", tmp_path / "first"
    cases = [
        ("model.ckpt-20", None, True, out),
        ("model.ckpt-20", first, True, out),
        ("model.ckpt-0", first, True, first),
        ("model.ckpt-0", first, False, out),
        ("model.ckpt-0", None, True, None),
        ("other", None, True, None),
        ("other", first, True, first),
        ("other", out, True, out),
    ]
    opened = Devices(tf.distribute.get_strategy(), "float32")
    for name, init, do_train, expected in cases:
        rename_checkpoint(out, name)
        changes = {"init_checkpoint": init and f"{init}/model.ckpt-best", "do_train": do_train}
        given = dataclasses.replace(settings, **changes)
        found = Run(given, RunFolder(str(out)), CONFIG, opened, Tracker(str(out))).trained
        assert (found and found.path) == (expected and str(expected)), (name, changes)


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
        run.admit(known())
        assert os.listdir(folder) == [".lock"]
        run.begin()
        run.begin()
    assert RunFolder(str(folder)).record == run.record
    assert AlbertConfig.from_json_file(str(folder / "albert_config.json")) == CONFIG
    (start,) = map(json.loads, (folder / "runs.jsonl").read_text().splitlines())
    assert start["settings"] == run.record.settings
    other = str(tmp_path / "b.json")
    dataclasses.replace(CONFIG, hidden_size=16).to_json_file(other)
    with (
        pytest.raises(ValueError, match=r"another model .*hidden_size is 12 there, but 16 in .*b"),
        Run.open(dataclasses.replace(small, albert_config_file=other)),
    ):
        pass


@pytest.mark.parametrize("change", ["", "hidden_size", "vocabulary"])
def test_saving_a_model_is_finished_where_a_run_is_admitted(settings, tmp_path, change):
    """A run that is refused has changed nothing in the folder of a model."""
    folder, hidden = tmp_path / "out", tmp_path / "out" / ".replacing-0a1b2c3d"
    folder.joinpath("run.json").write_text("the old one")
    hidden.mkdir()
    add_checkpoint(hidden, "model.ckpt-best")
    saved = RunRecord(files={"vocabulary": known().files["vocabulary"]})
    RunFolder(str(hidden)).write_record(saved)
    CONFIG.to_json_file(str(hidden / "albert_config.json"))
    names = sorted(os.listdir(hidden))
    (hidden / "complete").write_text("\n".join(names))
    rename_checkpoint(folder, "model.ckpt-0")
    other = FileRecord("98 entries, sha256 0c", "/other/vocab.txt")
    if change == "hidden_size":
        config = dataclasses.replace(CONFIG, hidden_size=16)
        config.to_json_file(str(settings.albert_config_file))
    evaluating = dataclasses.replace(settings, do_train=False, do_eval=True, precision="float32")
    refused = pytest.raises(ValueError, match=r"another (model|vocabulary)") if change else None
    before = sorted(os.listdir(folder))
    with refused or contextlib.nullcontext(), Run.open(evaluating) as run:
        run.admit(known(vocabulary=other) if change == "vocabulary" else known())
    now = {*os.listdir(folder)} - {".lock"}
    assert now == ({*before} if change else {*before, *names} - {hidden.name})
    assert (folder / "run.json").read_text() == (
        "the old one" if change else RunFolder(str(folder)).record.to_json()
    )


def test_accepted_changes_are_recorded_but_not_those_of_a_mere_evaluation(settings, tmp_path):
    settings = dataclasses.replace(settings, precision="float32", allow_changed_settings=True)
    for changes in ({}, {"learning_rate": 0.5}, {"learning_rate": 0.25, "do_train": False}):
        with Run.open(dataclasses.replace(settings, do_eval=True, **changes)) as run:
            run.admit(known())
            run.begin()
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


def test_training_starts_from_random_or_given_weights_or_resumes(small, tmp_path):
    class Drawing(OneWeightTask):
        def build_model(self):
            model = super().build_model()
            model.weight.assign(tf.random.uniform((1,)))
            return model

    def weight_for(**changes):
        trainer = start(dataclasses.replace(small, do_eval=False, **changes), Drawing())
        return trainer, float(trainer.model.weight[0])

    (trainer, first), (_, again), (_, other) = (weight_for(seed=seed) for seed in (5, 5, 7))
    assert first == again != other
    prefix = str(tmp_path / "weights")
    store.save_checkpoint(prefix, trainer.checkpoints.state(trainer.step))
    loaded, weight = weight_for(init_checkpoint=prefix, seed=7)
    assert weight == first
    loaded.model.weight.assign([2.0])
    loaded.step = 3
    loaded.save()
    resumed, weight = weight_for(init_checkpoint=prefix)
    assert (resumed.step, weight) == (3, 2.0)


def test_settings_reach_the_trainer(small):
    changed = dataclasses.replace(
        small,
        optimizer="lamb_albert_zh",
        weight_decay=0.25,
        seed=7,
        gradient_accumulation_steps=2,
        gradient_checkpointing=True,
        clip_per_replica=True,
        jit_compile="true",
    )
    trainer = start(changed, OneWeightTask())
    assert type(trainer.optimizer) is LambAlbertZh
    assert trainer.optimizer.weight_decay == 0.25
    assert trainer.take_step.options == StepOptions(
        seed=7, micro_batches=2, clip_per_replica=True, jit_compile=True
    )
    assert trainer.num_train_steps == 7
    assert trainer.model.encoder.recompute
    assert not start(small, OneWeightTask()).take_step.options.jit_compile


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"jit_compile": "true"}, 1),
        ({"jit_compile": "true", "fused_attention": False}, 0),
        ({"jit_compile": "false"}, 0),
    ],
)
def test_a_compiled_step_uses_the_kernels_for_gpus_that_are_tried(
    small, monkeypatch, changes, count
):
    monkeypatch.setattr(preparation, "usable_kernels", lambda model: frozenset({"attention"}))
    options = start(dataclasses.replace(small, **changes), OneWeightTask()).take_step.options
    assert len(options.gpu_kernels) == count


def test_a_warm_up_that_training_does_not_reach_is_refused(small):
    said = r"^--start_warmup_step=1000000000: .* from step 0, and"
    with Run.open(small) as run, pytest.raises(ValueError, match=said):
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
    assert max(folder.resumable()) == (step if how is stopped_at else (step - 1) // 3 * 3)
    do_run(small)
    assert files_of(Path(folder.path)) == through


@pytest.mark.parametrize("do_eval", [True, False])
def test_a_checkpoint_that_another_run_put_in_its_place_is_not_resumed(
    small, tmp_path, caplog, do_eval
):
    small = dataclasses.replace(small, do_eval=do_eval)
    with interrupted():
        do_run(small, [killed_at(5)])
    (tmp_path / "other").mkdir()
    other = dataclasses.replace(small, output_dir=str(tmp_path / "other"))
    with Run.open(other) as run:
        run.train(OneWeightTask(learning_rate=0.05), [])
    for path in (tmp_path / "other").glob("model.ckpt-3.*"):
        shutil.copy(path, small.output_dir)
    for run_again in (do_run, lambda again: do_run(dataclasses.replace(again, do_train=False))):
        said = r"model\.ckpt-3 \(digest \w+\) is not the checkpoint of step 3 that was "
        with pytest.raises(ValueError, match=said):
            run_again(small)
    assert not (tmp_path / "run" / "model.ckpt-6.index").exists()  # no step was taken
    (tmp_path / "run" / "checkpoints.jsonl").unlink()
    if not do_eval:  # else the evaluation tells
        do_run(small)
        said = r"checkpoints\.jsonl does not say what this run has saved: .*model\.ckpt-3 is taken"
        assert re.search(said, caplog.text)


def test_a_checkpoint_of_a_step_that_the_run_has_not_saved_is_not_resumed(small, tmp_path, caplog):
    with interrupted():
        do_run(small, [killed_at(5)])
    other = dataclasses.replace(small, output_dir=str(tmp_path / "other"))
    do_run(other)
    for path in (tmp_path / "other").glob("model.ckpt-6.*"):
        shutil.copy(path, small.output_dir)
    with pytest.raises(
        ValueError, match=r"model\.ckpt-6 .* none of .* of the steps 0, 3: another run"
    ):
        do_run(small)
    for path in (tmp_path / "run").glob("model.ckpt-6.*"):
        path.unlink()
    do_run(small)
    assert "does not say what" not in caplog.text


def test_checkpoints_of_before_the_run_are_used_without_a_word(small, tmp_path, caplog):
    with interrupted():
        do_run(small, [killed_at(5)])
    for name in ("run.json", "checkpoints.jsonl", "evaluations.jsonl", "runs.jsonl"):
        (tmp_path / "run" / name).unlink()
    do_run(small)
    do_run(dataclasses.replace(small, do_train=False))
    assert "does not say what" not in caplog.text


def test_each_checkpoint_is_recorded_once_also_after_a_kill(small, tmp_path):
    for step in (1, 2, 5):
        with interrupted():
            do_run(small, [killed_at(step)])
    do_run(small)
    rows = map(json.loads, (tmp_path / "run" / "checkpoints.jsonl").read_text().splitlines())
    assert [row["step"] for row in rows] == [0, 3, 6, 7]


def test_reports_of_steps_that_are_trained_again_are_removed(small, tmp_path):
    with interrupted():
        do_run(small, [killed_at(6)])
    path = tmp_path / "run" / "metrics.jsonl"

    def steps_of(kind):
        rows = map(json.loads, path.read_text().splitlines())
        return [row["step"] for row in rows if ("loss" in row) == (kind == "training")]

    assert steps_of("training") == [1, 2, 3, 4, 5]
    with interrupted():
        do_run(small, [killed_at(4)])
    assert steps_of("training") == [1, 2, 3]
    do_run(small)
    assert steps_of("training") == [1, 2, 3, 4, 5, 6, 7]
    assert steps_of("evaluation") == [0, 3, 6, 7] or steps_of("evaluation") == [3, 6, 7]


# What TensorBoard receives, and by its files W&B


REPORTED = {"learning_rate": (1e-5, 3e-5), "seed": 7, "do_train": True, "init_checkpoint": None}


def values_of(folder):
    """Returns (step, summary) of all TensorBoard summaries, in the order of writing."""
    return [
        (event.step, value)
        for path in sorted(folder.glob("events.out.tfevents.*"), key=os.path.getmtime)
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        for event in [tf.compat.v1.Event.FromString(record)]
        for value in event.summary.value
    ]


def test_a_run_reports_training_and_evaluations_once_also_if_it_is_killed(tmp_path):
    small = settings_of(tmp_path)
    with interrupted():
        do_run(small, [killed_at(5)])
    do_run(small)
    found = [(step, value.tag) for step, value in values_of(tmp_path / "run")]
    steps = [step for step, tag in found if tag == "train/error"]
    assert steps == [1, 2, 3, 4, 4, 5, 6, 7]  # step 4 was trained again
    assert [step for step, tag in found if tag == "eval/eval_accuracy"] == [3, 6, 7]
    tags = {tag for _, tag in found if not tag.startswith("_hparams_/")}
    names = ("loss", "error", "gradient_norm", "learning_rate", "examples_per_second")
    assert tags == {f"train/{name}" for name in names} | {"eval/eval_accuracy", "eval/eval_loss"}


def test_tensorboard_and_wandb_receive_metrics_and_settings(tmp_path, monkeypatch):
    from tensorboard.plugins.hparams import plugin_data_pb2

    calls = []

    def init(**arguments):
        assert not list(tmp_path.glob("events*"))  # it only sees files that are opened later
        calls.append(arguments)
        return types.SimpleNamespace(finish=lambda: calls.append("finish"))

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    with Tracker(str(tmp_path), to_wandb=True, settings=REPORTED) as tracker:
        assert not list(tmp_path.iterdir())  # nothing is opened before there are metrics
        tracker.write(3, {"train/loss": 2.5})
        tracker.write(5, {"train/loss": 2.25})
    started, finished = calls
    assert started["sync_tensorboard"] is True
    assert started["config"] == {"learning_rate": "1e-05,3e-05", "seed": 7, "do_train": True}
    assert finished == "finish"
    values = values_of(tmp_path)
    assert [step for step, value in values if value.tag == "train/loss"] == [3, 5]
    (told,) = (value for _, value in values if value.tag == "_hparams_/session_start_info")
    data = plugin_data_pb2.HParamsPluginData.FromString(told.metadata.plugin_data.content)
    found = data.session_start_info.hparams
    assert found["learning_rate"].string_value == "1e-05,3e-05"
    assert found["seed"].number_value == 7
    assert found["do_train"].bool_value is True
    assert "init_checkpoint" not in found


def test_a_disk_too_full_for_summaries_is_reported_in_one_line(tmp_path, monkeypatch):
    def fail(output_dir):
        message = f"{output_dir}/events; No space left on device\n\tCould not initialize"
        raise tf.errors.ResourceExhaustedError(None, None, message)

    monkeypatch.setattr(tf.summary, "create_file_writer", fail)
    with pytest.raises(OSError, match=r"^\S+: the summaries cannot .* No space left on device\. "):
        Tracker(str(tmp_path)).write(3, {"loss": 2.0})
