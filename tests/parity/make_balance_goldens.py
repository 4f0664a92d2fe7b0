#!/usr/bin/env python3
"""What transformers' Trainer and TRL's SFTTrainer compute with the loss that balances experts: goldens/balance.json.

    pip install torch transformers peft trl
    make_balance_goldens.py [--check]

Each case is a run of some steps of AdamW over the same two rows, in f32 on one thread: both in a micro-batch, or one in each
of two. tests/command_line/balance_test.cc repeats them.

With accumulation the two trainers differ: Trainer adds the loss of each micro-batch as it is, so that their sum counts;
SFTTrainer divides each by the number of micro-batches, so that their mean counts, as here.
"""
import argparse
import json
import pathlib
import re
import tempfile

import numpy as np
import peft
import tokenizers
import torch
import transformers
import trl
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments

HERE = pathlib.Path(__file__).parent
GOLDENS = HERE / "goldens"
COEFFICIENT = 0.3  # so large that gradients of routers are mostly of this loss
STEPS = 4
FEW = 5  # tokens, so that some experts have none
CASES = {
    "trainer": {"model": "mixtral", "accumulation": 1},
    "trainer_accumulated": {"model": "mixtral", "accumulation": 2},
    "trl": {"model": "qwen3_moe", "accumulation": 1},
    "trl_accumulated": {"model": "mixtral", "accumulation": 2},
    "trl_olmoe": {"model": "olmoe", "accumulation": 2},
    "trl_qwen2_moe": {"model": "qwen2_moe", "accumulation": 2},
    "trl_lora": {"model": "mixtral", "adapter": "lora_mixtral", "accumulation": 2},
    "trainer_gpt_oss": {"model": "gpt_oss", "accumulation": 1},
}


def rows():
    """Of different lengths: the shorter one is padded."""
    rng = np.random.default_rng(5)
    return [rng.integers(3, 32, length).tolist() for length in (29, 18)]


def tokenizer():
    """One that pads, for rows that are tokens already."""
    words = {f"w{i}": i for i in range(32)}
    whole = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w1"))
    return PreTrainedTokenizerFast(tokenizer_object=whole, pad_token="w0", eos_token="w2", unk_token="w1")


def loads(name):
    """Of the model as it is, on a few tokens: the largest share of a block's choices that one expert has, and experts that
    have none."""
    model = AutoModelForCausalLM.from_pretrained(GOLDENS / "models" / name, dtype=torch.float32, attn_implementation="eager")
    logits = model(input_ids=torch.tensor([rows()[1][:FEW]]), output_router_logits=True).router_logits
    counts = [block.topk(model.config.num_experts_per_tok).indices.flatten().bincount(
        minlength=model.config.num_local_experts) for block in logits]
    return {"largest_share": max((c.max() / c.sum()).item() for c in counts), "unused": sum((c == 0).sum().item() for c in counts)}


def run(name, settings):
    adapter = settings.get("adapter")
    model = AutoModelForCausalLM.from_pretrained(
        GOLDENS / "models" / settings["model"], dtype=torch.float32, attn_implementation="eager")
    model.config.output_router_logits = True
    model.router_aux_loss_coef = model.config.router_aux_loss_coef = COEFFICIENT
    if adapter:
        model = PeftModel.from_pretrained(model, GOLDENS / "adapters" / adapter, is_trainable=True)
    ids = rows()
    with tempfile.TemporaryDirectory() as out:
        shared = dict(
            output_dir=out, per_device_train_batch_size=len(ids) // settings["accumulation"],
            gradient_accumulation_steps=settings["accumulation"], max_steps=STEPS, logging_steps=1, learning_rate=3e-3,
            lr_scheduler_type="constant", warmup_steps=0, weight_decay=0.0, max_grad_norm=1.0, optim="adamw_torch",
            adam_epsilon=1e-8, bf16=False, fp16=False, use_cpu=True, report_to=[], save_strategy="no",
            gradient_checkpointing=False)
        if name.startswith("trl"):
            trainer = trl.SFTTrainer(
                model=model, processing_class=tokenizer(), train_dataset=Dataset.from_list([{"input_ids": i} for i in ids]),
                args=trl.SFTConfig(**shared, router_aux_loss_coef=COEFFICIENT, max_length=None))
        else:
            longest = max(map(len, ids))
            padded = [{"input_ids": i + [0] * (longest - len(i)), "labels": i + [-100] * (longest - len(i)),
                       "attention_mask": [1] * len(i) + [0] * (longest - len(i))} for i in ids]
            trainer = Trainer(model=model, args=TrainingArguments(**shared), train_dataset=padded)
        trainer.train()
    reports = ("loss", "grad_norm", "aux_loss")
    return [{r: step[r] for r in reports if r in step} for step in trainer.state.log_history if "loss" in step]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compute again and compare")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft, trl)}
    got = {"made_with": versions, "coefficient": COEFFICIENT, "rows": rows(),
           "loads": {model: {"tokens": FEW, **loads(model)} for model in ("mixtral", "qwen3_moe")},
           "cases": {n: {**s, "steps": run(n, s)} for n, s in CASES.items()}}
    path = GOLDENS / "balance.json"
    if check:
        kept = json.loads(path.read_text())
        assert got["loads"] == kept["loads"], (got["loads"], kept["loads"])
        for name, case in got["cases"].items():
            for a, b in zip(case["steps"], kept["cases"][name]["steps"], strict=True):
                for key in b:
                    assert abs(a[key] - b[key]) <= 1e-4 * max(1, abs(b[key])), (name, key, a[key], b[key])
        print("same")
    else:
        # Rows of tokens on a line each.
        text = re.sub(r"\[\s+((?:\d+,\s+)*\d+)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m.group(1)) + "]",
                      json.dumps(got, indent=1))
        path.write_text(text + "\n")


if __name__ == "__main__":
    main()
