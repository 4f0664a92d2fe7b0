#!/usr/bin/env python3
"""Goldens for the reader of CSV and TSV, from Python's csv module. Writes table_goldens.json beside this script.

Each case is the text of a table and its rows as csv.DictReader(strict=True) reads them. Texts are drawn from characters
that matter: quotes, delimiters, all line ends, blank lines, a byte order mark. Tables that the module refuses, or whose
rows have more or fewer cells than the header, are left out: Temper reports them as errors.
"""
import csv
import io
import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = 160
PIECES = ["a", "b c", " ", ",", "\t", ";", '"', '""', "\n", "\r\n", "\r", "\u00e9\U0001f642", "{", "\\", "'", "\x01", "3.5"]
BY_HAND = [
    ("rfc.csv", 'aaa,bbb,ccc\r\nzzz,yyy,xxx\r\n'),
    ("quotes.csv", '"aaa","b\r\nbb","c""cc"\r\nzzz,"y,y",xxx'),
    ("stray.csv", 'height,note\n5\' 11",the "best" one\n ,"x"\n'),
    ("one.csv", 'text\n\n"a"\n\n""\n\nb\n'),
    ("mac.csv", 'a,b\rc,d\r\re,f\r'),
    ("tabs.tsv", 'prompt\tcompletion\n"a\tb"\tc, d\n"say ""hi"""\t\n'),
    ("mark.csv", '\ufeffprompt,completion\n1,2\n'),
    ("mark_quoted.csv", '\ufeff"prompt","completion"\n"1\n2",\n'),
]


def rows(name, text):
    """The rows, or None where the module or the header's length refuses them."""
    reader = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""),
                            delimiter="\t" if name.endswith(".tsv") else ",", strict=True)
    try:
        found = list(reader)
    except csv.Error:
        return None
    if not reader.fieldnames or len(set(reader.fieldnames)) < len(reader.fieldnames) or "" in reader.fieldnames:
        return None
    if any(None in row or None in row.values() for row in found):
        return None
    return found


def drawn(rng):
    name = rng.choice(["drawn.csv", "drawn.tsv"])
    delimiter = "\t" if name.endswith(".tsv") else ","
    columns = rng.randint(1, 3)
    text = rng.choice(["", "", "\ufeff"]) + delimiter.join(f"k{i}" for i in range(columns))
    for _ in range(rng.randint(1, 4)):
        text += rng.choice(["\n", "\r\n", "\r", "\n\n"])
        cells = []
        for _ in range(columns):
            cell = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 4)))
            quoted = rng.random() < 0.6
            cells.append('"' + cell.replace('"', '""') + '"' if quoted else cell)
        text += delimiter.join(cells)
    return name, text + rng.choice(["", "\n", "\r\n"])


def main():
    rng = random.Random(23)
    cases = [{"name": name, "text": text, "rows": rows(name, text)} for name, text in BY_HAND]
    assert all(case["rows"] is not None for case in cases)
    while len(cases) < CASES:
        name, text = drawn(rng)
        found = rows(name, text)
        if found:
            cases.append({"name": name, "text": text, "rows": found})
    with open(os.path.join(HERE, "table_goldens.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
