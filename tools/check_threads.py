#!/usr/bin/env python3
"""Finds threads in src/ that are not started by StartThread (base/thread.h): what they say would go to the stderr of
whatever program Temper is in, instead of their run's log. Tests and the emulator may do it.

usage: check_threads.py src
"""
import pathlib
import re
import sys

ALLOWED = {"base/thread.h", "base/team.cc"}  # a team's workers take over the log at each start
STARTS = re.compile(r"std::(?:jthread|thread)\s*(?:\w+\s*)?[({]\s*[^)\s]|std::async\(|pthread_create\(")
MEMBERS = re.compile(r"std::(?:jthread|thread)\s+(\w+_);")
LISTS = re.compile(r"std::vector<std::(?:jthread|thread)>\s+(\w+)")


def main():
    root = pathlib.Path(sys.argv[1])
    files = {p.relative_to(root).as_posix(): p.read_text() for s in ("*.h", "*.cc", "*.cu") for p in root.rglob(s)}
    files = {name: text for name, text in files.items()
             if not re.search(r"_test\.|_fuzz\.|/emulator/|shared_vocabulary_runs", name) and name not in ALLOWED}
    faults = 0
    for name, text in sorted(files.items()):
        unit = files.get(name.rsplit(".", 1)[0] + ".h", "") + text
        lists = "|".join(set(LISTS.findall(unit))) or "$^"
        members = "|".join(set(MEMBERS.findall(unit))) or "$^"
        for number, line in enumerate(text.split("\n"), 1):
            code = line.split("//")[0]
            others = rf"\b(?:{lists})\.emplace_back\(|\b(?:{members})[({{]\s*\["
            if STARTS.search(code) or re.search(others, code):
                print(f"{root}/{name}:{number}: starts a thread without StartThread (base/thread.h)")
                faults += 1
    print(f"{len(files)} files, {faults} threads that are not started by StartThread")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
