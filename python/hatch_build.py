"""Puts the static binary into a wheel. tools/release.sh sets the variables that say which."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The binary is static: a wheel for Linux installs on glibc and on musl. Go 1.26 needs macOS 12.
TAGS = {
    "linux/amd64": "manylinux2014_x86_64.musllinux_1_1_x86_64",
    "linux/arm64": "manylinux2014_aarch64.musllinux_1_1_aarch64",
    "darwin/amd64": "macosx_12_0_x86_64",
    "darwin/arm64": "macosx_12_0_arm64",
}


class CarryBinary(BuildHookInterface[Any]):
    """Adds the file ``LIKENESS_WHEEL_BINARY``, built for ``LIKENESS_WHEEL_PLATFORM``, and its bill of materials.

    Without the variables the wheel has Python alone and installs everywhere.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Extends what hatchling packs."""
        binary = os.environ.get("LIKENESS_WHEEL_BINARY")
        if version != "standard" or not binary:
            return
        platform = os.environ["LIKENESS_WHEEL_PLATFORM"]
        if platform not in TAGS:
            raise ValueError(f"LIKENESS_WHEEL_PLATFORM is {platform!r}: no wheel is tagged for it, only {sorted(TAGS)}")
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{TAGS[platform]}"
        build_data["force_include"][os.path.abspath(binary)] = "likeness/bin/likeness"
        if bill := os.environ.get("LIKENESS_WHEEL_BILL"):
            build_data["sbom_files"].append(os.path.abspath(bill))
