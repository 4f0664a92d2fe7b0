#!/usr/bin/env python3
"""What other optimizers than AdamW and SGD make of the example's model: goldens/optimizers.json.

    pip install torch transformers peft bitsandbytes
    make_optimizer_goldens.py [--check | --compare]

Each case is 20 steps on all rows at once, in f32 on one thread, in full or of an adapter whose A and B are made of waves:
bitsandbytes' AdamW8bit as transformers' Trainer uses it (tables of embeddings in 32 bits), and torch.optim.Muon on the
matrices of blocks with AdamW for all else; transformers' Adafactor as its Trainer makes it; torch's moving average of
weights (`ema_decay`), whose change is then given in place of the weights'. bitsandbytes runs without its native library, whose codes are not those of
the nearest numbers but of the nearest of 65,536 steps (--compare says how far its losses are from these).
torch.optim.Muon iterates in bf16, by default; `muon` has its iteration in f32, `muon_bf16` as it is.
tests/command_line/optimizers_test.cc repeats the cases.
"""
import argparse
import ctypes
import json
import pathlib
import sys

# Before peft, which loads bitsandbytes, too: without its native library unless that is compared with.
LOAD = ctypes.cdll.LoadLibrary
if "--compare" not in sys.argv:
    ctypes.cdll.LoadLibrary = None
import bitsandbytes  # noqa: E402

ctypes.cdll.LoadLibrary = LOAD
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402

HERE = pathlib.Path(__file__).parent
MODEL = HERE / "../../examples/plain/model"
GOLDENS = HERE / "goldens"
STEPS = 20

CASES = {
    "adamw_8bit_full": {"optimizer": "adamw_8bit", "learning_rate": 1e-4, "weight_decay": 0.1},
    "adamw_8bit_lora": {"optimizer": "adamw_8bit", "learning_rate": 5e-4, "weight_decay": 0.0, "lora": True},
    "muon_full": {"optimizer": "muon", "learning_rate": 1e-3, "weight_decay": 0.1},
    "muon_lora": {"optimizer": "muon", "learning_rate": 1e-2, "weight_decay": 0.0, "lora": True,
                  "match_rms_adamw": True},
    "adafactor_full": {"optimizer": "adafactor", "learning_rate": 1e-4, "weight_decay": 0.1},
    "adafactor_lora": {"optimizer": "adafactor", "learning_rate": 2e-2, "weight_decay": 0.0, "lora": True,
                       "scale_parameter": True},
    "average_full": {"optimizer": "adamw", "learning_rate": 1e-4, "weight_decay": 0.1, "ema_decay": 0.9},
    "average_lora": {"optimizer": "adafactor", "learning_rate": 1e-3, "weight_decay": 0.0, "lora": True,
                     "ema_decay": 0.8},
    "muon_bf16_full": {"optimizer": "muon", "learning_rate": 1e-3, "weight_decay": 0.1, "bf16": True},
}


def rows():
    return [f"{i} and {3 * i} make {4 * i}" + ", of course" * (i % 3) + "." for i in range(12)]


def wave(shape, seed):
    """bf16 numbers that C++ can compute, too: a multiple of 2^-10 at most 2^-4."""
    i = torch.arange(torch.Size(shape).numel(), dtype=torch.int64)
    return ((((i * 37 + seed * 101) % 127) - 63) / 1024).reshape(shape).float()


def model_of(case):
    model = transformers.LlamaForCausalLM(transformers.AutoConfig.from_pretrained(MODEL)).float()
    state = {k: v.float() for k, v in safetensors.torch.load_file(MODEL / "model.safetensors").items()}
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    model.config.name_or_path = ""
    if not case.get("lora"):
        return model
    # A of q_proj has 5120 elements, its B as many; those of k_proj's B are 1024.
    model = get_peft_model(model, LoraConfig(r=32, lora_alpha=32, target_modules=["q_proj", "k_proj", "down_proj"],
                                             task_type="CAUSAL_LM"))
    for seed, (name, p) in enumerate((n, p) for n, p in model.named_parameters() if p.requires_grad):
        p.data.copy_(wave(p.shape, seed))
    return model


def orthogonal(grad, coefficients, steps, eps):
    """torch.optim._muon's iteration without its rounding to bf16."""
    a, b, c = coefficients
    x = grad if grad.size(0) <= grad.size(1) else grad.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if grad.size(0) <= grad.size(1) else x.T


IN_BF16 = torch.optim._muon._zeropower_via_newtonschulz


def optimizers_of(model, case):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    rate, decay = case["learning_rate"], case["weight_decay"]

    def groups(pairs):
        return [{"params": [p for _, p in pairs if p.ndim > 1], "weight_decay": decay},
                {"params": [p for _, p in pairs if p.ndim == 1], "weight_decay": 0.0}]

    if case["optimizer"] == "adamw_8bit":
        manager = bitsandbytes.optim.GlobalOptimManager.get_instance()
        manager.initialize()  # it knows parameters by id(), which those of the next case may have again
        optimizer = bitsandbytes.optim.AdamW(groups(named), lr=rate, betas=(0.9, 0.999), eps=1e-8, optim_bits=8)
        for module in model.modules():
            if isinstance(module, torch.nn.Embedding):
                manager.register_module_override(module, "weight", {"optim_bits": 32})
        return [optimizer]
    if case["optimizer"] == "adafactor":
        return [transformers.Adafactor(groups(named), lr=rate, relative_step=False,
                                       scale_parameter=case.get("scale_parameter", False))]
    if case["optimizer"] == "adamw":
        return [torch.optim.AdamW(groups(named), lr=rate, betas=(0.9, 0.999), eps=1e-8, foreach=False)]
    torch.optim._muon._zeropower_via_newtonschulz = IN_BF16 if case.get("bf16") else orthogonal
    takes = [(n, p) for n, p in named if ".layers." in n and p.ndim == 2]
    others = [(n, p) for n, p in named if all(p is not q for _, q in takes)]
    found = [torch.optim.Muon([p for _, p in takes], lr=rate, weight_decay=decay,
                              adjust_lr_fn="match_rms_adamw" if case.get("match_rms_adamw") else None)]
    if others:
        found.append(torch.optim.AdamW(groups(others), lr=rate, betas=(0.9, 0.999), eps=1e-8, foreach=False))
    return found


def run(case):
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    model = model_of(case)
    model.train()
    optimizers = optimizers_of(model, case)
    texts = [tokenizer(text)["input_ids"] + [tokenizer.eos_token_id] for text in rows()]
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad}
    before = {n: p.detach().clone() for n, p in trained.items()}
    count = sum(len(ids) - 1 for ids in texts)
    average = None
    if "ema_decay" in case:
        multi_avg_fn = torch.optim.swa_utils.get_ema_multi_avg_fn(case["ema_decay"])
        average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=multi_avg_fn)
    steps = []
    for _ in range(STEPS):
        total = 0.0
        for ids in texts:
            ids = torch.tensor([ids])
            logits = model(input_ids=ids).logits[0, :-1]
            loss = torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum")
            (loss / count).backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(list(trained.values()), 1.0, foreach=False).item()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if average is not None:
            average.update_parameters(model)
        steps.append({"loss": total / count, "grad_norm": norm})
    change = {}
    averaged = {} if average is None else dict(average.module.named_parameters())
    for name, p in trained.items():
        p = averaged.get(name, p)
        d = (p.detach() - before[name]).double()
        change[name.replace(".default", "")] = {"l2": d.norm().item(), "sum": d.sum().item(), "shape": list(d.shape)}
    states = {}
    if case["optimizer"] == "adamw_8bit":
        for name, p in trained.items():
            states[name.replace(".default", "")] = 8 if optimizers[0].state[p]["state1"].dtype == torch.uint8 else 32
    return {"steps": steps, "change": change, "bits": states}


def worst(got, kept):
    return max(abs(a[k] - b[k]) / abs(b[k]) for a, b in zip(got["steps"], kept["steps"], strict=True) for k in a)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compute again and compare")
    parser.add_argument("--compare", action="store_true", help="compare with bitsandbytes' native library")
    options = parser.parse_args()
    torch.set_num_threads(1)
    native = "Mock" not in type(bitsandbytes.cextension.lib).__name__
    assert native == options.compare, "bitsandbytes was loaded otherwise than asked for"
    path = GOLDENS / "optimizers.json"
    if options.compare or options.check:
        kept = json.loads(path.read_text())["cases"]
        for name, case in CASES.items():
            difference = worst(run(case), kept[name])
            print(f"{name}: losses and norms differ by at most {difference:.1e} of themselves")
            if options.check and difference > 1e-4:
                sys.exit("not the same")
        return
    versions = {m.__name__: m.__version__ for m in (torch, transformers, bitsandbytes)}
    got = {"made_with": versions, "rows": rows(),
           "cases": {name: {**case, **run(case)} for name, case in CASES.items()}}
    path.write_text(json.dumps(got, indent=1) + "\n")


if __name__ == "__main__":
    main()
