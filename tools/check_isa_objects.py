#!/usr/bin/env python3
"""Fails if an object compiled for an instruction set (*_avx2.cc, *_avx512.cc, *_amx.cc) defines a symbol that the
linker may merge with another file's: machines without that instruction set could then run its code (backend/cpu/isa.h).

usage: check_isa_objects.py BUILD_FOLDER
"""
import pathlib, subprocess, sys

bad = objects = 0
for o in [o for name in ("*_avx*.cc.o", "*_amx.cc.o") for o in pathlib.Path(sys.argv[1]).rglob(name)]:
    objects += 1
    for line in subprocess.run(["nm", "-C", "--defined-only", o], capture_output=True, text=True, check=True).stdout.splitlines():
        _, kind, name = line.split(maxsplit=2)
        if kind in "WwVvu":  # weak, or unique: inline functions and template instances
            bad += 1
            print(f"{o.name}: {name}")
print(f"{objects} objects, {bad} mergeable symbols")
sys.exit(1 if bad or not objects else 0)
