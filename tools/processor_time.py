#!/usr/bin/env python3
"""Seconds of a processor (user and system) that checkouts need, measured beside each other.

    processor_time.py build [--share 0.1] [--seed N] [--targets "all temper_cuda"] FOLDER...
        What building the targets in each folder costs with nothing cached, estimated from a share of its compiler
        calls: of each kind, in the order of their sources' sizes, every n-th one from a random first one. Calls of all
        folders run in a random order, one at a time, so an interrupted run is a smaller sample. Precompiled headers must
        be built before (ninja ...gch); they and links are not counted.
    processor_time.py tests FOLDER [CTEST OPTION...]
        Each test that `ctest CTEST OPTION...` chooses, one at a time, and their sum; tests that fail are named.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile


def processor_seconds(command, folder, environment, output=subprocess.DEVNULL, limit=1200):
    """Exit code and seconds of a process and those that it waited for."""
    child = subprocess.Popen(["timeout", str(limit)] + command, cwd=folder, env=environment, stdout=output,
                             stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode, usage.ru_utime + usage.ru_stime


def source_bytes(folder, source, include):
    path = os.path.join(folder, source)
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    bytes_ = len(text)
    if path.startswith(os.path.abspath(folder)):  # a batch, or a kernel that the emulator runs
        for name in re.findall(r'^#include "(.*)"', text, re.MULTILINE):
            found = [os.path.join(root, name) for root in include if os.path.exists(os.path.join(root, name))]
            bytes_ += os.path.getsize(found[0]) if found else 0
    return bytes_


def kind(source, output):
    if source.endswith(".cu"):
        return "nvcc"
    if "/bench/" in source:
        return "benchmarks"
    return "tests" if re.search(r"_test|tests|scenario_|ptx_|_cases", output + source) else "program"


def compiler_calls(folder, targets):
    """kind -> [(bytes, source, command)]"""
    listed = subprocess.run(["ninja", "-C", folder, "-t", "commands"] + targets, check=True, capture_output=True, text=True)
    calls = {}
    for command in listed.stdout.splitlines():
        source, output = re.search(r" -c (\S+)", command), re.search(r" -o (\S+)", command)
        if not source or not output or output.group(1).endswith(".gch") or output.group(1).endswith(".pch"):
            continue
        command = re.sub(r"^cd \S+ && ", "", command)
        include = [path.replace("-I", "") for path in re.findall(r"-I\S+", command)]
        bytes_ = source_bytes(folder, source.group(1), include)
        calls.setdefault(kind(source.group(1), output.group(1)), []).append((bytes_, source.group(1), command))
    return calls


def run_call(folder, command, out):
    command = re.sub(r" -o \S+", f" -o {out}.o", command)
    command = re.sub(r" -MF \S+", f" -MF {out}.d", command)
    command = command.split(" && ")[0]  # what follows transforms the list of headers
    code, seconds = processor_seconds(["sh", "-c", "exec " + command], folder, dict(os.environ, CCACHE_DISABLE="1"))
    if code:
        print(f"{folder}: exit code {code}: {command}", file=sys.stderr)
    return seconds


def estimate(taken, sizes):
    """Seconds of all calls and their standard error: a line through (bytes, seconds) of those that were taken. The mean of
    fewer than five says little, and has no error."""
    n = len(taken)
    if n < 5:
        return len(sizes) * sum(seconds for _, seconds in taken) / n, float("nan")
    mean_bytes = sum(bytes_ for bytes_, _ in taken) / n
    mean = sum(seconds for _, seconds in taken) / n
    square = sum((bytes_ - mean_bytes) ** 2 for bytes_, _ in taken)
    slope = sum((bytes_ - mean_bytes) * (seconds - mean) for bytes_, seconds in taken) / square if square else 0
    rest = sum((seconds - mean - slope * (bytes_ - mean_bytes)) ** 2 for bytes_, seconds in taken)
    total = len(sizes) * (mean + slope * (sum(sizes) / len(sizes) - mean_bytes))
    return total, len(sizes) * (rest / (n - 2) / n) ** 0.5


def build(arguments):
    dice = random.Random(arguments.seed)
    calls = {folder: compiler_calls(folder, arguments.targets.split()) for folder in arguments.folders}
    sampled = []  # (folder, kind, bytes, source, command)
    for folder, kinds in calls.items():
        for name, of_kind in kinds.items():
            of_kind.sort()
            at = dice.random() / arguments.share
            while at < len(of_kind):
                sampled.append((folder, name, *of_kind[int(at)]))
                at += 1 / arguments.share
    dice.shuffle(sampled)
    taken = {}
    try:
        with tempfile.TemporaryDirectory() as scratch:
            for folder, name, bytes_, source, command in sampled:
                seconds = run_call(folder, command, os.path.join(scratch, "object"))
                taken.setdefault((folder, name), []).append((bytes_, seconds))
                if arguments.each:
                    print(f"{seconds:8.2f} s  {folder} {source}", flush=True)
    except KeyboardInterrupt:
        print("interrupted: what ran until now, in a random order, is a sample, too")
    for folder, kinds in calls.items():
        total = variance = 0
        for name, of_kind in sorted(kinds.items()):
            of_name = taken.get((folder, name), [])
            if not of_name:
                print(f"{folder}: {name}: none of {len(of_kind)} calls was taken, and the sum is without them")
                continue
            seconds, error = estimate(of_name, [bytes_ for bytes_, _, _ in of_kind])
            print(f"{folder}: {name}: {seconds / 60:.1f} +- {error / 60:.1f} minutes ({len(of_name)} of {len(of_kind)} calls)")
            total += seconds
            variance += error**2
        print(f"{folder}: {total / 60:.1f} +- {variance**0.5 / 60:.1f} minutes")


def tests(arguments):
    listed = subprocess.run(["ctest", "--test-dir", arguments.folder, "--show-only=json-v1"] + arguments.options,
                            check=True, capture_output=True, text=True)
    total = 0
    failed = []
    with tempfile.TemporaryFile() as output:
        for test in json.loads(listed.stdout)["tests"]:
            properties = {p["name"]: p["value"] for p in test.get("properties", [])}
            environment = dict(os.environ)
            environment.update(pair.split("=", 1) for pair in properties.get("ENVIRONMENT", []))
            folder = properties.get("WORKING_DIRECTORY", arguments.folder)
            code, seconds = processor_seconds(test["command"], folder, environment, output)
            total += seconds
            print(f"{seconds:8.2f} s  {test['name']}{'' if code == 0 else f'  FAILED ({code})'}", flush=True)
            if code:
                failed.append(test["name"])
    print(f"{total:8.2f} s in all; {len(failed)} failed{': ' if failed else ''}{' '.join(failed)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(required=True)
    of_build = parts.add_parser("build")
    of_build.add_argument("--share", type=float, default=0.1)
    of_build.add_argument("--seed", type=int, default=1)
    of_build.add_argument("--targets", default="all")
    of_build.add_argument("--each", action="store_true", help="print each call")
    of_build.add_argument("folders", nargs="+", type=os.path.abspath)
    of_build.set_defaults(run=build)
    of_tests = parts.add_parser("tests")
    of_tests.add_argument("folder", type=os.path.abspath)
    of_tests.add_argument("options", nargs=argparse.REMAINDER)
    of_tests.set_defaults(run=tests)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
