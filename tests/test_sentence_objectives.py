"""Sentence objectives: the registry, and runs from text to a loaded model, also of one's own."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from albert_tf import AlbertForPretraining, load_checkpoint, pretraining, sentence_objectives
from albert_tf.checkpoints import store
from albert_tf.checkpoints.names import variable_name
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.config import AlbertConfig
from albert_tf.data.create import create_pretraining_data
from albert_tf.data.records import read_metadata, read_records
from albert_tf.data.settings import MEGABYTE, Settings
from albert_tf.data.tfrecord import decode_example
from albert_tf.sentence_objectives import NONE, NSP, OBJECTIVES, SOP, SentenceObjective
from tests.conftest import ROOT, TOY_TEXT
from tests.script_runner import tensors

HEAD = ["cls/seq_relationship/output_bias", "cls/seq_relationship/output_weights"]
# Of three classes, as in StructBERT, in a script that a user would write.
SCRIPT = """
import sys
from albert_tf.cli.programs import main
from albert_tf.sentence_objectives import SentenceObjective, register


def make_pair(a, b, rng, random_segment):
    if b is None or rng.random() < 1 / 3:
        return a, random_segment(), 2
    return (b, a, 1) if rng.random() < 0.5 else (a, b, 0)


CLASSES = ("in order", "swapped", "from another document")
THREE = register(SentenceObjective("sentence_structure", "sop3", CLASSES, make_pair))

if __name__ == "__main__":
    main({"data": "create-pretraining-data", "train": "run-pretraining"}[sys.argv.pop(1)])
"""


@pytest.fixture(name="sop3")
def register_three_classes():
    """Registers the objective of `SCRIPT`, and forgets it at the end."""
    names: dict = {"__name__": "script"}
    exec(SCRIPT, names)
    yield names["THREE"]
    del OBJECTIVES["sop3"]


@pytest.fixture(scope="module", name="text_file")
def write_text(tmp_path_factory):
    """Documents of 1 to 6 sentences."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = TOY_TEXT.splitlines()
    path.write_text("\n\n".join("\n".join(lines[i % 6 :]) for i in range(30)) + "\n")
    return path


@pytest.fixture(name="make_records")
def make_record_maker(tmp_path, text_file, toy_spm_model):
    """Creates records of a sentence objective, and returns their path."""

    def make(objective=None, **changes):
        path = tmp_path / f"{objective or 'default'}.tfrecord"
        values = {
            "input_file": str(text_file),
            "output_file": str(path),
            "spm_model_file": toy_spm_model,
            "sentence_objective": objective,
            "max_seq_length": 37,
            "max_predictions_per_seq": 7,
            "dupe_factor": 2,
            "chunk_megabytes": 1000 / MEGABYTE,
            "num_workers": 1,
            "show_progress": False,
        }
        create_pretraining_data(Settings(**values | changes))
        return path

    return make


@pytest.fixture(name="settings")
def make_settings(tmp_path, config_file):
    """Settings of a run of two steps in its own folder, without the records."""

    def make(records, output_dir="out", **changes):
        values = {
            "albert_config_file": str(config_file),
            "input_file": str(records),
            "output_dir": str(tmp_path / output_dir),
            "do_eval": True,
            "max_seq_length": 37,
            "max_predictions_per_seq": 7,
            "train_batch_size": 8,
            "num_train_steps": 2,
            "num_warmup_steps": 1,
            "max_eval_steps": 2,
            "learning_rate": 0.001,
            "optimizer": "adamw",
            "precision": "float32",
        }
        return pretraining.Settings(**values | changes)

    return make


def labels_in(path):
    return [int(decode_example(r)["next_sentence_labels"][0]) for r in read_records(str(path))]


def test_an_unknown_objective_is_refused_with_those_that_exist():
    with pytest.raises(ValueError, match=r"'sbo': expected one of sop, nsp, none, or one added"):
        sentence_objectives.find("sbo")
    with pytest.raises(ValueError, match="sentence_objective='sbo': expected one of 'sop', 'nsp'"):
        Settings(input_file="text", output_file="records", sentence_objective="sbo")


@pytest.mark.parametrize(
    ("name", "abbreviation", "classes", "message"),
    [
        ("sentence_order", "mine", 2, "'sentence_order': the name is taken"),
        ("mine", "nsp", 2, "'nsp': the name is taken; those in use are .*none, nsp, sentence_"),
        ("masked_lm", "mine", 2, "'masked_lm': the name is taken"),
        ("my own", "mine", 2, "'my own': expected a name of lowercase letters, digits"),
        ("mine", "", 2, "'': expected a name"),
        ("mine", "mine", 1, "'mine' has 1 classes: expected 2 to 128, or 0"),
        ("mine", "mine", 129, "'mine' has 129 classes"),
    ],
)
def test_names_and_numbers_of_classes_that_cannot_be_are_refused(
    name, abbreviation, classes, message
):
    before = dict(OBJECTIVES)
    with pytest.raises(ValueError, match=message):
        sentence_objectives.register(
            SentenceObjective(name, abbreviation, ("class",) * classes, OBJECTIVES[SOP].make_pair)
        )
    assert before == OBJECTIVES


def test_registering_the_same_objective_again_changes_nothing(sop3):
    assert sentence_objectives.register(dataclasses.replace(sop3)) is sop3


@pytest.mark.ci
@pytest.mark.parametrize(
    "objective",  # of sop: tests/pretraining
    [pytest.param(NSP, marks=pytest.mark.ci), NONE, "sop3"],
)
def test_an_objective_goes_from_text_to_a_loaded_model(
    tmp_path, make_records, settings, sop3, toy_spm_model, objective, caplog
):
    caplog.set_level("INFO", logger="absl")
    records = make_records(objective)
    found = OBJECTIVES[objective]
    assert set(labels_in(records)) == set(range(max(1, found.num_classes)))
    metadata = read_metadata([str(records)])[str(records)].settings
    assert metadata["sentence_objective"] == objective
    assert "random_next_sentence" not in metadata

    result = pretraining.run(settings(records, plots=False))  # the records say which objective
    names = {"loss", "masked_lm_loss", "masked_lm_accuracy"}
    names |= {found.loss_name, found.accuracy_name} if found.has_head else set()
    assert set(result.evaluations[-1].metrics) == names
    # The console names the accuracy by the abbreviation.
    assert (f"{objective}_acc" in caplog.text) == found.has_head

    weights = tensors(tmp_path / "out" / "model.ckpt-2")
    shapes = {name: value.shape for name, value in weights.items() if name in HEAD}
    size = found.num_classes
    assert shapes == ({HEAD[0]: (size,), HEAD[1]: (size, 12)} if size else {})
    recorded = RunFolder(f"{tmp_path}/out").record.settings
    assert recorded["sentence_objective"] == objective
    assert recorded["sentence_loss_weight"] == 1.0

    from albert_tf import from_pretrained

    best = tensors(tmp_path / "out" / "model.ckpt-best")
    folder = str(tmp_path / "out")
    model, _ = from_pretrained(folder, "pretraining", spm_model_file=toy_spm_model)
    for variable in model.variables:
        np.testing.assert_array_equal(variable, best[variable.name.split(":")[0]])
    assert type(model).from_config(model.get_config()).sentence_objective == objective
    outputs = model(np.full((3, 5), 7, np.int32))
    expected = {found.logits_name: (3, size)} if size else {}
    assert {name: x.shape for name, x in outputs.items() if name != "masked_lm_logits"} == expected

    if objective == "sop3":  # where it is not registered, the rest of the model can be used
        del OBJECTIVES[objective]
        model, _ = from_pretrained(folder, "pretraining", spm_model_file=toy_spm_model)
        OBJECTIVES[objective] = sop3
        assert set(model(np.full((3, 5), 7, np.int32))) == {"masked_lm_logits"}
        assert (
            "sentence_objective=sop3, which is not registered here (only sop, nsp," in caplog.text
        )


def test_records_of_another_objective_are_refused(make_records, settings):
    records, others = make_records(NSP), make_records(SOP)
    with pytest.raises(ValueError, match=r"nsp\.tfrecord was created for sentence_objective=nsp"):
        pretraining.run(settings(records, sentence_objective=SOP))
    with pytest.raises(ValueError, match=r"sop\.tfrecord was created for sentence_objective=sop"):
        pretraining.run(settings(records, eval_input_file=str(others)))


def test_records_of_an_objective_that_is_not_registered_are_refused(make_records, settings, sop3):
    records = make_records("sop3")
    OBJECTIVES.pop("sop3")
    try:
        with pytest.raises(ValueError, match=r"records\.json: .*='sop3', expected one of sop, nsp"):
            pretraining.run(settings(records))
    finally:
        OBJECTIVES["sop3"] = sop3


def without_metadata(path):
    """Removes the metadata, as Google's records have none."""
    path.with_name(f"{path.name}.records.json").unlink()
    return path


def test_labels_of_unknown_records_are_ignored_without_a_head_and_else_checked(
    tmp_path, make_records, settings, sop3, config_file
):
    records = without_metadata(make_records("sop3"))
    with pytest.raises(ValueError, match="or has values out of the ranges of this model"):
        pretraining.run(settings(records))
    config = AlbertConfig.from_json_file(str(config_file))
    weights = {variable_name(v): v for v in AlbertForPretraining(config, NONE).variables}
    store.save_checkpoint(f"{tmp_path}/model.ckpt-2", weights)
    evaluated = {"do_train": False, "init_checkpoint": f"{tmp_path}/model.ckpt-2"}
    evaluated["output_dir"] = f"{tmp_path}/evaluated"
    (last,) = pretraining.run(settings(records, sentence_objective=NONE, **evaluated)).evaluations
    assert set(last.metrics) == {"loss", "masked_lm_loss", "masked_lm_accuracy"}


@pytest.mark.ci
def test_a_run_cannot_change_its_objective_or_weight_silently(make_records, settings):
    records = without_metadata(make_records(NSP))
    first = settings(records, sentence_objective=NSP, sentence_loss_weight=0.5)
    own = pretraining.run(first).evaluations[-1].metrics
    for changes in ({"sentence_objective": SOP}, {"sentence_loss_weight": 1.0}):
        for do_train in (True, False):
            other = dataclasses.replace(first, do_train=do_train, **changes)
            with pytest.raises(ValueError, match=next(iter(changes))):
                pretraining.run(other)
    # Evaluated on another objective only on demand, and then with the weights of that head.
    crossed = dataclasses.replace(
        first, do_train=False, sentence_objective=SOP, allow_changed_settings=True
    )
    other = pretraining.run(crossed).evaluations[-1].metrics
    assert other["sentence_order_loss"] == own["next_sentence_loss"]


def test_a_head_of_another_objective_is_not_loaded(tmp_path, config_file, caplog):
    config = AlbertConfig.from_json_file(str(config_file))
    weights = AlbertForPretraining(config, NSP).variables
    store.save_checkpoint(str(tmp_path / "model.ckpt-2"), {variable_name(v): v for v in weights})
    RunFolder(str(tmp_path)).write_record(RunRecord(settings={"sentence_objective": NSP}))
    for objective, missing in ((NSP, []), (SOP, HEAD), (NONE, [])):
        caplog.clear()
        model = AlbertForPretraining(config, objective)
        if missing:
            refusal = rf"missing    {HEAD[0]}[^@]*pass --allow_partial_init"
            with pytest.raises(ValueError, match=refusal):
                load_checkpoint(model, str(tmp_path))
        report = load_checkpoint(model, str(tmp_path), allow_partial=bool(missing))
        assert (report.fits, report.missing) == (True, missing)
        note = f"trained with sentence_objective=nsp, here {objective}: no sentence head is loaded"
        assert (note in str(report)) == (note in caplog.text) == (objective != NSP)
        assert (f"random weights: {', '.join(HEAD)}" in caplog.text) == bool(missing)


@pytest.mark.slow
@pytest.mark.parametrize("objective", [SOP, NSP, NONE, pytest.param("sop3", marks=pytest.mark.ci)])
def test_every_objective_trains_from_the_shell(
    tmp_path, text_file, toy_spm_model, config_file, objective
):
    script = tmp_path / "own_objective.py"
    script.write_text(SCRIPT)
    programs = {
        "data": [str(ROOT / "create_pretraining_data.py")],
        "train": [str(ROOT / "run_pretraining.py")],
    }
    if objective == "sop3":
        programs = {name: [str(script), name] for name in programs}

    def run(name, *flags):
        done = subprocess.run(
            [sys.executable, *programs[name], "--max_seq_length=37", *flags],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(
        "data",
        *(f"--input_file={text_file}", "--output_file=records@2", "--dupe_factor=2"),
        *(f"--sentence_objective={objective}", f"--spm_model_file={toy_spm_model}"),
        *("--num_workers=2", "--chunk_megabytes=0.001"),
    )
    metrics = run(
        "train",
        *(f"--albert_config_file={config_file}", "--input_file=records-*", "--output_dir=out"),
        *("--train_batch_size=8", "--num_train_steps=2", "--num_warmup_steps=1", "--noplots"),
        *("--sentence_loss_weight=0.5", "--do_eval"),
    )
    name = {SOP: "sentence_order", NSP: "next_sentence", "sop3": "sentence_structure"}
    assert (f"{name.get(objective)}_accuracy = " in metrics) == (objective != NONE)
