#!/usr/bin/env python3
"""Writes goldens.json: learning rates of transformers' schedules, driven by torch's LambdaLR, and the counters of its
EarlyStoppingCallback.

usage: make_goldens.py OUTPUT     (pip install torch transformers; src/settings/schedule_test.cc and
                                   src/train/best_evaluation_test.cc read the result)
"""
import json
import random
import sys
import types
import warnings

import torch
import transformers
from transformers import EarlyStoppingCallback, get_scheduler

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


def early_stopping(threshold, losses):
    """The callback's counter after each loss. The trainer replaces the best metric after the callback has seen it."""
    callback = EarlyStoppingCallback(early_stopping_patience=1000, early_stopping_threshold=threshold)
    args = types.SimpleNamespace(greater_is_better=False, metric_for_best_model="eval_loss")
    state = types.SimpleNamespace(best_metric=None)
    counters = []
    for loss in losses:
        callback.on_evaluate(args, state, types.SimpleNamespace(), {"eval_loss": loss})
        counters.append(callback.early_stopping_patience_counter)
        if state.best_metric is None or loss < state.best_metric:
            state.best_metric = loss
    return {"threshold": threshold, "losses": losses, "counters": counters}


def main():
    warnings.simplefilter("ignore")
    cases = [{"lr_scheduler_type": k, "learning_rate": r, "warmup_steps": w, "total_steps": t,
              "lr_scheduler_kwargs": e, "rates": curve(k, r, w, t, e)} for k, r, w, t, e in CASES]
    versions = {"transformers": transformers.__version__, "torch": torch.__version__}
    with open(sys.argv[1], "w") as out:
        out.write('{"versions": %s,\n "cases": [\n' % json.dumps(versions))
        out.write(",\n".join(json.dumps(c) for c in cases))
        out.write("\n],\n \"early_stopping\": [\n")
        losses = [2.0, 1.75, 1.75, 1.5, 1.6, 1.375, 1.25, 1.125, 1.5]
        draw = random.Random(1)
        falling = [round(3 / (1 + 0.2 * i) + draw.uniform(-0.2, 0.2), 4) for i in range(20)]
        runs = [early_stopping(t, of) for t in (0.0, 0.125, 0.3) for of in (losses, falling)]
        out.write(",\n".join(json.dumps(r) for r in runs))
        out.write("\n]}\n")


if __name__ == "__main__":
    main()
