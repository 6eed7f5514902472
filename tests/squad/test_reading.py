import hashlib
import json
import random

import pytest

from albert_tf.squad import reading as squad_reading
from albert_tf.squad.reading import one_question, read_squad

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


@pytest.fixture
def warnings(monkeypatch):
    lines = []
    monkeypatch.setattr(
        squad_reading.logging, "warning", lambda text, *args: lines.append(text % args)
    )
    return lines


def test_questions_are_read_in_file_order_with_all_fields(write):
    second = qa(id="q2", answers=[answer(), answer("A small boat", 0)])
    third = qa(id=3, answers=[], is_impossible=True)
    path = write(squad(qa(), second, third))
    data = read_squad(path, is_training=False)
    assert [example.qas_id for example in data.examples] == ["q1", "q2", "3"]
    assert [example.answers for example in data.examples] == [
        ("boat",),
        ("boat", "A small boat"),
        (),
    ]
    assert [example.answer_start for example in data.examples] == [8, 8, -1]
    assert [example.is_impossible for example in data.examples] == [False, False, True]
    assert {example.context for example in data.examples} == {CONTEXT}
    assert (data.version_2, data.has_answers, data.is_chinese) == (True, True, False)
    with open(path, "rb") as stream:
        assert data.checksum == hashlib.sha256(stream.read()).hexdigest()


@pytest.mark.parametrize(
    ("content", "version_2"),
    [
        (squad(), False),
        (squad(version="v2.0"), True),
        (squad(qa(is_impossible=False)), False),
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


def test_prediction_does_not_require_answers(write):
    plain = {"id": "q1", "question": "What waits?"}
    data = read_squad(write(squad(plain, qa(id="q2"))), is_training=False)
    assert not data.has_answers
    assert data.examples[0].answers == ()
    bare = {"text": "boat"}
    assert read_squad(write(squad(qa(answers=[bare]))), is_training=False).has_answers


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("[1, 2", r"questions.json: not JSON: Expecting ',' delimiter: line 1"),
        ("[1]", r'questions.json: expected an object with "data", got \[1\]'),
        ({"version": "1"}, r'questions.json: "data" is missing; found version'),
        ({"data": {}}, r"questions.json: data: expected a list, got {}"),
        ({"data": ["x"]}, r'data\[0\]: expected an object with "paragraphs", got "x"'),
        ({"data": [{"paragraphs": [{}]}]}, r'paragraphs\[0\]: "context" is missing; found nothing'),
        (squad(context=None), r"paragraphs\[0\]: context: expected text, got null"),
        (squad(qa(id=True)), r"qas\[0\]: id: expected text or an integer, got true"),
        (squad(qa(), qa(question=7)), r"qas\[1\]: question: expected text, got 7"),
        (squad(qa(answers="boat")), r'answers: expected a list, got "boat"'),
        (squad(qa(answers=[{"answer_start": 8}])), r'answers\[0\]: "text" is missing'),
        (squad(qa(answers=[answer(start="8")])), r'answer_start: expected an integer, got "8"'),
        (squad(qa(answers=[answer(start=8.5)])), r"answer_start: expected an integer"),
        (squad(qa(is_impossible="no")), r'is_impossible: expected true or false, got "no"'),
        (squad(qa(answers=[])), r'qas\[0\]: expected an answer or "is_impossible": true for'),
        (squad(qa(id="\ud800")), r"qas\[0\]: id: expected an id without lone surrogates"),
        (squad(qa(answers="x" * 9999)), r'got "xxx[x]{30,40} …$'),
        (squad(qa(answers=[answer(start=0)])), "no answer occurs at its answer_start"),
        ({"data": []}, r"questions.json: contains no question"),
    ],
)
def test_an_error_names_the_place_that_is_not_squad(write, content, expected):
    with pytest.raises(ValueError, match=expected):
        read_squad(write(content), is_training=True)


def test_an_error_names_a_file_that_is_missing_or_not_utf8(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"absent\.json"):
        read_squad(str(tmp_path / "absent.json"), is_training=True)
    path = tmp_path / "latin.json"
    path.write_bytes(b'{"data": "caf\xe9"}')
    with pytest.raises(ValueError, match=r"latin\.json, line 1: not UTF-8"):
        read_squad(str(path), is_training=True)


@pytest.mark.parametrize(
    "wrong",
    [
        answer(start=9),
        answer(start=-1),
        answer(start=4000),
        answer(""),
        answer("boat\u0301"),
        answer("waits at the landing. Then", 13),
    ],
)
def test_misplaced_answers_are_skipped_only_in_training(write, warnings, wrong):
    path = write(squad(qa(), qa(id="q2", answers=[wrong])))
    assert [e.qas_id for e in read_squad(path, is_training=False).examples] == ["q1", "q2"]
    assert not warnings
    assert [e.qas_id for e in read_squad(path, is_training=True).examples] == ["q1"]
    assert "skipped, answer not at answer_start: 1 question (q2)" in warnings[0]


def test_offsets_count_code_points(write):
    context = "\U0001f600 e\u0301te\u0301 boat"
    data = read_squad(
        write(squad(qa(answers=[answer("boat", context.index("boat"))]), context=context)), True
    )
    assert data.examples[0].is_answer_in_place
    # JavaScript counts the emoji as two.
    wrong = squad(qa(answers=[answer("boat", context.index("boat") + 1)]), context=context)
    with pytest.raises(ValueError, match="no answer occurs"):
        read_squad(write(wrong), True)


def test_lone_surrogates_are_replaced_without_shifting_offsets(write, warnings):
    context = "A \ud83d boat \U0001f600."
    content = squad(qa(question="\udc00?", answers=[answer("\ud83d boat", 2)]), context=context)
    example = read_squad(write(content), is_training=True).examples[0]
    assert example.context == "A \ufffd boat \U0001f600."
    assert (example.question, example.answers) == ("\ufffd?", ("\ufffd boat",))
    assert "lone surrogates replaced in 1 question (q1)" in warnings[0]


def test_duplicate_ids_are_rejected_in_prediction(write, warnings):
    path = write(squad(qa(), qa(id="q2"), qa()))
    with pytest.raises(ValueError, match=r"1 question \(q1\) have duplicate ids"):
        read_squad(path, is_training=False)
    assert len(read_squad(path, is_training=True).examples) == 3
    assert "duplicate ids: 1 question (q1)" in warnings[0]


def test_a_warning_names_only_a_few_questions(write, warnings):
    wrong = [qa(id=f"w{number}", answers=[answer(start=0)]) for number in range(7)]
    read_squad(write(squad(qa(), *wrong)), is_training=True)
    assert warnings[0].endswith("7 questions (w0, w1, w2, w3, w4, …)")


def test_training_questions_are_in_googles_order(write):
    data = read_squad(write(squad(*(qa(id=f"q{n}") for n in range(11)))), is_training=True)
    expected = list(range(11))
    random.Random(12345).shuffle(expected)
    assert [e.qas_id for e in squad_reading.shuffled(data.examples)] == [f"q{n}" for n in expected]
    assert [e.qas_id for e in data.examples] == [f"q{n}" for n in range(11)]


@pytest.mark.parametrize(
    ("file", "questions", "left_out", "version_2", "is_chinese"),
    [
        ("squad/train-v1.1-part.json", 11877, 0, False, False),
        ("squad/dev-v2.0-part.json", 6078, 0, True, False),
        ("cmrc2018/cmrc2018_trial.json", 1002, 5, False, True),
    ],
)
def test_published_data_are_read(shared, file, questions, left_out, version_2, is_chinese):
    path = str(shared / "data" / file)
    data = read_squad(path, is_training=False)
    assert len(data.examples) == questions
    assert (data.version_2, data.has_answers, data.is_chinese) == (version_2, True, is_chinese)
    assert len(read_squad(path, is_training=True).examples) == questions - left_out


def test_an_empty_list_of_answers_means_unanswerable_only_in_version_2(write):
    for version, is_told in (("1.1", False), ("v2.0", True)):
        content = squad(qa(), qa(id="q2", answers=[]), version=version)
        data = read_squad(write(content), is_training=False)
        assert data.has_answers == is_told


def test_a_question_from_the_command_line_is_like_a_file_with_one():
    data = one_question("Who\ud83d?", "Nobody knows.")
    (example,) = data.examples
    assert (example.question, example.context) == ("Who\ufffd?", "Nobody knows.")
    assert not data.has_answers
    for question_text, context, name in (("", "x", "question"), ("x", " \n", "context")):
        with pytest.raises(ValueError, match=f"--{name} is empty"):
            one_question(question_text, context)
