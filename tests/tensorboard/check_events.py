#!/usr/bin/env python3
"""Fails unless TensorBoard's own reader finds the values of OUT/metrics.jsonl in OUT/runs.

usage: check_events.py OUT     (pip install tensorboard; OUT is the output_dir of a run, resumed or not)
"""
import json
import os
import struct
import sys

from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

LOGGED = ("loss", "grad_norm", "learning_rate", "eval_loss")


def as_f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def main():
    out = sys.argv[1]
    wanted = {}
    with open(os.path.join(out, "metrics.jsonl")) as rows:
        for row in map(json.loads, rows):
            for key in LOGGED:
                if row.get(key) is not None:
                    tag = "eval/loss" if key == "eval_loss" else "train/" + key
                    wanted.setdefault(tag, []).append((row["step"], as_f32(row[key])))
    found = {}
    events = EventMultiplexer().AddRunsFromDirectory(os.path.join(out, "runs"))
    events.Reload()
    for run, tags in events.Runs().items():
        for tag in tags["scalars"]:
            found.setdefault(tag, []).extend((e.step, e.value) for e in events.Scalars(run, tag))
    for tag in sorted(wanted):
        if found.get(tag) != wanted[tag]:
            sys.exit(f"{tag}: events {found.get(tag)} but metrics.jsonl {wanted[tag]}")
    print(f"{sum(map(len, wanted.values()))} values of {len(wanted)} tags agree")


if __name__ == "__main__":
    main()
