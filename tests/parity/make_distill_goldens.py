#!/usr/bin/env python3
"""What TRL's GKDTrainer computes on given answers (lmbda 0): goldens/distill.json, 20 steps each, and goldens/teacher, a
random model of another family and size than the example's, with its vocabulary and a capped head.

    pip install torch transformers peft trl
    make_distill_goldens.py [--check]

Each case is a run of AdamW on all conversations at once, in f32 on one thread, so that neither the order of rows nor how
they are packed matters. tests/command_line/distill_test.cc repeats them. GKDTrainer gives its temperature to the loss in
its fused form only: here it is given in any case.
"""
import argparse
import functools
import json
import pathlib
import tempfile

import torch
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer, Gemma2Config
import peft
import transformers
import trl
from trl.experimental.gkd import GKDConfig, GKDTrainer

HERE = pathlib.Path(__file__).parent
MODEL = HERE / "../../examples/plain/model"
GOLDENS = HERE / "goldens"
ADAPTER, TEACHER = GOLDENS / "adapters/preference", GOLDENS / "teacher"
STEPS = 20

CASES = {
    "forward": {"beta": 0.0, "temperature": 1.0},
    "reverse": {"beta": 1.0, "temperature": 1.0},
    "between": {"beta": 0.5, "temperature": 1.0},
    "warm": {"beta": 0.3, "temperature": 2.0},
}


def conversations():
    """Prompts and answers of different lengths."""
    return [{"messages": [{"role": "user", "content": f"What is {i} plus {2 * i}?"},
                          {"role": "assistant", "content": f"It is {3 * i}" + "!" * (i % 3)}]} for i in range(8)]


def make_teacher():
    torch.manual_seed(11)
    config = Gemma2Config(vocab_size=2048, hidden_size=16, intermediate_size=40, num_hidden_layers=3, num_attention_heads=2,
                          num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16, max_position_embeddings=512,
                          sliding_window=64, bos_token_id=0, eos_token_id=1, pad_token_id=None, initializer_range=0.4)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(torch.bfloat16)
    model.save_pretrained(TEACHER)
    (TEACHER / "generation_config.json").unlink(missing_ok=True)


def run(case, full, rate):
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    if not full:
        model = PeftModel.from_pretrained(model, ADAPTER, is_trainable=True)
    rows = conversations()
    with tempfile.TemporaryDirectory() as out:
        config = GKDConfig(output_dir=out, per_device_train_batch_size=len(rows), max_steps=STEPS, logging_steps=1,
                           learning_rate=rate, lr_scheduler_type="constant", warmup_steps=0, weight_decay=0.0,
                           max_grad_norm=1.0, optim="adamw_torch", adam_epsilon=1e-8, bf16=False, fp16=False, use_cpu=True,
                           report_to=[], save_strategy="no", gradient_checkpointing=False, max_length=512, lmbda=0.0,
                           beta=case["beta"], temperature=case["temperature"])
        teacher = AutoModelForCausalLM.from_pretrained(TEACHER, dtype=torch.float32, attn_implementation="eager")
        trainer = GKDTrainer(model=model, teacher_model=teacher, args=config, train_dataset=Dataset.from_list(rows),
                             processing_class=AutoTokenizer.from_pretrained(MODEL))
        trainer.generalized_jsd_loss = functools.partial(GKDTrainer.generalized_jsd_loss, temperature=case["temperature"])
        trainer.train()
    return [step for step in trainer.state.log_history if "loss" in step]


def cases():
    made = {}
    for name, case in CASES.items():
        for full in (False, True):
            rate = 1e-5 if full else 1e-3  # f32 rounding grows with what the weights have moved
            steps = run(case, full, rate)
            made[name + ("_full" if full else "")] = {
                **case, "full": full, "learning_rate": rate,
                "steps": {report: [step[report] for step in steps] for report in ("loss", "grad_norm")}}
    return made


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true", help="compute again and compare")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    path = GOLDENS / "distill.json"
    if not check:
        make_teacher()
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft, trl)}
    got = {"made_with": versions, "conversations": conversations(), "cases": cases()}
    if check:
        for name, case in json.loads(path.read_text())["cases"].items():
            for report, values in case["steps"].items():
                for a, b in zip(got["cases"][name]["steps"][report], values, strict=True):
                    assert abs(a - b) <= 1e-4 * max(1, abs(b)), (name, report, a, b)
        print("same")
    else:
        path.write_text(json.dumps(got) + "\n")


if __name__ == "__main__":
    main()
