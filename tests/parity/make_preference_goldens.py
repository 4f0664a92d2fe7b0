#!/usr/bin/env python3
"""What TRL's trainers for preferences compute on the example's model: goldens/preference.json (DPO), an adapter to begin
with, and goldens/preference_methods.json (20 steps each of SimPO, ORPO, RPO and KTO).

    pip install torch transformers peft trl
    make_preference_goldens.py [--check]

Each case is a run of AdamW on all pairs at once (DPO's three steps), in f32 on one thread, so that neither the order of rows
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
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOConfig, CPOTrainer
from trl.experimental.orpo import ORPOConfig, ORPOTrainer

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

OF_PAIRS = REPORTS[:5]
# A task of Temper: its trainer here, and what both report.
TRAINERS = {
    "dpo": (DPOConfig, DPOTrainer, OF_PAIRS),
    "simpo": (CPOConfig, CPOTrainer, OF_PAIRS),
    "orpo": (ORPOConfig, ORPOTrainer, OF_PAIRS + ["nll_loss", "log_odds_ratio", "log_odds_chosen"]),
    "kto": (KTOConfig, KTOTrainer, ["loss", "rewards/chosen", "rewards/rejected", "rewards/margins", "kl"]),
}
# By name: settings of TRL, and what they are called here.
METHODS = {
    "simpo": {"task": "simpo", "trl": {"loss_type": "simpo", "cpo_alpha": 0.0, "beta": 2.0, "simpo_gamma": 1.0},
              "temper": {"simpo.beta": 2, "simpo.simpo_gamma": 1}},
    "cpo_simpo": {"task": "simpo", "also": ["nll_loss"],
                  "trl": {"loss_type": "simpo", "cpo_alpha": 0.7, "beta": 1.0, "label_smoothing": 0.1},
                  "temper": {"simpo.beta": 1, "simpo.cpo_alpha": 0.7, "simpo.label_smoothing": 0.1}},
    "orpo": {"task": "orpo", "trl": {"beta": 0.3}, "temper": {"orpo.beta": 0.3}},
    "rpo": {"task": "dpo", "trl": {"loss_type": ["sigmoid", "sft"], "loss_weights": [1.0, 0.4]},
            "temper": {"dpo.rpo_alpha": 0.4}},
    "kto": {"task": "kto", "trl": {"beta": 0.2, "desirable_weight": 1.3, "undesirable_weight": 0.8},
            "temper": {"kto.beta": 0.2, "kto.desirable_weight": 1.3, "kto.undesirable_weight": 0.8}},
}


def rated():
    """The same answers, each alone: the chosen ones are good. No two neighbours have the same prompt."""
    rows = []
    for i, pair in enumerate(pairs()):
        good = i % 3 != 1
        rows.append({"prompt": pair["prompt"], "completion": pair["chosen" if good else "rejected"], "label": good})
    return rows


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


def run(settings, task="dpo", steps=3, reports=REPORTS):
    settings = dict(settings)
    full = settings.pop("full", False)
    rows = rated() if task == "kto" else pairs()
    config_class, trainer_class, _ = TRAINERS[task]
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    if not full:
        model = PeftModel.from_pretrained(model, ADAPTER, is_trainable=True)
    with tempfile.TemporaryDirectory() as out:
        length = {"max_length": 512} if task in ("simpo", "orpo") else {"max_length": None}
        config = config_class(output_dir=out, per_device_train_batch_size=len(rows), max_steps=steps, logging_steps=1,
                           learning_rate=settings.pop("learning_rate", 3e-3), lr_scheduler_type="constant", warmup_steps=0,
                           weight_decay=0.0, max_grad_norm=1.0, optim="adamw_torch", adam_epsilon=1e-8,
                           bf16=False, fp16=False, use_cpu=True, report_to=[], save_strategy="no",
                           gradient_checkpointing=False, **length, **settings)
        trainer = trainer_class(model=model, args=config, train_dataset=Dataset.from_list(rows),
                             processing_class=AutoTokenizer.from_pretrained(MODEL))
        trainer.train()
    return [{name: step[name] for name in reports} for step in trainer.state.log_history if "loss" in step]


def method_cases():
    cases = {}
    for name, case in METHODS.items():
        for full in (False, True):
            reports = TRAINERS[case["task"]][2] + case.get("also", [])
            # Small rates: the differences between two sums in f32 grow with what the weights have moved.
            rate = 1e-5 if full else 5e-4
            steps = run({**case["trl"], "full": full, "learning_rate": rate}, case["task"], STEPS, reports + ["grad_norm"])
            cases[name + ("_full" if full else "")] = {
                "task": case["task"], "full": full, "learning_rate": rate, "temper": case["temper"],
                "steps": {report: [step[report] for step in steps] for report in reports + ["grad_norm"]}}
    return cases


STEPS = 20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compute again and compare")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    if not check:
        make_adapter()
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft, trl)}
    got = {"made_with": versions, "pairs": pairs(), "cases": {n: {**s, "steps": run(s)} for n, s in CASES.items()}}
    methods = {"made_with": versions, "pairs": pairs(), "rated": rated(), "cases": method_cases()}
    methods_path = GOLDENS / "preference_methods.json"
    path = GOLDENS / "preference.json"
    if check:
        kept = json.loads(path.read_text())
        for name, case in got["cases"].items():
            for a, b in zip(case["steps"], kept["cases"][name]["steps"], strict=True):
                for key in REPORTS:
                    assert abs(a[key] - b[key]) <= 1e-4 * max(1, abs(b[key])), (name, key, a[key], b[key])
        kept = json.loads(methods_path.read_text())
        for name, case in methods["cases"].items():
            for report, values in case["steps"].items():
                for a, b in zip(values, kept["cases"][name]["steps"][report], strict=True):
                    assert abs(a - b) <= 1e-4 * max(1, abs(b)), (name, report, a, b)
        print("same")
    else:
        methods_path.write_text(json.dumps(methods) + "\n")
        path.write_text(json.dumps(got, indent=1) + "\n")


if __name__ == "__main__":
    main()
