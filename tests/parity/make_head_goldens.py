#!/usr/bin/env python3
"""What transformers' Trainer computes on the example's model under a head of classes: goldens/classify.json, and what
both sides begin with: goldens/classify/score.safetensors (the head) and goldens/adapters/classify (an adapter beside it).

    pip install torch transformers peft datasets accelerate
    make_head_goldens.py [--check]

Each case is a run of five steps of AdamW on all rows at once, in f32 on one thread, so that neither the order of rows nor
how they are packed matters. tests/command_line/classify_test.cc repeats them.
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

HERE = pathlib.Path(__file__).parent
MODEL = HERE / "../../examples/plain/model"
GOLDENS = HERE / "goldens"
HEAD = GOLDENS / "classify/score.safetensors"
ADAPTER = GOLDENS / "adapters/classify"
CLASSES = ["cat", "dog", "newt"]  # in the order of their ids
REPORTS = ["loss", "grad_norm"]

CASES = {
    "lora": {"learning_rate": 3e-3},
    "full": {"learning_rate": 1e-4, "full": True},
    "decay": {"learning_rate": 1e-3, "full": True, "weight_decay": 0.1},
    "smoothing": {"learning_rate": 3e-3, "label_smoothing_factor": 0.1},
}


def rows():
    """Texts of different lengths; the label is a text."""
    sounds = {"cat": "It says meow", "dog": "It barks", "newt": "It is silent and wet"}
    return [{"text": f"{sounds[CLASSES[i * 2 % 3]]}" + " today" * (i % 4) + "." * (1 + i % 2), "label": CLASSES[i * 2 % 3]}
            for i in range(10)]


def model_with_head(tokenizer):
    model = AutoModelForSequenceClassification.from_pretrained(
        MODEL, dtype=torch.float32, num_labels=len(CLASSES), id2label=dict(enumerate(CLASSES)),
        label2id={name: i for i, name in enumerate(CLASSES)})
    model.config.pad_token_id = tokenizer.pad_token_id
    model.score.weight.data.copy_(load_file(HEAD)["score.weight"])
    return model


def load_tokenizer():
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def make_start():
    torch.manual_seed(11)
    HEAD.parent.mkdir(exist_ok=True)
    save_file({"score.weight": torch.randn(len(CLASSES), 160) * 0.1}, HEAD)
    model = model_with_head(load_tokenizer())
    model = get_peft_model(model, LoraConfig(r=2, lora_alpha=8, target_modules=["q_proj", "down_proj"], task_type="SEQ_CLS"))
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
    tokenizer = load_tokenizer()
    model = model_with_head(tokenizer)
    if not full:
        model = PeftModel.from_pretrained(model, ADAPTER, is_trainable=True)
    ids = {name: i for i, name in enumerate(CLASSES)}
    data = Dataset.from_list([{**tokenizer(row["text"]), "label": ids[row["label"]]} for row in rows()])
    settings.setdefault("weight_decay", 0.0)
    with tempfile.TemporaryDirectory() as out:
        arguments = TrainingArguments(output_dir=out, per_device_train_batch_size=len(data), max_steps=5, logging_steps=1,
                                      lr_scheduler_type="constant", warmup_steps=0, max_grad_norm=1.0, optim="adamw_torch",
                                      adam_epsilon=1e-8, bf16=False, fp16=False, use_cpu=True, report_to=[],
                                      save_strategy="no", **settings)
        trainer = Trainer(model=model, args=arguments, train_dataset=data, data_collator=DataCollatorWithPadding(tokenizer))
        trainer.train()
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(**tokenizer(row["text"], return_tensors="pt")).logits for row in rows()])
    return {"steps": [{name: step[name] for name in REPORTS} for step in trainer.state.log_history if "loss" in step],
            "probabilities": logits.double().softmax(-1).tolist()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compute again and compare")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    if not check:
        make_start()
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft)}
    got = {"made_with": versions, "classes": CLASSES, "rows": rows(),
           "cases": {n: {**s, **run(s)} for n, s in CASES.items()}}
    path = GOLDENS / "classify.json"
    if check:
        kept = json.loads(path.read_text())
        for name, case in got["cases"].items():
            for a, b in zip(case["steps"], kept["cases"][name]["steps"], strict=True):
                for key in REPORTS:
                    assert abs(a[key] - b[key]) <= 1e-4 * max(1, abs(b[key])), (name, key, a[key], b[key])
            difference = torch.tensor(case["probabilities"]) - torch.tensor(kept["cases"][name]["probabilities"])
            assert difference.abs().max() < 1e-4, (name, difference)
        print("same")
    else:
        path.write_text(json.dumps(got, indent=1) + "\n")


if __name__ == "__main__":
    main()
