"""A run that is refused anyway does not read and tokenize its data before."""

import collections
import dataclasses

import numpy as np
import pytest

from albert_tf.checkpoints import containers, run_record, tasks
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import FileRecord
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.finetuning import registry
from albert_tf.finetuning.run import open_source
from albert_tf.finetuning.token_classification import Settings, run
from albert_tf.training.admission import InitialWeights, make_record


@pytest.fixture(name="run_again")
def fixture_run_again(tmp_path, config_file, toy_spm_model):
    """Returns a function that starts a run again, whose data have been deleted."""
    values = {
        "albert_config_file": str(config_file),
        "data_dir": str(tmp_path),
        "do_eval": False,
        "do_train": True,
        "max_seq_length": 12,
        "output_dir": str(tmp_path / "out"),
        "spm_model_file": str(toy_spm_model),
    }
    settings = Settings(**values).completed()
    known = run_record.of_tokenizer(open_source(settings).unchecked_tokenizer, str(toy_spm_model))
    config, weights = open_source(settings).config, InitialWeights(settings.init_checkpoint)
    record = make_record(settings, config, "float32", known, weights)
    record = dataclasses.replace(record, task={"name": "token_classification", "labels": []})
    other = {run_record.VOCABULARY: FileRecord("5 entries, sha256 1", "spm.model")}

    def run_again(other_vocabulary=False, other_task=False, **changes):
        folder = RunFolder(values["output_dir"])
        (tmp_path / "out").mkdir(exist_ok=True)
        save_checkpoint(folder.file("model.ckpt-5"), {"global_step": np.int64(5)})
        files = {**record.files, **(other if other_vocabulary else {})}
        task = {"name": "spans"} if other_task else record.task
        folder.write_record(dataclasses.replace(record, files=files, task=task))
        run(Settings(**values | changes))

    return run_again


@pytest.mark.parametrize(
    ("other_vocabulary", "changes", "said"),
    [
        (False, {"learning_rate": 0.5, "seed": 9}, r"learning_rate: .* → 0\.5\n  seed: "),
        (True, {}, r"vocabulary: 5 entries, sha256 1 .* → \d+ entries"),
    ],
)
def test_a_changed_run_is_refused_before_its_data_are_read(
    run_again, other_vocabulary, changes, said
):
    with pytest.raises(ValueError, match=rf"(?s)out contains a run with other settings:.*{said}"):
        run_again(other_vocabulary, **changes)


def test_another_task_is_all_that_is_named(run_again):
    with pytest.raises(
        ValueError, match=r"with other settings:\n  task: spans → token_\w+\nChoose"
    ):
        run_again(other_task=True, learning_rate=0.5)


def test_a_class_has_all_the_names_that_its_runs_may_record():
    """Otherwise its own run would be refused as that of another task."""
    names = collections.defaultdict(list)
    for spec in registry.rows():
        if spec.name in tasks.NAMES:  # not one that another test has registered
            names[spec.task].append(spec.name)
    found = {task: list(task.names) for task in names if task.names}
    assert found == {task: both for task, both in names.items() if len(both) > 1}


def test_initial_weights_are_read_once_and_only_for_a_resumed_run(
    run_again, tmp_path, toy_spm_model, config_file, monkeypatch
):
    """Those of xxlarge have 900 MB."""
    init = tmp_path / "init"
    init.mkdir()
    save_checkpoint(str(init / "model.ckpt-1"), {"global_step": np.int64(1)})
    read = []

    def digest(path):
        if path.startswith(str(init)):  # the checkpoints of the run are read when they are written
            read.append(path)
        return "0"

    monkeypatch.setattr(containers, "digest", digest)
    start = {"init_checkpoint": str(init)}
    with pytest.raises(ValueError, match=r"init_checkpoint: none → digest 0"):
        run_again(**start)
    assert len(read) == 1
    with pytest.raises(FileNotFoundError, match="no train data"):
        run_again(output_dir=str(tmp_path / "new"), **start)
    assert len(read) == 1
    weights = InitialWeights(str(init))
    assert weights.record == weights.record
    assert len(read) == 2


def test_what_is_allowed_or_the_same_is_read(run_again, caplog):
    for changes in ({}, {"learning_rate": 0.5, "allow_changed_settings": True}):
        with pytest.raises(FileNotFoundError, match="no train data"):
            run_again(**changes)
    assert not caplog.messages
