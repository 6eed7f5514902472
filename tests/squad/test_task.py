import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.checkpoints.names import variable_name
from albert_tf.checkpoints.store import save_checkpoint
from albert_tf.finetuning.batching import Padding
from albert_tf.finetuning.prediction import BatchRunner
from albert_tf.finetuning.splits import Split
from albert_tf.squad import task as squad
from albert_tf.squad.decoding import Answers
from albert_tf.squad.reading import SquadData, SquadExample
from albert_tf.squad.settings import Settings
from albert_tf.squad.task import QuestionAnswering, choose_version, evaluate
from tests.squad.test_alignment import WordTokenizer

CONTEXTS = ("the boat waits at the old landing", "nobody knows whose it is")
LENGTHS = {"max_seq_length": 11, "doc_stride": 3, "max_query_length": 2}


def make_data(version_2=False, checksum="00ff", **overrides):
    examples = (
        SquadExample("q1", "what waits", CONTEXTS[0], ("boat",), 4),
        SquadExample("q2", "where", CONTEXTS[0], ("the old landing", "landing"), 18),
        SquadExample("q3", "who", CONTEXTS[1], ("nobody",), 0),
        SquadExample("q4", "when", CONTEXTS[1], is_impossible=version_2),
    )
    values = {
        "path": "questions.json",
        "checksum": checksum,
        "examples": examples if version_2 else examples[:3],
        "version_2": version_2,
        "has_answers": True,
        "is_chinese": False,
    }
    return SquadData(**{**values, **overrides})


def make_task(config, version_2, data=None, tokenizer=None, **settings):
    """Returns the task, by default for windows of `LENGTHS`."""
    values = LENGTHS | {"output_dir": "out", "n_best_size": 7, "num_workers": 1} | settings
    return QuestionAnswering(
        Settings(**values), config, tokenizer or WordTokenizer(), version_2, data or {}
    )


def make_split(data, features):
    return Split("dev", data, features)


@pytest.fixture(params=[False, True], ids=["v1", "v2"])
def task(request, tiny_config):
    return make_task(tiny_config, request.param, start_n_top=3, end_n_top=2)


@pytest.fixture
def features(task):
    return task.make_features(make_data(task.version_2), "train")


def test_the_model_depends_on_the_version(task):
    names = {variable.name.split("/")[0] for variable in task.build_model().variables}
    expected = {"start_logits", "end_logits", "answer_class"} if task.version_2 else {"cls"}
    assert names - {"bert"} == expected


@pytest.mark.slow
def test_a_model_learns_the_positions_of_answers(task, features):
    task.config = dataclasses.replace(task.config, num_hidden_layers=1, num_hidden_groups=1)
    model = task.build_model()
    optimizer = tf_keras.optimizers.legacy.Adam(0.03)
    batch = features.batch(np.arange(len(features)), 11)
    batch = {name: tf.constant(value) for name, value in batch.items()}

    def train_step():
        with tf.GradientTape() as tape:
            loss, sums = task.loss(model(batch, training=True), batch)
        variables = model.trainable_variables
        pairs = zip(tape.gradient(loss, variables), variables, strict=True)
        optimizer.apply_gradients([pair for pair in pairs if pair[0] is not None])
        return loss, sums

    first, _ = train_step()
    for _ in range(40):
        loss, sums = train_step()
    assert loss < 0.3 * first, sums
    names = {"start_accuracy", "end_accuracy", *["answerable_accuracy"] * task.version_2}
    assert set(sums) == names
    for total, count in sums.values():
        assert count == len(features)
        assert total > 0.8 * count


def test_accuracies_count_correct_positions(tiny_config):
    batch = {
        "input_ids": tf.zeros((4, 7), tf.int32),
        "start_positions": tf.constant([3, 0, 4, 5]),
        "end_positions": tf.constant([3, 1, 4, 6]),
        "is_impossible": tf.constant([0, 1, 0, 0]),
    }
    starts, ends = tf.one_hot([3, 0, 4, 6], 7), tf.one_hot([3, 1, 5, 5], 7)
    _, sums = make_task(tiny_config, version_2=False).loss(
        {"start_logits": starts, "end_logits": ends}, batch
    )
    assert {name: (float(a), float(b)) for name, (a, b) in sums.items()} == {
        "start_accuracy": (3, 4),
        "end_accuracy": (2, 4),
    }
    outputs = {
        "start_log_probs": starts,
        "end_log_probs": ends,
        "cls_logits": tf.constant([-1.0, 2.0, 0.5, 0.5]),
    }
    loss, sums = make_task(tiny_config, version_2=True).loss(outputs, batch)
    assert loss.shape == ()
    assert tuple(map(float, sums["answerable_accuracy"])) == (2, 4)


@pytest.mark.ci
def test_padding_positions_are_never_chosen(task):
    data = make_data(task.version_2)
    features = task.make_features(data, "dev")
    outputs = BatchRunner(task.build_model(), features, 1, Padding(11, 1), task.outputs).run()
    assert len(set(features.lengths.tolist())) > 1
    found = task.candidates(outputs, n_best_size=3)
    assert np.all(np.isfinite(found.start_scores) & (found.start_scores > -1e29))
    for name in outputs if not task.version_2 else ():
        for row, length in zip(outputs[name], features.lengths, strict=True):
            assert np.all(row[length:] == np.float32(-1e30))
            assert np.all(row[:length] > -1e29)


def test_answers_do_not_depend_on_the_padded_length(tiny_config):
    task, data = make_task(tiny_config, False), make_data()
    features = task.make_features(data, "dev")
    model = task.build_model()
    answers = [
        task.answer(
            make_split(data, features),
            BatchRunner(model, features, batch_size, Padding(11, multiple), task.outputs).run(),
        )
        for batch_size, multiple in ((1, 1), (8, 11))
    ]
    for name, entries in answers[0].nbest.items():
        assert [e["text"] for e in entries] == [e["text"] for e in answers[1].nbest[name]]
        probabilities = ([e["probability"] for e in a.nbest[name]] for a in answers)
        np.testing.assert_allclose(*probabilities, atol=1e-6)


@pytest.mark.ci
def test_predicted_answers_are_texts_of_the_contexts(task):
    data = make_data(task.version_2)
    features = task.make_features(data, "dev")
    outputs = BatchRunner(task.build_model(), features, 3, Padding(11, 4), task.outputs).run()
    answers = task.answer(make_split(data, features), outputs)
    assert list(answers.best) == [example.qas_id for example in data.examples]
    for example in data.examples:
        for entry in answers.nbest[example.qas_id]:
            assert entry["text"] in example.context
    metrics, predictions = evaluate(data, answers)
    assert 0 <= metrics["f1"] <= 100
    assert set(predictions) == set(answers.best)
    assert (answers.null_odds is not None) == task.version_2


# Questions a, b and d have answers, which are predicted; c and e have none, but get predictions.
GOLDS = {"a": "x", "b": "y", "c": "", "d": "z", "e": ""}
FOUND = {"a": "x", "b": "y", "c": "v", "d": "z", "e": "w"}


def threshold_case(odds):
    examples = tuple(
        SquadExample(qas_id, "q", "x y z v w", (text,) if text else (), 0, not text)
        for qas_id, text in GOLDS.items()
    )
    answers = Answers(FOUND, {}, dict(zip(GOLDS, odds, strict=True)))
    return make_data(version_2=True, examples=examples), answers


@pytest.mark.parametrize(
    ("odds", "threshold", "reported", "predictions", "best"),
    [
        ((-1.0, 0.2, 0.5, 0.7, 3.0), 0.2, 60, ["x", "", "", "", ""], 80),
        ((-1.0, 2.0, 5.0, 2.5, 6.0), 2.5, 60, ["x", "y", "", "", ""], 100),
    ],
)
def test_the_official_threshold_reproduces_both_flaws(odds, threshold, reported, predictions, best):
    data, answers = threshold_case(odds)
    metrics, found = evaluate(data, answers, official_threshold=True)
    assert metrics == {
        "exact": reported,
        "f1": reported,
        "total": 5,
        "null_score_diff_threshold": threshold,
    }
    assert list(found.values()) == predictions
    # Ours: the metrics are those of the predictions, which are those of the search.
    metrics, found = evaluate(data, answers)
    assert metrics["exact"] == metrics["f1"] == metrics["best_f1"] == best
    assert metrics["null_score_diff_threshold"] == metrics["best_f1_thresh"] == threshold
    answered = [qas_id for qas_id, text in found.items() if text]
    assert answered == [qas_id for qas_id in GOLDS if answers.null_odds[qas_id] <= threshold]
    assert (metrics["HasAns_total"], metrics["NoAns_total"], metrics["total"]) == (3, 2, 5)


def test_chinese_answers_are_evaluated_with_the_metrics_of_cmrc():
    answers = Answers({"q1": "韩国Nexon，"}, {})
    examples = (SquadExample("q1", "谁？", "韩国Nexon公司", ("韩国Nexon",), 0),)
    metrics, _ = evaluate(make_data(examples=examples, is_chinese=True), answers)
    assert metrics == {"exact_match": 100.0, "f1": 100.0, "average": 100.0}
    metrics, _ = evaluate(make_data(examples=examples), answers)
    assert metrics == {"exact_match": 0.0, "f1": 0.0}


def test_the_metrics_called_percentages_are_100_if_all_answers_are_right():
    chinese = (SquadExample("q1", "谁？", "韩国Nexon公司", ("韩国Nexon",), 0),)
    for data, answers in (
        threshold_case((-1.0, 2.0, 5.0, 2.5, 6.0)),
        (make_data(examples=chinese, is_chinese=True), Answers({"q1": "韩国Nexon"}, {})),
    ):
        metrics, _ = evaluate(data, answers)
        called = {name for name in metrics if name.endswith(QuestionAnswering.percentages)}
        assert called == {name for name, value in metrics.items() if value == 100}


def test_data_without_answers_cannot_be_evaluated():
    examples = (SquadExample("q1", "who", "nobody"),)
    with pytest.raises(ValueError, match="1 of 1 questions have no gold answer"):
        evaluate(make_data(examples=examples), Answers({"q1": "nobody"}, {}))


@pytest.fixture
def made(monkeypatch):
    """Records the questions of each call that creates features."""
    calls = []
    make_features = squad.make_features

    def count(examples, *args):
        calls.append([example.qas_id for example in examples])
        return make_features(examples, *args)

    monkeypatch.setattr(squad, "make_features", count)
    return calls


def test_training_features_are_in_googles_order(tiny_config, made):
    task = make_task(tiny_config, version_2=False)
    task.make_features(make_data(), "dev")
    task.make_features(make_data(), "train")
    # The order of random.Random(12345) for three questions.
    assert made == [["q1", "q2", "q3"], ["q3", "q1", "q2"]]


def test_published_numbers_are_reproduced_from_model_outputs(shared):
    """Metrics with the official threshold equal those of Google's program on the same outputs."""
    from albert_tf.config import AlbertConfig
    from albert_tf.squad.reading import read_squad
    from albert_tf.tokenization import FullTokenizer
    from tests.squad.test_decoding import V2_OUTPUTS

    folder = shared / "golden" / "tasks" / "squad"
    tokenizer = FullTokenizer(spm_model_file=str(shared / "vocab" / "30k-clean.model"))
    for version in ("v1", "v2"):
        values = json.loads((folder / f"{version}_settings.json").read_text())
        data = read_squad(str(folder / f"{version}_dev.json"), is_training=False)
        assert data.version_2 == (version == "v2")
        lengths = {name: values[name] for name in LENGTHS}
        settings = lengths | {"n_best_size": 20, "tokenizer": tokenizer}
        task = make_task(AlbertConfig(97), data.version_2, **settings)
        features = task.make_features(data, "dev")
        outputs = np.load(folder / f"{version}_model_outputs.npz")
        assert version == "v1" or tuple(task.outputs) == V2_OUTPUTS
        answers = task.answer(make_split(data, features), outputs)
        metrics, predictions = evaluate(data, answers, official_threshold=True)
        assert metrics == json.loads((folder / f"{version}_metrics.json").read_text())
        assert predictions == json.loads((folder / f"{version}_predictions.json").read_text())
        ours, _ = evaluate(data, answers)
        assert ours["f1"] >= metrics["f1"]
        if version == "v2":
            assert ours["f1"] == pytest.approx(ours["best_f1"])


def test_batches_have_room_for_a_beam(tiny_config):
    task = make_task(tiny_config, version_2=True, start_n_top=9, end_n_top=5)
    assert task.padding(Padding(31, 4)) == Padding(31, 12)
    assert make_task(tiny_config, False, start_n_top=9).padding(Padding(31, 4)) == Padding(31, 4)
    with pytest.raises(ValueError, match=r"--start_n_top=9, --end_n_top=5: expected at most .*=8"):
        task.padding(Padding(8, 4))


def test_a_checkpoint_is_evaluated_again_if_relevant_settings_changed(task):
    def name(data=None, **settings):
        changed = make_task(task.config, task.version_2, **settings)
        data = data or make_data(task.version_2)
        split = make_split(data, changed.make_features(data, "dev"))
        changed.use({"dev": split}, tf.distribute.get_strategy())
        return changed.measured_on()

    names = [
        name(),
        name(n_best_size=8),
        name(doc_stride=4),
        name(null_score_diff_threshold=1.5),
        name(official_threshold=True),
        name(data=make_data(task.version_2, checksum="00fe")),
        name(data=make_data(task.version_2, is_chinese=True)),
    ]
    assert len(set(names)) == len(names)
    assert name() == names[0]


@pytest.mark.parametrize("version_2", [False, True])
def test_the_version_is_chosen_by_the_user_the_model_or_the_data(tiny_config, tmp_path, version_2):
    task = make_task(tiny_config, version_2)
    tensors = {variable_name(v): v.numpy() for v in task.build_model().variables}
    trained, bare = str(tmp_path / "trained"), str(tmp_path / "bare")
    save_checkpoint(trained, tensors)
    encoder = {name: value for name, value in tensors.items() if name.startswith("bert/")}
    save_checkpoint(bare, encoder)
    same, other = make_data(version_2), make_data(version_2=not version_2)
    assert choose_version(None, trained, other, None) == version_2
    assert choose_version(None, bare, same, None) == version_2
    assert choose_version(None, None, None, same) == version_2
    assert choose_version(None, None, make_data(False), make_data(True))
    assert choose_version(not version_2, trained, same, None) != version_2
    with pytest.raises(ValueError, match="set --init_checkpoint or --version_2_with_negative"):
        choose_version(None, bare, None, None)


def test_unanswerable_questions_cannot_be_evaluated_with_the_head_of_version_1():
    with pytest.raises(ValueError, match=r"questions\.json has unanswerable questions"):
        choose_version(False, None, None, make_data(version_2=True))
    unknown = make_data(version_2=True, has_answers=False)
    assert not choose_version(False, None, None, unknown)


def test_an_explicit_threshold_is_used():
    data, answers = threshold_case((-1.0, 0.2, 0.5, 0.7, 3.0))
    metrics, found = evaluate(data, answers, threshold=0.6)
    assert found == {"a": "x", "b": "y", "c": "v", "d": "", "e": ""}
    assert (metrics["f1"], metrics["null_score_diff_threshold"]) == (60, 0.6)
    assert (metrics["best_f1"], metrics["best_f1_thresh"]) == (80, 0.2)
