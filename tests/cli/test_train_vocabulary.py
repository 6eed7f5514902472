import dataclasses
import gzip
import os
import shlex
import subprocess
import sys
from collections import Counter

import pytest

from albert_tf.cli import train_vocabulary
from albert_tf.cli.train_vocabulary import Settings
from albert_tf.tokenization import FullTokenizer
from tests.conftest import TOY_TEXT

CHINESE = """\
雨下了一整天，到晚上7点才停。
孩子们用iPhone 15拍下了彩虹！

他说："iPad比iPhone大。"
她在2015年和2017年去过那里，iPod还在。
"""
SPECIAL_LAYOUT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", *'()"-.–£€']


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.fixture
def english(tmp_path):
    return write(tmp_path / "en.txt", TOY_TEXT)


@pytest.fixture
def chinese(tmp_path):
    return write(tmp_path / "zh.txt", CHINESE)


def test_sentencepiece_has_the_special_ids_of_the_published_models(english, tmp_path, capsys):
    prefix = str(tmp_path / "new" / "toy")
    train_vocabulary.run(Settings(english, prefix, vocab_size=79))
    tokenizer = FullTokenizer(f"{prefix}.vocab", spm_model_file=f"{prefix}.model")
    assert tokenizer.pieces[:13] == SPECIAL_LAYOUT
    assert tokenizer.vocab_size == 79
    assert tokenizer.encode("£5 (a–b)")[1:].count(tokenizer.unk_id) == 1  # the 5
    assert not {"<s>", "</s>"} & set(tokenizer.pieces)
    printed = capsys.readouterr().out
    assert "size: 79 pieces" in printed
    assert "coverage: 100.000%" in printed
    assert "0 <pad>  1 <unk>  2 [CLS]  3 [SEP]  4 [MASK]  5 (" in printed


def test_sentencepiece_text_is_normalized_as_for_the_records(tmp_path):
    text = write(tmp_path / "text.txt", "\ufeffCAFÉ Crème\r\n \r\ncafé CRÈME\n" * 5)
    settings = Settings(text, str(tmp_path / "v"), vocab_size=97, hard_vocab_limit=False)
    train_vocabulary.run(settings)
    pieces = FullTokenizer(spm_model_file=str(tmp_path / "v.model")).pieces[13:]
    assert set("".join(pieces)) == set("▁cafeCREME".lower())
    settings = dataclasses.replace(settings, output_prefix=str(tmp_path / "c"), do_lower_case=False)
    train_vocabulary.run(settings)
    pieces = FullTokenizer(spm_model_file=str(tmp_path / "c.model")).pieces[13:]
    assert {"C", "F"} <= set("".join(pieces))


@pytest.mark.parametrize("type_", ["sentencepiece", "wordpiece"])
def test_the_same_text_gives_the_same_vocabulary(tmp_path, type_):
    lines = [f"{line} {number}" for number in range(59) for line in TOY_TEXT.splitlines()]
    text = write(tmp_path / "long.txt", "\n".join(lines))
    content = []
    for name in ("first", "second"):
        train_vocabulary.run(
            Settings(text, str(tmp_path / name), type_, vocab_size=83, input_sentence_size=103)
        )
        outputs = sorted(tmp_path.glob(f"{name}.*"))
        content.append([path.read_bytes() for path in outputs])
    assert content[0] == content[1]
    assert [path.name for path in outputs] == (
        ["second.txt"] if type_ == "wordpiece" else ["second.model", "second.vocab"]
    )


def test_a_longer_line_than_the_limit_is_left_out(tmp_path):
    text = write(tmp_path / "text.txt", "a b c d\n" + "z" * 50 + "\n")
    for limit, expected in ((60, True), (40, False)):
        settings = Settings(
            text,
            str(tmp_path / f"v{limit}"),
            vocab_size=61,
            hard_vocab_limit=False,
            max_sentence_length=limit,
        )
        train_vocabulary.run(settings)
        pieces = FullTokenizer(spm_model_file=str(tmp_path / f"v{limit}.model")).pieces
        assert any("z" in piece for piece in pieces) == expected


def test_wordpiece_keeps_the_characters_that_cover_the_text():
    counts = Counter({"一": 90, "二": 9, "三": 1})
    for coverage, kept in ((0.9, "一"), (0.95, "一二"), (1.0, "一二三")):
        settings = Settings("i", "o", vocab_size=23, character_coverage=coverage)
        vocabulary = train_vocabulary.train_wordpiece(counts, settings)
        assert vocabulary[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        assert set(vocabulary[5:]) == {*kept, *("##" + char for char in kept)}


def test_wordpiece_spells_every_text_it_was_trained_on(chinese, tmp_path, capsys):
    prefix = str(tmp_path / "vocabulary")
    train_vocabulary.run(Settings(chinese, prefix, "wordpiece", vocab_size=500))
    tokenizer = FullTokenizer(f"{prefix}.txt")
    for line in CHINESE.splitlines():
        assert tokenizer.unk_id not in tokenizer.encode(line)
    assert tokenizer.tokenize("iPhone 雨") == ["iphone", "雨"]
    assert tokenizer.tokenize("2015") != ["2", "##0", "##1", "##5"]
    assert {"雨", "##雨", "，"} <= set(tokenizer.pieces)
    assert "coverage: 100.000%" in capsys.readouterr().out


def test_a_size_out_of_reach_names_the_limit_and_the_limit_works(english, tmp_path):
    def train(size):
        train_vocabulary.run(Settings(english, str(tmp_path / "v"), vocab_size=size))

    for size, said in (
        (5000, r"too large for this text: the maximum is (\d+)"),
        (17, r"symbols is (\d+)"),
    ):
        with pytest.raises(ValueError, match=said) as error:
            train(size)
        assert f"--vocab_size={size}" in str(error.value)
        assert not list(tmp_path.glob("v.*"))
        words = str(error.value).replace(".", " ").split()
        limit = next(int(word) for word in words if word.isdigit())
        train(limit)
        for path in tmp_path.glob("v.*"):
            path.unlink()


def test_more_characters_than_pieces_are_refused(english, tmp_path):
    with pytest.raises(ValueError, match=r"--vocab_size=17 is too small for this text"):
        train_vocabulary.run(Settings(english, str(tmp_path / "v"), "wordpiece", vocab_size=17))
    assert not list(tmp_path.glob("v.*"))


def test_without_the_hard_limit_the_size_is_what_the_text_has(english, tmp_path):
    prefix = str(tmp_path / "v")
    for type_ in ("sentencepiece", "wordpiece"):
        train_vocabulary.run(
            Settings(english, prefix, type_, vocab_size=5000, hard_vocab_limit=False)
        )
    assert 60 < FullTokenizer(spm_model_file=f"{prefix}.model").vocab_size < 5000
    assert 60 < FullTokenizer(f"{prefix}.txt").vocab_size < 5000


def test_a_missing_input_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"--input_file: .*absent.*matches no file"):
        train_vocabulary.run(Settings(str(tmp_path / "absent*.txt"), str(tmp_path / "v")))


@pytest.mark.parametrize("text", ["", "\n \n\u3000\n"])
def test_an_empty_input_is_named(tmp_path, text):
    with pytest.raises(ValueError, match=r"--input_file: no text in .*empty\.txt"):
        train_vocabulary.run(Settings(write(tmp_path / "empty.txt", text), str(tmp_path / "v")))


def test_text_of_nothing_but_accents_leaves_no_line_to_train_on(tmp_path):
    text = write(tmp_path / "accents.txt", "\u0301\n\u0300\n")
    with pytest.raises(ValueError, match="no lines left to train on"):
        train_vocabulary.run(Settings(text, str(tmp_path / "v")))


def test_compressed_text_is_read_too(tmp_path):
    packed = write(tmp_path / "text.gz", gzip.compress(TOY_TEXT.encode()))
    plain = write(tmp_path / "text.txt", TOY_TEXT)
    for path in (packed, plain):
        train_vocabulary.run(Settings(path, f"{path}.out", vocab_size=79))
    outputs = [(tmp_path / f"text.{end}.out.model").read_bytes() for end in ("gz", "txt")]
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("type_", ["sentencepiece", "wordpiece"])
def test_the_text_is_read_once(tmp_path, monkeypatch, type_):
    text, read = write(tmp_path / "text.txt", f"{TOY_TEXT}\n" * 40), []
    sentences_of = train_vocabulary.sentences_of

    def counted(parts, settings):
        read.append(parts)
        return sentences_of(parts, settings)

    monkeypatch.setattr(train_vocabulary, "CHUNK_BYTES", 500)
    monkeypatch.setattr(train_vocabulary, "SUMMARY_LINES", 2)
    monkeypatch.setattr(train_vocabulary, "sentences_of", counted)
    settings = Settings(text, str(tmp_path / "v"), type_, vocab_size=131, hard_vocab_limit=False)
    list(train_vocabulary.read_lines([text], settings))
    once, read[:] = len(read), []
    assert once > 2
    train_vocabulary.run(settings)
    assert len(read) == once


@pytest.mark.parametrize("type_", ["sentencepiece", "wordpiece"])
def test_text_that_is_not_utf8_names_file_and_line(tmp_path, type_):
    text = write(tmp_path / "gb.txt", "fine\n\n中文\n".encode("gb18030"))
    with pytest.raises(ValueError, match=r"gb\.txt, line 3: not UTF-8"):
        train_vocabulary.run(Settings(text, str(tmp_path / "v"), type_))


def test_an_output_that_cannot_be_written_is_named_before_the_training(english, tmp_path):
    blocker = write(tmp_path / "file", "in the way")
    with pytest.raises(ValueError, match="--output_prefix: cannot write to"):
        train_vocabulary.run(Settings(english, f"{blocker}/v"))
    with pytest.raises(ValueError, match=r"--output_prefix=.* must end with a file name"):
        train_vocabulary.run(Settings(english, f"{tmp_path}/"))


def test_the_input_is_never_overwritten(tmp_path, monkeypatch):
    text = write(tmp_path / "v.txt", TOY_TEXT)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"--output_prefix: v\.txt is an input, --input_file"):
        train_vocabulary.run(Settings(text, "v", "wordpiece"))
    train_vocabulary.run(Settings(text, "v", vocab_size=79))
    assert (tmp_path / "v.txt").read_text(encoding="utf-8") == TOY_TEXT


@pytest.mark.parametrize("ending", [".model", ".vocab"])
def test_a_vocabulary_is_replaced_only_on_demand(english, tmp_path, ending):
    (tmp_path / f"v{ending}").write_text("of a model that took weeks")
    settings = Settings(english, str(tmp_path / "v"), vocab_size=79)
    with pytest.raises(ValueError, match=rf"v\{ending} already exists, .* --overwrite"):
        train_vocabulary.run(settings)
    assert (tmp_path / f"v{ending}").read_text() == "of a model that took weeks"
    train_vocabulary.run(dataclasses.replace(settings, overwrite=True))
    assert FullTokenizer(spm_model_file=str(tmp_path / "v.model")).vocab_size == 79


def test_pipes_are_neither_read_nor_replaced(english, tmp_path):
    os.mkfifo(tmp_path / "v.txt")
    pipe = str(tmp_path / "v.txt")
    with pytest.raises(FileNotFoundError, match=r"v\.txt: expected a file, but this is a pipe"):
        train_vocabulary.run(Settings(pipe, str(tmp_path / "new")))
    with pytest.raises(ValueError, match=r"v\.txt: cannot write a file here"):
        train_vocabulary.run(Settings(english, pipe.removesuffix(".txt"), "wordpiece"))


def test_too_few_lines_to_draw_from_are_refused(english, tmp_path):
    with pytest.raises(ValueError, match=r"--input_sentence_size=100: .* more than 100"):
        train_vocabulary.run(Settings(english, str(tmp_path / "v"), input_sentence_size=100))


def run_program(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "albert_tf", "train-vocabulary", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )


def test_the_program_runs_from_anywhere_with_the_flags_of_spm_train_too(english, tmp_path):
    done = run_program(
        f"--input={english}",
        f"--model_prefix={tmp_path / 'v'}",
        "--vocab_size=61",
        "--nodo_lower_case",
    )
    assert done.returncode == 0, done.stderr
    assert "size: 61 pieces" in done.stdout
    assert FullTokenizer(spm_model_file=str(tmp_path / "v.model")).vocab_size == 61


def test_the_command_of_googles_readme_gives_the_ids_of_the_published_models(english, tmp_path):
    done = run_program(
        *shlex.split(
            "--vocab_size=61 --logtostderr --pad_id=0 --unk_id=1 --eos_id=-1 --bos_id=-1"
            " --control_symbols=[CLS],[SEP],[MASK]"
            r' --user_defined_symbols="(,),\",-,.,–,£,€"'
            " --shuffle_input_sentence=true --input_sentence_size=10000000"
            " --character_coverage=0.99995 --model_type=unigram"
        ),
        *("--input", english, "--model_prefix", f"{tmp_path / 'v'}"),
    )
    assert done.returncode == 0, done.stderr
    pieces = FullTokenizer(spm_model_file=str(tmp_path / "v.model")).pieces
    assert pieces[: len(SPECIAL_LAYOUT)] == SPECIAL_LAYOUT


def test_the_program_says_what_is_wrong_without_a_traceback(english, tmp_path):
    done = run_program(f"--input_file={english}", f"--output_prefix={tmp_path / 'v'}")
    assert done.returncode == 1
    assert done.stderr.startswith("albert train-vocabulary: --vocab_size=30000 is too large")
    assert "Traceback" not in done.stderr
