import json

import numpy as np
import pytest
from absl import logging

from albert_tf.race.reading import Question, num_choices, read_questions, read_race


def article(name, answers="AD", **changes):
    return {
        "article": f"The passage {name}.",
        "questions": [f"{name} is _ ?", "Why ?"],
        "options": [["w", "x", "y", "z"], ["1", "2", "3", "4"]],
        "answers": list(answers),
        "id": name,
    } | changes


def write_articles(root, level, *articles, together=False, split="dev"):
    folder = root / "RACE" / split / level
    folder.mkdir(parents=True, exist_ok=True)
    texts = [text if isinstance(text, str) else json.dumps(text) for text in articles]
    if together:
        (folder / "all.txt").write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    for number, text in enumerate(() if together else texts):
        (folder / f"{level}{number + 8}.txt").write_text(text, encoding="utf-8")
    return str(root)


@pytest.fixture
def warnings(monkeypatch):
    logged = []
    monkeypatch.setattr(logging, "warning", lambda text, *args: logged.append(text % args))
    return logged


@pytest.mark.parametrize("together", [True, False])
def test_both_formats_are_read_middle_before_high(tmp_path, together):
    write_articles(tmp_path, "high", article("h1"), together=together)
    folder = write_articles(tmp_path, "middle", article("m1", "BA"), together=together)
    data = read_race(folder, "dev")
    options, numbers = ("w", "x", "y", "z"), ("1", "2", "3", "4")
    assert data.examples == [
        Question("m1", "The passage m1.", "m1 is _ ?", options, 1, "middle"),
        Question("m1", "The passage m1.", "Why ?", numbers, 0, "middle"),
        Question("h1", "The passage h1.", "h1 is _ ?", options, 0, "high"),
        Question("h1", "The passage h1.", "Why ?", numbers, 3, "high"),
    ]
    assert num_choices(data.examples) == 4
    assert data.has_labels


def test_files_are_sorted_by_name_and_lines_keep_their_order(tmp_path):
    names = ["a", "b", "c"]
    write_articles(tmp_path, "middle", *map(article, names))  # middle8, middle9, middle10
    found = [question.example_id for question in read_race(str(tmp_path), "dev").examples]
    assert found == ["c", "c", "a", "a", "b", "b"]
    write_articles(tmp_path, "middle", *map(article, names), together=True)
    found = [question.example_id for question in read_race(str(tmp_path), "dev").examples]
    assert found == ["a", "a", "b", "b", "c", "c"]


def test_a_single_level_can_be_read(tmp_path, warnings):
    write_articles(tmp_path, "high", article("h1"))
    folder = write_articles(tmp_path, "middle", article("m1"))
    data = read_race(folder, "dev", levels=["high"])
    assert {question.level for question in data.examples} == {"high"}
    assert not warnings


def test_a_missing_level_is_reported(tmp_path, warnings):
    folder = write_articles(tmp_path, "middle", article("m1"))
    assert len(read_race(folder, "dev")) == 2
    assert "RACE/dev/high does not exist" in warnings[0]
    with pytest.raises(FileNotFoundError, match=r"no RACE questions: neither all.txt nor other"):
        read_race(folder, "dev", levels=["high"])
    with pytest.raises(
        FileNotFoundError, match="--data_dir must be the folder that contains RACE/"
    ):
        read_race(folder, "test")


def test_the_data_directory_may_be_the_folder_itself(tmp_path):
    folder = write_articles(tmp_path, "middle", article("m1"))
    assert read_race(folder + "/RACE", "dev").examples == read_race(folder, "dev").examples


def test_test_articles_may_lack_their_answers(tmp_path):
    unanswered = article("m1")
    del unanswered["answers"]
    folder = write_articles(tmp_path, "middle", unanswered, split="test")
    data = read_race(folder, "test")
    assert [question.label for question in data.examples] == [None, None]
    assert not data.has_labels


OPTIONS = ["w", "x", "y", "z"]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("no JSON", r"line 2: expected a JSON object"),
        (article("m2", id="\ud800"), r"line 2: 'id' contains a lone surrogate"),
        (article("m2", article=" "), r"line 2: 'article' is empty"),
        (article("m2", questions="Why ?"), r"line 2: 'questions' is str, expected a list"),
        (article("m2", answers="A"), r"line 2: 2 questions, 2 options, 1 answers"),
        ({"article": "A."}, r"line 2: no key 'questions' among 'article'"),
        (
            article("m2", options=[OPTIONS, ["w", "x", "y"]]),
            r"line 2, question 2 of m2: 3 options, expected 4",
        ),
        (
            article("m2", options=[["w", "", "y", "z"], OPTIONS]),
            r"line 2, question 1 of m2: option 2 of 4 is empty",
        ),
        (
            article("m2", options=[OPTIONS, ["w", "x", "y", 5]]),
            r"line 2, question 2 of m2: option 4 is 5, expected text",
        ),
        (
            article("m2", "AE"),
            r"line 2, question 2 of m2: label 'E' for 4 options: expected 0 to 3 or A",
        ),
        (article("m2", questions=["Why ?", None]), r"line 2, question 2 of m2: 'question' is null"),
    ],
)
def test_bad_articles_and_questions_are_named(tmp_path, bad, problem):
    folder = write_articles(tmp_path, "middle", article("m1"), bad, article("m3"), together=True)
    with pytest.raises(ValueError, match=r"RACE/dev, middle/all.txt, " + problem):
        read_race(folder, "dev", ["middle"])


def test_an_error_names_bad_files(tmp_path):
    folder = write_articles(tmp_path, "middle", article("m1"), "{")
    with pytest.raises(ValueError, match=r"middle/middle9.txt: expected a JSON object"):
        read_race(folder, "dev")


def write_questions(root, *lines, name="train.jsonl"):
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    (root / name).write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return str(root)


def question(**changes):
    row = {"passage": "It rains.", "question": "How ?", "options": ["a", "b", "c"], "label": 1}
    return {key: value for key, value in (row | changes).items() if value is not None}


def test_questions_of_any_data_set_may_have_any_number_of_options(tmp_path):
    folder = write_questions(
        tmp_path,
        question(id=7, level="d"),
        question(options=["yes", "no"], label="A", question=None),
        question(options=list("pqrst"), label="s"),
    )
    data = read_questions(folder, "train")
    assert data.examples == [
        Question("7", "It rains.", "How ?", ("a", "b", "c"), 1, "d"),
        Question("train-1", "It rains.", "", ("yes", "no"), 0),
        Question("train-2", "It rains.", "How ?", ("p", "q", "r", "s", "t"), 3),
    ]
    assert num_choices(data.examples) == 5


@pytest.mark.parametrize(
    ("label", "number"), [(2, 2), ("C", 2), ("2", 2), ("c", 2), ("A", 0), ("b", 1)]
)
def test_the_answer_is_an_index_a_letter_or_the_option_itself(tmp_path, label, number):
    data = read_questions(write_questions(tmp_path, question(label=label)), "train")
    assert data.examples[0].label == number


@pytest.mark.parametrize(("options", "label"), [(["2010", "2011"], "2011"), (["X", "Y"], "Y")])
def test_an_option_that_can_be_no_index_is_its_text(tmp_path, options, label):
    data = read_questions(
        write_questions(tmp_path, question(options=options, label=label)), "train"
    )
    assert data.examples[0].label == 1


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (
            question(options=["2", "1", "3", "0"], label="2"),
            r"label '2' is the index or letter of option 2, '3', and the text of option 0",
        ),
        (question(options=["B", "A"], label="A"), r"label 'A' is the index or letter of option 0"),
        (question(label=3), r"label 3 for 3 options: expected 0 to 2 or A to C"),
        (question(label=-1), r"label -1 for 3 options"),
        (question(label="D"), r"label 'D' for 3 options"),
        (question(label="d"), r"label 'd' for 3 options"),
        (question(label=True), r"label True for 3 options"),
        (question(label=1.0), r"label 1.0 for 3 options"),
        (question(options=["a", "a", "b"], label="a"), r"label 'a' for 3 options"),
        (question(label=None), r"no key 'label'"),
        (question(passage=" \n"), r"'passage' is empty"),
        (question(passage=None), r"no key 'passage'"),
        (question(options=["a"]), r"options \['a'\]: expected a list of two or more"),
        (question(options="ab"), r"options 'ab': expected a list of two or more"),
        (question(options=["a", " "]), r"option 2 of 2 is empty"),
        (question(question=5), r"'question' is 5, expected text"),
        (question(id="\ud800"), r"'id' contains a lone surrogate"),
        (question(level="\ud800"), r"'level' contains a lone surrogate"),
        (question(level="a\nb"), r"'level' is 'a.nb', expected text without tabs and line breaks"),
    ],
)
def test_an_error_names_a_bad_question(tmp_path, bad, problem):
    folder = write_questions(tmp_path, question(), {"id": "q2"} | bad)
    with pytest.raises(ValueError, match=rf"train.jsonl, line 2 \([^)]+\): {problem}"):
        read_questions(folder, "train")


@pytest.mark.parametrize(("options", "label"), [(["0", "1", "2"], "1"), (["B", "A"], 1)])
def test_a_label_with_one_meaning_is_not_ambiguous(tmp_path, options, label):
    data = read_questions(
        write_questions(tmp_path, question(options=options, label=label)), "train"
    )
    assert data.examples[0].label == 1


def test_test_questions_need_no_label(tmp_path):
    folder = write_questions(tmp_path, question(label=None), name="test.json")
    assert read_questions(folder, "test").examples[0].label is None
    folder = write_questions(tmp_path, question(label=4), name="test.json")
    with pytest.raises(ValueError, match="label 4 for 3 options"):
        read_questions(folder, "test")


def test_missing_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no dev questions: .*dev.jsonl nor .*dev.json ex"):
        read_questions(str(tmp_path), "dev")


def test_the_checksum_depends_on_all_fields(tmp_path):
    def checksum(**changes):
        return read_questions(write_questions(tmp_path, question(**changes)), "train").checksum()

    changes = [
        {},
        {"passage": "It snows."},
        {"question": "Who ?"},
        {"options": ["a", "b", "d"]},
        {"label": 2},
        {"level": "x"},
    ]
    assert len({checksum(**change) for change in changes}) == len(changes)
    assert checksum() == checksum()


def test_real_questions_are_read_in_googles_order(shared):
    golden = np.load(shared / "golden" / "tasks" / "race" / "dev.npz")
    data = read_race(str(shared / "data" / "race"), "dev")
    found = [question.example_id for question in data.examples]
    assert found[: len(golden["example_id"])] == golden["example_id"].tolist()
    assert len(data) == 100
