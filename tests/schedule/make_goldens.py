#!/usr/bin/env python3
"""Writes goldens.json: learning rates of transformers' schedules, driven by torch's LambdaLR.

usage: make_goldens.py OUTPUT     (pip install torch transformers; src/config/schedule_test.cc reads the result)
"""
import json
import sys
import warnings

import torch
import transformers
from transformers import get_scheduler

CASES = [
    ("linear", 2e-4, 0, 20, {}),
    ("linear", 2e-4, 5, 37, {}),
    ("linear", 1e-3, 7, 7, {}),
    ("cosine", 2e-4, 0, 16, {}),
    ("cosine", 2e-5, 3, 41, {}),
    ("cosine", 3e-4, 4, 30, {"num_cycles": 1.5}),
    ("cosine", 3e-4, 1, 1, {}),
    ("cosine_with_min_lr", 1e-3, 4, 33, {"min_lr": 1e-4}),
    ("cosine_with_min_lr", 2e-4, 0, 25, {"min_lr_rate": 0.1}),
    ("cosine_with_min_lr", 2e-4, 2, 25, {"min_lr_rate": 0.25, "num_cycles": 2.5}),
    ("cosine_with_restarts", 3e-4, 4, 33, {}),
    ("cosine_with_restarts", 3e-4, 0, 30, {"num_cycles": 3}),
    ("polynomial", 2e-4, 5, 37, {}),
    ("polynomial", 2e-4, 0, 20, {"lr_end": 1e-5, "power": 2.5}),
    ("inverse_sqrt", 1e-3, 5, 40, {}),
    ("inverse_sqrt", 1e-3, 0, 20, {}),
    ("inverse_sqrt", 1e-3, 4, 30, {"timescale": 9}),
    ("constant", 5e-5, 6, 12, {}),
    ("constant_with_warmup", 5e-5, 6, 12, {}),
    ("warmup_stable_decay", 1e-3, 5, 40, {"num_decay_steps": 10}),
    ("warmup_stable_decay", 1e-3, 5, 40, {"num_decay_steps": 10, "decay_type": "linear", "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", 1e-3, 5, 40, {"num_decay_steps": 12, "decay_type": "1-sqrt", "warmup_type": "1-sqrt"}),
    ("warmup_stable_decay", 1e-3, 8, 40,
     {"num_decay_steps": 10, "warmup_type": "cosine", "min_lr_ratio": 0.05, "num_cycles": 1.5}),
    ("warmup_stable_decay", 1e-3, 4, 40, {"num_decay_steps": 10, "num_stable_steps": 9, "min_lr_ratio": 0.2}),
    ("warmup_stable_decay", 1e-3, 0, 10, {"num_decay_steps": 10}),
]


def curve(kind, rate, warmup, total, extra):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    schedule = get_scheduler(kind, optimizer, num_warmup_steps=warmup, num_training_steps=total,
                             scheduler_specific_kwargs=extra)
    rates = []
    for _ in range(total + 3):
        rates.append(float(schedule.get_last_lr()[0]))
        optimizer.step()
        schedule.step()
    return rates


def main():
    warnings.simplefilter("ignore")
    cases = [{"lr_scheduler_type": k, "learning_rate": r, "warmup_steps": w, "total_steps": t,
              "lr_scheduler_kwargs": e, "rates": curve(k, r, w, t, e)} for k, r, w, t, e in CASES]
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    with open(sys.argv[1], "w") as out:
        out.write('{"versions": %s,\n "cases": [\n' % json.dumps(versions))
        out.write(",\n".join(json.dumps(c) for c in cases))
        out.write("\n]}\n")


if __name__ == "__main__":
    main()
