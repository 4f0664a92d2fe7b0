#!/usr/bin/env python3
"""Goldens for the readers of Parquet and Arrow, by pyarrow (pip install 'pyarrow>=26'):

  make_columnar_goldens.py                          writes the files of columnar/ beside this script, and
                                                    columnar/rows.json: of each file the rows that to_pylist() gives
  make_columnar_goldens.py --compare READER [COUNT] writes COUNT (default: 300) larger random files, in all of the
                                                    writers' options, and compares READER's rows
                                                    (build/bench/columnar_rows) with to_pylist(); exits with 1 if one
                                                    differs
"""
import json
import os
import random
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
from columnar_tables import conversation_type, FLAT, NESTED, OTHERS, plain, table

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "columnar")
CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]
INTS = ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"]
TEXTS = ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "PLAIN"]
FLOATS = ["BYTE_STREAM_SPLIT", "PLAIN"]


def leaves(kind, path):
    """The columns of a file for a field of this type: (path, type)."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return leaves(kind.value_type, path + ".list.element")
    if pa.types.is_struct(kind):
        return [leaf for field in kind for leaf in leaves(field.type, f"{path}.{field.name}")]
    if pa.types.is_map(kind):
        return leaves(kind.key_type, path + ".key_value.key") + leaves(kind.item_type, path + ".key_value.value")
    return [(path, kind)]


def encodings(schema, draw):
    """An encoding for each column, of those that the writer has for its type."""
    chosen = {}
    for path, kind in [leaf for field in schema for leaf in leaves(field.type, field.name)]:
        if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
            chosen[path] = draw(INTS)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind):
            chosen[path] = draw(TEXTS)
        elif pa.types.is_floating(kind):
            chosen[path] = draw(FLOATS)
        elif pa.types.is_fixed_size_binary(kind):
            chosen[path] = draw(["DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT", "PLAIN"])
        elif pa.types.is_boolean(kind):
            chosen[path] = draw(["RLE", "PLAIN"])
    return chosen


def write_arrow(path, rows, stream, batch=None):
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=batch)
    return [plain(row) for row in rows.to_pylist()]


def write(path, rows, **options):
    options.setdefault("compression", "none")
    options.setdefault("store_schema", False)
    options.setdefault("write_statistics", False)
    pq.write_table(rows, path, **options)
    return [plain(row) for row in rows.to_pylist()]


def fixed(names):
    """An endless draw(choices) that goes through all of them."""
    counts = {}

    def draw(choices):
        at = counts[len(choices)] = counts.get(len(choices), -1) + 1
        return choices[at % len(choices)]

    return draw


def make_goldens():
    seed = random.Random(7)
    expected = {}  # by the name of the file

    def case(name, columns, count=7, null=0.15, **options):
        rows = table(columns, count, seed, null)
        if options.pop("encoded", False):
            options |= {"use_dictionary": False, "column_encoding": encodings(rows.schema, fixed(name))}
        if options.pop("required", False):
            rows = rows.cast(pa.schema([field.with_nullable(False) for field in rows.schema]))
        name += ".parquet"
        expected[name] = write(os.path.join(HERE, name), rows, **options)

    chat = {name: NESTED[name] for name in ("messages", "input_ids")}
    for codec in CODECS:
        case("chat_" + codec, chat, count=8, compression=codec)
    for version in ("1.0", "2.4", "2.6"):
        for page in ("1.0", "2.0"):
            case(f"flat_{version}_{page}", FLAT, version=version, data_page_version=page)
    case("nested", NESTED, write_statistics=True)
    case("nested_v2", NESTED, data_page_version="2.0", compression="zstd", write_page_checksum=True)
    case("nested_encoded", NESTED, encoded=True)
    case("flat_encoded", FLAT, count=40, encoded=True, data_page_version="2.0")
    case("flat_plain", FLAT, use_dictionary=False)
    case("flat_required", FLAT, null=0, required=True, write_page_checksum=True)
    case("others", OTHERS, store_schema=True)
    case("others_encoded", OTHERS, encoded=True, store_decimal_as_integer=True)
    case("small_pages", chat, count=35, data_page_size=64, write_batch_size=3, row_group_size=23, compression="snappy")
    case("small_pages_v2", chat, count=35, data_page_size=64, write_batch_size=3, row_group_size=23,
         data_page_version="2.0", compression="gzip", write_page_index=True)
    case("old_lists", NESTED, use_compliant_nested_type=False)
    case("old_times", {"at": pa.timestamp("ns"), "day": pa.date64()}, use_deprecated_int96_timestamps=True)
    case("no_rows", chat, count=0)
    case("nulls", chat | {"text": pa.string()}, count=5, null=1, data_page_version="2.0")
    for stream in (True, False):
        name = "stream.arrow" if stream else "file.arrow"
        kinds = {"a": pa.list_(pa.int8(), 2), "at_s": pa.timestamp("s", "UTC")}
        columns = FLAT | OTHERS | kinds if stream else NESTED
        expected[name] = write_arrow(os.path.join(HERE, name), table(columns, 7, seed), stream, batch=3)
    talk = [{"messages": [{"role": "system", "content": "Be brief."}] * (i % 2) + [
                {"role": "user", "content": f"What is {i} + {i}?"}, {"role": "assistant", "content": f"It is {2 * i}."}],
             "category": "sums" if i % 3 else None} for i in range(12)]
    schema = pa.schema([("messages", conversation_type()), ("category", pa.string())])
    expected["talk.parquet"] = write(os.path.join(HERE, "talk.parquet"), pa.Table.from_pylist(talk, schema), compression="snappy",
                             row_group_size=5)
    # More than a batch of levels, with runs and packed levels; indices of more than a byte.
    many = pa.table({"id": [i // 3 % 600 for i in range(3000)], "text": [str(i % 300) if i % 7 else None for i in range(3000)],
                     "labels": [[1] * (i % 4) for i in range(3000)]})
    write(os.path.join(HERE, "many.parquet"), many, compression="zstd")  # its rows are a formula, which the test has, too
    with open(os.path.join(HERE, "rows.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, ensure_ascii=False, separators=(",", ":"), indent=0)
        file.write("\n")


def compare(reader, count):
    seed, faults = random.Random(), 0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "random")
        for number in range(count):
            start = seed.randrange(2**32)
            rng = random.Random(start)
            pool = FLAT | NESTED | OTHERS
            columns = {name: pool[name] for name in rng.sample(sorted(pool), rng.randrange(1, 8))}
            rows = table(columns, rng.choice([1, 10, 100, 3000]), rng, rng.choice([0, 0.1, 0.5, 0.95]))
            options = {
                "compression": rng.choice(CODECS), "version": rng.choice(["1.0", "2.4", "2.6"]),
                "data_page_version": rng.choice(["1.0", "2.0"]), "write_statistics": rng.random() < 0.5,
                "store_schema": rng.random() < 0.5, "write_page_checksum": rng.random() < 0.5,
                "use_compliant_nested_type": True, "row_group_size": rng.choice([7, 1000, 100000]),
                "data_page_size": rng.choice([64, 4096, 1 << 20]), "write_batch_size": rng.choice([1, 10, 1024]),
                "write_page_index": rng.random() < 0.5, "store_decimal_as_integer": rng.random() < 0.5,
            }
            kind = rng.choice(["dictionary", "plain", "encoded", "spill"])
            if kind == "encoded":
                options["column_encoding"] = encodings(rows.schema, rng.choice)
            if kind == "spill":  # a dictionary that becomes too large within a column
                options["dictionary_pagesize_limit"] = 64
            options["use_dictionary"] = kind in ("dictionary", "spill")
            if not options["use_dictionary"]:
                options["use_compliant_nested_type"] = kind == "encoded" or rng.random() < 0.5
            if rng.random() < 0.3:
                options = {"stream": rng.random() < 0.5, "batch": rng.choice([7, 1000, None])}
                expected = write_arrow(path, rows, **options)
            else:
                expected = write(path, rows, **options)
            done = subprocess.run([reader, path, "--print"], capture_output=True, encoding="utf-8")
            got = [json.loads(line) for line in done.stdout.split("\n") if line]
            # As texts: 1 and 1.0 are not the same, nor are 0.0 and -0.0.
            if done.returncode != 0 or json.dumps(got) != json.dumps(expected):
                faults += 1
                print(f"seed {start}: {options}\n{done.stderr}", file=sys.stderr)
                for i, (a, b) in enumerate(zip(got, expected)):
                    if json.dumps(a) != json.dumps(b):
                        print(f"row {i}:\n  got      {a}\n  expected {b}", file=sys.stderr)
                        break
    print(f"{count} files, {faults} faults")
    return faults


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--compare":
        sys.exit(1 if compare(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 300) else 0)
    os.makedirs(HERE, exist_ok=True)
    make_goldens()
