#!/usr/bin/env python3
"""Loads a model (and adapter) that Temper wrote with transformers (and PEFT) and compares logits with Temper's.

    python tests/parity/check_export.py --model OUT_HF [--adapter OUT_PEFT] --logits LOGITS.safetensors [--dtype bf16]
    python tests/parity/check_export.py --model OUT_HF --same_as BASE [--same_adapter ADAPTER] --text FILE | --ids FILE
    python tests/parity/check_export.py --model OUT_HF --text FILE | --ids FILE      # only prints the best next tokens

With --same_as the logits are compared with those of BASE (and ADAPTER, unmerged, by PEFT), which an export must equal.

FILE: a text, tokenised with the model's tokenizer; or token ids separated by blanks or commas.

LOGITS.safetensors: input_ids I32 or I64 [tokens] (or [documents, tokens]) and logits F32 [..., tokens, vocab] as Temper
computed them, each row one document from position 0. Exit status 0: equal within --tolerance.
"""

import argparse
import sys

import safetensors.torch
import torch
import transformers


def load(path, adapter, arguments):
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[arguments.dtype]
    config = transformers.AutoConfig.from_pretrained(path)
    multimodal = config.get_text_config() is not config
    auto = transformers.AutoModelForImageTextToText if multimodal else transformers.AutoModelForCausalLM
    model, report = auto.from_pretrained(
        path, dtype=dtype, attn_implementation="eager", output_loading_info=True)
    faults = {kind: list(names) for kind, names in report.items() if names}
    if faults:
        sys.exit(f"{path} does not load cleanly: {faults}")
    if adapter:
        import peft
        model = peft.PeftModel.from_pretrained(model, adapter)
        # If the head is adapted, PEFT also writes its frozen weight, which is the base model's.
        loaded = {n: t for n, t in peft.get_peft_model_state_dict(model).items() if ".base_layer." not in n}
        stored = safetensors.torch.load_file(f"{adapter}/adapter_model.safetensors")
        wrong = [n for n in loaded if n not in stored or not torch.equal(loaded[n].float(), stored[n].float())]
        wrong += [n for n in stored if n not in loaded and ".base_layer." not in n]
        if wrong:
            sys.exit(f"{adapter} does not load cleanly: {wrong}")
    return model.eval()


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def document_ids(arguments, stored):
    if stored is not None:
        ids = stored["input_ids"].long()
        return ids if ids.dim() == 2 else ids[None]
    if arguments.ids:
        return torch.tensor([[int(token) for token in read(arguments.ids).replace(",", " ").split()]])
    if arguments.text:
        tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.model)
        return tokenizer(read(arguments.text), return_tensors="pt").input_ids
    sys.exit("give --logits, --ids or --text")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--adapter")
    parser.add_argument("--logits")
    parser.add_argument("--same_as")
    parser.add_argument("--same_adapter")
    parser.add_argument("--ids")
    parser.add_argument("--text")
    parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--tolerance", type=float, help="of the largest logit; 1e-5 in f32, 3e-2 in bf16")
    arguments = parser.parse_args()
    tolerance = arguments.tolerance or {"f32": 1e-5, "bf16": 3e-2}[arguments.dtype]

    stored = safetensors.torch.load_file(arguments.logits) if arguments.logits else None
    ids = document_ids(arguments, stored)

    def logits(model):
        with torch.no_grad():
            return torch.stack([model(input_ids=row[None], use_cache=False).logits[0].float() for row in ids])

    ours = logits(load(arguments.model, arguments.adapter, arguments))
    if stored is None and not arguments.same_as:
        for token, row in zip(ids[0].tolist(), ours[0]):
            best = row.topk(5)
            pairs = ", ".join(f"{i}: {v:.4f}" for v, i in zip(best.values.tolist(), best.indices.tolist()))
            print(f"after {token:6d}   {pairs}")
        return
    if arguments.same_as:
        theirs = logits(load(arguments.same_as, arguments.same_adapter, arguments))
    else:
        theirs = stored["logits"].float().reshape(ours.shape)
    error = (ours - theirs).abs().max().item() / ours.abs().max().item()
    agree = (ours.argmax(-1) == theirs.argmax(-1)).float().mean().item()
    kl = torch.nn.functional.kl_div(
        theirs.log_softmax(-1), ours.log_softmax(-1), log_target=True, reduction="none").sum(-1).mean().item()
    print(f"largest difference {error:.2e} of the largest logit, same best token {100 * agree:.1f} %, "
          f"mean KL {kl:.2e}, {ids.numel()} tokens")
    if not error <= tolerance:  # NaN also fails
        sys.exit(f"FAILED: {error:.2e} is over {tolerance:.0e}")


if __name__ == "__main__":
    main()
