"""Questions in rows, as the Hub has them, are those of files in SQuAD's format."""

import json

import numpy as np
import pytest

from albert_tf.finetuning.squad import Settings, run
from albert_tf.finetuning.squad.reading import open_rows, read_data, read_rows, read_squad
from albert_tf.tables.python_rows import table_of
from tests.hub_files import WITH_NAMES, write_json_lines
from tests.script_runner import tensors

CONTEXT = "Anna lives in Rome, and Bob in Paris."
# Id, question, and texts and places of the answers.
QUESTIONS = [
    ("q1", "Where does Anna live?", ["Rome", "in Rome"], [14, 11]),
    ("q2", "Where does Cleo live?", [], []),
    ("q3", "Who lives in Paris?", ["Bob"], [24]),
]


def squad_of(questions):
    qas = [
        {
            "id": name,
            "question": text,
            "answers": [{"text": t, "answer_start": s} for t, s in zip(texts, starts, strict=True)],
            "is_impossible": not texts,
        }
        for name, text, texts, starts in questions
    ]
    paragraphs = [{"context": CONTEXT, "qas": qas}]
    return json.dumps({"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]})


def with_lists(name, text, texts, starts):
    answers = {"text": texts, "answer_start": starts}
    return {"id": name, "title": "t", "context": CONTEXT, "question": text, "answers": answers}


def with_objects(name, text, texts, starts):
    answers = [{"text": t, "answer_start": s} for t, s in zip(texts, starts, strict=True)]
    return {"id": name, "question": text, "context": CONTEXT, "answers": answers}


def rows_of(questions, form=with_lists):
    return [form(*question) for question in questions]


def same(found, expected):
    assert found.examples == expected.examples
    assert found.checksum() == expected.checksum()
    for field in ("version_2", "has_labels", "is_chinese"):
        assert getattr(found, field) == getattr(expected, field)


@pytest.mark.parametrize("questions", [QUESTIONS, [QUESTIONS[0], QUESTIONS[2]]])
@pytest.mark.parametrize("form", [with_lists, with_objects])
@pytest.mark.parametrize("write", [*WITH_NAMES, write_json_lines])
def test_the_hub_has_the_questions_of_squads_format(tmp_path, write, form, questions):
    folder = tmp_path / "plain_text"
    folder.mkdir()
    rows = rows_of(questions, form)
    write(folder, {"train": rows, "validation": rows}, {})
    (tmp_path / "squad.json").write_text(squad_of(questions))
    settings = Settings(
        data_dir=str(tmp_path), output_dir="out", do_train=True, do_eval=True, do_predict=True
    )
    data = read_data(settings)
    assert list(data) == ["train", "dev", "test"]
    for split, is_training in (("train", True), ("dev", False)):
        same(data[split], read_squad(str(tmp_path / "squad.json"), is_training))


@pytest.mark.parametrize(
    ("name", "content", "has_rows"),
    [
        ("a.json", squad_of(QUESTIONS), False),
        ("a.json", squad_of(QUESTIONS) + "\n", False),
        ("a.json", json.dumps(json.loads(squad_of(QUESTIONS)), indent=1), False),
        ("a", squad_of(QUESTIONS), False),
        ("a.json", json.dumps(rows_of(QUESTIONS)), True),
        ("a.json", "".join(json.dumps(row) + "\n" for row in rows_of(QUESTIONS)), True),
        ("a.jsonl", json.dumps(rows_of(QUESTIONS)[0]), True),
        ("a.csv", "id,question,context\n1,q,c\n", True),
        ("a.json", "no JSON\n", False),
    ],
)
def test_rows_are_told_from_squads_format(tmp_path, name, content, has_rows):
    (tmp_path / name).write_text(content)
    table = open_rows([str(tmp_path / name)])
    assert (table is not None) == has_rows
    if table is not None:
        assert read_rows(table, is_training=False).examples


def test_answers_of_no_question_are_unknown_ones():
    rows = rows_of([(name, text, [], []) for name, text, _, _ in QUESTIONS])
    for unknown in (rows, [{**row, "answers": None} for row in rows]):
        data = read_rows(table_of(unknown, "rows"), is_training=False)
        assert (data.has_labels, data.version_2) == (False, False)
        with pytest.raises(ValueError, match="rows: expected answers for training in a"):
            read_rows(table_of(unknown, "rows"), is_training=True)


def test_rows_may_say_what_is_unanswerable_and_lack_ids():
    rows = [
        {"question": "a?", "context": CONTEXT, "is_impossible": True, "answers": None},
        {"question": "b?", "passage": CONTEXT, "answers": {"text": "Bob", "answer_start": 24}},
    ]
    data = read_rows(table_of(rows, "rows"), is_training=True)
    found = [(x.qas_id, x.answers, x.answer_start, x.is_impossible) for x in data.examples]
    assert found == [("1", (), -1, True), ("2", ("Bob",), 24, False)]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"answers": "Rome"}, "answers 'Rome': expected text and answer_start, in Parquet, Arrow"),
        ({"answers": {"text": ["a", "b"], "answer_start": [1]}}, "2 answers and 1 places"),
        ({"answers": {"text": ["a"], "answer_start": ["1"]}}, "answer_start '1': expected a whole"),
        ({"answers": [{"answer_start": 1}]}, "the text of an answer is null, expected text"),
        ({"question": 5}, "'question' is 5, expected text"),
        ({"context": None}, "'context' is null, expected text"),
        ({"passage": "b"}, "'context', 'passage' may each be the context"),
    ],
)
def test_what_is_wrong_in_a_row_is_named(changes, problem):
    rows = [with_lists(*QUESTIONS[0]), with_lists(*QUESTIONS[0]) | changes]
    with pytest.raises(ValueError, match=f"rows, row 2: {problem}"):
        read_rows(table_of(rows, "rows"), is_training=False)
    with pytest.raises(ValueError, match=r"rows, row 1: no column 'question' among 'text'"):
        read_rows(table_of([{"text": "a"}], "rows"), is_training=False)
    with pytest.raises(ValueError, match="rows: contains no question"):
        read_rows(table_of([], "rows"), is_training=False)


@pytest.mark.ci
def test_rows_of_python_train_the_weights_of_squads_format(tmp_path, config_file, toy_spm_model):
    (tmp_path / "squad.json").write_text(squad_of(QUESTIONS))

    def train(name, rows=None, **where):
        output = tmp_path / name
        settings = Settings(
            output_dir=str(output),
            albert_config_file=str(config_file),
            spm_model_file=str(toy_spm_model),
            train_batch_size=2,
            num_train_epochs=0,
            train_step=3,
            max_seq_length=48,
            max_query_length=16,
            doc_stride=16,
            num_workers=1,
            do_train=True,
            **where,
        )
        run(settings, data=rows)
        return tensors(output / "model.ckpt-3")

    before = train("before", train_file=str(tmp_path / "squad.json"))
    found = train("rows", {"train": rows_of(QUESTIONS)})
    assert set(found) == set(before)
    for key, value in before.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def test_questions_without_ids_have_the_same_numbers_in_all_formats(tmp_path):
    row = '{"question": "q", "context": "a b"}\n'
    (tmp_path / "a.jsonl").write_text(f"{row}\n\n{row}")
    (tmp_path / "a.csv").write_text('question,context\n"q",a b\n\n"q",a b\n')
    for name in ("a.jsonl", "a.csv"):
        data = read_rows(open_rows([str(tmp_path / name)]), is_training=False)
        assert [question.qas_id for question in data.examples] == ["1", "2"]


def test_the_card_says_what_separates_the_columns(tmp_path):
    card = '---\nconfigs:\n- {config_name: x, data_files: {dev: dev.csv}, sep: "\\t"}\n---'
    (tmp_path / "README.md").write_text(card)
    (tmp_path / "dev.csv").write_text('question\tcontext\nwho, where\t"a, b"\n')
    settings = Settings(data_dir=str(tmp_path), output_dir="out", do_predict=True)
    (example,) = read_data(settings)["dev"].examples
    assert (example.question, example.context) == ("who, where", "a, b")
