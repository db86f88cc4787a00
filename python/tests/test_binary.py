"""Runs the command that the wheel carries."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from likeness import _binary


def test_command() -> None:
    for compiler in ("go", "gcc", "node"):
        assert shutil.which(compiler) is None, "the package has to do without"
    for command in (["likeness"], [sys.executable, "-m", "likeness"]):
        version = json.loads(subprocess.check_output([*command, "version", "--output", "json"]))
        assert version["go"].startswith("go1."), version
    failed = subprocess.run(["likeness", "serve", "--config", "none.yaml"], check=False, capture_output=True, text=True)
    assert (failed.returncode, failed.stdout) == (3, "")
    assert "none.yaml" in failed.stderr


def test_metadata() -> None:
    assert metadata.version("likeness") == __import__("likeness").__version__
    assert metadata.metadata("likeness")["License-Expression"] == "Apache-2.0"
    assert os.access(_binary.path(), os.X_OK)


def test_without_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LIKENESS_BINARY", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="LIKENESS_BINARY names"):
        _binary.path()
    failed = subprocess.run(["likeness", "version"], check=False, capture_output=True, text=True)
    assert failed.returncode == 1
    assert failed.stderr.startswith("likeness: LIKENESS_BINARY names")
