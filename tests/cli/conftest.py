"""Every fine-tuning program runs once for all tests of this folder."""

from __future__ import annotations

import functools

import pytest

from tests.cli.fine_tuning_programs import PROGRAMS, Program


@pytest.fixture(scope="session")
def finished(tmp_path_factory, config_file, toy_spm_model):
    """A function that returns a program with a finished run."""

    @functools.cache
    def run(name):
        return Program(name, tmp_path_factory.mktemp(name), config_file, toy_spm_model)

    return run


@pytest.fixture(params=PROGRAMS)
def program(request, finished):
    """Each of the programs, finished."""
    return finished(request.param)


@pytest.fixture
def classifier(finished):
    return finished("classifier")
