#!/usr/bin/env bash
# sweep.sh PACKAGE: changes each comparison, sign and step of a package, one at a time, by the
# operators of gremlins, and prints what the package's own tests do not notice. gremlins
# copies the module for it, and so is given a copy of the tracked files alone.
set -euo pipefail
cd "$(dirname "$0")/.."

package=${1:?usage: sweep.sh PACKAGE, such as ./rerank/scan}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 tar -c --ignore-failed-read | tar -x -C "$copy"
cd "$copy"
gremlins unleash "$package" --workers 1 --timeout-coefficient 20 --output-statuses lct
