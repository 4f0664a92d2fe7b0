#!/usr/bin/env python3
"""Conversations in a Parquet or Arrow file, and how fast pyarrow reads them (pip install pyarrow):

    columnar_rows.py --make FILE MEGABYTES [CODEC]   writes FILE (.parquet or .arrow), about so many MB of text
    columnar_rows.py FILE                            MB of the file per second of a processor: into Arrow's memory, and as
                                                     Python's rows

`columnar_rows FILE` (bench/columnar_rows.cc) reads the same. Texts are sums and words drawn with a fixed seed.
"""
import random
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = "the of and to in is was that for it with as his on be at by had not are but from or have an they which one you".split()


def make(path, megabytes, codec):
    draw = random.Random(1)
    kind = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    schema = pa.schema([("id", pa.int64()), ("messages", kind), ("source", pa.string())])

    def batches():
        left, n = megabytes * 1_000_000, 0
        while left > 0:
            rows = []
            for _ in range(1000):
                messages = []
                for turn in range(draw.choice([2, 2, 4])):
                    words = [draw.choice(WORDS) + draw.choice(["", "", str(draw.randrange(10000))]) for _ in range(draw.randrange(10, 120))]
                    messages.append({"role": "assistant" if turn % 2 else "user", "content": " ".join(words)})
                    left -= len(messages[-1]["content"])
                rows.append({"id": n, "messages": messages, "source": draw.choice(["a", "b"])})
                n += 1
            yield pa.Table.from_pylist(rows, schema)

    if path.endswith(".arrow"):
        with pa.ipc.new_stream(path, schema) as writer:
            for table in batches():
                writer.write_table(table)
    else:
        with pq.ParquetWriter(path, schema, compression=codec) as writer:
            for group in (pa.concat_tables(tables) for tables in in_tens(batches())):
                writer.write_table(group)


def in_tens(tables):
    tens = []
    for table in tables:
        tens.append(table)
        if len(tens) == 10:
            yield tens
            tens = []
    if tens:
        yield tens


def measure(path):
    import os

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    size = os.path.getsize(path) / 1e6

    def batches():
        if path.endswith(".arrow"):
            yield from pa.ipc.open_stream(path)
        else:
            yield from pq.ParquetFile(path).iter_batches(1000, use_threads=False)

    for name, body in (("Arrow's memory", lambda: sum(b.num_rows for b in batches())),
                       ("Python's rows", lambda: sum(len(b.to_pylist()) for b in batches()))):
        start = time.process_time()
        rows = body()
        seconds = time.process_time() - start
        print(f"{name}: {rows} rows in {seconds:.3f} s: {size / seconds:.0f} MB/s of the file")


if sys.argv[1] == "--make":
    make(sys.argv[2], int(sys.argv[3]), sys.argv[4] if len(sys.argv) > 4 else "snappy")
else:
    measure(sys.argv[1])
