"""run_classifier.py as a user runs it, on sentences about a town and its river."""

from __future__ import annotations

import json
import math
import re
import shutil
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

import albert_tf
from albert_tf import classification
from albert_tf.checkpoints import store
from albert_tf.cli import programs
from albert_tf.cli.flags import parse
from albert_tf.data.tfrecord import encode_examples
from albert_tf.finetuning.sequences import TokenSequences
from albert_tf.settings import describe
from albert_tf.training.loop import Trainer
from tests.script_runner import killed_at, logged_rates, start_of, tensors

OFFICIAL_DEFAULTS = {
    "data_dir": None,
    "task_name": None,
    "spm_model_file": None,
    "output_dir": None,
    "albert_config_file": None,
    "albert_hub_module_handle": None,
    "vocab_file": None,
    "cached_dir": None,
    "init_checkpoint": None,
    "do_lower_case": True,
    "max_seq_length": 512,
    "do_train": False,
    "do_eval": False,
    "do_predict": False,
    "train_batch_size": 32,
    "eval_batch_size": 8,
    "predict_batch_size": 8,
    "learning_rate": 5e-5,
    "train_step": 1000,
    "warmup_step": 0,
    "save_checkpoints_steps": 1000,
    "keep_checkpoint_max": 5,
    "optimizer": "adamw",
    "export_dir": None,
    "use_tpu": False,
    "tpu_name": None,
    "tpu_zone": None,
    "gcp_project": None,
    "use_pooled_output": True,  # albert_zh's
    "warmup_proportion": 0.1,
}
TEXTS = [
    "The river carries the rain.",
    "A small boat waits at the landing.",
    "In winter the landing freezes, and children skate.",
    "Old people say that the river was wider.",
    "Nobody knows whose boat it is.",
    "The town had grown towards the water.",
    "They measured it once.",
]


def write_cola(folder):
    """Writes CoLA's files, with labels determined by the words."""
    folder.mkdir(parents=True)
    for split, count in (("train", 23), ("dev", 13)):
        rows = [TEXTS[number * 3 % len(TEXTS)] for number in range(count)]
        lines = [f"x\t{int('river' in text)}\t\t{text}\n" for text in rows]
        (folder / f"{split}.tsv").write_text("".join(lines))
    lines = ["index\tsentence\n", *(f"{n + 40}\t{text}\n" for n, text in enumerate(TEXTS))]
    (folder / "test.tsv").write_text("".join(lines))


def write_sts(folder):
    folder.mkdir(parents=True)
    for split, count in (("train", 11), ("dev", 7)):
        lines = ["\t".join(f"c{number}" for number in range(10)) + "\n"]
        for number in range(count):
            texts = TEXTS[number % 7], TEXTS[number * 2 % 7]
            lines.append("\t".join([str(number), *["x"] * 6, *texts, str(number % 6)]) + "\n")
        (folder / f"{split}.tsv").write_text("".join(lines))


@pytest.fixture(scope="module", name="data_dir")
def make_data(tmp_path_factory):
    root = tmp_path_factory.mktemp("glue")
    write_cola(root / "CoLA")
    write_sts(root / "STS-B")
    return root


def run_program(*arguments):
    return programs.run("run-classifier", parse(classification.Settings, arguments))


@pytest.fixture(scope="module", name="run")
def with_model(data_dir, config_file, toy_spm_model):
    def run(*arguments):
        return run_program(
            "--task_name=CoLA",
            f"--data_dir={data_dir}",
            f"--albert_config_file={config_file}",
            f"--spm_model_file={toy_spm_model}",
            "--max_seq_length=17",
            "--train_batch_size=5",
            "--learning_rate=0.01",
            "--log_steps=2",
            "--noplots",
            "--precision=float32",
            *arguments,
        )

    return run


ALL = ["--do_train", "--do_eval", "--do_predict"]
TO_STEP_5 = ["--train_step=5", "--save_checkpoints_steps=2", "--keep_checkpoint_max=0"]


@pytest.fixture(scope="module", name="finished")
def run_through(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("through")
    run(f"--output_dir={folder}", *ALL, *TO_STEP_5, "--plots")
    return folder


def contents(folder):
    times = {"run.json", "runs.jsonl"}  # these say when it was run
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "tfevents" not in path.name and path.name not in times
    }


def test_every_flag_of_google_has_googles_default():
    fields = {field.name: field.default for field in describe(classification.Settings)}
    assert {name: fields[name] for name in OFFICIAL_DEFAULTS} == OFFICIAL_DEFAULTS
    assert math.isnan(fields["threshold_to_export"])
    required = ["--task_name=CoLA", "--data_dir=glue", "--output_dir=out"]
    old = ["--bert_config_file=c", "--master=x", "--num_tpu_cores=8", "--iterations_per_loop=1000"]
    assert parse(classification.Settings, [*required, *old]).albert_config_file == "c"


def test_the_learning_rate_depends_on_the_finished_steps(finished):
    """Of update t that of step t - 1, as in Google's trainer."""
    assert logged_rates(finished) == pytest.approx({2: 0.008, 4: 0.004, 5: 0.002})


def test_every_checkpoint_is_evaluated_and_the_best_is_kept(finished):
    assert list(store.list_checkpoints(str(finished))) == [0, 2, 4, 5]
    blocks = (finished / "eval_results.txt").read_text().split("=" * 50 + "\n")
    assert blocks.pop() == ""
    scores, keys = [], ["eval_accuracy", "eval_loss", "global_step", "loss", "matthew_corr", "best"]
    for step, block in zip((0, 2, 4, 5), blocks, strict=True):
        values = dict(re.findall(r"(\w+) = (\S+)\n", block))
        assert list(values) == keys
        assert values["global_step"] == str(step)
        assert float(values["best"]) == pytest.approx(max([-1.0, *scores]))
        scores.append(float(values["matthew_corr"]))
    best = (0, 2, 4, 5)[int(np.argmax(scores))]
    last, best_step, value = (finished / "best_trial.txt").read_text().split(":")
    assert (int(last), int(best_step)) == (5, best)
    assert float(value) == pytest.approx(max(scores))
    assert tensors(finished / "model.ckpt-best")["global_step"] == best


def test_predictions_are_written_in_all_formats(finished):
    rows = [line.split("\t") for line in (finished / "test_results.tsv").read_text().splitlines()]
    probabilities = np.array(rows, np.float64)
    assert probabilities.shape == (7, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    lines = (finished / "submit_results.tsv").read_text().splitlines()
    expected = [f"{n + 40}\t{label}" for n, label in enumerate(probabilities.argmax(axis=1))]
    assert lines == ["index\tprediction", *expected]
    assert (finished / "CoLA.tsv").read_text().splitlines() == lines
    header, *rows = [
        line.split("\t") for line in (finished / "dev_predictions.tsv").read_text().splitlines()
    ]
    assert header == ["line", "guid", "label", "prediction", "0", "1"]
    assert [row[0] for row in rows] == [str(number) for number in range(1, 14)]
    # They are those of the best checkpoint, so that their accuracy is its accuracy.
    trial = (finished / "best_trial.txt").read_text().split(":")[1]
    accuracy = re.search(
        rf"eval_accuracy = (\S+)\neval_loss = \S+\nglobal_step = {trial}\n",
        (finished / "eval_results.txt").read_text(),
    )[1]
    assert np.mean([row[2] == row[3] for row in rows]) == pytest.approx(float(accuracy))


def test_plots_are_drawn(finished):
    for name in ("training_curve.png", "confusion_matrix.png"):
        assert (finished / name).read_bytes().startswith(b"\x89PNG")


def test_running_again_changes_nothing(finished, run):
    before = contents(finished)
    run(f"--output_dir={finished}", *ALL, *TO_STEP_5)
    assert contents(finished) == before
    run(f"--output_dir={finished}", "--do_eval")
    assert contents(finished) == before


@pytest.mark.slow  # tests/finetuning/test_run.py and tests/training/test_loop.py have it by default
def test_a_killed_run_resumes_bit_for_bit(finished, run, tmp_path, monkeypatch):
    arguments = [f"--output_dir={tmp_path}", *ALL, *TO_STEP_5[:2], "--keep_checkpoint_max=1"]
    with killed_at(4):
        run(*arguments)
    assert list(store.list_checkpoints(str(tmp_path))) == [2]
    run(*arguments)
    ours, theirs = (tensors(folder / "model.ckpt-5") for folder in (tmp_path, finished))
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)
    for name in ("eval_results.txt", "best_trial.txt", "test_results.tsv", "evaluations.jsonl"):
        assert (tmp_path / name).read_bytes() == (finished / name).read_bytes()


def serve(folder, cache):
    """Returns the outputs of a SavedModel for serialized examples with cached features."""
    (path,) = folder.iterdir()
    with np.load(cache) as arrays:
        features = TokenSequences.from_arrays(arrays)
    batch = features.batch(np.arange(len(features)), 17)
    del batch["label_ids"]
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    return path, {
        name: value.numpy()
        for name, value in signature(input=tf.constant(encode_examples(batch))).items()
    }


def test_the_exported_model_predicts_like_the_best_checkpoint(finished, run, tmp_path):
    run(
        f"--output_dir={finished}",
        f"--export_dir={tmp_path}",
        "--threshold_to_export=0.25",
        "--noexport_texts",
    )
    path, served = serve(tmp_path, finished / "cola_test.npz")
    assert set(served) == {"probabilities", "predictions", "threshold"}
    lines = (finished / "test_results.tsv").read_text().splitlines()
    predicted = np.array([line.split("\t") for line in lines], np.float32)
    np.testing.assert_allclose(served["probabilities"], predicted, atol=1e-6)
    np.testing.assert_array_equal(served["predictions"], predicted.argmax(axis=1))
    assert served["threshold"] == np.float32(0.25)
    extra = path / "assets.extra"
    assert {file.name for file in extra.iterdir()} == {
        "albert_config.json",
        "labels.txt",
        "run.json",
        "toy.model",
    }
    assert (extra / "labels.txt").read_text() == "0\n1\n"


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")
def test_the_best_checkpoint_is_exported_to_tflite_with_its_files(finished, run, tmp_path):
    run(
        f"--output_dir={finished}",
        f"--export_dir={tmp_path}",
        "--noexport_texts",
        "--tflite_quantization=int8",
    )
    path = tmp_path / "albert_model.tflite"
    with np.load(finished / "cola_test.npz") as arrays:
        features = TokenSequences.from_arrays(arrays)
    runner = tf.lite.Interpreter(model_path=str(path)).get_signature_runner("serving_default")
    batch = features.batch(np.arange(1), 17)
    del batch["label_ids"]
    found = runner(**batch)["probabilities"][0]
    predicted = (finished / "test_results.tsv").read_text().splitlines()[0].split("\t")
    np.testing.assert_allclose(found, np.array(predicted, np.float32), atol=1e-3)
    with zipfile.ZipFile(path) as archive:
        assert set(archive.namelist()) == {"toy.model", "labels.txt"}
        assert archive.read("labels.txt") == b"0\n1\n"


def test_a_regression_is_evaluated_and_exported(run, tmp_path):
    out, export = tmp_path / "out", tmp_path / "export"
    run(
        "--task_name=STS-B",
        f"--output_dir={out}",
        "--do_train",
        "--do_eval",
        "--train_step=3",
        "--save_checkpoints_steps=2",
        f"--export_dir={export}",
    )
    keys = set(re.findall(r"(\w+) = ", (out / "eval_results.txt").read_text()))
    assert keys == {*("MSE", "pearson", "spearman", "eval_loss", "loss", "global_step", "best")}
    path, served = serve(export, out / "sts-b_eval.npz")
    assert served["probabilities"].shape == (7, 1)
    np.testing.assert_array_equal(served["predictions"], served["probabilities"][:, 0])
    rows = [line.split("\t") for line in (out / "dev_predictions.tsv").read_text().splitlines()]
    assert rows[0][-1] == "score"
    scores = np.array([row[-1] for row in rows[1:]], np.float32)
    np.testing.assert_allclose(served["predictions"], scores, atol=1e-5)
    pairs = [(TEXTS[number % 7], TEXTS[number * 2 % 7]) for number in range(7)]
    texts, others = (tf.constant(column) for column in zip(*pairs, strict=True))
    by_text = tf.saved_model.load(str(path)).signatures["texts"](text_a=texts, text_b=others)
    assert set(by_text) == {"probabilities", "predictions"}
    np.testing.assert_allclose(by_text["predictions"], scores, atol=1e-5)


@pytest.mark.slow
def test_a_sweep_writes_a_folder_per_run_and_a_table_and_resumes(run, tmp_path, monkeypatch):
    arguments = [
        *(f"--output_dir={tmp_path}", "--do_train", "--do_eval", "--train_step=1"),
        *("--learning_rate=0.01,0.02", "--seed=7", "--plots"),
    ]
    train, begun = Trainer.train, []

    def fail_in_the_second(trainer, *rest, **more):
        begun.append(trainer.settings.output_dir)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return train(trainer, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train", fail_in_the_second)
        with pytest.raises(KeyboardInterrupt):
            run(*arguments)
    first = contents(tmp_path / "lr0.01_seed7")
    run(*arguments, f"--export_dir={tmp_path}/export")
    assert {path.name for path in tmp_path.glob("lr*")} == {"lr0.01_seed7", "lr0.02_seed7"}
    again = contents(tmp_path / "lr0.01_seed7")
    assert {name: again[name] for name in first} == first
    # Plots are drawn when all runs are done.
    assert set(again) - set(first) == {"training_curve.png", "confusion_matrix.png"}
    rows = [line.split("\t") for line in (tmp_path / "sweep_results.tsv").read_text().splitlines()]
    assert len(rows) == 3
    column = rows[0].index("matthew_corr")
    for row in rows[1:]:
        with open(f"{row[0]}/best_trial.txt", encoding="utf-8") as stream:
            assert float(row[column]) == pytest.approx(float(stream.read().split(":")[2]))
    assert "median" in (tmp_path / "sweep_results.txt").read_text()
    assert len(list((tmp_path / "export").iterdir())) == 1


@pytest.mark.slow  # tests/finetuning/test_run.py has it in the default tier
def test_early_stopping_persists(run, tmp_path):
    arguments = [
        *(f"--output_dir={tmp_path}", "--do_train", "--do_eval", "--train_step=40"),
        *("--save_checkpoints_steps=1", "--learning_rate=0", "--early_stopping_patience=2"),
    ]
    run(*arguments)
    # With a learning rate of 0 nothing gets better than step 1.
    assert list(store.list_checkpoints(str(tmp_path)))[-1] == 3
    before = contents(tmp_path)
    run(*arguments)
    assert contents(tmp_path) == before


def test_the_mean_over_all_positions_includes_the_padding(run, finished, tmp_path):
    start = f"--init_checkpoint={finished}/model.ckpt-best"
    for number, more in enumerate(([], ["--pad_to_multiple=1", "--predict_batch_size=3"])):
        run(
            f"--output_dir={tmp_path}/{number}",
            start,
            "--do_predict",
            "--nouse_pooled_output",
            "--allow_changed_settings",  # it was trained with the pooled output
            *more,
        )
    first, second = (np.loadtxt(tmp_path / f"{n}" / "test_results.tsv") for n in (0, 1))
    np.testing.assert_allclose(first, second, atol=1e-6)
    assert np.abs(first - np.loadtxt(finished / "test_results.tsv")).max() > 1e-6


@pytest.fixture(name="started")
def start_only(run, tmp_path, monkeypatch):
    """See `script_runner.start_of`."""
    return start_of(run, monkeypatch, f"--output_dir={tmp_path}/out", "--do_train")


def test_the_head_of_another_task_is_skipped_and_reported(finished, started, tmp_path):
    weights = tensors(finished / "model.ckpt-5")
    weights["output_weights"] = np.ones((3, 12), np.float32)
    weights["output_bias"] = np.ones(3, np.float32)
    store.save_checkpoint(str(tmp_path / "three_labels"), weights)
    state, log = started(f"--init_checkpoint={tmp_path}/three_labels")
    assert re.search(r"misshapen +output_weights: \[3, 12\], here \[2, 12\]", log)
    assert "New heads with random weights: output_bias, output_weights" in log
    assert state["output_weights"].shape == (2, 12)
    assert np.abs(state["output_weights"]).max() < 0.05
    name = "bert/pooler/dense/kernel"
    np.testing.assert_array_equal(state[name], weights[name])


def test_a_hub_module_supplies_weights_config_and_vocabulary(
    finished, data_dir, config_file, toy_spm_model, tmp_path
):
    hub = tmp_path / "hub"
    for folder in ("variables", "assets"):
        (hub / folder).mkdir(parents=True)
    (hub / "saved_model.pb").write_bytes(b"")
    for source, name in ((config_file, "albert_config.json"), (toy_spm_model, "30k-clean.model")):
        with open(source, "rb") as stream:
            (hub / "assets" / name).write_bytes(stream.read())
    weights = tensors(finished / "model.ckpt-5")
    store.save_checkpoint(str(hub / "variables" / "variables"), weights)
    run_program(
        "--task_name=CoLA",
        f"--data_dir={data_dir}",
        f"--output_dir={tmp_path}/out",
        f"--albert_hub_module_handle={hub}",
        "--spm_model_file=from_tf_hub",
        "--max_seq_length=17",
        "--do_predict",
        "--precision=float32",
    )
    assert len((tmp_path / "out" / "test_results.tsv").read_text().splitlines()) == 7


def write_own(folder, name, rows):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")


def test_prediction_and_export_need_only_the_folder_of_the_run(finished, data_dir, tmp_path):
    out = shutil.copytree(finished, tmp_path / "out")
    (out / "test_results.tsv").unlink()
    given = [f"--output_dir={out}", "--precision=float32"]
    run_program(*given, f"--data_dir={data_dir}", "--do_predict", f"--export_dir={tmp_path}/export")
    for name in ("test_results.tsv", "spiece.model"):
        assert (out / name).read_bytes() == (finished / name).read_bytes()
    (export,) = (tmp_path / "export").iterdir()
    assert {path.name for path in (export / "assets.extra").iterdir()} >= {
        *("albert_config.json", "spiece.model", "labels.txt")
    }
    with pytest.raises(ValueError, match=r"(?s)trained with another do_lower_case:.*True.*False"):
        run_program(*given, "--do_predict", "--nodo_lower_case")
    with pytest.raises(flags.Error, match="--task_name is required: Name of the task, in upper"):
        run_program(f"--output_dir={tmp_path}/none", "--do_predict")


def test_custom_data_define_labels_that_are_saved_with_the_model(run, tmp_path):
    data, out = tmp_path / "data", tmp_path / "out"
    own = ["--task_name=tsv", f"--data_dir={data}", f"--output_dir={out}"]
    rows = [
        json.dumps({"body": text, "kind": "no" if n % 2 else "yes"}) for n, text in enumerate(TEXTS)
    ]
    write_own(data, "train.jsonl", rows)
    write_own(data, "dev.csv", ["kind,body", 'no,"A boat, a river"', "yes,The rain", "no,Town"])
    columns = ["--text_a_column=body", "--label_column=kind"]
    run(*own, *columns, "--do_train", "--do_eval", "--train_step=2")
    assert "macro_f1" in (out / "eval_results.txt").read_text()
    (data / "train.jsonl").unlink()
    write_own(data, "test.tsv", ["body\tid", "The river\t9", "A boat\t7"])
    run(*own, "--text_a_column=body", "--do_predict")
    lines = (out / "submit_results.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["index", "9", "7"]
    assert {line.split("\t")[1] for line in lines[1:]} <= {"no", "yes"}
    record = json.loads((out / "run.json").read_text())
    write_own(data, "train.jsonl", rows)
    for labels in (["yes", "no"], ["no", "yes", "?"]):
        record["task"]["labels"] = labels
        (out / "run.json").write_text(json.dumps(record))
        message = re.escape(f"lists the labels {json.dumps(labels)}, but the model was trained")
        for phase in ("--do_train", "--do_eval", "--do_predict", f"--export_dir={tmp_path}/export"):
            with pytest.raises(ValueError, match=message):
                run(*own, *columns, *["--labels=no,yes"] * (phase == "--do_train"), phase)
        with pytest.raises(ValueError, match=message):
            albert_tf.from_pretrained(str(out)).classify("The river")


def test_a_labeled_test_split_is_evaluated(run, finished, tmp_path):
    data, out = tmp_path / "lcqmc", tmp_path / "out"
    write_own(data, "test.txt", [f"{text}\t{TEXTS[n]}\t{n % 2}" for n, text in enumerate(TEXTS)])
    run(
        "--task_name=lcqmc",
        f"--data_dir={data}",
        f"--output_dir={out}",
        "--do_predict",
        f"--init_checkpoint={finished}/model.ckpt-5",
    )
    text = (out / "predict_results.txt").read_text()
    found = re.search(r"eval_accuracy = (\S+)\neval_loss = \S+\nf1 = \S+\nglobal_step = 5\n", text)
    labels = [n % 2 for n in range(len(TEXTS))]
    predicted = np.loadtxt(out / "test_results.tsv").argmax(axis=1)
    assert float(found[1]) == pytest.approx(np.mean(predicted == labels))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to do: set --do_train, --do_eval, --do_predict or --export_dir"),
        (
            ["--do_train", "--max_seq_length=62"],
            r"--max_seq_length=62 is larger than the model.s max_",
        ),
        (["--do_train", "--max_seq_length=4"], "--max_seq_length=4: expected 5 or more"),
        (["--do_train", "--task_name=colla"], "Task not found: colla. Available tasks: afqmc"),
        (["--do_train", "--task_name=mrpc"], r"no train data of mrpc: none of .*MRPC/train\.tsv"),
        (["--do_train", "--task_name=ax"], "task ax has no train data, only test"),
        (["--do_train", "--albert_config_file="], "--albert_config_file is required"),
        (["--do_train", "--num_runs=2"], "2 runs are compared on the dev set: set --do_eval"),
        (
            ["--do_train", "--learning_rate=1e-5,1e-5"],
            "--learning_rate=1e-05,1e-05: expected one or more",
        ),
        (["--do_eval"], "contains no checkpoint to evaluate"),
        (["--do_predict"], "contains no checkpoint to predict with"),
        (["--export_dir=/dev/null/x"], "--export_dir: cannot write to"),
    ],
)
def test_bad_flags_are_rejected_before_training(run, tmp_path, arguments, message):
    with pytest.raises((ValueError, OSError), match=message):
        run(f"--output_dir={tmp_path}/out", "--train_step=2", *arguments)
    assert not list(tmp_path.glob("out/*.index"))


@pytest.mark.parametrize("rates", ["fast", "-1"])
def test_a_learning_rate_that_is_not_a_number_is_rejected(run, tmp_path, rates):
    with pytest.raises(flags.Error, match=r"flag --learning_rate=.*"):
        run(f"--output_dir={tmp_path}", "--do_train", f"--learning_rate={rates}")


def test_another_task_in_the_same_folder_is_rejected(run, finished):
    with pytest.raises(ValueError, match=r"a model of the task cola with the labels 0, 1, no"):
        run(f"--output_dir={finished}", "--task_name=sts-b", "--do_train")


BAD = [
    ("label\ttext", "1\tgood\n0", r"train\.tsv, line 3: expected 2 or more columns, got 1"),
    ("label\ttext", "1\t \n0\tbad", r"train\.tsv, line 2: the text in column 1 is empty"),
    ("label\ttext", "1\tgo\rod\n0\tbad", r"train\.tsv, line 2: a carriage return inside a line"),
    (
        "label\ttext",
        "0.5\tgood\n0\tbad",
        r"train\.tsv, line 2: label '0.5' is a fraction, not a cl",
    ),
    ("class_\tbody", "1\tgood\n0\tbad", r"train\.tsv, line 1: no column 'text_a'"),
    ("label\ttext", "\tgood\n0\tbad", r"train\.tsv, line 2: the label is ''"),
]


@pytest.mark.parametrize(("header", "rows", "message"), BAD)
def test_an_error_names_file_and_line_of_a_bad_row(run, tmp_path, header, rows, message):
    (tmp_path / "train.tsv").write_bytes(f"{header}\n{rows}\n".encode())
    with pytest.raises(ValueError, match=message):
        run("--task_name=tsv", f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/o", "--do_train")
    assert not list(tmp_path.glob("o/*.index"))


def test_bad_rows_can_be_skipped_and_are_counted(started, tmp_path):
    rows = ["label\ttext", "1\tgood", "0", "0\tbad", "1\t", "1\t" + "river " * 20000]
    write_own(tmp_path / "data", "train.tsv", rows)
    own = ["--task_name=tsv", f"--data_dir={tmp_path}/data", "--train_batch_size=2"]
    _, log = started(*own, "--max_bad_rows=2")
    assert "2 bad rows skipped in all" in log
