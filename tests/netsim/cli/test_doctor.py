import subprocess
from collections.abc import Callable

import pytest

pytest.importorskip("typer")

from netsim import siblings
from netsim.cli import doctor


def test_doctor_names_versions_folder_and_extras(ask: Callable) -> None:
    answer = ask("doctor")
    assert answer.code == 0
    assert "netsim, topologies, scenarios, calibrate in" in answer.out
    for word in ("Python 3", "simpy", "GPU:", "extra fast", "no fault found"):
        assert word in answer.out


def test_extras_for_what_is_not_there_yet_say_so(ask: Callable) -> None:
    lines = [line for line in ask("doctor").out.splitlines() if line.startswith("  extra")]
    assert {line.split()[1]: line.endswith("later") for line in lines} == {
        "plot": False,
        "cluster": True,
        "fast": False,
        "calibrate": True,
    }


def test_a_shadowed_package_is_a_fault(ask: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, "misplaced", lambda: ["the package 'topologies' is imported from /elsewhere"])
    answer = ask("doctor")
    assert answer.code == 1
    assert "FAULT: the package 'topologies' is imported from /elsewhere" in answer.out


def test_no_gpu_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    assert doctor._gpu().startswith("none")


def test_a_gpu_is_named_by_nvidia_smi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    told = subprocess.CompletedProcess([], 0, stdout="NVIDIA H200, 580.95\n")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *args, **options: told)
    assert doctor._gpu() == "NVIDIA H200, 580.95"
