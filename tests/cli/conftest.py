"""Every fine-tuning program runs once for all tests of this folder."""

from __future__ import annotations

import pytest

from tests.cli.fine_tuning_programs import PROGRAMS, Program


def finished(name):
    """Returns a fixture: a program with a finished run."""

    @pytest.fixture(scope="session", name=name)
    def run(tmp_path_factory, config_file, toy_spm_model):
        return Program(name, tmp_path_factory.mktemp(name), config_file, toy_spm_model)

    return run


for _name in PROGRAMS:
    globals()[_name] = finished(_name)
