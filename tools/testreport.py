"""Prints one summary of `go test -json`: what failed, with its output, what was
skipped, with the reason, and the totals. Ends with 1 where something failed, and in CI
where a test was skipped for a reason that skips.txt does not list. The inputs of a fuzz
target may be skipped for any reason: a target passes over what it cannot use."""

import collections
import json
import os
import pathlib
import re
import sys


def accepted_reasons():
    lines = pathlib.Path(__file__).with_name("skips.txt").read_text().splitlines()
    return [re.compile(line) for line in lines if line and not line.startswith("#")]


def main():
    output = collections.defaultdict(list)
    ended = {}
    seconds = collections.Counter()
    for line in sys.stdin:
        try:
            event = json.loads(line)
        except ValueError:
            print(line, end="")
            continue
        key = (event.get("Package") or event.get("ImportPath", "").split(" ")[0], event.get("Test", ""))
        if event["Action"] in ("output", "build-output"):
            output[key].append(event["Output"])
        elif event["Action"] in ("pass", "fail", "skip"):
            # A test that ran twice (with and without the race detector) counts as what it did best,
            # unless it failed.
            before = ended.get(key)
            if before != "fail" and not (before == "pass" and event["Action"] == "skip"):
                ended[key] = event["Action"]
            if "/" not in key[1]:
                seconds[key] += event.get("Elapsed", 0)

    failed = [k for k, action in ended.items() if action == "fail"]
    for key in failed:
        print(f"--- FAIL {key[0]} {key[1]}")
        print("".join(output[key]), end="")
        if not key[1]:
            print("".join(output.get((key[0] + ".test", ""), [])), end="")
    accepted = accepted_reasons()
    unlisted = 0
    for package, test in sorted(k for k, action in ended.items() if action == "skip" and k[1]):
        lines = [l.strip() for l in output[package, test] if not l.lstrip().startswith(("===", "---"))]
        reason = " ".join(lines) or "no reason given"
        listed = test.startswith("Fuzz") or any(a.search(reason) for a in accepted)
        unlisted += not listed
        print(f"skipped  {package} {test}: {reason}{'' if listed else ' (tools/skips.txt has no such reason)'}")

    tests = collections.Counter(action for (_, test), action in ended.items() if test)
    packages = collections.Counter(action for (_, test), action in ended.items() if not test)
    for count, of_packages in ((5, True), (12, False)):
        slowest = [(k, s) for k, s in seconds.most_common() if (k[1] == "") == of_packages][:count]
        print("slowest  " + ", ".join(f"{p.rsplit('/likeness/')[-1]}{'.' * bool(t)}{t} {s:.0f} s" for (p, t), s in slowest))
    print(
        f"{'FAIL' if failed else 'ok':8} {tests['pass']} tests passed, {tests['fail']} failed, {tests['skip']} skipped, "
        f"in {packages['pass'] + packages['fail']} packages"
    )
    return 1 if failed or (unlisted and os.environ.get("CI") == "true") else 0


if __name__ == "__main__":
    sys.exit(main())
