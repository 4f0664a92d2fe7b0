#!/usr/bin/env python3
"""By hand: what transformers and PEFT say of rows under a head that Temper trained, beside what `temper score` says.

    check_heads.py TEMPER RESULT EXPORT DATA [BASE]

RESULT is a run's folder, EXPORT what `temper export` made of it, DATA rows of text or messages. With BASE, RESULT is an
adapter, which PEFT puts on it. Prints the largest difference of log-probabilities, or of rewards.
"""
import json
import subprocess
import sys

import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer


def said_by_temper(temper, folder, data):
    lines = subprocess.run([temper, "score", folder, "--data", data, "--dtype", "f32"], capture_output=True, check=True,
                           text=True).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    return torch.tensor([[r["reward"]] if "reward" in r else list(r["probabilities"].values()) for r in rows]).double()


def said_by(model, tokenizer, rows, batch=8):
    out = []
    for at in range(0, len(rows), batch):
        texts = [r["text"] if "text" in r else tokenizer.apply_chat_template(r["messages"], tokenize=False)
                 for r in rows[at:at + batch]]
        inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens="text" in rows[0])
        inputs.pop("token_type_ids", None)
        with torch.no_grad():
            out.append(model(**inputs).logits.double())
    return torch.cat(out)


def main():
    temper, result, export, data, *base = sys.argv[1:]
    rows = [json.loads(line) for line in open(data)]
    tokenizer = AutoTokenizer.from_pretrained(export)
    models = {export: AutoModelForSequenceClassification.from_pretrained(export, dtype=torch.float32)}
    if base:
        under = AutoModelForSequenceClassification.from_pretrained(base[0], config=AutoConfig.from_pretrained(result),
                                                                   dtype=torch.float32)
        models[result] = PeftModel.from_pretrained(under, result)
    for folder, model in models.items():
        model.eval()
        ours, theirs = said_by_temper(temper, folder, data), said_by(model, tokenizer, rows)
        if theirs.shape[1] > 1:
            ours, theirs = ours.log(), theirs.log_softmax(-1)
        print(f"{folder}: {len(rows)} rows, {model.config.id2label}, differ by at most {(ours - theirs).abs().max():.3g}")


if __name__ == "__main__":
    main()
