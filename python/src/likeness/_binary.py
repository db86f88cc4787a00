"""The command ``likeness``, a static binary that the wheel carries."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn


def path() -> Path:
    """Returns the binary: the one that ``LIKENESS_BINARY`` names, or the one in this package.

    Raises:
        FileNotFoundError: The package was installed without a binary, or ``LIKENESS_BINARY`` names no file.
    """
    named = os.environ.get("LIKENESS_BINARY")
    binary = Path(named) if named else Path(__file__).parent / "bin" / "likeness"
    if binary.is_file():
        return binary
    if named:
        raise FileNotFoundError(f"LIKENESS_BINARY names {named}, which is no file")
    raise FileNotFoundError(
        f"{binary} does not exist: this installation of likeness has no binary. Install a wheel for your platform "
        "(Linux or macOS, x86-64 or arm64), or set LIKENESS_BINARY to one"
    )


def main() -> NoReturn:
    """Becomes the binary, with the same arguments."""
    try:
        binary = path()
        os.execv(binary, ["likeness", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"likeness: {error}")
