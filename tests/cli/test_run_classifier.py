"""What run_classifier.py alone does; `test_programs.py` has what all programs do."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest

from tests.cli.fine_tuning_programs import SENTENCES

pytestmark = pytest.mark.ci


def columns(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


def test_predictions_are_written_in_all_formats(classifier):
    out = classifier.out
    probabilities = np.array(columns(out / "test_results.tsv"), np.float64)
    assert probabilities.shape == (7, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    expected = [[f"{n + 40}", f"{label}"] for n, label in enumerate(probabilities.argmax(axis=1))]
    assert columns(out / "submit_results.tsv") == [["index", "prediction"], *expected]
    assert columns(out / "CoLA.tsv") == columns(out / "submit_results.tsv")
    header, *rows = columns(out / "dev_predictions.tsv")
    assert header == ["line", "guid", "label", "prediction", "0", "1"]
    assert [row[0] for row in rows] == [str(number) for number in range(1, 14)]
    # They are those of the best checkpoint, so that their accuracy is its accuracy.
    trial = (out / "best_trial.txt").read_text().split(":")[1]
    pattern = rf"eval_accuracy = (\S+)\neval_loss = \S+\nglobal_step = {trial}\n"
    accuracy = re.search(pattern, (out / "eval_results.txt").read_text())[1]
    assert np.mean([row[2] == row[3] for row in rows]) == pytest.approx(float(accuracy))


def write_sts(folder):
    folder.mkdir(parents=True)
    for split, count in (("train", 11), ("dev", 7)):
        lines = ["\t".join(f"c{number}" for number in range(10)) + "\n"]
        for number in range(count):
            texts = SENTENCES[number % 7], SENTENCES[number * 2 % 7]
            lines.append("\t".join([str(number), *["x"] * 6, *texts, str(number % 6)]) + "\n")
        (folder / f"{split}.tsv").write_text("".join(lines))


def test_a_regression_is_evaluated_and_follows_no_classification(classifier, tmp_path):
    write_sts(tmp_path / "STS-B")
    out = tmp_path / "out"
    task = ["--task_name=STS-B", f"--data_dir={tmp_path}"]
    classifier.run(*task, f"--output_dir={out}", "--do_train", "--do_eval", "--train_step=1")
    keys = set(re.findall(r"(\w+) = ", (out / "eval_results.txt").read_text()))
    assert keys == {*("MSE", "pearson", "spearman", "eval_loss", "loss", "global_step", "best")}
    header, *rows = columns(out / "dev_predictions.tsv")
    assert header[-1] == "score"
    assert len(rows) == 7
    with pytest.raises(ValueError, match="task: classification → regression"):
        classifier.run(*task, f"--output_dir={classifier.out}", "--do_train", "--train_step=5")


def test_any_number_of_labels_are_written_and_scored(classifier, tmp_path):
    truth = [["water"], ["water", "town"], [], ["people"]]
    texts = SENTENCES[: len(truth)]
    rows = [{"text": text, "labels": names} for text, names in zip(texts, truth, strict=True)]
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "out"
    classifier.run(
        *("--task_name=tsv", "--is_multi_label", f"--data_dir={tmp_path}", f"--output_dir={out}"),
        *("--do_train", "--do_eval", "--do_predict", "--train_step=20"),
        "--train_batch_size=3",
    )
    results = (out / "eval_results.txt").read_text()
    assert all(f"f1_{label} = " in results for label in ("people", "town", "water"))
    header, *lines = columns(out / "dev_predictions.tsv")
    assert header == ["line", "guid", "labels", "predictions", "people", "town", "water"]
    assert [json.loads(line[2]) for line in lines] == truth


def test_prediction_and_export_need_only_the_folder_of_the_run(classifier, tmp_path):
    out = shutil.copytree(classifier.out, tmp_path / "out")
    (out / "test_results.tsv").unlink()
    given = [f"--output_dir={out}", "--precision=float32", "--noexport_texts"]
    classifier.call(*given, classifier.data[1], "--do_predict", f"--export_dir={tmp_path}/export")
    expected = (classifier.out / "test_results.tsv").read_bytes()
    assert (out / "test_results.tsv").read_bytes() == expected
    (export,) = (tmp_path / "export").iterdir()
    names = {path.name for path in (export / "assets.extra").iterdir()}
    assert names >= {"albert_config.json", "spiece.model", "labels.txt"}
    with pytest.raises(ValueError, match=r"(?s)trained with another do_lower_case:.*True.*False"):
        classifier.call(*given, "--do_predict", "--nodo_lower_case")


def test_a_labeled_test_split_is_evaluated(classifier, tmp_path):
    labels = [n % 2 for n in range(len(SENTENCES))]
    rows = [f"{text}\t{text}\t{label}\n" for text, label in zip(SENTENCES, labels, strict=True)]
    (tmp_path / "test.txt").write_text("".join(rows))
    classifier.run(
        *("--task_name=lcqmc", f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/out"),
        *("--do_predict", f"--init_checkpoint={classifier.out}/model.ckpt-5"),
    )
    text = (tmp_path / "out" / "predict_results.txt").read_text()
    found = re.search(r"eval_accuracy = (\S+)\neval_loss = \S+\nf1 = \S+\nglobal_step = 5\n", text)
    predicted = np.loadtxt(tmp_path / "out" / "test_results.tsv").argmax(axis=1)
    assert float(found[1]) == pytest.approx(np.mean(predicted == labels))
