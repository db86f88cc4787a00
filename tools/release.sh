#!/usr/bin/env bash
# Builds what a release consists of, from the files of the commit that is checked out and nothing else of the folder:
# an archive and a Python wheel a platform with their bills of materials, container images of Linux, the Helm chart, and
# SHA256SUMS of them all. The same commit gives the same bytes in every folder. `make release` calls it.
#
#   tools/release.sh 1.2.3 dist
#
# PLATFORMS names what to build for, as "linux/amd64 darwin/arm64", and PARTS what to build in place of all, as "wheels images":
# `make wheels` and `make image` do.
set -euo pipefail
cd "$(dirname "$0")/.."

version=${1:-}
if ! [[ $version =~ ^v?([0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?)$ ]]; then
	echo "release: the version is \"$version\", want one like 1.2.3 or 1.2.3-rc.1: make release VERSION=1.2.3" >&2
	exit 1
fi
version=${BASH_REMATCH[1]}
parts=${PARTS:-archives wheels images chart}
has() { [[ " $parts " == *" $1 "* ]]; }

for tool in cyclonedx-gomod $(has wheels && echo hatchling); do
	command -v $tool >/dev/null || { echo "release: $tool is missing: make tools" >&2; exit 1; }
done
mkdir -p "${2:-dist}"
out=$(cd "${2:-dist}" && pwd)
platforms=${PLATFORMS:-linux/amd64 linux/arm64 darwin/amd64 darwin/arm64}
commit=$(git rev-parse HEAD)
epoch=$(git log -1 --format=%ct)
[ -z "$(git status --porcelain)" ] || echo "release: the folder differs from commit ${commit:0:12}, which is what is released" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
git archive "$commit" | tar -x -C "$work/src"
cd "$work/src"

# Everything of the environment that changes a binary.
export GOFLAGS='-trimpath -buildvcs=false -mod=readonly' CGO_ENABLED=0 GOWORK=off GOEXPERIMENT= GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off

binary() { # binary OS ARCHITECTURE FILE
	GOOS=$1 GOARCH=$2 go build -o "$3" \
		-ldflags "-s -w -X main.version=$version -X main.commit=$commit -X main.date=$(date -u -d "@$epoch" +%FT%TZ)" ./cmd/likeness
}

# pack PARENT NAME FILE: the same bytes for the same files, whoever packs them, wherever and when.
pack() {
	tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX,go-w --mtime="@$epoch" --format=gnu -cf - "$2" |
		gzip -9n >"$3"
}

# licences BINARY DIRECTORY: the licences of what is linked in. Their texts have to come with the binary.
licences() {
	local module at file found
	shopt -s nullglob nocaseglob
	go version -m "$1" | awk '$1 == "dep" {print $2 "@" $3}' | while read -r module; do
		at=$(go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
		found=
		for file in "$at"/{licen[cs]e,copying,notice,patents}*; do
			mkdir -p "$2/${module%@*}"
			cp -r "$file" "$2/${module%@*}/"
			found=yes
		done
		[ "$found" ] || echo "release: $module has no licence file" >&2
	done
	mkdir -p "$2/go"
	cp "$(go env GOROOT)/LICENSE" "$2/go/"
	shopt -u nullglob nocaseglob
}

# documents DIRECTORY: what comes with every platform's binary.
documents() {
	binary "$(go env GOHOSTOS)" "$(go env GOHOSTARCH)" "$work/host"
	mkdir -p "$1/completions"
	cp LICENSE NOTICE README.md CHANGELOG.md deploy/likeness.yaml "$1/"
	cp deploy/systemd/likeness.service "$1/"
	"$work/host" docs --man "$1/man/man1"
	"$work/host" completion bash >"$1/completions/likeness.bash"
	"$work/host" completion zsh >"$1/completions/_likeness"
	"$work/host" completion fish >"$1/completions/likeness.fish"
	licences "$work/host" "$1/licences"
}

# wheel PLATFORM BINARY BILL: a wheel, with the bill of materials in it and beside it.
wheel() {
	local made
	(cd python && SOURCE_DATE_EPOCH=$epoch LIKENESS_WHEEL_PLATFORM=$1 LIKENESS_WHEEL_BINARY=$2 LIKENESS_WHEEL_BILL=$3 \
		hatchling build -t wheel -d "$work/wheel") &>"$work/log" || { cat "$work/log" >&2; exit 1; }
	made=$(basename "$work"/wheel/*.whl .whl)
	mv "$work/wheel/$made.whl" "$out/"
	cp "$3" "$out/$made.cdx.json"
	files+=("$made.whl" "$made.cdx.json")
}

files=()  # what is released
documents "$work/documents"
images=() # PLATFORM=FOLDER, for tools/image
cp LICENSE NOTICE python/
mkdir python/licences # of one level: hatchling looks no deeper
find "$work/documents/licences" -type f -printf '%P\n' | while read -r file; do
	cp "$work/documents/licences/$file" "python/licences/${file//\//-}"
done
echo "__version__ = \"$version\"" >python/src/likeness/_version.py
for platform in $platforms; do
	name=likeness_${version}_${platform/\//_}
	echo "release: $name" >&2
	cp -r "$work/documents" "$work/$name"
	binary "${platform%/*}" "${platform#*/}" "$work/$name/likeness"
	# Read from the binary: what is in it, not what go.mod would allow.
	cyclonedx-gomod bin -json -std -noserial -notimestamp -version "v$version" -output "$work/$name.cdx.json" "$work/$name/likeness" 2>"$work/log" ||
		{ cat "$work/log" >&2; exit 1; }
	if has archives; then
		pack "$work" "$name" "$out/$name.tar.gz"
		cp "$work/$name.cdx.json" "$out/"
		files+=("$name.tar.gz" "$name.cdx.json")
	fi
	if has wheels; then
		wheel "$platform" "$work/$name/likeness" "$work/$name.cdx.json"
	fi
	if has images && [ "${platform%/*}" = linux ]; then
		mkdir -p "$work/images/$name"
		cp -r "$work/$name"/{likeness,LICENSE,NOTICE,licences} "$work/images/$name/"
		cp "$work/$name.cdx.json" "$work/images/$name/likeness.cdx.json"
		images+=("$platform=$work/images/$name")
		files+=("$name.image.tar")
	fi
done

if [ ${#images[@]} != 0 ]; then
	echo "release: images" >&2
	go -C tools/image run . -version "$version" -commit "$commit" -date "$(date -u -d "@$epoch" +%FT%TZ)" -out "$out" "${images[@]}"
	files+=("likeness_$version.oci.tar")
fi

if has chart; then
	mkdir "$work/chart"
	cp -rL deploy/helm/likeness "$work/chart/" # its alerts are a link
	rm -r "$work/chart/likeness/ci" # examples, for tests
	sed -i "s/^version: .*/version: $version/; s/^appVersion: .*/appVersion: \"$version\"/" "$work/chart/likeness/Chart.yaml"
	pack "$work/chart" likeness "$out/likeness-$version.tgz"
	files+=("likeness-$version.tgz")
fi

if [ "${PARTS:-}" ]; then
	printf 'release: %s\n' "${files[@]/#/$out/}" >&2
	exit
fi
cd "$out"
sha256sum "${files[@]}" >SHA256SUMS
echo "release: $out; check it with: cd $out && sha256sum -c SHA256SUMS" >&2
