"""What run_squad.py alone does; `test_programs.py` has what all programs do."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from absl import logging

from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.training.loop import Trainer
from tests.cli.fine_tuning_programs import ANSWERABLE, CONTEXTS, QUESTIONS, write_squad
from tests.script_runner import tensors

pytestmark = pytest.mark.ci

VERSIONS = pytest.mark.parametrize("version", ["squad_1", "squad_2"])


@pytest.fixture(scope="module", name="unknown")
def questions_without_answers(tmp_path_factory):
    path = tmp_path_factory.mktemp("questions") / "unknown.json"
    return f"--predict_file={write_squad(path, QUESTIONS, with_answers=False)}"


def read_json(path):
    return json.loads(path.read_text())


@VERSIONS
def test_the_best_checkpoint_and_its_results_end_the_file(request, version):
    folder = request.getfixturevalue(version).out
    best = tensors(folder / "model.ckpt-best")
    *_, block, last = (folder / "eval_results.txt").read_text().split("=" * 50 + "\n")
    f1 = re.search(r"^f1 = (\S+)$", last, re.MULTILINE)[1]
    assert f"best f1 = {f1}\n" in block
    assert last.endswith(f"best perf happened at step: {best['global_step']}")
    head = {"squad_1": "cls/squad/output_weights", "squad_2": "end_logits/dense_0/kernel"}[version]
    assert head in best


@pytest.mark.parametrize(("version", "rows"), [("squad_1", ANSWERABLE), ("squad_2", QUESTIONS)])
def test_answers_are_written_to_googles_files(request, version, rows):
    folder = request.getfixturevalue(version).out
    predictions = read_json(folder / "predictions.json")
    nbest = read_json(folder / "nbest_predictions.json")
    assert list(predictions) == list(nbest)
    assert set(predictions) == {row[0] for row in rows}
    for qas_id, context, *_ in rows:
        assert all(entry["text"] in CONTEXTS[context] for entry in nbest[qas_id])
        assert predictions[qas_id] in (nbest[qas_id][0]["text"], "")
    assert (folder / "null_odds.json").exists() == (version == "squad_2")
    if version == "squad_2":
        odds = read_json(folder / "null_odds.json")
        metrics = (folder / "eval_results.txt").read_text().split("=" * 50 + "\n")[-1]
        threshold = float(re.search(r"null_score_diff_threshold = (\S+)", metrics)[1])
        assert {q for q, odd in odds.items() if odd > threshold} == {
            qas_id for qas_id, text in predictions.items() if not text
        }


@VERSIONS
def test_questions_without_answers_use_the_trained_head(request, version, unknown, tmp_path):
    program = request.getfixturevalue(version)
    kept = (program.out / "eval_results.txt").read_bytes()
    start = f"--init_checkpoint={program.out}/model.ckpt-best"
    program.run(f"--output_dir={tmp_path}", start, unknown, "--do_predict")
    assert set(read_json(tmp_path / "predictions.json")) == {row[0] for row in QUESTIONS}
    assert (tmp_path / "null_odds.json").exists() == (version == "squad_2")
    assert not (tmp_path / "eval_results.txt").exists()
    ours, theirs = (read_json(path / "nbest_predictions.json") for path in (tmp_path, program.out))
    assert [entry["text"] for entry in ours["r1"]] == [entry["text"] for entry in theirs["r1"]]
    assert (program.out / "eval_results.txt").read_bytes() == kept


def test_the_threshold_of_the_evaluation_is_used_for_questions_without_answers(
    squad_2, unknown, tmp_path
):
    out = shutil.copytree(squad_2.out, tmp_path / "out")
    squad_2.run(f"--output_dir={out}", unknown, "--do_predict")
    for name in ("predictions.json", "nbest_predictions.json", "null_odds.json"):
        assert (out / name).read_bytes() == (squad_2.out / name).read_bytes()
    lower = "--null_score_diff_threshold=-1e9"
    squad_2.run(f"--output_dir={out}", unknown, "--do_predict", lower)
    assert set(read_json(out / "predictions.json").values()) == {""}


@VERSIONS
def test_a_single_question_is_answered_on_the_terminal(request, version):
    program = request.getfixturevalue(version)
    folder = program.out
    answers = (folder / "predictions.json").read_bytes()
    asked = [f"--question={QUESTIONS[0][2]}", f"--context={CONTEXTS[0]}"]
    first, *lines = program.run(f"--output_dir={folder}", *asked).text.splitlines()
    nbest = read_json(folder / "nbest_predictions.json")["r1"]
    assert first == read_json(folder / "predictions.json")["r1"] or first == "(no answer)"
    if version == "squad_2":
        odds = read_json(folder / "null_odds.json")["r1"]
        assert lines.pop(0).startswith(f"null odds {odds:.3f}, threshold")
    assert [line[8:] for line in lines] == [entry["text"] for entry in nbest]
    assert sum(float(line[:6]) for line in lines) == pytest.approx(1, abs=1e-3)
    assert (folder / "predictions.json").read_bytes() == answers


def tensor_batch(length, names):
    mask = (np.arange(length) < 31).astype(np.int32)[None]
    ids = np.random.default_rng(5).integers(5, 89, (1, length)).astype(np.int32) * mask
    segments = (np.arange(length) >= 11).astype(np.int32) * mask
    values = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    values["p_mask"] = 1 - segments
    return {name: values[name] for name in names}


@pytest.mark.filterwarnings("ignore:.*tf.lite.Interpreter is deprecated:UserWarning")
@VERSIONS
def test_the_exported_models_compute_the_same_outputs(request, version):
    program = request.getfixturevalue(version)
    served = tf.saved_model.load(str(program.saved_model())).signatures["serving_default"]
    ((), inputs) = served.structured_input_signature
    names = {"input_ids", "input_mask", "segment_ids"} | (
        {"p_mask"} if version == "squad_2" else set()
    )
    assert set(inputs) == names
    batch = tensor_batch(53, names)
    found = served(**{name: tf.constant(value) for name, value in batch.items()})
    lite = tf.lite.Interpreter(model_path=str(program.export / "albert_model.tflite"))
    small = lite.get_signature_runner("serving_default")(**batch)
    if version == "squad_1":
        assert set(found) == {"start_log_prob", "end_log_prob"}
        found = {name.replace("log_prob", "logits"): value for name, value in found.items()}
    assert set(found) == set(small)
    for name, value in found.items():
        np.testing.assert_allclose(small[name], value, atol=2e-5, err_msg=name)


CHINESE = "老人们说，从前这条河比现在宽。后来量过一次，河没有变，是镇子变大了。"


def test_chinese_uses_wordpieces_and_the_metrics_of_cmrc(squad_1, tmp_path):
    letters = sorted({*CHINESE, *"谁说河宽什么变大了？"})
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    questions = [("谁说河宽？", "老人们"), ("什么变大了？", "镇子")]
    qas = [
        {
            "id": f"c{number}",
            "question": question,
            "answers": [{"text": answer, "answer_start": CHINESE.find(answer)}],
        }
        for number, (question, answer) in enumerate(questions)
    ]
    data = tmp_path / "cmrc.json"
    data.write_text(json.dumps({"data": [{"paragraphs": [{"context": CHINESE, "qas": qas}]}]}))
    common = [
        squad_1.model[0],
        f"--vocab_file={tmp_path}/vocab.txt",
        f"--predict_file={data}",
        "--do_predict",
        "--max_seq_length=51",
        "--max_query_length=7",
        f"--output_dir={tmp_path}/out",
        "--num_workers=1",
    ]
    training = [f"--train_file={data}", "--do_train", "--train_batch_size=1"]
    result = squad_1.call(*common, *training, "--num_train_epochs=1")
    assert re.search(r"^average = .*\nexact_match = .*\nf1 = ", result.text)
    assert set(read_json(tmp_path / "out" / "predictions.json")) == {"c0", "c1"}
    result = squad_1.call(*common, "--nomixed_segmentation")
    assert re.search(r"^exact_match = .*\nf1 = .*$", result.text)


def test_a_model_that_always_answers_is_not_evaluated_on_unanswerable_questions(squad_1, squad_2):
    with pytest.raises(ValueError, match="has unanswerable questions, but the model has the head"):
        squad_1.run(f"--output_dir={squad_1.out}", squad_2.data[1], "--do_predict")


def test_bad_answers_are_counted_and_skipped_only_in_training(squad_1, tmp_path, monkeypatch):
    logged, trained = [], []
    monkeypatch.setattr(logging, "warning", lambda text, *args: logged.append(text % args))
    monkeypatch.setattr(Trainer, "train", lambda trainer, *_, **__: trained.append(trainer))
    content = read_json(write_squad(tmp_path / "v1.json", ANSWERABLE))
    questions = [q for p in content["data"][0]["paragraphs"] for q in p["qas"]]
    questions[0]["answers"][0]["answer_start"] += 1
    questions[1]["answers"][0] = {"text": "re\u0301", "answer_start": 3}
    questions[2]["question"] *= 30
    content["data"][0]["paragraphs"].append(
        {
            "context": " ",
            "qas": [
                {"id": "empty", "question": "Who?", "answers": [{"text": " ", "answer_start": 0}]}
            ],
        }
    )
    (tmp_path / "bad.json").write_text(json.dumps(content))
    squad_1.run(
        f"--output_dir={tmp_path}/out",
        f"--train_file={tmp_path}/bad.json",
        "--do_train",
        "--num_train_epochs=2",
    )
    text = "\n".join(logged)
    assert re.search(r"skipped, answer not at answer_start: 2 questions \(r1, r2\)", text)
    assert re.search(r"1 of 4 questions are skipped.*: empty", text)
    assert trained[0].num_train_steps == 2  # int(4 / 3 · 2)


@VERSIONS
@pytest.mark.parametrize("has_moments", [False, True])
def test_an_official_run_is_continued(request, version, has_moments, tmp_path):
    """Google's optimizer skips the pooler, which has no gradient, and gives it no moments."""
    program = request.getfixturevalue(version)
    first, *_, last = program.row.steps[1:]
    state = tensors(program.out / f"model.ckpt-{first}")
    pooler = {f"bert/pooler/dense/{kind}" for kind in ("kernel", "bias")}
    weights = {n for n in state if n != "global_step" and not n.endswith(("/adam_m", "/adam_v"))}
    moments = {f"{name}/{slot}" for name in weights - pooler for slot in ("adam_m", "adam_v")}
    assert pooler <= weights
    assert state.keys() == {*weights, *moments, "global_step"}
    if has_moments:  # as older commits wrote them
        state |= {f"{name}/{slot}": state[name] for name in pooler for slot in ("adam_m", "adam_v")}
    save_checkpoint(str(tmp_path / f"model.ckpt-{first}"), state)
    program.run(f"--output_dir={tmp_path}", "--do_train")
    expected = tensors(program.out / f"model.ckpt-{last}")
    found = tensors(tmp_path / f"model.ckpt-{last}")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)
