"""Jobs as a person runs them."""

import sys

import pytest

from jobs.terminal import run_job


@pytest.fixture
def job(monkeypatch, capfd):
    """Runs a job as its module's command line does; gives its exit code, standard output and standard error."""

    def run(module, *arguments):
        monkeypatch.setattr(sys, "argv", ["job", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            run_job(module.main)
        return exited.value.code, *capfd.readouterr()

    return run
