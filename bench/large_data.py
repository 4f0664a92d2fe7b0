#!/usr/bin/env python3
"""Writes a JSONL file of any size from the sentences of text files, the same one for the same arguments:

    large_data.py OUT.jsonl MEGABYTES TEXT...

Rows are {"text": ...} of about 830 bytes.
"""

import json
import random
import sys

ROW_BYTES = 800


def main():
    out, megabytes, texts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    sentences = []
    for path in texts:
        with open(path, encoding="utf-8") as file:
            for line in file:
                sentences += [s.strip() + "." for s in line.split(".") if len(s.strip()) > 20]
    draw = random.Random(1)
    left = megabytes * 1_000_000
    with open(out, "w", encoding="utf-8") as file:
        while left > 0:
            row, size = [], 0
            while size < ROW_BYTES:
                row.append(draw.choice(sentences))
                size += len(row[-1]) + 1
            line = json.dumps({"text": " ".join(row)}, ensure_ascii=False) + "\n"
            left -= len(line.encode())
            file.write(line)


main()
