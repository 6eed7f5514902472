"""Reports to TensorBoard, W&B and MLflow: what arrives, what continues, and what survives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types

import pytest
import tensorflow as tf

from albert_tf.training import settings
from albert_tf.training.metrics_log import Curves, MetricsLog
from albert_tf.training.reporting import Reports
from albert_tf.training.settings import RunSettings
from tests.training.test_metrics_log import read_records, summaries_of

SETTINGS = {"learning_rate": (1e-5, 3e-5), "seed": 7, "do_train": True, "init_checkpoint": None}


class Service:
    """A recording client of W&B or MLflow, as a module."""

    def __init__(self):
        self.runs, self.calls, self.fails = [], [], False

    def record(self, name, /, *args, **kwargs):
        if self.fails:
            raise ConnectionError("no answer\nfrom the server")
        self.calls.append((name, args, kwargs))

    def wandb(self):
        def init(**kwargs):
            self.record("init", **kwargs)
            run = types.SimpleNamespace(id=kwargs["id"] or "abc1")
            for name in ("define_metric", "log", "finish"):
                setattr(run, name, lambda *a, _name=name, **k: self.record(_name, *a, **k))
            return run

        return types.SimpleNamespace(init=init, Settings=dict)

    def mlflow(self):
        def start_run(**kwargs):
            self.record("start_run", **kwargs)
            info = types.SimpleNamespace(run_id=kwargs["run_id"] or "def2")
            return types.SimpleNamespace(info=info)

        module = types.SimpleNamespace(start_run=start_run)
        for name in ("log_params", "log_metrics", "end_run"):
            setattr(module, name, lambda *a, _name=name, **k: self.record(_name, *a, **k))
        return module

    def called(self, name):
        return [(args, kwargs) for called, args, kwargs in self.calls if called == name]


@pytest.fixture(params=["wandb", "mlflow"])
def service(request, monkeypatch):
    found = Service()
    found.name = request.param
    monkeypatch.setitem(sys.modules, request.param, getattr(found, request.param)())
    return found


def report(service, folder, step, **values):
    with Reports(str(folder), (service.name,), SETTINGS) as reports:
        reports.write({step: values})


def test_settings_and_metrics_arrive_and_a_resumed_run_continues(service, tmp_path):
    report(service, tmp_path, 3, **{"train/loss": 2.5})
    report(service, tmp_path, 5, **{"train/loss": 2.25})
    known = {"wandb": "abc1", "mlflow": "def2"}[service.name]
    recorded = json.loads((tmp_path / "run.json").read_text())
    assert recorded == {"reporting": {service.name: known}}
    config = {"learning_rate": "1e-05,3e-05", "seed": 7, "do_train": True}
    if service.name == "wandb":
        (_, first), (_, second) = service.called("init")
        assert (first["id"], second["id"], second["resume"]) == (None, "abc1", "allow")
        assert first["config"] == config
        logged = [args[0] for args, _ in service.called("log")]
        assert logged == [{"step": 3, "train/loss": 2.5}, {"step": 5, "train/loss": 2.25}]
        assert len(service.called("finish")) == 2
    else:
        (_, first), (_, second) = service.called("start_run")
        assert (first["run_id"], second["run_id"]) == (None, "def2")
        assert [args[0] for args, _ in service.called("log_params")] == [config]
        logged = [(args[0], kwargs["step"]) for args, kwargs in service.called("log_metrics")]
        assert logged == [({"train/loss": 2.5}, 3), ({"train/loss": 2.25}, 5)]
        assert service.called("end_run") == [(("FINISHED",), {})] * 2


@pytest.mark.parametrize("first", [2, 4])
def test_training_goes_on_without_a_service_that_fails(service, tmp_path, caplog, first):
    reports = Reports(str(tmp_path), ("tensorboard", service.name))
    for step in (2, 4, 6):
        service.fails = step >= first
        reports.write({step: {"train/loss": 1.0}})
    reports.close()
    (warning,) = caplog.messages
    assert f"Reporting to {service.name} failed and ends here: no answer from the ser" in warning
    logged = service.called("log") + service.called("log_metrics")
    assert len(logged) == (first == 4)
    assert [step for _, step, _ in summaries_of(tmp_path)] == [2, 4, 6]


def test_a_run_that_ends_with_an_error_is_marked_so(service, tmp_path):
    def fail():
        with Reports(str(tmp_path), (service.name,)) as reports:
            reports.write({3: {"train/loss": 1.0}})
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fail()
    ended = service.called("finish") + service.called("end_run")
    assert ended in ([((), {"exit_code": 1})], [(("FAILED",), {})])


def test_training_and_evaluation_go_to_the_same_reports(service, tmp_path):
    with Reports(str(tmp_path), (service.name,)) as reports:
        log = MetricsLog(str(tmp_path), 0, 7, 5, reports)
        log.write(3, {"loss": 2.0}, 0.5)
        log.close()
        curves = Curves(str(tmp_path), reports=reports)
        curves.set_evaluations({3: {"loss": 3.0}})
        curves.close()
    assert len(service.called("init") + service.called("start_run")) == 1
    text = str(service.called("log") + service.called("log_metrics"))
    assert "'train/loss': 2.0" in text
    assert "'eval/loss': 3.0" in text
    assert not list(tmp_path.glob("events*"))  # TensorBoard was not asked for


def test_tensorboard_shows_the_settings_as_hyperparameters(tmp_path):
    from tensorboard.plugins.hparams import plugin_data_pb2

    with Reports(str(tmp_path), settings=SETTINGS) as reports:
        reports.write({3: {"train/loss": 2.5}})
    (path,) = tmp_path.glob("events*")
    events = map(tf.compat.v1.Event.FromString, read_records(path))
    values = {value.tag: value for event in events for value in event.summary.value}
    assert "train/loss" in values
    metadata = values["_hparams_/session_start_info"].metadata.plugin_data
    assert metadata.plugin_name == "hparams"
    data = plugin_data_pb2.HParamsPluginData.FromString(metadata.content)
    found = data.session_start_info.hparams
    assert found["learning_rate"].string_value == "1e-05,3e-05"
    assert found["seed"].number_value == 7
    assert found["do_train"].bool_value is True
    assert "init_checkpoint" not in found


def test_nothing_is_opened_before_there_are_metrics(tmp_path):
    with Reports(str(tmp_path), settings=SETTINGS):
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_named_with_its_extra(name, monkeypatch):
    monkeypatch.setattr(settings.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=rf"requires {name}: pip install 'albert-tf2\[{name}\]'"):
        RunSettings(output_dir="o", report_to=("tensorboard", name))


def test_none_stands_alone():
    assert RunSettings(output_dir="o", report_to=("none",)).report_to == ("none",)
    with pytest.raises(ValueError, match="none stands alone"):
        RunSettings(output_dir="o", report_to=("none", "tensorboard"))


# Reports with the real clients, twice, as a run that is resumed.
TWICE = """
import sys
from albert_tf.training.reporting import Reports
settings = {"seed": 7, "learning_rate": (1e-5, 3e-5)}
for step in (3, 5):
    with Reports(sys.argv[1], (sys.argv[2],), settings) as reports:
        reports.write({step: {"train/loss": 1 / step, "eval/loss": 2.0}})
"""


def report_twice(folder, name, **environment):
    done = subprocess.run(
        [sys.executable, "-c", TWICE, str(folder), name],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stderr
    return json.loads((folder / "run.json").read_text())["reporting"][name]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # of what MLflow depends on
def test_mlflow_itself_has_one_run_with_all_metrics(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    (tmp_path / "run").mkdir()
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    run_id = report_twice(tmp_path / "run", "mlflow", MLFLOW_TRACKING_URI=uri)
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs(["0"])
    assert (run.info.run_id, run.info.run_name) == (run_id, "run")
    assert run.info.status == "FINISHED"
    assert run.data.params == {"seed": "7", "learning_rate": "1e-05,3e-05"}
    history = client.get_metric_history(run_id, "train/loss")
    assert [(point.step, point.value) for point in history] == [(3, 1 / 3), (5, 1 / 5)]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # of what W&B depends on
def test_wandb_itself_writes_offline_runs_with_one_id(tmp_path):
    pytest.importorskip("wandb", reason="needs the extra wandb")
    run_id = report_twice(tmp_path, "wandb", WANDB_MODE="offline", WANDB_SILENT="true")
    steps = [step for path in offline_files(tmp_path, run_id) for step in history_of(path)]
    assert steps == [(3, 1 / 3), (5, 1 / 5)]


def offline_files(folder, run_id):
    return sorted(folder.glob(f"wandb/offline-run-*-{run_id}/run-{run_id}.wandb"))


def history_of(path):
    """The (step, train/loss) of the metrics that an offline run of W&B has."""
    from wandb.proto import wandb_internal_pb2

    found = []
    for content in log_records(path.read_bytes()):
        history = wandb_internal_pb2.Record.FromString(content).history
        items = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in history.item
        }
        if "train/loss" in items:
            found.append((items["step"], items["train/loss"]))
    return found


def log_records(data):
    """The records of a file in LevelDB's log format, behind the header of W&B."""
    block, header, at, content = 32768, 7, 7, b""
    full, last = 1, 4
    while at + header <= len(data):
        if block - at % block < header:
            at += block - at % block
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        content += data[at + header : at + header + size]
        at += header + size
        if kind in (full, last):
            yield content
            content = b""
