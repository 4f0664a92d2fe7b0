#!/usr/bin/env python3
"""Writes src/data/template/unicode_tables.inc: the character properties that Python's str methods use.

Run by hand, from the repository root:  python3 tests/template/make_unicode_tables.py
The tables are facts of the running Python's Unicode Character Database.
"""
import sys
import unicodedata

TOP = 0x110000


def ranges(predicate):
    out, start = [], None
    for c in range(TOP):
        if predicate(chr(c)):
            if start is None:
                start = c
        elif start is not None:
            out.append((start, c - 1))
            start = None
    if start is not None:
        out.append((start, TOP - 1))
    return out


def runs(mapping):
    """(first, last, stride, delta): code points first, first+stride, ..., last map to themselves plus delta."""
    out, points, i = [], sorted(mapping), 0
    while i < len(points):
        first, delta = points[i], mapping[points[i]] - points[i]
        best = (first, first, 1, delta)
        for stride in (1, 2):
            last = first
            while mapping.get(last + stride, last + stride) - (last + stride) == delta:
                last += stride
            if last - first >= (best[1] - best[0]) and (last - first) // stride > (best[1] - best[0]) // best[2]:
                best = (first, last, stride, delta)
        out.append(best)
        covered = set(range(best[0], best[1] + 1, best[2]))
        points = [p for p in points if p not in covered]
    return out


def emit(f, kind, name, rows):
    f.write(f"constexpr {kind} {name}[] = {{\n")
    line = "   "
    for row in rows:
        cell = " {" + ", ".join(row) + "},"
        if len(line) + len(cell) > 118:
            f.write(line + "\n")
            line = "   "
        line += cell
    f.write(line + "\n};\n")


def hexes(row):
    return ["%#x" % v if v >= 0 else "-%#x" % -v for v in row]


def emit_ranges(f, name, rows):
    """As a flat list: code points skipped since the last range, code points in this one, ..."""
    flat, end = [], 0
    for first, last in rows:
        flat += [first - end, last + 1 - first]
        end = last + 1
    f.write(f"constexpr uint32_t {name}[] = {{\n")
    line = "   "
    for v in flat:
        if len(line) + len(str(v)) + 2 > 119:
            f.write(line + "\n")
            line = "   "
        line += f" {v},"
    f.write(line + "\n};\n")


def case_tables(f, name, function):
    simple, full = {}, []
    for c in range(TOP):
        mapped = function(chr(c))
        if mapped == chr(c):
            continue
        if len(mapped) == 1:
            simple[c] = ord(mapped)
        else:
            full.append((c, mapped))
    emit(f, "CaseRun", f"k{name}Runs", [hexes(r) for r in runs(simple)])
    emit(f, "CaseFull", f"k{name}Full",
         [[hex(c), '"' + "".join("\\x%02x" % b for b in m.encode()) + '"'] for c, m in full])


def main():
    with open("src/data/template/unicode_tables.inc", "w") as f:
        f.write(f"// Made by tests/template/make_unicode_tables.py from Unicode {unicodedata.unidata_version}. Do not edit.\n")
        # A capital sigma at the end of a word becomes the final form; Python checks these properties of its neighbours.
        cased = lambda c: ("." + c + "\u03a3").lower().endswith("\u03c2")
        for name, predicate in [
            ("Alpha", str.isalpha), ("Decimal", str.isdecimal), ("Digit", str.isdigit), ("Numeric", str.isnumeric),
            ("Space", str.isspace), ("Printable", str.isprintable), ("Upper", str.isupper), ("Lower", str.islower),
            ("TitleCase", lambda c: unicodedata.category(c) == "Lt"),
            ("Cased", cased),
            ("CaseIgnorable", lambda c: not cased(c) and ("A" + c + "\u03a3").lower().endswith("\u03c2")),
        ]:
            emit_ranges(f, f"k{name}", ranges(predicate))
        case_tables(f, "ToUpper", str.upper)
        case_tables(f, "ToLower", str.lower)
        case_tables(f, "ToTitle", str.title)


sys.exit(main())
