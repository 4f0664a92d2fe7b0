#!/usr/bin/env python3
"""Fails if a source is compiled again for a line in a list that is none of its business. A source may read src/graph/op_list.inc,
through any headers, only if it names an op or defines a rule; of tests and benchmarks nothing is asked. The other lists may be
read by as many sources as LISTS says.

usage: check_rebuilds.py SRC
"""
import pathlib, re, sys

OPS = "graph/op_list.inc"
NAMES_AN_OP = re.compile(r"\bOp::k[A-Z]|^const OpRule k|^TEMPER_OP\(|\bkNumOps\b|\bOpTable<", re.M)
LISTS = {
    "model/family_list.inc": 1,
    "objective/objective_list.inc": 1,
    "tensor/format_list.inc": 3,  # its rules, and the readers of two instruction sets
    "backend/cpu/kernel_list.inc": 1,
    "backend/gpu/kernel_list.inc": 1,
}


def main(src):
    src = pathlib.Path(src)
    texts, includes = {}, {}
    for path in src.rglob("*"):
        if path.suffix in (".h", ".cc", ".cu", ".inc"):
            name = str(path.relative_to(src))
            texts[name] = path.read_text()
            includes[name] = re.findall(r'^#include "([^"]+)"', texts[name], re.M)

    def chain(name, wanted, seen):
        """How `name` comes to include `wanted`: the files between them; None if it does not."""
        if name == wanted: return [name]
        if name in seen or name not in includes: return None
        seen.add(name)
        for header in includes[name]:
            rest = chain(header, wanted, seen)
            if rest: return [name] + rest
        return None

    sources = sorted(n for n in texts if n.endswith((".cc", ".cu")) and not n.endswith(("_test.cc", "_fuzz.cc")))
    faults = []
    readers = {source: chain(source, OPS, set()) for source in sources}
    for source, way in readers.items():
        if way and OPS not in includes[source] and not NAMES_AN_OP.search(texts[source]):
            faults.append(f"src/{source}: names no op, but reads {OPS} through {', '.join(way[1:-1])}: it is compiled again for every new op")
    counts = {OPS: sum(way is not None for way in readers.values())}
    for name, most in LISTS.items():
        if name not in texts:
            faults.append(f"src/{name}: there is no such list; tools/check_rebuilds.py names it")
            continue
        counts[name] = sum(chain(source, name, set()) is not None for source in sources)
        if counts[name] > most: faults.append(f"src/{name}: {counts[name]} sources read it, {most} may (tools/check_rebuilds.py)")
    for fault in faults:
        print(fault)
    print(f"of {len(sources)} sources: " + ", ".join(f"{count} read {name}" for name, count in counts.items()) + f"; {len(faults)} faults")
    return len(faults)


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:2]) else 0)
