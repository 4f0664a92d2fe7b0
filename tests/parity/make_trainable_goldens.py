#!/usr/bin/env python3
"""What PEFT and torch compute of trainable sets on the example's model: goldens/trainable.json.

    pip install torch transformers peft
    make_trainable_goldens.py [--check | --add]

Each case is three steps (or num_steps) of AdamW on all rows at once, in f32 on one thread: LoRA beside modules that are trained in full
(modules_to_save), of a model whose head is its own or tied, LoRA+ (create_loraplus_optimizer), modules with rates and
decays of their own, DoRA, and rows of tables (trainable_token_indices). A and B begin as goldens/adapters/preference has them, B not 0. An untied model is the example's with
a copy of its table as the head, times 0.9. tests/command_line/trainable_test.cc repeats the cases.
"""
import argparse
import json
import pathlib

import peft
import safetensors.torch
import torch
import transformers
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from peft.optimizers import create_loraplus_optimizer

HERE = pathlib.Path(__file__).parent
MODEL = HERE / "../../examples/plain/model"
GOLDENS = HERE / "goldens"
ADAPTER = GOLDENS / "adapters/preference"
RATE = 2e-3
STEPS = 3

CASES = {
    "untied": {"untied": True, "modules": ["embed_tokens", "lm_head", "norm"]},
    "linear": {"modules": ["v_proj", "model.norm"]},
    "tied": {"modules": ["embed_tokens"]},
    "tied_head": {"modules": ["lm_head"]},
    "both": {"modules": ["embed_tokens", "lm_head"]},
    "stays_tied": {"modules": ["embed_tokens"], "ensure_weight_tying": True},
    "lora_plus": {"lora_plus_ratio": 16.0},
    "lora_plus_modules": {"lora_plus_ratio": 4.0, "untied": True, "modules": ["lm_head", "norm"]},
    # Magnitudes begin as the norms of the base's rows; LoRA+ gives them B's rate.
    "dora": {"use_dora": True},
    "dora_lora_plus": {"use_dora": True, "lora_plus_ratio": 4.0},
    # trainable_token_indices, of words that the rows have: 20 steps. A list is of the embeddings, which a tied head follows.
    "token_rows": {"token_rows": [303, 17, 224, 2047], "num_steps": 20},
    "token_rows_embedding": {"untied": True, "token_rows": [20, 19, 303], "weight_decay": 0.1},
    "token_rows_untied": {"untied": True, "token_rows": {"embed_tokens": [303, 17], "lm_head": [20, 303, 19]},
                          "num_steps": 20},
    "token_rows_apart": {"token_rows": {"embed_tokens": [303, 17], "lm_head": [20]}},
    "groups": {"untied": True, "modules": ["embed_tokens", "lm_head"], "weight_decay": 0.01,
               "groups": [{"modules": ["lm_head"], "learning_rate": 1e-4, "weight_decay": 0.5},
                          {"modules": ["q_proj", "embed_tokens"], "learning_rate": 5e-3}]},
}


def rows():
    return [f"{i} and {3 * i} make {4 * i}" + ", of course" * (i % 3) + "." for i in range(12)]


def model_of(case):
    config = transformers.AutoConfig.from_pretrained(MODEL)
    config.tie_word_embeddings = not case.get("untied", False)
    model = transformers.LlamaForCausalLM(config).float()
    state = {k: v.float() for k, v in safetensors.torch.load_file(MODEL / "model.safetensors").items()}
    table = state["model.embed_tokens.weight"]
    state["lm_head.weight"] = (table * 0.9).bfloat16().float() if case.get("untied") else table
    model.load_state_dict(state)
    model.config.name_or_path = ""
    model = get_peft_model(model, LoraConfig(
        r=2, lora_alpha=8, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM",
        use_dora=case.get("use_dora", False), modules_to_save=case.get("modules"),
        trainable_token_indices=case.get("token_rows"), ensure_weight_tying=case.get("ensure_weight_tying", False)))
    begin = safetensors.torch.load_file(ADAPTER / "adapter_model.safetensors")
    for name, p in model.named_parameters():
        if "lora_A" in name or "lora_B" in name:
            p.data.copy_(begin[name.replace(".default", "")])
    return model


def optimizer_of(model, case):
    common = {"betas": (0.9, 0.999), "eps": 1e-8, "foreach": False}
    if "lora_plus_ratio" in case:
        return create_loraplus_optimizer(model, torch.optim.AdamW, lr=RATE, loraplus_lr_ratio=case["lora_plus_ratio"],
                                         **common)
    decay = case.get("weight_decay", 0.0)
    groups = []
    for name, p in model.named_parameters():
        if not p.requires_grad:
            continue
        group = {"params": [p], "lr": RATE, "weight_decay": decay}
        for own in case.get("groups", []):
            if any(f".{m}." in name for m in own["modules"]):
                group["lr"] = own.get("learning_rate", RATE)
                group["weight_decay"] = own.get("weight_decay", decay)
                break
        if p.ndim == 1:
            group["weight_decay"] = 0.0
        groups.append(group)
    return torch.optim.AdamW(groups, **common)


def saved(model):
    return {k: v.detach().double() for k, v in get_peft_model_state_dict(model, save_embedding_layers=False).items()}


def run(case):
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    model = model_of(case)
    model.train()
    optimizer = optimizer_of(model, case)
    texts = [tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in rows()]
    before = saved(model)
    before = {k: v.clone() for k, v in before.items()}
    trained = [p for p in model.parameters() if p.requires_grad]
    count = sum(len(ids) - 1 for ids in texts)
    steps = []
    for _ in range(case.get("num_steps", STEPS)):
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for ids in texts:
            ids = torch.tensor([ids])
            logits = model(input_ids=ids).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")
            (loss / count).backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=False).item()
        optimizer.step()
        steps.append({"loss": total / count, "grad_norm": norm})
    change = {}
    for name, after in saved(model).items():
        d = after - before[name]
        change[name] = {"l2": d.norm().item(), "sum": d.sum().item(), "shape": list(d.shape)}
    return {"steps": steps, "change": change}


def add():
    torch.set_num_threads(1)
    path = GOLDENS / "trainable.json"
    kept = json.loads(path.read_text())
    for name, case in CASES.items():
        if name not in kept["cases"]:
            kept["cases"][name] = {**case, **run(case)}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compute again and compare")
    parser.add_argument("--add", action="store_true", help="add cases that are missing, keep the others")
    arguments = parser.parse_args()
    check = arguments.check
    if arguments.add:
        return add()
    torch.set_num_threads(1)
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft)}
    got = {"made_with": versions, "rows": rows(), "learning_rate": RATE,
           "cases": {name: {**case, **run(case)} for name, case in CASES.items()}}
    path = GOLDENS / "trainable.json"
    if check:
        kept = json.loads(path.read_text())
        for name, case in got["cases"].items():
            for a, b in zip(case["steps"], kept["cases"][name]["steps"], strict=True):
                for key in a:
                    assert abs(a[key] - b[key]) <= 1e-4 * max(1, abs(b[key])), (name, key, a[key], b[key])
            assert case["change"].keys() == kept["cases"][name]["change"].keys(), name
        print("same")
    else:
        path.write_text(json.dumps(got, indent=1) + "\n")


if __name__ == "__main__":
    main()
