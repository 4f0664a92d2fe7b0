#!/usr/bin/env python3
"""What TRL's DPOTrainer computes on the example's model: goldens/preference.json and an adapter to begin with.

    pip install torch transformers peft trl
    make_preference_goldens.py [--check]

Each case is a run of three steps of AdamW on all pairs at once, in f32 on one thread, so that neither the order of rows
nor how they are packed matters. tests/command_line/preference_test.cc repeats them.
"""
import argparse
import json
import pathlib
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer
import peft
import transformers
import trl
from trl import DPOConfig, DPOTrainer

HERE = pathlib.Path(__file__).parent
MODEL = HERE / "../../examples/plain/model"
GOLDENS = HERE / "goldens"
ADAPTER = GOLDENS / "adapters/preference"
REPORTS = ["loss", "rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "grad_norm"]

CASES = {
    "sigmoid": {"beta": 0.1},
    "robust": {"beta": 0.1, "loss_type": ["robust"], "label_smoothing": 0.2},
    "sigmoid_norm": {"beta": 0.5, "loss_type": ["sigmoid_norm"]},
    "hinge": {"beta": 0.05, "loss_type": ["hinge"]},
    "ipo": {"beta": 0.1, "loss_type": ["ipo"]},
    "full": {"beta": 0.1, "full": True, "learning_rate": 1e-4},
}


def pairs():
    """Prompts and answers of different lengths; one of several turns."""
    rows = []
    for i in range(8):
        prompt = [{"role": "user", "content": f"What is {i} plus {2 * i}?"}]
        if i == 5:
            prompt += [{"role": "assistant", "content": "I am not sure."}, {"role": "user", "content": "Try again."}]
        rows.append({
            "prompt": prompt,
            "chosen": [{"role": "assistant", "content": f"It is {3 * i}" + "!" * (i % 3)}],
            "rejected": [{"role": "assistant", "content": f"It might be {i + 7}" + ", or more" * (i % 4)}],
        })
    return rows


def make_adapter():
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    model = get_peft_model(model, LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM"))
    for name, p in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.05)
    model.save_pretrained(ADAPTER)
    (ADAPTER / "README.md").unlink(missing_ok=True)
    config = json.loads((ADAPTER / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "examples/plain/model"
    (ADAPTER / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def run(settings):
    settings = dict(settings)
    full = settings.pop("full", False)
    rows = pairs()
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    if not full:
        model = PeftModel.from_pretrained(model, ADAPTER, is_trainable=True)
    with tempfile.TemporaryDirectory() as out:
        config = DPOConfig(output_dir=out, per_device_train_batch_size=len(rows), max_steps=3, logging_steps=1,
                           learning_rate=settings.pop("learning_rate", 3e-3), lr_scheduler_type="constant", warmup_steps=0,
                           weight_decay=0.0, max_grad_norm=1.0, optim="adamw_torch", adam_epsilon=1e-8, max_length=None,
                           bf16=False, fp16=False, use_cpu=True, report_to=[], save_strategy="no",
                           gradient_checkpointing=False, **settings)
        trainer = DPOTrainer(model=model, args=config, train_dataset=Dataset.from_list(rows),
                             processing_class=AutoTokenizer.from_pretrained(MODEL))
        trainer.train()
    return [{name: step[name] for name in REPORTS} for step in trainer.state.log_history if "loss" in step]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compute again and compare")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    if not check:
        make_adapter()
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft, trl)}
    got = {"made_with": versions, "pairs": pairs(), "cases": {n: {**s, "steps": run(s)} for n, s in CASES.items()}}
    path = GOLDENS / "preference.json"
    if check:
        kept = json.loads(path.read_text())
        for name, case in got["cases"].items():
            for a, b in zip(case["steps"], kept["cases"][name]["steps"], strict=True):
                for key in REPORTS:
                    assert abs(a[key] - b[key]) <= 1e-4 * max(1, abs(b[key])), (name, key, a[key], b[key])
        print("same")
    else:
        path.write_text(json.dumps(got, indent=1) + "\n")


if __name__ == "__main__":
    main()
