"""What run_classifier.py alone does; `test_programs.py` has what all programs do."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

import albert_tf
from albert_tf.checkpoints import store
from albert_tf.classification.reading import read_examples
from albert_tf.classification.task import make_features
from albert_tf.classification.tasks import TASKS
from albert_tf.data.tfrecord import encode_examples
from albert_tf.tokenization import FullTokenizer
from tests.cli.fine_tuning_programs import SENTENCES
from tests.script_runner import start_of, tensors

pytestmark = pytest.mark.ci


def test_predictions_are_written_in_all_formats(classifier):
    finished = classifier.out
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


def features_of(program, data_dir, task, split):
    """Returns the features of a split, with the vocabulary of a program's model."""
    tokenizer = FullTokenizer(spm_model_file=program.model[1].split("=")[1])
    return make_features(read_examples(TASKS[task], str(data_dir), split), tokenizer, 17)


def serve(path, features):
    """Returns the outputs of a SavedModel for serialized examples."""
    batch = features.batch(np.arange(len(features)), 17)
    del batch["label_ids"]
    signature = tf.saved_model.load(str(path)).signatures["serving_default"]
    served = signature(input=tf.constant(encode_examples(batch)))
    return {name: value.numpy() for name, value in served.items()}


def write_sts(folder):
    folder.mkdir(parents=True)
    for split, count in (("train", 11), ("dev", 7)):
        lines = ["\t".join(f"c{number}" for number in range(10)) + "\n"]
        for number in range(count):
            texts = SENTENCES[number % 7], SENTENCES[number * 2 % 7]
            lines.append("\t".join([str(number), *["x"] * 6, *texts, str(number % 6)]) + "\n")
        (folder / f"{split}.tsv").write_text("".join(lines))


def test_a_regression_is_evaluated_and_exported(classifier, tmp_path):
    write_sts(tmp_path / "STS-B")
    out, export = tmp_path / "out", tmp_path / "export"
    classifier.run(
        "--task_name=STS-B",
        f"--data_dir={tmp_path}",
        f"--output_dir={out}",
        "--do_train",
        "--do_eval",
        "--train_step=1",
        f"--export_dir={export}",
        "--threshold_to_export=nan",
    )
    keys = set(re.findall(r"(\w+) = ", (out / "eval_results.txt").read_text()))
    assert keys == {*("MSE", "pearson", "spearman", "eval_loss", "loss", "global_step", "best")}
    (path,) = export.iterdir()
    served = serve(path, features_of(classifier, tmp_path, "sts-b", "dev"))
    assert served["probabilities"].shape == (7, 1)
    np.testing.assert_array_equal(served["predictions"], served["probabilities"][:, 0])
    rows = [line.split("\t") for line in (out / "dev_predictions.tsv").read_text().splitlines()]
    assert rows[0][-1] == "score"
    scores = np.array([row[-1] for row in rows[1:]], np.float32)
    np.testing.assert_allclose(served["predictions"], scores, atol=1e-5)
    with pytest.raises(ValueError, match=r"task cola with the labels 0, 1, not "):
        classifier.run(
            "--task_name=STS-B",
            f"--data_dir={tmp_path}",
            f"--output_dir={classifier.out}",
            "--do_train",
        )


def test_the_mean_over_all_positions_includes_the_padding(classifier, tmp_path):
    finished, run = classifier.out, classifier.run
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
def start_only(classifier, tmp_path, monkeypatch):
    """See `script_runner.start_of`."""
    return start_of(classifier.run, monkeypatch, f"--output_dir={tmp_path}/out", "--do_train")


def test_the_head_of_another_task_is_skipped_and_reported(classifier, started, tmp_path):
    weights = tensors(classifier.out / "model.ckpt-5")
    weights["output_weights"] = np.ones((3, 12), np.float32)
    weights["output_bias"] = np.ones(3, np.float32)
    store.save_checkpoint(str(tmp_path / "three_labels"), weights)
    state, log = started(f"--init_checkpoint={tmp_path}/three_labels")
    assert re.search(r"output_weights has the shape \[3, 12\], here \[2, 12\]", log)
    assert "New heads with random weights: output_bias, output_weights" in log
    assert state["output_weights"].shape == (2, 12)
    assert np.abs(state["output_weights"]).max() < 0.05
    name = "bert/pooler/dense/kernel"
    np.testing.assert_array_equal(state[name], weights[name])


def test_a_hub_module_supplies_weights_config_and_vocabulary(
    classifier, config_file, toy_spm_model, tmp_path
):
    hub = tmp_path / "hub"
    for folder in ("variables", "assets"):
        (hub / folder).mkdir(parents=True)
    (hub / "saved_model.pb").write_bytes(b"")
    for source, name in ((config_file, "albert_config.json"), (toy_spm_model, "30k-clean.model")):
        with open(source, "rb") as stream:
            (hub / "assets" / name).write_bytes(stream.read())
    weights = tensors(classifier.out / "model.ckpt-5")
    store.save_checkpoint(str(hub / "variables" / "variables"), weights)
    classifier.call(
        *classifier.data,
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


def test_prediction_and_export_need_only_the_folder_of_the_run(classifier, tmp_path):
    finished, run_program = classifier.out, classifier.call
    out = shutil.copytree(finished, tmp_path / "out")
    (out / "test_results.tsv").unlink()
    given = [f"--output_dir={out}", "--precision=float32", "--noexport_texts"]
    run_program(*given, classifier.data[1], "--do_predict", f"--export_dir={tmp_path}/export")
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


def test_custom_data_define_labels_that_are_saved_with_the_model(classifier, tmp_path):
    run = classifier.run
    data, out = tmp_path / "data", tmp_path / "out"
    own = ["--task_name=tsv", f"--data_dir={data}", f"--output_dir={out}"]
    rows = [
        json.dumps({"body": text, "kind": "no" if n % 2 else "yes"})
        for n, text in enumerate(SENTENCES)
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
    assert record["task"]["selection_metric"] == "eval_accuracy"
    record["task"]["labels"] += ["?"]
    (out / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"lists 3 labels, and the model has 2 outputs"):
        albert_tf.load_predictor(str(out))


def test_a_labeled_test_split_is_evaluated(classifier, tmp_path):
    finished, run = classifier.out, classifier.run
    data, out = tmp_path / "lcqmc", tmp_path / "out"
    write_own(
        data, "test.txt", [f"{text}\t{SENTENCES[n]}\t{n % 2}" for n, text in enumerate(SENTENCES)]
    )
    run(
        "--task_name=lcqmc",
        f"--data_dir={data}",
        f"--output_dir={out}",
        "--do_predict",
        f"--init_checkpoint={finished}/model.ckpt-5",
    )
    text = (out / "predict_results.txt").read_text()
    found = re.search(r"eval_accuracy = (\S+)\neval_loss = \S+\nf1 = \S+\nglobal_step = 5\n", text)
    labels = [n % 2 for n in range(len(SENTENCES))]
    predicted = np.loadtxt(out / "test_results.tsv").argmax(axis=1)
    assert float(found[1]) == pytest.approx(np.mean(predicted == labels))


def test_starting_from_random_weights_is_reported(started):
    _, log = started()
    assert "No --init_checkpoint: training starts from random weights" in log


def test_a_bad_row_is_refused_with_its_file_and_line_before_training(classifier, tmp_path):
    write_own(tmp_path, "train.tsv", ["label\ttext", "1\tgood", "0"])
    flags = ["--task_name=tsv", f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/o"]
    with pytest.raises(ValueError, match=r"train\.tsv, line 3: "):
        classifier.run(*flags, "--do_train")
    assert not list(tmp_path.glob("o/*.index"))
