#!/usr/bin/env python3
"""What PEFT makes of adapters that begin as a part of their weights, on the example's model: goldens/initial.json.

    pip install torch transformers peft bitsandbytes
    make_initial_goldens.py [--check]

Each case is 20 steps of AdamW on all rows at once, in f32 on one thread, of adapters with init_lora_weights pissa or olora:
losses, norms, and of each module the product s B A before and after. Signs of A's rows and B's columns are those of
LAPACK, and mean nothing: products do not have them. tests/command_line/other_base_test.cc repeats the cases.
"""
import argparse
import json
import sys

import make_optimizer_goldens as base
import safetensors.torch
import torch
import transformers
from peft import LoraConfig, get_peft_model

CASES = {
    "pissa": {"init_lora_weights": "pissa", "r": 8, "lora_alpha": 16},
    "olora": {"init_lora_weights": "olora", "r": 4, "lora_alpha": 4},
}
MODULES = ["q_proj", "k_proj", "down_proj"]
RATE = 5e-4


def model_of(case):
    model = transformers.LlamaForCausalLM(transformers.AutoConfig.from_pretrained(base.MODEL)).float()
    state = {k: v.float() for k, v in safetensors.torch.load_file(base.MODEL / "model.safetensors").items()}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    model.config.name_or_path = ""
    return get_peft_model(model, LoraConfig(target_modules=MODULES, task_type="CAUSAL_LM", **case))


def products(model):
    found = {}
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") and "default" in module.lora_A:
            scale = module.scaling["default"]
            a, b = module.lora_A["default"].weight.detach(), module.lora_B["default"].weight.detach()
            found[name.removeprefix("base_model.model.")] = scale * b.double() @ a.double()
    return found


def run(case):
    tokenizer = transformers.AutoTokenizer.from_pretrained(base.MODEL)
    model = model_of(case)
    model.train()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, foreach=False)
    texts = [tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in base.rows()]
    count = sum(len(ids) - 1 for ids in texts)
    first, steps = products(model), []
    for _ in range(base.STEPS):
        total = 0.0
        for ids in texts:
            ids = torch.tensor([ids])
            logits = model(input_ids=ids).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")
            (loss / count).backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(trained, 1.0, foreach=False).item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps.append({"loss": total / count, "grad_norm": norm})
    last = products(model)
    return {"steps": steps,
            "modules": {name: {"first_l2": first[name].norm().item(), "first_sum": first[name].sum().item(),
                               "change_l2": (last[name] - first[name]).norm().item()} for name in first}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compute again and compare")
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = base.GOLDENS / "initial.json"
    if options.check:
        kept = json.loads(path.read_text())["cases"]
        for name, case in CASES.items():
            difference = base.worst(run(case), kept[name])
            print(f"{name}: losses and norms differ by at most {difference:.1e} of themselves")
            if difference > 1e-4:
                sys.exit("not the same")
        return
    import peft
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft)}
    got = {"made_with": versions, "rows": base.rows(), "target_modules": MODULES, "learning_rate": RATE,
           "cases": {name: {**case, **run(case)} for name, case in CASES.items()}}
    path.write_text(json.dumps(got, indent=1) + "\n")


if __name__ == "__main__":
    main()
