"""RACE in both of its formats, one's own questions, and what is wrong in them."""

import json

import pytest

from albert_tf.finetuning.race import Settings
from albert_tf.finetuning.race.questions import Question
from albert_tf.finetuning.race.reading import open_questions, open_race, read_data
from albert_tf.finetuning.splits import SplitTables
from albert_tf.tables.python_rows import tables_of

OPTIONS = ["w", "x", "y", "z"]


def read_race(*args, **values):
    return open_race(*args, **values).read_all()


def article(name, answers="AD", **changes):
    return {
        "article": f"The passage {name}.",
        "questions": [f"{name} is _ ?", "Why ?"],
        "options": [OPTIONS, ["1", "2", "3", "4"]],
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


@pytest.mark.parametrize("together", [True, False])
def test_both_formats_are_read_middle_before_high(tmp_path, caplog, together):
    write_articles(tmp_path, "high", article("h1"), together=together)
    folder = write_articles(tmp_path, "middle", article("m1", "BA"), together=together)
    data = read_race(folder, "dev")
    options, numbers = tuple(OPTIONS), ("1", "2", "3", "4")
    assert data.examples == [
        Question("m1", "The passage m1.", "m1 is _ ?", options, 1, "middle"),
        Question("m1", "The passage m1.", "Why ?", numbers, 0, "middle"),
        Question("h1", "The passage h1.", "h1 is _ ?", options, 0, "high"),
        Question("h1", "The passage h1.", "Why ?", numbers, 3, "high"),
    ]
    assert ({len(x.options) for x in data.examples}, data.has_labels) == ({4}, True)
    assert read_race(folder + "/RACE", "dev").examples == data.examples
    assert read_race(folder, "dev", levels=["high"]).examples == data.examples[2:]
    assert not caplog.messages


@pytest.mark.parametrize(("together", "expected"), [(False, "caab"), (True, "abbc")])
def test_files_are_sorted_by_name_and_lines_keep_their_order(tmp_path, together, expected):
    # The files are middle8.txt, middle9.txt and middle10.txt.
    write_articles(tmp_path, "middle", *map(article, "abc"), together=together)
    found = [question.example_id for question in read_race(str(tmp_path), "dev").examples]
    assert found[1:5] == list(expected)


def test_a_missing_level_is_reported_and_a_missing_split_refused(tmp_path, caplog):
    folder = write_articles(tmp_path, "middle", article("m1"))
    assert len(read_race(folder, "dev")) == 2
    assert "RACE/dev/high does not exist" in caplog.text
    with pytest.raises(FileNotFoundError, match=r"no RACE questions: neither all.txt nor other"):
        read_race(folder, "dev", levels=["high"])


def test_test_articles_may_lack_their_answers(tmp_path):
    unanswered = article("m1")
    del unanswered["answers"]
    data = read_race(write_articles(tmp_path, "middle", unanswered, split="test"), "test")
    assert [question.label for question in data.examples] == [None, None]
    assert not data.has_labels
    answered = read_race(write_articles(tmp_path, "high", article("h1"), split="test"), "test")
    assert [question.label for question in answered.examples] == [None, None, 0, 3]
    folder = write_articles(tmp_path, "middle", unanswered)
    with pytest.raises(ValueError, match=r"middle8\.txt: no key 'answers' among 'article', "):
        read_race(folder, "dev", ["middle"])


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("no JSON", r"line 2: expected one JSON object per line"),
        (article("m2", article=" "), r"line 2: 'article' is empty"),
        (article("m2", questions="Why ?"), r"line 2: 'questions' is str, expected a list"),
        (article("m2", answers="A"), r"line 2: 2 questions, 2 options, 1 answers"),
        (
            article("m2", options=[OPTIONS, ["w", "x"]]),
            r"line 2: question 2: 2 options, expected 4",
        ),
        (article("m2", "AE"), r"question 2: label 'E' for 4 options: expected 0 to 3, 1 to 4 or A"),
    ],
)
def test_what_is_wrong_in_an_article_is_named(tmp_path, bad, problem):
    folder = write_articles(tmp_path, "middle", article("m1"), bad, article("m3"), together=True)
    with pytest.raises(ValueError, match=r"RACE/dev/middle, all.txt, .*" + problem):
        read_race(folder, "dev", ["middle"])


@pytest.mark.parametrize(
    ("settings", "ids"),
    [({}, ["m1", "h1"]), ({"middle_only": True}, ["m1"]), ({"high_only": True}, ["h1"])],
)
def test_a_program_reads_the_levels_that_are_set(tmp_path, settings, ids):
    write_articles(tmp_path, "high", article("h1"))
    folder = write_articles(tmp_path, "middle", article("m1"))
    given = {"data_dir": folder, "output_dir": "out", "do_train": False} | settings
    data = read_data(Settings(**given))
    assert list(data) == ["dev"]
    assert [question.example_id for question in data["dev"].examples[::2]] == ids


HUB_ROW = {"example_id": "7", "article": "It rains.", "question": "How ?", "answer": "B"}
HUB_ROW |= {"options": ["a", "b", "c", "d"]}


@pytest.mark.parametrize(
    ("folders", "settings", "found"),
    [
        (["middle", "high"], {}, ["middle dev middle", "high dev high"]),
        (["middle", "high"], {"high_only": True}, ["high dev high"]),
        (["all"], {}, ["all dev "]),
        ([""], {}, [" dev "]),
    ],
)
def test_the_folders_of_the_hub_are_read(tmp_path, folders, settings, found):
    for folder in folders:
        for split, name in (("train", "train"), ("dev", "validation")):
            (tmp_path / folder).mkdir(exist_ok=True)
            row = HUB_ROW | {"article": f"{folder} {split}"}
            path = tmp_path / folder / f"{name}-00000-of-00001.jsonl"
            path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    given = {"data_dir": str(tmp_path), "output_dir": "out", "do_train": False} | settings
    data = read_data(Settings(**given))
    assert [f"{x.passage} {x.level}" for x in data["dev"].examples] == found
    assert {x.label for x in data["dev"].examples} == {1}


@pytest.mark.parametrize(
    ("settings", "levels"),
    [
        ({}, ["middle", "high", "middle"]),
        ({"middle_only": True}, ["middle"] * 2),
        ({"high_only": True}, ["high"]),
    ],
)
def test_ids_of_the_hub_tell_the_levels(tmp_path, settings, levels):
    (tmp_path / "all").mkdir()
    rows = [HUB_ROW | {"example_id": name} for name in ("middle1.txt", "high1.txt", "middle2.txt")]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "all" / "validation.jsonl").write_text(lines, encoding="utf-8")
    given = {"data_dir": str(tmp_path), "output_dir": "out", "do_train": False} | settings
    assert [x.level for x in read_data(Settings(**given))["dev"].examples] == levels
    (tmp_path / "all" / "validation.jsonl").write_text(lines + json.dumps(HUB_ROW))
    if settings:
        with pytest.raises(ValueError, match="the question of id '7' has no level"):
            read_data(Settings(**given))


def test_rows_of_python_are_questions_and_a_passage_is_in_one_split(tmp_path):
    rows = [HUB_ROW | {"article": f"Passage {n // 2}"} for n in range(12)]
    settings = Settings(output_dir="out", dev_fraction=0.34)
    data = read_data(settings, given=tables_of({"train": rows}))
    passages = {split: {x.passage for x in data[split].examples} for split in ("train", "dev")}
    assert (len(data["dev"]), len(passages["dev"]), len(passages["train"])) == (4, 2, 4)


# One's own questions


def read(root, *rows, split="train"):
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (root / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    return open_questions(SplitTables(str(root)), split).read_all()


def question(**changes):
    row = {"passage": "It rains.", "question": "How ?", "options": ["a", "b", "c"], "label": 1}
    return {key: value for key, value in (row | changes).items() if value is not None}


def test_questions_of_any_data_set_may_have_any_number_of_options(tmp_path):
    data = read(
        tmp_path,
        question(id=7, level="d"),
        question(options=["yes", "no"], label="A", question=None),
        question(options=list("pqrst"), label="D"),
    )
    assert data.examples == [
        Question("7", "It rains.", "How ?", ("a", "b", "c"), 1, "d"),
        Question("train-1", "It rains.", "", ("yes", "no"), 0),
        Question("train-2", "It rains.", "How ?", ("p", "q", "r", "s", "t"), 3),
    ]
    assert max(len(x.options) for x in data.examples) == 5


@pytest.mark.parametrize(
    ("options", "label", "number"),
    [
        *((["a", "b"], label, 0) for label in (0, "A", "0")),
        *((["a", "b"], label, 1) for label in (1, "B", "1")),
        (list(map(str, range(30))), "Z", 25),
        (list(map(str, range(30))), 29, 29),
        *((["a", "b", "c"], label, 2) for label in (2, "C", "2")),
    ],
)
def test_the_answer_is_an_index_or_a_letter(tmp_path, options, label, number):
    (found,) = read(tmp_path, question(options=options, label=label)).examples
    assert found.label == number


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (question(label=4), r"label 4 for 3 options: expected 0 to 2, 1 to 3 or A to C"),
        (question(label=-2), r"label -2 for 3 options"),
        (question(label="D"), r"label 'D' for 3 options"),
        (question(label="@"), r"label '@' for 3 options"),
        (question(label="AB"), r"label 'AB' for 3 options"),
        (question(label=True), r"label True for 3 options"),
        (
            question(options=list("ab") * 15, label=31),
            "label 31 for 30 options: expected 0 to 29, 1 to 30 or A to Z",
        ),
        (question(label="d"), r"label 'd' for 3 options"),
        (question(label="sea"), r"label 'sea' for 3 options"),
        (question(passage=" \n"), r"'passage' is empty"),
        (question(passage=None, question=None), r"no key 'passage' among 'id', 'options', 'label'"),
        (
            question(options=None),
            "no options among 'id', .*'label': expected a column 'options' or",
        ),
        (question(label=None), "no label: expected a column 'label' or 'answer' or 'answerkey'"),
        (
            question(choices=["a", "b"]),
            r"'options', 'choices' may each be the options: pass --option_columns",
        ),
        (question(options=["a"]), r"options \['a'\]: expected a list of two or more"),
        (question(options=["a", " "]), r"option 2 of 2 is empty"),
        (
            question(options={"text": ["w", "x"], "label": ["A"]}),
            "options .*: expected a label for",
        ),
        (question(options=[{"label": "A"}, {"label": "B"}]), "option 1 is null, expected text"),
        (question(context="b"), "'passage', 'context' may each be the passage"),
        (
            question(options=None, ending0="a", ending1="b", answer0="c", answer1="d"),
            "the columns of ending and of answer may be the options",
        ),
        (question(level="a\nb"), r"'level' is 'a.nb', expected text without tabs and line breaks"),
    ],
)
def test_what_is_wrong_in_a_question_is_named(tmp_path, bad, problem):
    with pytest.raises(ValueError, match=rf"train.jsonl, line 2: {problem}"):
        read(tmp_path, question(), {"id": "q2"} | bad)


def test_a_program_reads_ones_own_questions_as_the_task_choice(tmp_path):
    read(tmp_path, question(), split="dev")
    given = {"data_dir": str(tmp_path), "output_dir": "out", "do_train": False}
    data = read_data(Settings(task_name="choice", **given))
    assert [len(examples) for examples in data.values()] == [1]
    (tmp_path / "dev.jsonl").unlink()
    with pytest.raises(FileNotFoundError, match="no RACE questions"):
        read_data(Settings(**given))


def test_test_questions_need_no_label(tmp_path):
    assert read(tmp_path, question(label=None), split="test").examples[0].label is None
    with pytest.raises(ValueError, match="label 4 for 3 options"):
        read(tmp_path, question(label=4), split="test")


@pytest.mark.parametrize("label", ["", -1, "-1", "-", None])
def test_questions_without_a_label_are_left_out_or_predicted(tmp_path, caplog, label):
    rows = [question(id=1), question(id=2) | {"label": label}, question(id=3)]
    assert [row.example_id for row in read(tmp_path, *rows).examples] == ["1", "3"]
    assert "train.jsonl: 1 of 3 rows are skipped, because they have no label; " in caplog.text
    caplog.clear()
    data = read(tmp_path, *rows, split="test")
    assert ([row.label for row in data.examples], data.has_labels) == ([1, None, 1], False)
    assert "predicted, but not evaluated: 1 of 3 have no known label; the first is " in (
        caplog.text
    )
    caplog.clear()
    assert not read(tmp_path, rows[1], rows[1], split="test").has_labels
    assert not caplog.messages
