"""Files of questions, and what is wrong in them."""

import dataclasses
import gzip
import json

import pytest

from albert_tf.finetuning.squad import Settings
from albert_tf.finetuning.squad.questions import SquadExample
from albert_tf.finetuning.squad.reading import read_data, read_squad
from albert_tf.tables.python_rows import table_of

CONTEXT = "A small boat waits at the landing."


def answer(text="boat", start=8):
    return {"text": text, "answer_start": start}


def qa(**overrides):
    return {"id": "q1", "question": "What waits?", "answers": [answer()], **overrides}


def squad(*questions, context=CONTEXT, **overrides):
    paragraphs = [{"context": context, "qas": list(questions or (qa(),))}]
    return {"version": "1.1", "data": [{"title": "x", "paragraphs": paragraphs}], **overrides}


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "questions.json"
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_bytes(text.encode("utf-8"))
        return str(path)

    return write


def test_questions_are_read_in_file_order_with_all_fields(write):
    second = qa(id="q2", answers=[answer(), answer("A small boat", 0)])
    third = qa(id=3, answers=[], is_impossible=True)
    path = write(squad(qa(), second, third))
    data = read_squad(path, is_training=False)
    assert data.examples == [
        SquadExample("q1", "What waits?", CONTEXT, ("boat",), 8),
        SquadExample("q2", "What waits?", CONTEXT, ("boat", "A small boat"), 8),
        SquadExample("3", "What waits?", CONTEXT, (), -1, is_impossible=True),
    ]
    assert (data.version_2, data.has_labels, data.is_chinese) == (True, True, False)


@pytest.mark.parametrize(
    ("content", "version_2"),
    [
        (squad(), False),
        (squad(version="v2.0"), True),
        (squad(qa(answers=[], is_impossible=True)), True),
        ({key: value for key, value in squad().items() if key != "version"}, False),
    ],
)
def test_version_2_is_detected_by_unanswerable_questions_or_its_name(write, content, version_2):
    assert read_squad(write(content), is_training=False).version_2 is version_2


def test_chinese_is_detected_by_the_answers(write):
    content = squad(
        qa(question="什么？", answers=[answer("小船", 0)]), context="小船在码头等着。 Hello"
    )
    assert read_squad(write(content), is_training=True).is_chinese
    english = squad(qa(question="What does 船 mean?"))
    assert not read_squad(write(english), is_training=False).is_chinese


@pytest.mark.parametrize(("number", "is_chinese"), [(1, False), (2, False), (3, True)])
def test_more_than_half_of_the_texts_make_data_chinese(write, number, is_chinese):
    questions = [
        {"id": n, "question": "\u9fff?" if n < number else "\u4dff\ua000?"} for n in range(4)
    ]
    assert read_squad(write(squad(*questions)), is_training=False).is_chinese is is_chinese
    with_answers = [
        qa(id=n, answers=[answer("\u4e00" if n < number else "boat", 0)]) for n in range(4)
    ]
    assert read_squad(write(squad(*with_answers)), is_training=False).is_chinese is is_chinese


@pytest.mark.parametrize(
    ("text", "start", "is_usable"),
    [
        ("A", 0, True),
        ("landing.", 26, True),
        ("landing.", 27, False),
        ("A", -1, False),
        ("", 0, False),
    ],
)
def test_an_answer_may_be_at_either_end_of_the_context(write, text, start, is_usable):
    path = write(squad(qa(answers=[answer(text, start)]), qa(id="q2")))
    assert len(read_squad(path, is_training=True).examples) == 1 + is_usable


@pytest.mark.parametrize(
    ("question", "version", "has_answers"),
    [
        ({"id": "q1", "question": "What waits?"}, "1.1", False),
        (qa(answers=[{"text": "boat"}]), "1.1", True),  # its place is needed in training only
        (qa(answers=[]), "1.1", False),
        (qa(answers=[]), "v2.0", True),  # unanswerable
    ],
)
def test_prediction_does_not_require_answers(write, question, version, has_answers):
    content = squad(question, qa(id="q2"), version=version)
    assert read_squad(write(content), is_training=False).has_labels == has_answers


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[1, 2", r"questions.json: expected the JSON of SQuAD, which begins with {"),
        ("", r"questions.json: expected the JSON of SQuAD, which begins with {"),
        (json.dumps(squad(), indent=1)[:-2], r"line 24: not JSON: expected a comma or the end of"),
        (json.dumps(squad()) + "\n{}", r"line 2: not JSON: expected the end of the file"),
        ('{"data": [{"paragraphs": [\n{"context"\n:, "qas": []}]}]}', r"line 3: not JSON: Expecti"),
        ({"version": "1"}, r"questions.json: 'data' is missing, expected list"),
        ({"data": 7}, r"questions.json: 'data' is 7, expected list"),
        ({"data": ["x"]}, r"questions.json: data\[0\]: expected a JSON object, got 'x'"),
        ({"data": [{}]}, r"data\[0\]: 'paragraphs' is missing, expected list"),
        ({"data": [{"paragraphs": [[]]}]}, r"paragraphs\[0\]: expected a JSON object, got \[\]"),
        (squad(qa(id=True)), r"qas\[0\]: 'id' is True, expected str | int"),
        (squad(qa(), qa(question=7)), r"qas\[1\]: 'question' is 7, expected str"),
        (squad(qa(question="\udc00?")), r"'question' contains a lone surrogate"),
        (squad(qa(answers="boat")), r"'answers' is 'boat', expected list"),
        (squad(qa(answers=[answer(start="8")])), r"\[0\]: 'answer_start' is '8', expected int"),
        (squad(qa(is_impossible="no")), r"'is_impossible' is 'no', expected bool"),
        (squad(qa(answers=[])), r'qas\[0\]: expected an answer or "is_impossible": true for'),
        (squad(qa(answers=[answer(start=0)])), "no answer occurs at its answer_start"),
        ({"data": []}, r"questions.json: contains no question"),
    ],
)
def test_an_error_names_the_place_that_is_not_squad(write, content, expected):
    with pytest.raises(ValueError, match=expected):
        read_squad(write(content), is_training=True)


@pytest.mark.parametrize(
    "wrong",
    [
        answer(start=9),
        answer("waits at the landing. Then", 13),
    ],
)
def test_misplaced_answers_are_skipped_only_in_training(write, caplog, wrong):
    path = write(squad(qa(), qa(id="q2", answers=[wrong])))
    assert [e.qas_id for e in read_squad(path, is_training=False).examples] == ["q1", "q2"]
    assert not caplog.messages
    assert [e.qas_id for e in read_squad(path, is_training=True).examples] == ["q1"]
    assert "skipped, answer not at answer_start: 1 question (q2)" in caplog.text


def test_duplicate_ids_are_refused_in_prediction(write):
    path = write(squad(qa(), qa(id="q2"), qa()))
    with pytest.raises(ValueError, match=r"1 question \(q1\) have duplicate ids"):
        read_squad(path, is_training=False)
    assert len(read_squad(path, is_training=True).examples) == 3


# The splits of the program


def test_dev_and_test_are_the_same_file(write):
    settings = Settings(output_dir="out", predict_file=write(squad()), do_predict=True)
    data = read_data(settings)
    assert data["dev"] is data["test"]
    assert not data["dev"].is_chinese
    assert read_data(dataclasses.replace(settings, mixed_segmentation=True))["dev"].is_chinese


def test_questions_without_answers_may_be_predicted(write):
    path = write(squad({"id": "q1", "question": "What waits?"}))
    settings = Settings(output_dir="out", predict_file=path, do_predict=True)
    assert not read_data(settings)["test"].has_labels


def test_a_file_is_read_in_parts_that_end_anywhere_and_may_be_compressed(write, monkeypatch):
    content = squad(qa(), qa(id=12, question="字😀?"), version=-1.5e7, others=[True, None, {}])
    path = write(json.dumps(content, ensure_ascii=False))
    whole = read_squad(path, is_training=True)
    assert [x.qas_id for x in whole.examples] == ["q1", "12"]
    for size in range(1, 40):
        monkeypatch.setattr("albert_tf.tables.json_stream._BLOCK_BYTES", size)
        assert read_squad(path, is_training=True) == whole
    with open(path, "rb") as stream, gzip.open(f"{path}.gz", "wb") as packed:
        packed.write(stream.read())
    assert read_squad(f"{path}.gz", is_training=True).examples == whole.examples


def test_a_dev_split_has_contexts_of_its_own_whatever_the_form_of_the_file(tmp_path, write):
    articles = [
        squad(*(qa(id=f"{n}-{k}") for k in range(3)), context=f"{CONTEXT} {n}")["data"][0]
        for n in range(10)
    ]
    rows = [
        {"id": asked["id"], "question": "What waits?", "context": paragraph["context"]}
        | {"answers": asked["answers"]}
        for article in articles
        for paragraph in article["paragraphs"]
        for asked in paragraph["qas"]
    ]
    settings = Settings(output_dir="out", dev_fraction=0.2, do_train=True, do_eval=True)
    of_file = dataclasses.replace(settings, train_file=write({"data": articles}))
    data = read_data(of_file)
    contexts = {split: {x.context for x in data[split].examples} for split in ("train", "dev")}
    assert (len(contexts["train"]), len(contexts["dev"]), len(data["dev"])) == (8, 2, 6)
    assert contexts["train"].isdisjoint(contexts["dev"])
    assert data["test"] is data["dev"]
    of_rows = read_data(settings, given={"train": table_of(rows, "rows")})
    for split in ("train", "dev"):
        assert of_rows[split].checksum() == data[split].checksum()
    (tmp_path / "test.json").write_text(json.dumps(squad({"id": "t", "question": "What?"})))
    predicted = dataclasses.replace(
        of_file, predict_file=str(tmp_path / "test.json"), do_predict=True
    )
    found = read_data(predicted)
    assert [x.qas_id for x in found["test"].examples] == ["t"]
    assert found["dev"].examples == data["dev"].examples
    (tmp_path / "test.json").write_text(json.dumps(squad()))
    with pytest.raises(ValueError, match=r"--dev_fraction: there are dev data, .*test\.json"):
        read_data(predicted)
    articles *= 2
    twice = dataclasses.replace(settings, train_file=write({"data": articles}))
    with pytest.raises(ValueError, match=r"6 questions .* have duplicate ids"):
        read_data(twice)
