#!/usr/bin/env python3
"""Seconds of a processor (user and system) that checkouts need, measured beside each other.

    processor_time.py build [--share 0.1] [--seed N] [--targets "all temper_cuda"] FOLDER...
        What building the targets in each folder costs with nothing cached, estimated from a share of its compiler
        calls: the calls of a kind in the order of their sources' sizes, every n-th one from a random first one. Calls of
        all folders run in a random order, one at a time. Precompiled headers must be built before; links are not counted.
    processor_time.py tests FOLDER [CTEST OPTION...]
        Each test that `ctest CTEST OPTION...` chooses, one at a time, and their sum; tests that fail are named.
"""
import argparse
import json
import os
import random
import re
import shlex
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
    environment = dict(os.environ, CCACHE_DISABLE="1")
    code, seconds = processor_seconds(["sh", "-c", "exec " + command if "&&" not in command else command], folder, environment)
    if code:
        print(f"{folder}: exit code {code}: {command}", file=sys.stderr)
    return seconds


def build(arguments):
    dice = random.Random(arguments.seed)
    sampled = []  # (folder, kind, source, command)
    calls = {}
    for folder in arguments.folders:
        calls[folder] = compiler_calls(folder, arguments.targets.split())
        for name, of_kind in calls[folder].items():
            of_kind.sort()
            step = 1 / arguments.share
            at = dice.random() * step
            while at < len(of_kind):
                sampled.append((folder, name, *of_kind[int(at)][1:]))
                at += step
    dice.shuffle(sampled)
    seconds = {}
    with tempfile.TemporaryDirectory() as scratch:
        for folder, name, source, command in sampled:
            taken = run_call(folder, command, os.path.join(scratch, "object"))
            seconds.setdefault((folder, name), []).append((taken, source))
            if arguments.each:
                print(f"{taken:8.2f} s  {folder} {source}", flush=True)
    for folder in arguments.folders:
        total = variance = 0
        for name in sorted(calls[folder]):
            taken = [t for t, _ in seconds.get((folder, name), [])]
            n, all_ = len(taken), len(calls[folder][name])
            if not n:
                print(f"{folder}: no call of {all_} of kind {name} was taken")
                continue
            mean = sum(taken) / n
            # In the order of the sizes: neighbours are alike, and their differences say how much chance there is.
            ordered = [t for t, _ in sorted(seconds[(folder, name)], key=lambda pair: [s for _, s, _ in calls[folder][name]].index(pair[1]))]
            spread = sum((a - b) ** 2 for a, b in zip(ordered, ordered[1:])) / 2 / max(n - 1, 1)
            error = all_ * (spread / n * (1 - n / all_)) ** 0.5
            print(f"{folder}: {name}: {mean * all_ / 60:.1f} +- {error / 60:.1f} minutes ({n} of {all_} calls)")
            total += mean * all_
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
