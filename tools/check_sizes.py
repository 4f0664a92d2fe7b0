#!/usr/bin/env python3
"""Fails if a source is longer than a reader can take in at once, or if examples or goldens exceed their size limit.

usage: check_sizes.py ROOT
"""
import pathlib, re, sys

SOURCES = {".h", ".cc", ".cu"}

root = pathlib.Path(sys.argv[1])
generated = {root / line[1:] for line in (root / ".gitignore").read_text().split() if line.startswith("/examples/")}
faults, sources = [], 0
for folder in ("src", "tests", "bench"):
    for path in (root / folder).rglob("*"):
        if re.search(r"(^|_)(utils?|common|misc|helpers?)(_|$)", path.stem):
            faults.append(f"{path}: a name that says nothing of what is in it")
        if path.suffix not in SOURCES:
            continue
        sources += 1
        most = 40 if path.name == "main.cc" and folder == "src" else 800
        if (lines := path.read_text().count("\n")) > most:
            faults.append(f"{path}: {lines} lines, {most} at most")
for folder, most in (("examples", 5), ("tests/parity/goldens", 25)):  # make_goldens.py also has the second limit
    size = sum(p.stat().st_size for p in (root / folder).rglob("*") if p.is_file() and p not in generated)
    if size > most * 1_000_000:
        faults.append(f"{folder}: {size} bytes, {most} MB at most")
for fault in faults:
    print(fault)
print(f"{sources} sources, {len(faults)} faults of size or name")
sys.exit(1 if faults or not sources else 0)
