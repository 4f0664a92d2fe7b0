#!/usr/bin/env python3
"""Fails if more tests skipped than BUDGET allows for their reason, or if one skipped for a reason without a budget.

usage: check_skips.py LAST_TEST_LOG BUDGET
LAST_TEST_LOG: ctest's BUILD/Testing/Temporary/LastTest.log.
BUDGET, one line per reason: how many tests may skip for it if TEMPER_TEST_DATA is set, how many if not, and a regular
expression that the test's reason must match.
"""
import os, re, sys

TEST = re.compile(r"^\d+/\d+ Testing: (.*)$")


def skips(log):
    """(test, reason) of each test that skipped: gtest prints 'FILE:LINE: Skipped' and the reason below."""
    test, at_reason = "", False
    for line in log:
        line = line.rstrip("\n")
        if m := TEST.match(line): test = m.group(1)
        if at_reason: yield test, line
        at_reason = line.endswith(": Skipped")


def main(log_path, budget_path):
    with_data = bool(os.environ.get("TEMPER_TEST_DATA"))
    budget = []
    for line in open(budget_path):
        line = line.split("#")[0].strip()
        if line:
            data, no_data, reason = line.split(None, 2)
            budget.append((re.compile(reason), int(data if with_data else no_data)))
    used, faults, total = {}, 0, 0
    for test, reason in skips(open(log_path, errors="replace")):
        total += 1
        known = next((i for i, (pattern, _) in enumerate(budget) if pattern.search(reason)), None)
        if known is None:
            faults += 1
            print(f"{test} skipped for a reason without a budget: {reason}")
        else:
            used.setdefault(known, []).append(test)
    for i, tests in used.items():
        pattern, most = budget[i]
        if len(tests) > most:
            faults += 1
            print(f"{len(tests)} tests skipped, {most} may ({pattern.pattern}): {', '.join(tests)}")
    print(f"{total} tests skipped, {faults} faults")
    return faults


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:3]) else 0)
