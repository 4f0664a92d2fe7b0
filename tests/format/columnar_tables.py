"""Tables of random rows for the tests of the Parquet and Arrow readers, and what a reader of JSON should make of each row."""
import datetime
import decimal
import math
import uuid

import pyarrow as pa

TEXTS = ["", "a", "Who are you?", "line\nbreak \"quoted\" \\ tab\t", "\u00e4\u8a9e\U0001f600", "nul \x00 and \x1f", "yes",
         "Paris is the capital of France. " * 2]


def plain(value):
    """A value of to_pylist() as Temper's row has it (src/format/columnar_reader.h)."""
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"binary": len(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, (datetime.date, datetime.datetime, datetime.time)):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    return value


def conversation_type():
    return pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


FLAT = {
    "text": pa.string(), "id": pa.int64(), "score": pa.float64(), "weight": pa.float32(), "flag": pa.bool_(),
    "small": pa.int16(), "count": pa.uint32(), "large": pa.uint64(), "long_text": pa.large_string(),
}
NESTED = {
    "messages": conversation_type(),
    "conversations": pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())])),
    "input_ids": pa.list_(pa.int32()),
    "labels": pa.list_(pa.int64()),
    "tags": pa.list_(pa.string()),
    "grid": pa.list_(pa.list_(pa.int8())),
    "meta": pa.struct([("source", pa.struct([("name", pa.string()), ("pages", pa.list_(pa.int32()))])), ("ok", pa.bool_())]),
    "calls": pa.list_(pa.struct([("name", pa.string()), ("arguments", pa.list_(pa.struct([("k", pa.string()), ("v", pa.float64())])))])),
}
OTHERS = {
    "day": pa.date32(), "at": pa.timestamp("us"), "at_utc": pa.timestamp("ms", "UTC"), "time": pa.time64("us"),
    "price": pa.decimal128(12, 3), "half": pa.float16(), "nothing": pa.null(), "raw": pa.binary(), "key": pa.binary(4),
    "pairs": pa.map_(pa.string(), pa.list_(pa.int32())), "date_ms": pa.date64(), "large_list": pa.large_list(pa.int16()),
}


def draw(kind, random, null=0.15):
    """A random value of an Arrow type."""
    if pa.types.is_null(kind) or random.random() < null:
        return None
    if pa.types.is_fixed_size_list(kind):
        return [draw(kind.value_type, random, null) for _ in range(kind.list_size)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [draw(kind.value_type, random, null) for _ in range(random.choice([0, 1, 2, 5]))]
    if pa.types.is_struct(kind):
        return {field.name: draw(field.type, random, null) for field in kind}
    if pa.types.is_map(kind):
        return [(random.choice(TEXTS), draw(kind.item_type, random, null)) for _ in range(random.choice([0, 1, 3]))]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return random.choice(TEXTS) + random.choice(["", str(random.randrange(1000))])
    if pa.types.is_fixed_size_binary(kind):
        return random.randbytes(kind.byte_width)
    if pa.types.is_binary(kind):
        return random.choice([b"text", b"\xff\xfe", b""])
    if pa.types.is_boolean(kind):
        return random.random() < 0.5
    if pa.types.is_unsigned_integer(kind):
        return random.choice([0, 1, 77, 2**kind.bit_width - 1])
    if pa.types.is_integer(kind):
        top = 2 ** (kind.bit_width - 1)
        return random.choice([0, 1, -1, 77, -100, top - 1, -top, random.randrange(-top, top)])
    if pa.types.is_float16(kind):
        return random.choice([0.0, -1.5, 1000.0])
    if pa.types.is_float32(kind):
        return random.choice([0.0, 0.5, float(pa.scalar(0.1, pa.float32()).as_py()), math.nan, -3e38])
    if pa.types.is_floating(kind):
        return random.choice([0.0, -0.0, 1.0, 0.1, 1e300, -1.5e-7, math.inf, random.random()])
    if pa.types.is_decimal(kind):
        return decimal.Decimal(random.choice(["0.000", "-1.250", "123456789.001", "0.007", "-0.010"]))
    if pa.types.is_date(kind):
        return datetime.date(1970, 1, 1) + datetime.timedelta(random.randrange(-100000, 100000))
    if pa.types.is_time(kind):
        return datetime.time(random.randrange(24), 5, 6, random.choice([0, 250000, 1]))
    if pa.types.is_timestamp(kind):
        zone = datetime.timezone.utc if kind.tz else None
        step = 1000 if kind.unit == "ms" else 1
        return datetime.datetime(random.randrange(1800, 2100), 3, 1, 4, 5, 6, random.choice([0, 7]) * step, zone)
    raise TypeError(kind)


def table(columns, rows, random, null=0.15):
    schema = pa.schema(list(columns.items()))
    return pa.Table.from_pylist([{name: draw(kind, random, null) for name, kind in columns.items()} for _ in range(rows)], schema)
