"""Runs the tests of Qdrant's own Python client directly and through `likeness proxy`, and compares what each test came to.

    git clone --branch v1.17.1 https://github.com/qdrant/qdrant-client
    python3 tools/clientsuite.py qdrant-client

The servers of `make servers` and bin/likeness of `make build` are used; packages go to .cache. Every run has Qdrant to
itself, on the ports that the tests are written for, in a network of its own (Linux, `unshare`). The exit status is 1 where
a test does not come to the same. Needs no more than --jobs processors.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["pytest>=7.1,<8", "pytest-asyncio>=0.21,<0.22", "pytest-timeout>=2.1,<3", "pytest-mock>=3.14,<4"]
# What each way needs of `likeness proxy`, None for no proxy.
WAYS = {"directly": None, "through the proxy": []}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("suite", type=pathlib.Path, help="a checkout of qdrant-client at a version")
    p.add_argument("--qdrant", default="1.17.0", help="version of the server (%(default)s)")
    p.add_argument("--client", default="1.17.1", help="version of the client (%(default)s)")
    p.add_argument("--jobs", type=int, default=1, help="ways that run at the same time (%(default)s)")
    p.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    p.add_argument("--report", type=pathlib.Path, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.way:
        return one(args)
    prepare(args)
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        reports = {way: pathlib.Path(folder, f"{way}.xml") for way in WAYS}
        for _ in pool.map(lambda way: apart(args, way, reports[way]), WAYS):
            pass
        return compare({way: outcomes(file) for way, file in reports.items()})


def python(args):
    return ROOT / ".cache" / f"clientsuite-{args.client}" / "bin" / "python"


def prepare(args):
    if not python(args).exists():
        subprocess.run([sys.executable, "-m", "venv", python(args).parent.parent], check=True)
        subprocess.run([python(args), "-m", "pip", "install", "-q", f"qdrant-client=={args.client}", *PACKAGES], check=True)


def apart(args, way, report):
    """Runs a way in a network of its own."""
    command = [sys.executable, __file__, str(args.suite), "--qdrant", args.qdrant, "--client", args.client, "--way", way, "--report", str(report)]
    subprocess.run(["unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command], check=True)


def one(args):
    options = WAYS[args.way]
    rest, grpc = (6333, 6334) if options is None else (7333, 7334)
    with tempfile.TemporaryDirectory() as storage, contextlib.ExitStack() as stack:
        server = pathlib.Path(os.environ.get("LIKENESS_SERVERS", ROOT / ".cache" / "servers"), f"qdrant-{args.qdrant}", "qdrant")
        env = os.environ | {
            "QDRANT__SERVICE__HTTP_PORT": str(rest), "QDRANT__SERVICE__GRPC_PORT": str(grpc), "QDRANT__CLUSTER__ENABLED": "true",
            "QDRANT__SERVICE__HOST": "127.0.0.1", "QDRANT__TELEMETRY_DISABLED": "true",
        }
        run(stack, [server, "--uri", "http://127.0.0.1:6335"], storage, env)
        if options is not None:
            run(stack, [ROOT / "bin" / "likeness", "proxy", "--qdrant-rest", f"http://127.0.0.1:{rest}", "--qdrant-grpc", f"127.0.0.1:{grpc}",
                        "--listen-rest", "127.0.0.1:6333", "--listen-grpc", "127.0.0.1:6334", *options], storage, os.environ)
        ready("http://127.0.0.1:6333/readyz")
        subprocess.run([python(args), "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={args.report.resolve()}", "tests"],
                       cwd=args.suite, env=os.environ | {"QDRANT_VERSION": "v" + args.qdrant}, stdout=subprocess.DEVNULL, check=False)


def run(stack, command, cwd, env):
    process = subprocess.Popen(command, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    stack.callback(process.wait)
    stack.callback(process.kill)


def ready(url):
    end = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def outcomes(report):
    """What each test came to: passed, skipped, failed or error."""
    found = {}
    for case in xml.parse(report).iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        found[f"{case.get('classname')}.{case.get('name')}"] = kinds[0] if kinds else "passed"
    return found


def compare(ways):
    direct, different = ways["directly"], 0
    for way, found in ways.items():
        kinds = sorted(set(found.values()))
        print(f"{way}: {len(found)} tests, " + ", ".join(f"{list(found.values()).count(k)} {k}" for k in kinds))
        for test in sorted(direct.keys() | found.keys()):
            if direct.get(test) != found.get(test):
                different += 1
                print(f"  {test}: directly {direct.get(test)}, {way} {found.get(test)}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
