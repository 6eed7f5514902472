"""Predictors: texts in, Python values out; tests/test_folders_and_doors.py has whole programs."""

from __future__ import annotations

import dataclasses
import importlib.machinery
import json
import pathlib
import shutil
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.checkpoints.run_folder import RunFolder
from albert_tf.checkpoints.run_record import RunRecord
from albert_tf.export import onnx_openvino
from albert_tf.inference import predictor
from albert_tf.inference.embeddings import similarities
from tests.inference.conftest import LONG, SIZE, TAGS, TEXTS, make_model

CONTEXTS = [
    "Old people say that the river was wider. The boat waits at the landing.",
    "The river carries the rain down to the sea, past the town and past the old landing. " * 3,
]
QUESTIONS = ["What waits?", "What carries the rain?"]


@pytest.fixture(scope="module")
def classify(saved):
    return albert_tf.load_predictor(saved("classification"))


def probabilities(results):
    return np.array([list(row["probabilities"].values()) for row in results])


def test_batches_of_mixed_lengths_match_single_texts(classify):
    texts = [*TEXTS, LONG, "\U0001f600\U0001f6a3", " \t "]
    together = classify(texts)
    alone = [classify(text) for text in texts]
    np.testing.assert_allclose(probabilities(together), probabilities(alone), atol=1e-6)
    assert classify.num_truncated == 2
    assert classify([]) == []


def test_pairs_are_passed_as_pairs_or_as_two_arguments(classify):
    pairs = [("The river", "A boat"), ("The town", "The sea")]
    assert classify(pairs) == classify(["The river", "The town"], ["A boat", "The sea"])
    with pytest.raises(ValueError, match=r"texts\[1\] is 5"):
        classify(["a", 5])


def test_arguments_may_have_the_names_of_columns(classify, answer):
    assert classify(text_b=TEXTS[1], text=TEXTS[0]) == classify(TEXTS[0], TEXTS[1])
    asked = {"context": "the boat waits", "question": "what waits"}
    assert answer(**asked) == answer("what waits", "the boat waits")
    with pytest.raises(TypeError, match=r"spans takes question, context, got context$"):
        answer(context="the boat waits")
    with pytest.raises(
        TypeError, match=r"for classification takes text, text_b, got context, question$"
    ):
        classify(**asked)


@pytest.fixture
def answer(saved, tmp_path):
    run = RunFolder(str(shutil.copytree(saved("answerable_spans"), tmp_path / "answers")))
    windows = {"doc_stride": 7, "max_query_length": 9}
    settings = {**run.record.settings, **windows, "max_seq_length": 32}
    run.write_record(dataclasses.replace(run.record, settings=settings))
    return albert_tf.load_predictor(run.path, top_k=2)


def test_answers_are_parts_of_their_contexts(answer):
    pairs = list(zip(QUESTIONS, CONTEXTS, strict=True))
    answer.task.threshold = 1e9
    found = answer(pairs)
    for pair, result in zip(pairs, found, strict=True):
        assert result["answer"] == result["answers"][0]["answer"]
        assert len(result["answers"]) == 2
        for entry in result["answers"]:
            assert pair[1][entry["begin"] : entry["end"]] == entry["answer"]
        assert answer(*pair)["answer"] == result["answer"]
    assert answer(QUESTIONS, CONTEXTS) == answer.predict(pairs) == found
    assert found[0]["answer"]
    json.dumps(found)
    with pytest.raises(ValueError, match="expected a context for each question"):
        answer(["Where?"])


def test_above_the_threshold_there_is_no_answer(answer):
    answer.task.threshold = -1e9
    result = answer(QUESTIONS[0], CONTEXTS[0])
    assert (result["answer"], result["begin"], result["end"]) == ("", -1, -1)
    assert result["answers"][0]["answer"]


def test_unusual_contexts_have_an_answer_or_none(answer):
    answer.task.threshold = None
    lost = "\u0301"  # a lone accent, which normalization removes
    together = answer.predict([("what", lost), ("what", "\U0001f600"), ("where", LONG)])
    for result in (together[0], answer("what", lost)):
        assert (result["answer"], result["begin"], result["answers"]) == ("", -1, [])
    assert all(result["answer"] for result in together[1:])


@pytest.fixture(scope="module")
def tag(saved):
    """A predictor with random weights, of which no label has the largest logit everywhere."""
    predictor = albert_tf.load_predictor(saved("token_classification"))
    logits = predictor.model(predictor.tokenizer(["The river is wide in May."]))  # [1, S, K]
    predictor.model.classifier.bias.assign_sub(tf.reduce_mean(logits, axis=(0, 1)))
    return predictor


def test_tokens_have_labels_and_spans_have_offsets(tag):
    text = "The river, don't! U.N. aid (1,000 t): 他在2008年 ..."
    words = "The river , don't ! U.N . aid ( 1,000 t ) : 他 在 2008 年 . . .".split()
    result = tag(text)
    assert result["tokens"] == words
    assert len(result["labels"]) == len(result["scores"]) == len(words)
    assert min(result["scores"]) > 1 / 3
    assert result["spans"]
    for span in result["spans"]:
        assert text[span["begin"] : span["end"]] == span["text"]
    assert tag([result["tokens"]])[0]["labels"] == result["labels"]
    assert tag(["", text])[0] == {"tokens": [], "labels": [], "scores": [], "spans": []}
    assert len(tag(LONG)["labels"]) == 30 * 6  # of several windows


def test_a_tagger_of_characters_tags_the_characters_of_raw_text(saved, tmp_path):
    folder = shutil.copytree(saved("token_classification"), tmp_path / "characters")
    RunFolder(str(folder)).write_record(RunRecord(task=TAGS | {"token_units": "characters"}))
    tag = albert_tf.load_predictor(str(folder))
    text = "at 1987 abf"
    result = tag(text)
    assert result["tokens"] == list("at1987abf")
    (given,) = tag([result["tokens"]])
    assert given["labels"] == result["labels"]
    for span, of_list in zip(result["spans"], given["spans"], strict=True):
        assert text[span["begin"] : span["end"]] == span["text"]
        assert of_list["text"] == span["text"].replace(" ", "")


def test_the_option_with_the_best_logit_is_chosen(saved):
    choose = albert_tf.load_predictor(saved("multiple_choice"))
    passage, options = "The river carries the rain.", ["the sea", "a boat", "nobody"]
    questions = ["Where is _?", "What is it?"]
    result, other = choose([passage] * 2, questions, [options, options[:2]])
    best = int(np.argmax(result["probabilities"]))
    assert (result["answer"], result["prediction"]) == (options[best], best)
    alone = choose(passage, questions[1], options[:2])
    np.testing.assert_allclose(other["probabilities"], alone["probabilities"], atol=1e-6)
    with pytest.raises(ValueError, match="2 passages: expected a list of options for each"):
        choose([passage] * 2, questions, options)
    for table in (dict.fromkeys(options), Frame(a=1, b=2), set(options)):
        with pytest.raises(ValueError, match=r"options are a .*: expected a list of str"):
            choose(passage, questions[0], table)


def test_one_text_has_a_vector_and_several_have_rows(pretrained_dir):
    embed = albert_tf.load_predictor(str(pretrained_dir))
    assert embed("The river").shape == (SIZE,)
    assert embed([*TEXTS, "\U0001f600"]).shape == (5, SIZE)
    assert embed([]).shape == (0, SIZE)


def test_similarities_are_cosines():
    first = np.array([[1, 2, 2], [0, 0, 0]], np.float32)
    second = np.array([[2, 1, 2], [1, 1, 1]], np.float32)
    np.testing.assert_allclose(similarities(first, second), [8 / 9, 0], rtol=1e-6)


@pytest.fixture(scope="module")
def fill_mask(pretrained_dir):
    return albert_tf.load_predictor(str(pretrained_dir), "fill_mask", top_k=3)


def test_masks_are_filled_with_the_best_words(fill_mask):
    found = fill_mask(["The [MASK] carries the rain.", "A [MASK] waits at the [MASK]"])
    assert [len(result["masks"]) for result in found] == [1, 2]
    tokenizer = fill_mask.tokenizer
    the, rest = tokenizer.encode_batch(["The", "carries the rain."])
    ids = [tokenizer.cls_id, *the, tokenizer.mask_id, *rest, tokenizer.sep_id]
    logits = fill_mask.model(np.array([ids]))["masked_lm_logits"][0, 1 + len(the)]
    known = tf.nn.softmax(logits).numpy()[: tokenizer.vocab_size]  # the embedding table is larger
    known[: tokenizer.mask_id + 1] = known[tokenizer.vocab["▁"]] = 0
    expected = tf.math.top_k(known, 3)
    scores = [entry["score"] for entry in found[0]["masks"][0]]
    np.testing.assert_allclose(scores, expected.values, rtol=1e-5)
    best = tokenizer.detokenize(tokenizer.convert_ids_to_tokens([int(expected.indices[0])]))
    assert found[0]["masks"][0][0]["token"] == best
    assert found[0]["text"] == f"The {best} carries the rain."
    json.dumps(found)


def test_pairs_of_texts_have_no_masks(fill_mask):
    with pytest.raises(
        ValueError, match=r"^texts\[1\] is a pair: masked words are predicted of one"
    ):
        fill_mask(["A [MASK]", ("A [MASK]", "a boat")])
    assert fill_mask([("A [MASK]", "")]) == fill_mask(["A [MASK]"])


def test_text_right_after_a_mask_has_no_leading_space(fill_mask):
    tokenizer = fill_mask.tokenizer
    for text, after in (("The [MASK].", ["."]), ("[MASK]s", ["s"]), ("[MASK] .", ["▁", "."])):
        ids, (place,) = fill_mask.task._encode(text)
        assert tokenizer.convert_ids_to_tokens(ids[place + 1 : -1]) == after


def test_long_texts_are_reduced_to_a_window_around_the_masks(fill_mask):
    for text in (LONG + "[MASK]", "[MASK]" + LONG, LONG + "[MASK]" + LONG):
        assert len(fill_mask(text)["masks"]) == 1
        ids, (place,) = fill_mask.task._encode(text)
        assert (len(ids), ids[place]) == (61, fill_mask.tokenizer.mask_id)
    with pytest.raises(ValueError, match="tokens apart"):
        fill_mask("[MASK]" + LONG + "[MASK]")
    room = 61 - 2  # tokens between [CLS] and [SEP]
    assert len(fill_mask("the" + "[MASK]" * room)["masks"]) == room
    with pytest.raises(ValueError, match=f"are {room} tokens apart"):
        fill_mask("the" + "[MASK]" * (room + 1))
    with pytest.raises(ValueError, match=r"no \[MASK\] in 'The river'"):
        fill_mask("The river")


def test_special_tokens_are_no_words_even_if_they_are_the_most_probable(toy_tokenizer, tmp_path):
    model = make_model("fill_mask", toy_tokenizer)
    special = [toy_tokenizer.pad_id, toy_tokenizer.unk_id, toy_tokenizer.cls_id]
    special += [toy_tokenizer.sep_id, toy_tokenizer.mask_id]
    (bias,) = (x for x in model.variables if x.name == "cls/predictions/output_bias:0")
    bias.assign(tf.tensor_scatter_nd_add(bias, np.array(special)[:, None], [50.0] * len(special)))
    albert_tf.save_pretrained(model, str(tmp_path), toy_tokenizer)
    fill_mask = albert_tf.load_predictor(str(tmp_path), "fill_mask", top_k=3)
    words = {word["token"] for word in fill_mask("The [MASK].")["masks"][0]}
    assert not words & {toy_tokenizer.pieces[number] for number in special}


def test_tensorflow_computes_if_openvino_is_not_installed(pretrained_dir):
    assert albert_tf.load_predictor(str(pretrained_dir)).engine == "tensorflow"
    with pytest.raises(ValueError, match=r"pip install 'albert-tf2\[openvino\]'"):
        albert_tf.load_predictor(str(pretrained_dir), engine="openvino")


@pytest.mark.ci
def test_tensorflow_computes_what_openvino_cannot(pretrained_dir, monkeypatch, caplog):
    installed = types.ModuleType("openvino")
    installed.__spec__ = importlib.machinery.ModuleSpec("openvino", None)
    monkeypatch.setitem(sys.modules, "openvino", installed)
    monkeypatch.setattr(onnx_openvino, "convert", lambda _: 1 / 0)  # as unsupported operations
    monkeypatch.setattr(predictor, "MANY_ROWS", 1)
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    wanted = albert_tf.load_predictor(str(pretrained_dir), engine="tensorflow")(TEXTS)
    embed = albert_tf.load_predictor(str(pretrained_dir))
    for _ in range(2):
        np.testing.assert_array_equal(embed(TEXTS), wanted)
    (message,) = [text for text in caplog.messages if "OpenVINO" in text]
    assert "OpenVINO cannot run this model" in message
    with pytest.raises(ValueError, match="OpenVINO cannot run this model, use engine=tensorflow"):
        albert_tf.load_predictor(str(pretrained_dir), engine="openvino")(TEXTS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "fast"}, "engine='fast': expected one of 'auto', 'tensorflow', 'openvino'"),
        ({"top_k": 0}, "top_k=0: expected 1 or more"),
        ({"max_seq_length": 4}, "max_seq_length=4: expected 5 or more"),
        ({"max_seq_length": 1000}, "max_position_embeddings"),
    ],
)
def test_invalid_options_are_refused(pretrained_dir, options, said):
    with pytest.raises(ValueError, match=said):
        albert_tf.load_predictor(str(pretrained_dir), **options)


class Frame(dict):
    """What a DataFrame has: iterating it gives the names of its columns."""

    columns = ("text", "label")


# What is no text → the error.
NO_TEXTS = [
    ({"text": "The river"}, "texts are a dict: expected a str"),
    (Frame(text="a", label="b"), r"texts are a Frame: expected a .*Pass a column of it, such as"),
    ({"The river"}, "texts are a set: expected a str"),
    (None, "texts are a NoneType: expected a str"),
    (5, "texts are a int: expected a str"),
    (b"The river", "texts are a bytes: expected a str"),
    (pathlib.Path("river"), r"texts are a \w+Path: expected a str"),
    (["The river", None], r"texts\[1\] is None: expected a str"),
    ([pathlib.Path("river")], r"texts\[0\] is \w+Path\('river'\): expected a str"),
    ([{"text": "The river"}], r"texts\[0\] is .*: expected a str"),
    (["The river", "a \ud83d"], r"texts\[1\] has '\\ud83d' at character 2, half of a surro"),
]


@pytest.mark.parametrize("kind", ["classification", "token_classification", "embeddings"])
def test_what_is_no_text_is_refused_by_all_tasks(saved, kind):
    predict = albert_tf.load_predictor(saved(kind))
    for inputs, message in NO_TEXTS:
        with pytest.raises(ValueError, match=message):
            predict(inputs)


def test_the_columns_of_a_data_frame_are_texts_but_not_the_frame(saved):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["The river", "A boat"], "text_b": ["The sea", "A town"]})
    predict = albert_tf.load_predictor(saved("classification"))
    firsts, seconds = (list(frame[name]) for name in frame)
    assert predict(frame["text"]) == predict(firsts)
    pairs = predict(list(zip(firsts, seconds, strict=True)))
    assert predict(frame["text"], frame["text_b"]) == pairs
    for arguments in ([frame], [firsts, frame], [firsts, dict.fromkeys(firsts)]):
        with pytest.raises(ValueError, match=r"are a DataFrame|text_pair are a dict"):
            predict(*arguments)
        with pytest.raises(ValueError, match=r"are a DataFrame|text_pair are a dict"):
            predict.tokenizer(*arguments)
