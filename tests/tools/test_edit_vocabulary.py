"""The editor of vocabularies: which pieces stay, and that everything of a model follows."""

from __future__ import annotations

import dataclasses
import json
import shutil

import edit_vocabulary
import numpy as np
import pytest
from edit_vocabulary import Settings

import albert_tf
from albert_tf import classification, data, pretraining
from albert_tf.checkpoints import containers, run_record, store
from albert_tf.checkpoints.names import GLOBAL_STEP, MASKED_LM_BIAS, WORDS
from albert_tf.cli import convert_checkpoint
from albert_tf.config import AlbertConfig
from albert_tf.tokenization import FullTokenizer
from tests.checkpoints.checkpoint_samples import SHARED, random_arrays, random_weights
from tests.conftest import TOY_TEXT, train_toy_vocabulary

CONFIG = dataclasses.replace(SHARED, num_hidden_layers=2)
CORPUS = "The river carries the rain, 19, of the mountains.\nA small boat waits; nobody knows\n"
PIECES = [
    *("[PAD]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "天", "##天", "气", "##气"),
    *("a", "##a", "##b", "##ab", "aba", "b", "sea", "##sea", ",", "##,", "boat"),
]
SLOTS = ("adam_m", "adam_v")
ENDINGS = ("index", "data-00000-of-00001")
CHINESE = "天气 sea\nabab 天, 雨 xyz\n"


def write_model(folder, vocabulary, weights=None, config=CONFIG):
    """Writes a folder like a run's: two checkpoints with moments, config and vocabulary."""
    folder.mkdir(parents=True)
    weights = weights or random_weights(config)
    moments = {f"{name}/{slot}": np.abs(x) for name, x in weights.items() for slot in SLOTS}
    for step in (1, 2):
        tensors = weights | moments | {GLOBAL_STEP: np.int64(step)}
        store.save_checkpoint(str(folder / f"model.ckpt-{step}"), tensors)
    config.to_json_file(str(folder / "albert_config.json"))
    if isinstance(vocabulary, str):
        shutil.copy(vocabulary, folder / "toy.model")
    else:
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary))
    return folder


@pytest.fixture(name="model")
def make_model(tmp_path, toy_spm_model):
    return write_model(tmp_path / "model", toy_spm_model)


@pytest.fixture(name="chinese")
def make_chinese(tmp_path):
    (tmp_path / "zh.txt").write_text(CHINESE)
    config = dataclasses.replace(CONFIG, vocab_size=len(PIECES))
    return write_model(tmp_path / "chinese", PIECES, config=config)


@pytest.fixture(name="corpus")
def write_corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text(CORPUS)
    return path


def edit(model, output, **settings):
    printed = edit_vocabulary.run(Settings(input=str(model), output=str(output), **settings))
    report = json.loads((output / "vocabulary_edit.json").read_text())
    return tokenizer_of(model), tokenizer_of(output), report | {"printed": printed}


def tokenizer_of(folder):
    sentencepiece = folder / "toy.model"
    if sentencepiece.exists():
        return FullTokenizer(spm_model_file=str(sentencepiece))
    return FullTokenizer(str(folder / "vocab.txt"))


def read(prefix):
    reader = containers.open_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.parametrize("keep_characters", [True, False])
def test_the_ids_of_a_corpus_map_one_to_one(model, corpus, tmp_path, keep_characters):
    old, new, report = edit(
        model, tmp_path / "new", corpus_file=str(corpus), keep_characters=keep_characters
    )
    assert new.vocab_size < old.vocab_size
    new_id = {old_id: number for number, old_id in enumerate(report["old_ids"])}
    for line in CORPUS.splitlines():
        assert new.encode(line) == [new_id[i] for i in old.encode(line)]
    tokens = sum(len(old.encode(line)) for line in CORPUS.splitlines())
    assert report["corpus_tokens"] == {"all": tokens, "changed": 0}
    assert f"corpus: 0 of {tokens} tokens (0.00%)" in report["printed"]
    assert [new.vocab[name] for name in ("[CLS]", "[SEP]", "[MASK]", "(", "€")] == [2, 3, 4, 5, 12]
    assert new.pieces == [old.pieces[i] for i in report["old_ids"]]
    assert set(report["dropped"]) == set(old.pieces) - set(new.pieces)
    characters = {piece for piece in old.pieces if len(piece) == 1}
    assert (characters <= set(new.pieces)) == keep_characters


def test_text_outside_of_the_corpus_loses_no_character(model, corpus, tmp_path):
    old, new, _ = edit(model, tmp_path / "new", corpus_file=str(corpus))
    for line in TOY_TEXT.splitlines():
        assert new.encode(line).count(new.unk_id) == old.encode(line).count(old.unk_id)


def test_pieces_that_decide_other_scores_stay(model, corpus, tmp_path):
    old, new, _ = edit(model, tmp_path / "new", corpus_file=str(corpus), keep_characters=False)
    ranges = []
    for tokenizer in (old, new):
        pieces = edit_vocabulary.parse_model(tokenizer).pieces
        scores = [piece.score for piece in pieces if piece.type == edit_vocabulary.NORMAL]
        ranges.append((min(scores), max(scores)))
    assert ranges[0] == ranges[1]


def test_a_number_with_a_comma_stays_though_no_id_of_a_text_is_its(tmp_path):
    path = tmp_path / "numbers.model"
    train_toy_vocabulary(path, 60, [])
    old = FullTokenizer(spm_model_file=str(path))
    proto = edit_vocabulary.parse_model(old)
    proto.pieces.add(piece="▁19,", score=-1.0)
    path.write_bytes(proto.SerializeToString())
    old = FullTokenizer(spm_model_file=str(path))
    (tmp_path / "text.txt").write_text("19, the river\n")
    used = edit_vocabulary.used_ids(old, [str(tmp_path / "text.txt")])
    assert old.vocab["▁19,"] in used
    assert old.vocab["▁19,"] not in old.encode("19, the river")


def test_all_rows_of_all_checkpoints_follow(model, corpus, tmp_path):
    output = tmp_path / "new"
    _, new, report = edit(model, output, corpus_file=str(corpus))
    ids = report["old_ids"]
    for step in (1, 2):
        before, after = read(model / f"model.ckpt-{step}"), read(output / f"model.ckpt-{step}")
        assert set(before) == set(after)
        cut = {name for name in before if before[name].shape != after[name].shape}
        assert cut == {
            base + slot
            for base in (WORDS, MASKED_LM_BIAS)
            for slot in ("", *(f"/{slot}" for slot in SLOTS))
        }
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value[ids] if name in cut else value)
        assert after[GLOBAL_STEP] == step
    config = AlbertConfig.from_json_file(str(output / "albert_config.json"))
    assert config == dataclasses.replace(CONFIG, vocab_size=new.vocab_size)
    assert run_record.read(str(output)).identity["vocabulary"] == (
        run_record.describe_vocabulary(new.vocab_size, new.checksum)
    )


@pytest.mark.parametrize(
    ("keep_characters", "dropped"),
    [
        (True, ["[unused1]", "##天", "##气", "aba", "##sea", "##,", "boat"]),
        (False, ["[unused1]", "##天", "##气", "##a", "b", "##sea", "##,", "boat"]),
    ],
)
def test_wordpiece_keeps_what_spells_words(chinese, tmp_path, keep_characters, dropped):
    old, new, report = edit(
        chinese,
        tmp_path / "new",
        corpus_file=str(tmp_path / "zh.txt"),
        keep_characters=keep_characters,
    )
    used = {piece for line in CHINESE.splitlines() for piece in old.tokenize(line)}
    assert used == {"天", "气", "sea", "aba", "##b", ",", "[UNK]"}
    assert set(dropped) - {"aba"} <= set(report["dropped"])
    assert not used & set(report["dropped"])
    for line in CHINESE.splitlines():
        assert new.tokenize(line) == old.tokenize(line)
    assert [new.pad_id, new.unk_id, new.cls_id, new.sep_id, new.mask_id] == [0, 1, 2, 3, 4]


def test_new_words_begin_as_the_mean_of_their_pieces(model, tmp_path):
    (tmp_path / "words.txt").write_text("riverboat\n\n ▁mountain town \nQ\n".replace("Q", "囧"))
    output = tmp_path / "new"
    old, new, report = edit(model, output, new_tokens_file=str(tmp_path / "words.txt"))
    assert new.pieces[old.vocab_size :] == ["▁riverboat", "▁mountain▁town", "囧"]
    assert new.tokenize("a riverboat, the mountain town 囧")[-1] == "囧"
    assert "▁riverboat" in new.tokenize("The riverboat waits")
    spelled = old.encode("riverboat")
    assert report["added"]["▁riverboat"] == [old.pieces[i] for i in spelled]
    before, after = read(model / "model.ckpt-2"), read(output / "model.ckpt-2")
    for name in (WORDS, f"{WORDS}/adam_m", f"{WORDS}/adam_v", MASKED_LM_BIAS):
        rows = before[name][spelled]
        np.testing.assert_allclose(after[name][old.vocab_size], rows.mean(axis=0), atol=1e-6)
        np.testing.assert_array_equal(after[name][: old.vocab_size], before[name][: old.vocab_size])
    assert "0 dropped, 3 added" in report["printed"]
    assert "corpus_tokens" not in report


def test_words_are_added_to_wordpiece_and_the_corpus_shows_it(chinese, tmp_path):
    (tmp_path / "words.txt").write_text("abab\n雨\n")
    _, new, report = edit(
        chinese,
        tmp_path / "new",
        corpus_file=str(tmp_path / "zh.txt"),
        new_tokens_file=str(tmp_path / "words.txt"),
    )
    assert new.tokenize("abab 雨") == ["abab", "雨"]
    assert report["added"] == {"abab": ["aba", "##b"], "雨": ["[UNK]"]}
    assert report["corpus_tokens"] == {"all": 9, "changed": 3}  # aba ##b and [UNK]


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ("boat\nthe\n", r"words.txt, line 2: 'the' is already in the vocabulary"),
        ("covid\ncovid\n", r"line 2: 'covid' is already in the vocabulary"),
        ("Covid\n", r"'Covid' would never be looked up, .* turns it into \['covid'\]"),
        ("two  spaces\n", r"would never be looked up"),
        ("\n \n", "no token to add"),
    ],
)
def test_tokens_that_cannot_be_added_are_named(model, tmp_path, tokens, message):
    (tmp_path / "words.txt").write_text(tokens)
    with pytest.raises(ValueError, match=message):
        edit(model, tmp_path / "new", new_tokens_file=str(tmp_path / "words.txt"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "words.txt"]


@pytest.mark.parametrize("token", ["天气", "##ab", "a-b"])
def test_wordpiece_refuses_what_it_never_looks_up(chinese, tmp_path, token):
    (tmp_path / "words.txt").write_text(f"{token}\n")
    with pytest.raises(ValueError, match="would never be looked up, because the tokenizer"):
        edit(chinese, tmp_path / "new", new_tokens_file=str(tmp_path / "words.txt"))


def test_what_does_not_go_together_is_refused(model, corpus, tmp_path):
    def refused(match, **settings):
        values = {"input": str(model), "output": str(tmp_path / "new")} | settings
        with pytest.raises(ValueError, match=match):
            edit_vocabulary.run(Settings(**values))
        assert not (tmp_path / "new").exists()

    text = str(corpus)
    refused("nothing to do: set --corpus_file")
    refused("--output=.* already exists", output=str(model), corpus_file=text)
    (tmp_path / "empty.txt").write_text("\n \n")
    refused(r"--corpus_file: no text in .*empty.txt", corpus_file=str(tmp_path / "empty.txt"))
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    refused("latin.txt.* UTF-8", corpus_file=str(tmp_path / "latin.txt"))
    refused("--corpus_file: .*no_file' matches no file", corpus_file=str(tmp_path / "no_file"))
    small = tmp_path / "small.json"
    dataclasses.replace(CONFIG, vocab_size=80).to_json_file(str(small))
    refused("small.json has vocab_size=80", corpus_file=text, albert_config_file=str(small))
    large = tmp_path / "large.json"
    dataclasses.replace(CONFIG, vocab_size=99).to_json_file(str(large))
    refused(
        "has 97 rows, but the config has vocab_size=99",
        corpus_file=text,
        albert_config_file=str(large),
    )
    other = run_record.TrainedWith({"vocabulary": "89 entries, sha256 0"})
    run_record.write(str(model), other)
    refused("trained with another vocabulary", corpus_file=text)


@pytest.fixture(name="classifier")
def make_classifier(tmp_path, toy_spm_model):
    """The folder of a classifier's run, with a cache of old ids in it."""
    head = random_arrays({"output_weights": (2, 12), "output_bias": (2,)})
    weights = {n: x for n, x in random_weights(CONFIG).items() if n.startswith("bert/")} | head
    task = {"task_name": "tsv", "folder": "", "labels": ["no", "yes"], "is_regression": False}
    run = {
        "flags": {"spm_model_file": "old.model", "vocab_file": None, "max_seq_length": 13},
        "directory": str(tmp_path),
        "config": {"vocab_size": 97},
        "task": task,
    }
    folder = write_model(tmp_path / "run", toy_spm_model, weights)
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "cola_dev.npz").write_bytes(b"cache of old ids")
    return folder


def test_what_describes_a_run_comes_along(classifier, corpus, tmp_path):
    output = tmp_path / "new"
    edit(classifier, output, corpus_file=str(corpus))
    assert {path.name for path in output.iterdir()} == {
        *("albert_config.json", "run.json", "toy.model"),
        *(f"model.ckpt-{step}.{end}" for step in (1, 2) for end in ENDINGS),
        "vocabulary_edit.json",
    }
    described = json.loads((output / "run.json").read_text())
    assert described["flags"]["spm_model_file"] == str(output / "toy.model")
    assert described["flags"]["vocab_file"] is None
    assert described["config"]["vocab_size"] < 97
    assert described["task"]["labels"] == ["no", "yes"]


@pytest.mark.slow
def test_a_classifier_answers_as_before(classifier, corpus, tmp_path):
    output = tmp_path / "new"
    edit(classifier, output, corpus_file=str(corpus))
    before, after = (albert_tf.load_predictor(str(path)) for path in (classifier, output))
    assert before(CORPUS.splitlines()) == after(CORPUS.splitlines())


@pytest.mark.slow
def test_the_programs_take_the_new_folder(config_file, toy_spm_model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(TOY_TEXT.replace("\n", "\n\n", 2))
    sizes = {"max_seq_length": 24, "max_predictions_per_seq": 4}

    def records(name, vocabulary):
        path = str(tmp_path / name)
        data.run(
            data.Settings(
                input_file=str(text),
                output_file=path,
                spm_model_file=vocabulary,
                num_workers=1,
                **sizes,
            )
        )
        return path

    def pretrain(folder, input_file, steps):
        settings = pretraining.Settings(
            albert_config_file=str(folder / "albert_config.json"),
            input_file=input_file,
            output_dir=str(folder),
            train_batch_size=2,
            num_train_steps=4,
            num_warmup_steps=0,
            save_checkpoints_steps=steps,
            precision="float32",
            **sizes,
        )
        pretraining.run(settings)

    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (old / "albert_config.json").write_bytes(config_file.read_bytes())
    pretrain(old, records("old.tfrecord", toy_spm_model), 2)
    for end in ENDINGS:  # as if it had been interrupted
        (old / f"model.ckpt-4.{end}").unlink()
    edit_vocabulary.run(
        Settings(
            input=str(old), output=str(new), corpus_file=str(text), spm_model_file=toy_spm_model
        )
    )
    vocabulary = str(new / "toy.model")
    pretrain(new, records("new.tfrecord", vocabulary), 2)
    assert list(store.list_checkpoints(str(new))) == [0, 2, 4]
    moved = read(new / "model.ckpt-4")[f"{WORDS}/adam_m"]
    assert moved.shape[0] == FullTokenizer(spm_model_file=vocabulary).vocab_size
    assert convert_checkpoint.convert(
        convert_checkpoint.Settings(
            input=str(new), output=str(tmp_path / "hf"), output_format="huggingface"
        )
    )
    (tmp_path / "train.tsv").write_text("text\tlabel\nThe river\ty\nA boat\tn\n")
    result = classification.run(
        classification.Settings(
            task_name="tsv",
            data_dir=str(tmp_path),
            init_checkpoint=str(new),
            output_dir=str(tmp_path / "fine"),
            max_seq_length=16,
            train_step=1,
            train_batch_size=2,
            do_train=True,
        )
    )
    assert result.output_dir == str(tmp_path / "fine")
