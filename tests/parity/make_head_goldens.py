#!/usr/bin/env python3
"""What transformers' Trainer computes on the example's model under a head of classes, and TRL's RewardTrainer under one
of a reward: goldens/classify.json, goldens/reward.json, and what both sides begin with: goldens/heads/*.safetensors (the
heads), goldens/adapters/classify and reward (adapters beside them).

    pip install torch transformers peft trl
    make_head_goldens.py [--check]

Each case is a run of five steps of AdamW on all rows at once, in f32 on one thread, so that neither the order of rows nor
how they are packed matters. tests/command_line/classify_test.cc and reward_test.cc repeat them.
"""
import argparse
import json
import pathlib
import tempfile

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding, Trainer, TrainingArguments
import peft
import transformers
import trl
from trl import RewardConfig, RewardTrainer

HERE = pathlib.Path(__file__).parent
MODEL = HERE / "../../examples/plain/model"
GOLDENS = HERE / "goldens"
CLASSES = ["cat", "dog", "newt"]  # in the order of their ids
REWARD = ["LABEL_0"]
STEPS = 5

CASES = {
    "lora": {"learning_rate": 3e-3},
    "full": {"learning_rate": 1e-4, "full": True},
    "decay": {"learning_rate": 1e-3, "full": True, "weight_decay": 0.1},
    "smoothing": {"learning_rate": 3e-3, "label_smoothing_factor": 0.1},
}
REWARD_CASES = {
    "lora": {"learning_rate": 3e-3},
    "full": {"learning_rate": 1e-4, "full": True},
    "margin": {"learning_rate": 3e-3, "margin": True},
    "centered": {"learning_rate": 3e-3, "center_rewards_coefficient": 0.1},
}
REPORTS = ["loss", "grad_norm"]
REWARD_REPORTS = ["loss", "grad_norm", "accuracy", "margin"]


def rows():
    """Texts of different lengths; the label is a text."""
    sounds = {"cat": "It says meow", "dog": "It barks", "newt": "It is silent and wet"}
    return [{"text": f"{sounds[CLASSES[i * 2 % 3]]}" + " today" * (i % 4) + "." * (1 + i % 2), "label": CLASSES[i * 2 % 3]}
            for i in range(10)]


def pairs(margin):
    """Prompts and answers of different lengths."""
    return [{"prompt": f"What is {i} plus {2 * i}?", "chosen": f" It is {3 * i}" + "!" * (i % 3),
             "rejected": f" It might be {i + 7}" + ", or more" * (i % 4), **({"margin": 0.25 * i} if margin else {})}
            for i in range(8)]


def head_of(classes):
    return GOLDENS / f"heads/{'reward' if classes == REWARD else 'classify'}.safetensors"


def model_with_head(tokenizer, classes):
    model = AutoModelForSequenceClassification.from_pretrained(
        MODEL, dtype=torch.float32, num_labels=len(classes), id2label=dict(enumerate(classes)),
        label2id={name: i for i, name in enumerate(classes)})
    model.config.pad_token_id = tokenizer.pad_token_id
    model.score.weight.data.copy_(load_file(head_of(classes))["score.weight"])
    return model


def load_tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def make_start(classes):
    torch.manual_seed(11 + len(classes))
    head_of(classes).parent.mkdir(exist_ok=True)
    save_file({"score.weight": torch.randn(len(classes), 160) * 0.1}, head_of(classes))
    head_of(classes).chmod(0o644)
    model = model_with_head(load_tokenizer(), classes)
    model = get_peft_model(model, LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "down_proj"], task_type="SEQ_CLS"))
    for name, p in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.05)
    adapter = GOLDENS / "adapters" / head_of(classes).stem
    model.save_pretrained(adapter)
    (adapter / "README.md").unlink(missing_ok=True)
    (adapter / "adapter_model.safetensors").chmod(0o644)
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = "examples/plain/model"
    (adapter / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def started(settings, classes, tokenizer):
    model = model_with_head(tokenizer, classes)
    if settings.pop("full", False):
        return model
    return PeftModel.from_pretrained(model, GOLDENS / "adapters" / head_of(classes).stem, is_trainable=True)


def arguments(kind, out, rows_of_step, settings):
    settings.setdefault("weight_decay", 0.0)
    return kind(output_dir=out, per_device_train_batch_size=rows_of_step, max_steps=STEPS, logging_steps=1,
                lr_scheduler_type="constant", warmup_steps=0, max_grad_norm=1.0, optim="adamw_torch", adam_epsilon=1e-8,
                bf16=False, fp16=False, use_cpu=True, report_to=[], save_strategy="no", gradient_checkpointing=False, **settings)


def said(model, tokenizer, texts):
    model.eval()
    with torch.no_grad():
        return torch.cat([model(**tokenizer(text, return_tensors="pt")).logits for text in texts]).double()


def steps_of(trainer, reports):
    return [{name: step[name] for name in reports} for step in trainer.state.log_history if "loss" in step]


def run(settings):
    settings = dict(settings)
    tokenizer = load_tokenizer()
    model = started(settings, CLASSES, tokenizer)
    ids = {name: i for i, name in enumerate(CLASSES)}
    data = Dataset.from_list([{**tokenizer(row["text"]), "label": ids[row["label"]]} for row in rows()])
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(model=model, args=arguments(TrainingArguments, out, len(data), settings), train_dataset=data,
                          data_collator=DataCollatorWithPadding(tokenizer))
        trainer.train()
    return {"steps": steps_of(trainer, REPORTS),
            "probabilities": said(model, tokenizer, [row["text"] for row in rows()]).softmax(-1).tolist()}


def run_reward(settings):
    settings = dict(settings)
    tokenizer = load_tokenizer()
    model = started(settings, REWARD, tokenizer)
    data = pairs(settings.pop("margin", False))
    with tempfile.TemporaryDirectory() as out:
        trainer = RewardTrainer(model=model, args=arguments(RewardConfig, out, len(data), {**settings, "max_length": None}),
                                train_dataset=Dataset.from_list(data), processing_class=tokenizer)
        trainer.train()
    return {"pairs": data, "steps": steps_of(trainer, REWARD_REPORTS),
            "rewards": said(model, tokenizer, [p["prompt"] + p["chosen"] for p in data])[:, 0].tolist()}


def compare(got, kept):
    for name, case in got["cases"].items():
        other = kept["cases"][name]
        for a, b in zip(case["steps"], other["steps"], strict=True):
            for key in a:
                assert abs(a[key] - b[key]) <= 1e-4 * max(1, abs(b[key])), (name, key, a[key], b[key])
        for key in ("probabilities", "rewards"):
            if key in case:
                difference = torch.tensor(case[key]) - torch.tensor(other[key])
                assert difference.abs().max() < 1e-4, (name, difference)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compute again and compare")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    if not check:
        make_start(CLASSES)
        make_start(REWARD)
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft, trl)}
    all_of = {"classify": {"made_with": versions, "classes": CLASSES, "rows": rows(),
                           "cases": {n: {**s, **run(s)} for n, s in CASES.items()}},
              "reward": {"made_with": versions, "cases": {n: {**s, **run_reward(s)} for n, s in REWARD_CASES.items()}}}
    for name, got in all_of.items():
        path = GOLDENS / f"{name}.json"
        if check:
            compare(got, json.loads(path.read_text()))
            print(name, "same")
        else:
            path.write_text(json.dumps(got, indent=1) + "\n")


if __name__ == "__main__":
    main()
