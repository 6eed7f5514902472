"""Shared fixtures. Nothing here imports TensorFlow until a test needs it."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import zlib
from pathlib import Path

# Before TensorFlow is imported: no start-up notes between the test names.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import pytest
from absl import logging as absl_logging
from hypothesis import HealthCheck, Phase, settings

import albert_tf  # noqa: F401 - before TensorFlow, for oneDNN
from albert_tf import tensorflow_packages
from albert_tf.tensorflow_releases import set_random_seed

# A shell starts background jobs with SIGINT ignored, which the programs under test would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and no search for smaller ones that fail: each takes a second. The
# fixtures that generated tests use are constants.
settings.register_profile(
    "default",
    max_examples=12,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=120)
settings.load_profile("default")

ROOT = Path(__file__).resolve().parent.parent
# Reference numbers too large for the repository; the tests that read them skip without it.
SHARED = ROOT.parent / "shared"
# A Python that has PyTorch and transformers, if the one that runs the tests has not.
OTHER_PYTHON = "ALBERT_TF_TRANSFORMERS_PYTHON"
# Set, it simulates a processor without bfloat16.
WITHOUT_BFLOAT16 = "ALBERT_TF_WITHOUT_BFLOAT16"

# Every size of a tensor differs from the others, so that no wrong axis passes by luck. Three layers
# are enough for two groups, of which one has two layers.
BATCH_SIZE, SEQ_LENGTH, MAX_PREDICTIONS = 5, 11, 7
TINY_SHAPE = {
    "vocab_size": 97,
    "embedding_size": 8,
    "hidden_size": 12,
    "num_attention_heads": 4,
    "intermediate_size": 20,
    "num_hidden_layers": 3,
    "num_hidden_groups": 2,
    "max_position_embeddings": 13,
    "type_vocab_size": 3,
}

TOY_TEXT = """\
The river carries the rain of the mountains down to the sea.
A small boat waits at the landing, and nobody knows whose it is.
In winter the landing freezes, and children skate where the boat lay.
Old people say that the river was wider when they were young.
They measured it once, and found that it had not changed at all.
What had changed was the town, which had grown towards the water.
"""
SEED = 5


needs_text = pytest.mark.skipif(
    not tensorflow_packages.has_text(), reason="tensorflow-text is not installed"
)


def seed_everything(seed):
    """Seeds all global generators, those of Keras' initializers and dropout included."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - for code that still draws from the global generator
    if "tf_keras" in sys.modules:
        set_random_seed(seed)
    elif "tensorflow" in sys.modules:
        sys.modules["tensorflow"].random.set_seed(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef):
    """Seeds shared fixtures by their names, so that weights do not depend on earlier tests.

    No fixture can do it: those of wider scopes are set up before any other one.
    """
    if fixturedef.scope != "function":
        seed_everything(SEED + zlib.crc32(fixturedef.argname.encode()) % 1000)


def pytest_make_parametrize_id(val):
    """Names a test by the first bytes of a file only.

    Archives have the time in them, and processes that collect tests of other names than each other
    run none.
    """
    return repr(val[:4]) if isinstance(val, bytes) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keeps folders whose files share trained models in one process: `make test`.

    By default pytest-xdist keeps files together, and each process would train the models again.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class LoadFolders(LoadFileScheduling):
        def _split_scope(self, nodeid):
            scope = super()._split_scope(nodeid)
            folder = os.path.dirname(scope)
            return folder if folder in ("tests/cli", "tests/inference") else scope

    return LoadFolders(config, log)


@pytest.fixture(scope="session", autouse=True)
def _process():
    """Prepares the process that runs the tests."""
    # Each full collection of the imported modules took half a second.
    gc.freeze()
    # `absl.app.run` would send the trace of a crash to the captured standard error, which a crash
    # loses; pytest has enabled it for the terminal.
    faulthandler.enable = lambda *_, **__: None
    if os.environ.get(WITHOUT_BFLOAT16):
        from albert_tf.training import devices

        devices._read_cpu_info = lambda: ""


@pytest.fixture(autouse=True)
def _seeded():
    """The same random numbers in every test, regardless of earlier tests."""
    seed_everything(SEED)
    logger = absl_logging.get_absl_logger()
    level = logger.level
    yield
    logger.setLevel(level)  # programs choose a verbosity for the whole process
    if "tf_keras" in sys.modules:  # programs choose a precision for the whole process
        sys.modules["tf_keras"].mixed_precision.set_global_policy("float32")


def free_ports(count):
    """Ports of this machine on which nothing listens, each another one."""
    with contextlib.ExitStack() as stack:
        new = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in new]


@pytest.fixture(scope="session")
def shared():
    """The folder of reference data next to the repository."""
    if not SHARED.is_dir():
        pytest.skip(f"no reference data at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def tiny_config():
    """The config of a tiny model in which all sizes differ."""
    from albert_tf.model.config import AlbertConfig

    return AlbertConfig(**TINY_SHAPE)


@pytest.fixture(scope="session")
def config_file(tmp_path_factory):
    """Path of the config of a model that fine-tuning programs train in seconds."""
    from albert_tf.model.config import AlbertConfig

    changes = {
        "num_hidden_layers": 1,
        "num_hidden_groups": 1,
        "max_position_embeddings": 61,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
    }
    path = tmp_path_factory.mktemp("config") / "albert_config.json"
    AlbertConfig(**TINY_SHAPE | changes).to_json_file(str(path))
    return path


@pytest.fixture
def tiny_batch():
    """A pre-training batch for `tiny_config` whose rows all differ in length."""
    rng = np.random.default_rng(5)
    lengths = np.array([11, 9, 7, 10, 8])
    input_mask = (np.arange(SEQ_LENGTH) < lengths[:, None]).astype(np.int32)
    masked_count = np.array([3, 2, 1, 4, 2])
    masked = np.arange(MAX_PREDICTIONS) < masked_count[:, None]
    shape = (BATCH_SIZE, SEQ_LENGTH)
    return {
        "input_ids": rng.integers(5, 97, shape).astype(np.int32) * input_mask,
        "input_mask": input_mask,
        "segment_ids": (np.arange(SEQ_LENGTH) >= 5).astype(np.int32) * input_mask,
        "masked_lm_positions": np.where(masked, np.arange(1, 8), 0).astype(np.int32),
        "masked_lm_ids": np.where(masked, rng.integers(5, 97, masked.shape), 0).astype(np.int32),
        "masked_lm_weights": masked.astype(np.float32),
        "next_sentence_labels": np.array([[0], [1], [1], [0], [1]], np.int32),
    }


@pytest.fixture(scope="module")
def tiny_model(tiny_config):
    """An `AlbertForPretraining` with `tiny_config`, shared by the tests of a module."""
    from albert_tf.model.modeling import AlbertForPretraining

    return AlbertForPretraining(tiny_config)


def train_toy_vocabulary(path, vocab_size, user_defined_symbols):
    """Writes a SentencePiece model with ALBERT's special ids, trained on `TOY_TEXT`."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TOY_TEXT.lower().splitlines()),
        model_writer=model,
        vocab_size=vocab_size,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        user_defined_symbols=user_defined_symbols,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())


@pytest.fixture(scope="session")
def toy_spm_model(tmp_path_factory):
    """Path of a SentencePiece model of the toy text."""
    path = tmp_path_factory.mktemp("toy_vocabulary") / "toy.model"
    train_toy_vocabulary(path, 89, ["(", ")", '"', "-", ".", "–", "£", "€"])
    return str(path)


@pytest.fixture(scope="session")
def toy_tokenizer(toy_spm_model):
    """A `FullTokenizer` in SentencePiece mode with a toy vocabulary."""
    from albert_tf.model.tokenization import FullTokenizer

    return FullTokenizer(spm_model_file=toy_spm_model)


@pytest.fixture
def predict():
    """A function that runs run_predict.py with flags and returns the objects that it prints."""
    from albert_tf import inference
    from albert_tf.cli.flags import parse

    def run(*arguments):
        return [
            json.loads(json.dumps(result))
            for result in inference.run(parse(inference.Settings, arguments))
        ]

    return run


def python_with(modules, variable):
    """Returns a Python that has modules; skips the test if there is none.

    Args:
        modules: the modules, separated by commas.
        variable: the environment variable that may name the Python.
    """
    python = os.environ.get(variable, sys.executable)
    probe = [python, "-c", f"import {modules}"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no {modules}; {variable} may name one that has")
    return python


@pytest.fixture(scope="session")
def transformers_python():
    """A Python interpreter that has PyTorch and transformers."""
    return python_with("torch, transformers", OTHER_PYTHON)
