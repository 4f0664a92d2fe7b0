#!/usr/bin/env python3
"""Writes goldens/: results of transformers and PEFT, for the parity tests.

    pip install torch transformers peft safetensors numpy      # the versions used are in goldens/made_with.json
    python tests/parity/make_goldens.py                        # rewrites goldens/
    python tests/parity/make_goldens.py --add                  # adds missing goldens, keeps the others
    python tests/parity/make_goldens.py --check                # computes them again and compares

README.md beside this file documents every file and tensor.
"""

import argparse
import copy
import json
import pathlib
import shutil
import sys
import tempfile
import warnings
import zlib

import numpy as np
import peft
import safetensors
import safetensors.numpy
import torch
import transformers

import model_zoo
import packed_batch
import reference
import training_curve

GOLDENS = pathlib.Path(__file__).resolve().parent / "goldens"
REPOSITORY_PATH = "tests/parity/goldens"  # for the adapters' base_model_name_or_path
MAX_BYTES = 25_000_000

ATTENTION = ["q_proj", "v_proj"]
ADAPTERS = {
    # name: (model, LoraConfig, ranks and alphas of single modules are in the config)
    "lora_llama_all_linear": ("llama_gqa_tied", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "lora_llama_list": ("llama_gqa_tied", dict(r=3, lora_alpha=5, target_modules=ATTENTION)),
    # PEFT matches a string against the whole path; an unanchored search would also take layer 0's q_proj.
    "lora_llama_regex": ("llama_gqa_tied", dict(
        r=4, lora_alpha=16, target_modules=r".*\.1\.(self_attn\.[qk]_proj|mlp\.down_proj)")),
    "lora_llama_lm_head": ("llama_mha", dict(r=4, lora_alpha=8, target_modules=["lm_head", "o_proj"])),
    "lora_llama_rslora": ("llama_gqa_tied", dict(r=8, lora_alpha=8, use_rslora=True, target_modules=ATTENTION)),
    "lora_llama_rank_pattern": ("llama_gqa_tied", dict(
        r=4, lora_alpha=8, target_modules=ATTENTION + ["gate_proj"],
        rank_pattern={"v_proj": 2, "layers.1.self_attn.q_proj": 6}, alpha_pattern={"gate_proj": 3})),
    # DoRA: magnitudes of rows; beside biases, which they do not scale; in a fused module; of weights stored in x out.
    "lora_llama_dora": ("llama_gqa_tied", dict(r=4, lora_alpha=8, use_dora=True, target_modules="all-linear")),
    "lora_biases_dora": ("llama_biases", dict(r=3, lora_alpha=6, use_dora=True, target_modules=ATTENTION + ["down_proj"])),
    "lora_phi3_dora": ("phi3_window", dict(r=2, lora_alpha=4, use_dora=True, target_modules="all-linear")),
    "lora_gpt2_dora": ("gpt2", dict(r=2, lora_alpha=4, use_dora=True, target_modules="all-linear")),
    # Rows of the embeddings, which a tied head follows; of table and head, in an order of their own.
    "lora_llama_rows": ("llama_gqa_tied", dict(r=4, lora_alpha=8, target_modules=ATTENTION,
                                               trainable_token_indices=[41, 7, 8, 3])),
    "lora_llama_rows_untied": ("llama_mha", dict(r=4, lora_alpha=8, target_modules=ATTENTION, trainable_token_indices={
        "embed_tokens": [9, 41], "lm_head": [7, 41, 5]})),
    "lora_llama_biases": ("llama_biases", dict(r=4, lora_alpha=8, target_modules=ATTENTION + ["down_proj"])),
    # Beside norms of q's and k's heads.
    "lora_qwen3": ("qwen3", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "lora_qwen2": ("qwen2_tied", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "lora_mistral": ("mistral_window", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "lora_glm4": ("glm4", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "lora_olmo3": ("olmo3", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "lora_gemma2": ("gemma2", dict(r=4, lora_alpha=8, target_modules=ATTENTION + ["down_proj"])),
    # q, k and v dealt by KV head; a head of another name than lm_head.
    "lora_falcon_new": ("falcon_new", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    # Beside numbers of an activation, which are no modules.
    "lora_apertus": ("apertus", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    # q, v and k dealt by device; a head with a bias.
    "lora_codegen": ("codegen", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "lora_phi_head": ("phi", dict(r=2, lora_alpha=4, target_modules=["q_proj", "fc2", "lm_head"])),
    "lora_gemma4": ("gemma4", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "lora_biogpt_head": ("biogpt", dict(r=2, lora_alpha=4, target_modules=["q_proj", "fc2", "output_projection"])),
    # Parameters of experts and routers, which all-linear and the names of older classes mean, too.
    "lora_mixtral": ("mixtral", dict(r=2, lora_alpha=4, target_modules=["q_proj", "w1", "w2", "w3"])),
    "lora_olmoe_down": ("olmoe", dict(r=2, lora_alpha=4, target_modules=["v_proj"], target_parameters=[
        "experts.down_proj"], rank_pattern={"down_proj": 3})),
    "lora_qwen2_moe": ("qwen2_moe", dict(r=2, lora_alpha=4, target_modules=["shared_expert_gate", "down_proj", "q_proj"],
                                         target_parameters=["experts.gate_up_proj", "gate.weight"])),
    "lora_qwen3_moe_mixed": ("qwen3_moe_mixed", dict(r=2, lora_alpha=4, target_modules="all-linear", use_rslora=True)),
    "lora_gpt_oss": ("gpt_oss", dict(r=2, lora_alpha=4, target_modules=["q_proj", "o_proj"], target_parameters=[
        "experts.gate_up_proj", "experts.down_proj", "router.weight"], rank_pattern={"experts.down_proj": 3})),
    "lora_qwen3_5_moe": ("qwen3_5_moe", dict(r=2, lora_alpha=4, target_modules=["in_proj_qkv", "q_proj"], target_parameters=[
        "experts.gate_up_proj", "experts.down_proj", "gate.weight"])),
    "lora_granite_hybrid_experts": ("granite_hybrid_experts", dict(r=2, lora_alpha=4, target_modules=["in_proj", "input_linear"],
                                                                   target_parameters=["experts.gate_up_proj", "router.weight"])),
    "lora_qwen3_next": ("qwen3_next", dict(r=2, lora_alpha=4, target_modules=["in_proj_qkvz", "in_proj_ba", "down_proj"],
                                           target_parameters=["experts.down_proj"])),
    # Latents: a module of latents and of what turns, one whose rows heads have in turn as keys and values.
    "lora_deepseek_v3": ("deepseek_v3", dict(r=2, lora_alpha=4, target_modules="all-linear")),
    "lora_deepseek_v2": ("deepseek_v2", dict(r=2, lora_alpha=4, target_modules=[
        "q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"])),
    # Fused modules: one A for q, k and v, and one for gate and up.
    # q, k and v in columns of one tensor; dealt by head.
    "lora_gpt2": ("gpt2", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "lora_gpt_neox_lm_head": ("gpt_neox", dict(r=4, lora_alpha=8, target_modules=["query_key_value", "dense", "lm_head"])),
    "lora_phi3": ("phi3_window", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    "lora_opt_all_linear": ("opt_pre_norm", dict(r=4, lora_alpha=8, target_modules="all-linear")),
    # Here all-linear includes project_in and project_out.
    "lora_opt_projected_all_linear": ("opt_post_norm_projected", dict(
        r=4, lora_alpha=8, target_modules="all-linear")),
    # The text model of a multimodal one: its modules lie deeper.
    "lora_mistral3": ("mistral3", dict(
        r=4, lora_alpha=8, target_modules=r"model\.language_model\..*\.(q_proj|down_proj)")),
    "lora_opt_default": ("opt_pre_norm", dict(r=4, lora_alpha=8)),  # target_modules null: q_proj and v_proj
}

# Biases of keys that do not turn, or of their parts that do not, have no gradient: softmax does not see what is added to
# all keys alike. Parameters that hold them, by how a model's name begins.
FREE = {"opt": "k_proj.bias", "biogpt": "k_proj.bias", "gpt2": "c_attn.bias", "gpt_bigcode": "c_attn.bias",
        "openai_gpt": "c_attn.bias", "gpt_neox": "query_key_value.bias", "phi": "k_proj.bias", "persimmon": "k_layernorm.bias",
        "bloom": "query_key_value.bias", "xglm": "k_proj.bias", "ctrl": "Wk.bias", "falcon_rw": "query_key_value.bias"}

QUERIES = ("q_proj", "Wqkv", "Wq.", "c_attn.weight", "c_attn.lora", "query_key_value.weight", "query_key_value.lora")

# Where PEFT refuses all-linear: out_proj of Mamba-2, which some kernels do not call as a module.
BESIDE_MAMBA = ["in_proj", "up_proj", "down_proj", "q_proj", "k_proj", "v_proj", "o_proj"]
TARGETS = {"falcon_h1": BESIDE_MAMBA + ["gate_proj"], "nemotron_h": BESIDE_MAMBA}

# Parameters that no name of a module means.
PARAMETERS = {"gpt_oss": ["experts.gate_up_proj", "experts.down_proj"]}

MIXTURES = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite", "glm4_moe", "mixtral", "olmoe", "qwen2_moe", "qwen3_moe", "gpt_oss", "qwen3_5_moe", "qwen3_next", "granite_moe",
            "granite_hybrid_experts")

# Models whose curves train on the same rows, which are goldens of their own. Of Gemma 4 the class of 12B: with per-layer
# embeddings the norms on outputs of small sums double the reference's own noise at each step.
SHARED_ROWS = ("apertus", "apertus1p5", "emu3", "bloom", "ctrl", "falcon_rw", "gpt_neox_japanese", "granite_swa", "modernbert_decoder", "mpt", "xglm", "arcee", "biogpt", "codegen", "cohere", "cohere_compass", "cwm", "deepseek_v2", "deepseek_v3", "ernie4_5", "exaone", "exaone4", "falcon", "falcon_h1", "gemma4_unified", "glm4_moe", "glm4_moe_lite", "gpt_bigcode",
               "gpt_neo", "gpt_oss", "gptj", "granite_hybrid", "granite_hybrid_experts", "granite_moe", "helium", "hunyuan", "hyperclovax", "jais2", "lfm2", "lfm3", "minicpm3", "mixtral", "nanochat", "nemotron",
               "nemotron_h", "olmo", "olmoe", "openai_gpt", "persimmon", "phi", "qwen2_moe", "qwen3_5", "qwen3_5_moe", "qwen3_moe", "qwen3_next", "stablelm", "vaultgemma", "youtu")


CURVES = {
    # name: (model, adapter or None, whether that adapter is trained already, with B not 0, settings). Clipping is
    # sometimes on in curve_full_llama and curve_lora_opt, always in the others. Decay is 0.1 so that wrongly decaying a
    # norm or a bias, which Trainer does not, would change it by a tenth of its update.
    "curve_full_llama": ("llama_gqa_tied", None, False, dict(
        learning_rate=2e-3, weight_decay=0.0, scheduler="linear", warmup_steps=4, max_grad_norm=5.0)),
    "curve_full_opt_decay": ("opt_pre_norm", None, False, dict(
        learning_rate=2e-3, weight_decay=0.1, scheduler="cosine", warmup_steps=3, max_grad_norm=1.0)),
    **{f"curve_full_{family}": (model, None, False, dict(
        learning_rate=2e-3, weight_decay=0.1, scheduler="linear", warmup_steps=4, max_grad_norm=5.0))
       for family, model in (("qwen3", "qwen3"), ("qwen2", "qwen2_windows"), ("mistral", "mistral_window"),
                             ("glm4", "glm4"), ("olmo3", "olmo3"), ("smollm3", "smollm3"),
                             ("ministral3", "ministral3"))},
    **{f"curve_full_{model}": (model, None, False, dict(
        learning_rate=2e-3, weight_decay=0.1, scheduler="linear", warmup_steps=4, max_grad_norm=2.0))
       for model in ("ministral", "glm", "olmo2", "seed_oss", "gemma", "gemma2", "gemma3")},
    # Clipping is on in most steps.
    **{f"curve_full_{model}": (model, None, False, dict(
        learning_rate=2e-3, weight_decay=0.1, scheduler="linear", warmup_steps=4, max_grad_norm=0.8))
       for model in ("cohere2", "starcoder2", "gpt2", "gpt_neox")},
    "curve_full_granite": ("granite", None, False, dict(
        learning_rate=2e-3, weight_decay=0.1, scheduler="linear", warmup_steps=4, max_grad_norm=1.0)),
    **{f"curve_lora_{family}": (model, dict(r=4, lora_alpha=8, target_modules="all-linear"), False, dict(
        learning_rate=1e-2, weight_decay=0.0, scheduler="cosine", warmup_steps=3, max_grad_norm=1.0))
       for family, model in (("qwen3", "qwen3"), ("qwen2", "qwen2_tied"), ("mistral", "mistral_window"),
                             ("glm", "glm"), ("olmo2", "olmo2"), ("smollm3", "smollm3"), ("glm4", "glm4"),
                             ("olmo3", "olmo3"), ("ministral3", "ministral3"), ("ministral", "ministral"),
                             ("seed_oss", "seed_oss"), ("gemma2", "gemma2"), ("gemma3", "gemma3"),
                             ("gemma", "gemma"))},
    **{f"curve_lora_{model}": (model, dict(r=4, lora_alpha=8, target_modules="all-linear"), False, dict(
        learning_rate=1e-2, weight_decay=0.0, scheduler="cosine", warmup_steps=3, max_grad_norm=0.35))
       for model in ("cohere2", "starcoder2", "gpt2", "gpt_neox")},
    "curve_lora_granite": ("granite", dict(r=4, lora_alpha=8, target_modules="all-linear"), False, dict(
        learning_rate=1e-2, weight_decay=0.0, scheduler="cosine", warmup_steps=3, max_grad_norm=0.3)),
    "curve_full_phi3": ("phi3_window", None, False, dict(
        learning_rate=2e-3, weight_decay=0.1, scheduler="linear", warmup_steps=4, max_grad_norm=5.0)),
    "curve_lora_phi3": ("phi3_window", dict(r=4, lora_alpha=8, target_modules="all-linear"), False, dict(
        learning_rate=1e-2, weight_decay=0.0, scheduler="cosine", warmup_steps=3, max_grad_norm=1.0)),
    "curve_lora_llama": ("llama_gqa_tied", dict(r=4, lora_alpha=8, target_modules="all-linear"), False, dict(
        learning_rate=1e-2, weight_decay=0.0, scheduler="cosine", warmup_steps=3, max_grad_norm=1.0)),
    # Magnitudes decay, as all parameters of adapters do.
    "curve_lora_llama_rows": ("llama_gqa_tied", dict(r=4, lora_alpha=8, target_modules=ATTENTION,
                                                     trainable_token_indices=[41, 7, 8, 3]), False, dict(
        learning_rate=5e-3, weight_decay=0.1, scheduler="linear", warmup_steps=2, max_grad_norm=1.0)),
    "curve_lora_llama_dora": ("llama_gqa_tied", dict(r=4, lora_alpha=8, use_dora=True, target_modules="all-linear"), False, dict(
        learning_rate=1e-2, weight_decay=0.1, scheduler="cosine", warmup_steps=3, max_grad_norm=1.0)),
    "curve_lora_opt": ("opt_pre_norm", dict(r=4, lora_alpha=8, target_modules="all-linear"), True, dict(
        learning_rate=1e-2, weight_decay=0.0, scheduler="linear", warmup_steps=0, max_grad_norm=1.0)),
    **{f"curve_full_{model}": (model, None, False, dict(
        # The steps of EXAONE 4, Falcon-H1, LFM2 and Qwen 3.5, and of Nemotron's adapter, are the most curved, and mixtures send tokens
        # elsewhere: at the others' rates the rounding of bf16 moves single losses by up to 2 %.
        learning_rate={"exaone4": 1e-3, "falcon_h1": 4e-4, "gemma4_unified": 4e-4, "lfm2": 1e-3, "lfm3": 1e-3, "nemotron_h": 1e-3, "qwen3_5": 5e-4, "mixtral": 5e-4, "olmoe": 5e-4, "qwen2_moe": 5e-4,
                       "qwen3_moe": 3e-4, "gpt_oss": 5e-4, "glm4_moe": 3e-4, "glm4_moe_lite": 3e-4, "deepseek_v2": 3e-4, "deepseek_v3": 3e-4, "qwen3_5_moe": 2e-4, "qwen3_next": 2e-4, "granite_moe": 5e-4,
                       "granite_hybrid_experts": 5e-4}.get(model, 2e-3), weight_decay=0.1, scheduler="linear", warmup_steps=4,
        max_grad_norm=0.4))
       for model in SHARED_ROWS},
    **{f"curve_lora_{model}": (model, dict(
        r=2, lora_alpha=4, target_modules=TARGETS.get(model, "all-linear"),
        **({"target_parameters": PARAMETERS[model]} if model in PARAMETERS else {})), False, dict(
        learning_rate=3e-3 if model in ("gemma4_unified", "lfm3", "nemotron", "qwen3_5") else 1e-3 if model in MIXTURES else 1e-2, weight_decay=0.0, scheduler="cosine", warmup_steps=3,
        max_grad_norm=0.15))
       for model in SHARED_ROWS},
    "curve_full_llama_sgd": ("llama_gqa_tied", None, False, dict(
        learning_rate=5e-2, weight_decay=0.1, scheduler="cosine", warmup_steps=3, max_grad_norm=5.0,
        sgd=dict(momentum=0.9, nesterov=False))),
    "curve_lora_opt_sgd": ("opt_pre_norm", dict(r=4, lora_alpha=8, target_modules="all-linear"), True, dict(
        learning_rate=5e-2, weight_decay=0.0, scheduler="linear", warmup_steps=0, max_grad_norm=1.0,
        sgd=dict(momentum=0.9, nesterov=True))),
}


def seed_of(name):
    return zlib.crc32(name.encode())


def plain(tensors):
    return {name: np.ascontiguousarray(value) for name, value in tensors.items()}


class Writer:
    """Writes below `root` the goldens that `there`, other goldens, lacks."""

    def __init__(self, root, there=None):
        self.root = root
        self.models = root / "models"
        self.there = there

    def lacks(self, name):
        return self.there is None or not (self.there / "cases" / name).exists()

    def case(self, name, description, tensors):
        folder = self.root / "cases" / name
        folder.mkdir(parents=True, exist_ok=True)
        model_zoo.write_json(folder / "case.json", description)
        safetensors.numpy.save_file(plain(tensors), folder / "golden.safetensors")
        print(f"  {name}: {sum(f.stat().st_size for f in folder.iterdir()) // 1024} KB")


def write_gradients(out, forms):
    for name in filter(out.lacks, model_zoo.MODELS):
        model = model_zoo.load(out.models / name)
        for parameter in model.parameters():
            assert torch.isfinite(parameter).all()
        batch = packed_batch.gradient_batch(reference.words(model), seed_of(name))
        tensors = reference.forward_and_gradients(model, batch, files_of(model))
        if name.startswith("opt_") and model.config.enable_bias:
            # Zero in theory: softmax ignores a constant added to all keys. HF has rounding noise.
            assert all(np.abs(v).max() < 1e-4 for n, v in tensors.items() if n.endswith("k_proj.bias"))
        for form, original in forms.items():
            if original == name:
                check_form(out.models / form, model, batch)
        out.case(name, {
            "kind": "gradients",
            "models": [name] + sorted(f for f, original in forms.items() if original == name),
            "loss_sum": float(tensors["losses"].astype(np.float64).sum()),
            "token_count": batch.token_count(),
            "cross_check": reference.cross_check(model, batch, tensors, files_of(model)),
        }, tensors)


# Parts of parameters' names that save_pretrained changes: (here, in files).
RENAMED = {
    "gpt_neox": [("lm_head.", "embed_out.")],
    "lfm3": [("self_attn.g_proj.", "self_attn.gate_proj.")],
    "nemotron_h": [("model.", "backbone.")],
    "exaone": [("model.embed_tokens", "transformer.wte"), ("model.layers", "transformer.h"),
               ("model.norm", "transformer.ln_f"), ("o_proj", "out_proj"), ("self_attn", "attn.attention"),
               ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"), ("gate_proj", "c_fc_0"),
               ("up_proj", "c_fc_1"), ("down_proj", "c_proj")],
    "mixtral": [(".mlp.", ".block_sparse_moe.")],
    **{kind: [("moe.experts.gate_up_proj", "moe.input_linear.weight"), ("moe.experts.down_proj", "moe.output_linear.weight"),
              ("moe.router.weight", "moe.router.layer.weight")]
       for kind in ("granitemoe", "granitemoehybrid", "granitemoeshared")},
}
# The modules of one expert: gate, up and down.
EXPERT = {"mixtral": ("w1", "w3", "w2")}


def files_of(model):
    """A function that cuts a parameter's value into the tensors that save_pretrained stores."""
    kind = model.config.model_type
    gate, up, down = EXPERT.get(kind, ("gate_proj", "up_proj", "down_proj"))

    def in_files(name, value):
        for memory, file in RENAMED.get(kind, []):
            name = name.replace(memory, file)
        module, _, last = name.rpartition(".")
        if kind == "gpt_oss" or kind in model_zoo.STACKED:  # files stack experts as memory does
            return [(name, value)]
        if module.endswith(".experts") and last == "gate_up_proj":
            half = value.shape[1] // 2
            return [(f"{module}.{e}.{n}.weight", part) for e, both in enumerate(value)
                    for n, part in ((gate, both[:half]), (up, both[half:]))]
        if module.endswith(".experts") and last == "down_proj":
            return [(f"{module}.{e}.{down}.weight", part) for e, part in enumerate(value)]
        return [(name, value)]

    return in_files


def of_adapter(name, value):
    return [(adapter_key(name), value)]


def extend_forms(out, forms):
    """Forms that are new of models that are not: the goldens of these are theirs, too."""
    for name in set(forms.values()):
        path = out.there / "cases" / name / "case.json"
        if not path.exists():
            continue
        case = json.loads(path.read_text())
        new = [f for f, original in forms.items() if original == name and f not in case["models"]]
        if new:
            model = model_zoo.load(out.models / name)
            for form in new:
                check_form(out.models / form, model, packed_batch.gradient_batch(reference.words(model), seed_of(name)))
            case["models"] = [name] + sorted(case["models"][1:] + new)
            model_zoo.write_json(path, case)


def check_form(folder, model, batch):
    """Checks that transformers reads the same numbers from the other form of storage."""
    other = model_zoo.load(folder)
    want = dict(model.named_parameters())
    got = {model_zoo.text_name(n): p for n, p in other.named_parameters() if model_zoo.text_name(n) is not None}
    assert want.keys() == got.keys(), (folder, want.keys() ^ got.keys())
    assert all(torch.equal(want[n], got[n]) for n in want), folder
    with torch.no_grad():
        assert reference.loss_sum(model, batch).item() == reference.loss_sum(other, batch).item(), folder


def write_bf16(out):
    for name in ("llama_gqa_tied", "llama_rope_llama3", "opt_pre_norm", "opt_post_norm_projected", "qwen3",
                 "qwen2_windows", "mistral_window", "glm4", "olmo3", "phi3_longrope", "smollm3", "cohere2", "starcoder2",
                 "gpt2", "gpt_neox", "gemma", "gemma2", "gemma3", "gemma4", "granite", *SHARED_ROWS):
        if not out.lacks("bf16_" + name):
            continue
        model = model_zoo.load(out.models / name, torch.bfloat16)
        batch = packed_batch.gradient_batch(reference.words(model), seed_of(name))
        with torch.no_grad():
            losses = np.stack([batch.place(row, [reference.document_losses(model, d)[1].numpy() for d in row],
                                           0, np.float32) for row in batch.rows])
        out.case("bf16_" + name, {
            "kind": "bf16",
            "models": [name],
            "loss_sum": float(losses.astype(np.float64).sum()),
            "token_count": batch.token_count(),
        }, {**batch.tensors(), "losses": losses})


def adapter_key(name):
    """The name under which PEFT stores a parameter of its live model."""
    return name.replace("lora_magnitude_vector.default.weight", "lora_magnitude_vector").replace(".default", "")


def lora_config(settings):
    # PEFT empties rank_pattern and keeps a reference to target_modules: every model gets its own copy.
    return peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **copy.deepcopy(settings))


def with_adapter(out, model_name, settings, seed, zero_b=False):
    model = peft.get_peft_model(model_zoo.load(out.models / model_name), lora_config(settings))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue
            rng = np.random.default_rng([seed, zlib.crc32(adapter_key(name).encode())])
            if "lora_A" in name:  # PEFT's own initialisation, kaiming_uniform(a=sqrt(5))
                bound = 1 / np.sqrt(parameter.shape[1])
                parameter.copy_(torch.from_numpy(rng.uniform(-bound, bound, parameter.shape)))
            elif "lora_magnitude" in name:  # PEFT's own initial value, the norms of the base's rows, or other ones
                if not zero_b:
                    parameter.mul_(torch.from_numpy(1 + 0.1 * rng.standard_normal(parameter.shape)))
            elif "trainable_tokens" in name:  # as the model has them, or others
                parameter.add_(torch.from_numpy((0.0 if zero_b else 0.1) * rng.standard_normal(parameter.shape)))
            elif zero_b:
                parameter.zero_()
            else:
                parameter.copy_(torch.from_numpy(0.15 * rng.standard_normal(parameter.shape)))
    return model.eval()


def save_adapter(out, model, name, model_name):
    folder = out.root / "adapters" / name
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = f"{REPOSITORY_PATH}/models/{model_name}"
    # PEFT writes sets, whose order differs from run to run.
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    model_zoo.write_json(folder / "adapter_config.json", config)


def write_adapters(out):
    layout = packed_batch.GRADIENT_LAYOUT[:2]
    for name, (model_name, settings) in ADAPTERS.items():
        if not out.lacks(name):
            continue
        model = with_adapter(out, model_name, settings, seed_of(name))
        save_adapter(out, model, name, model_name)
        batch = packed_batch.gradient_batch(reference.words(model), seed_of(name), layout)
        tensors = reference.forward_and_gradients(model, batch, of_adapter)
        noise = reference.cross_check(model, batch, tensors, of_adapter)
        stored = safetensors.numpy.load_file(out.root / "adapters" / name / "adapter_model.safetensors")
        trained = {n.removeprefix("grad.") for n in tensors if n.startswith("grad.")}
        # If lm_head is adapted, PEFT also stores its frozen base weight; readers must accept it.
        extra = {n for n in stored if ".base_layer." in n and n.split(".base_layer.")[0].endswith(("lm_head", "output_projection"))}
        assert set(stored) == trained | extra, name
        modules = sorted({n.removeprefix("base_model.model.").split(".lora_")[0] for n in trained if ".lora_" in n})
        tables = {n.removeprefix("base_model.model.").split(".token_adapter.")[0] for n in trained if ".token_adapter." in n}
        merged = model.merge_and_unload()
        weights = dict(merged.named_parameters())
        changed = [m + ".weight" for m in modules if m + ".weight" in weights]
        changed = {changed[0], changed[-1]} | {m + ".weight" for m in tables} | {n for n in weights if ".layers.1." in n and ".experts." in n}
        for name_in_memory in sorted(changed):
            for n, part in files_of(merged)(name_in_memory, weights[name_in_memory].detach().numpy()):
                if n == name_in_memory or ".experts." not in n or ".experts.1." in n:
                    tensors["merged." + n] = part
        with torch.no_grad():
            merged_loss = reference.loss_sum(merged, batch).item()
        loss_sum = float(tensors["losses"].astype(np.float64).sum())
        assert abs(merged_loss - loss_sum) < 1e-5 * loss_sum, name
        out.case(name, {
            "kind": "adapter",
            "models": [model_name],
            "adapter": name,
            "settings": settings,
            "modules": modules,
            "loss_sum": loss_sum,
            "token_count": batch.token_count(),
            "cross_check": noise,
        }, tensors)


def write_curves(out):
    for name, (model_name, lora, continued, settings) in CURVES.items():
        if not out.lacks(name):
            continue
        seed = seed_of(name)

        def start():
            if lora is None:
                return model_zoo.load(out.models / model_name)
            return with_adapter(out, model_name, lora, seed, zero_b=not continued)

        model = start()
        in_files = of_adapter if lora is not None else files_of(model)
        if lora is not None:
            save_adapter(out, model, name, model_name)
        vocab = reference.words(model)
        rows = f"rows_{vocab}" if model_name in SHARED_ROWS else None
        batches = packed_batch.training_batches(
            vocab, seed_of(rows) if rows else seed, training_curve.STEPS, training_curve.MICRO_BATCHES,
            training_curve.ROW_LENGTH)
        if rows and out.lacks(rows) and not (out.root / "cases" / rows).exists():
            out.case(rows, {"kind": "rows"}, training_curve.batch_tensors(batches))
        before = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
        losses, norms, rates = training_curve.train(model, batches, **settings)

        def changes_of(trained):
            return {n: part for name, p in trained.named_parameters() if name in before
                    for n, part in in_files(name, (p.detach() - before[name]).numpy())}

        changes = changes_of(model)

        other = start()
        other_losses, other_norms, _ = training_curve.train(other, batches, **settings, packed=True)
        loss_noise = np.abs(other_losses / losses - 1).max()
        norm_noise = np.abs(other_norms / norms - 1).max()
        other_changes = changes_of(other)
        change_noise = {n: float(np.linalg.norm(other_changes[n] - c) / np.linalg.norm(c))
                        for n, c in changes.items()}
        holders = tuple(bias for start, bias in FREE.items() if model_name.startswith(start))
        free = sorted(n for n in changes if n.endswith(holders))
        worst = max(value for n, value in change_noise.items() if n not in free)
        print(f"    noise: loss {loss_noise:.1e} norm {norm_noise:.1e} change {worst:.1e}"
              f"    loss {losses[0]:.4f} -> {losses[-1]:.4f} norm {norms.min():.2f}..{norms.max():.2f}")
        assert loss_noise < 5e-6, f"{name}: the reference's own order of sums moves a loss by {loss_noise}"
        assert worst < 1e-2, f"{name}: the reference's own order of sums moves a weight's change by {worst}"
        assert norms.max() > settings["max_grad_norm"], f"{name}: clipping is never on in this curve"

        tensors = {"losses": losses, "grad_norms": norms, "learning_rates": rates}
        if not rows:
            tensors.update(training_curve.batch_tensors(batches))
        kept = max((n for n in changes if n not in free), key=lambda n: (any(q in n for q in QUERIES), changes[n].size))
        tensors["change." + kept] = changes[kept]
        out.case(name, {
            "kind": "curve",
            "models": [model_name],
            "adapter": name if lora is not None else None,
            **({"rows": rows} if rows else {}),
            "settings": settings,
            "steps": training_curve.STEPS,
            "micro_batches": training_curve.MICRO_BATCHES,
            "change_l2": {n: float(np.linalg.norm(c.astype(np.float64))) for n, c in changes.items()
                          if n not in free},
            "change_sum": {n: float(c.astype(np.float64).sum()) for n, c in changes.items() if n not in free},
            "not_determined": free,
            "cross_check": {"loss_relative": float(f"{loss_noise:.0e}"),
                            "grad_norm_relative": float(f"{norm_noise:.0e}"),
                            "change_relative": float(f"{worst:.0e}")},
        }, tensors)


def write_generation(out):
    result = [] if out.there is None else json.loads((out.there / "generation.json").read_text())
    known = {(g["model"], g["adapter"]) for g in result}
    for name, adapter, count in (
            ("llama_gqa_tied", None, 16), ("llama_rope_llama3", None, 16), ("phi3_window", None, 16),
            ("opt_pre_norm", None, 16), ("opt_post_norm_projected", None, 16),
            ("llama_gqa_tied", "lora_llama_all_linear", 16), ("qwen3", None, 200), ("qwen2_windows", None, 200),
            ("mistral_window", None, 200), ("glm4", None, 200), ("olmo3", None, 200), ("phi3_longrope_far", None, 200),
            ("smollm3", None, 200), ("ministral3", None, 200), ("cohere2", None, 200), ("starcoder2", None, 200),
            ("gpt2", None, 50), ("gpt_neox", None, 200), ("gemma", None, 200), ("gemma2", None, 200),
            ("gemma3", None, 200), ("granite", None, 200), ("gemma4", None, 200), ("gemma4_unified", None, 200),
            *((model, None, 50) for model in SHARED_ROWS if model not in ("gemma4_unified", "falcon_rw")),
            ("falcon_rw", None, 16),  # it soon loops
            # Past the length where the embedding changes.
            ("phi3_longrope_mixed", None, 50), ("llama_rope_dynamic", None, 50)):
        if (name, adapter) in known:
            continue
        model = model_zoo.load(out.models / name)
        if adapter is not None:
            model = peft.PeftModel.from_pretrained(model, out.root / "adapters" / adapter).eval()
        # The first prompt whose continuation has no near tie and does not loop.
        for seed in range(1000):
            prompt = np.random.default_rng(seed).integers(3, reference.words(model), 7).tolist()
            # Far above the noise of f32; few long ones keep more, of capped logits fewer still.
            clear = 0.02 if count == 16 else 0.002 if name == "gemma4" else 0.005
            if reference.greedy(model, prompt, 16, eos=None)[1] <= clear:
                continue
            tokens, margin = reference.greedy(model, prompt, count, eos=None)
            if margin > clear and len(set(tokens)) >= (7 if name == "falcon_rw" else 10):
                break
        else:
            raise AssertionError(f"{name}: no prompt with a clear continuation")
        stop = next(t for i, t in enumerate(tokens) if i >= 5 and t not in tokens[:i])
        stopped, _ = reference.greedy(model, prompt, count, eos=stop)
        assert stopped == tokens[: tokens.index(stop) + 1]
        result.append({"model": name, "adapter": adapter, "prompt": prompt, "tokens": tokens, "eos": stop,
                       "tokens_with_eos": stopped, "smallest_margin": round(margin, 4)})
    model_zoo.write_json(out.root / "generation.json", result)


def write_all(root, there=None):
    out = Writer(root, there)
    forms = model_zoo.save_models(out.models)
    write_gradients(out, forms)
    write_bf16(out)
    write_adapters(out)
    write_curves(out)
    write_generation(out)
    if there is not None:
        extend_forms(out, forms)
    model_zoo.write_json(root / "schedules.json", training_curve.schedules())
    model_zoo.write_json(root / "made_with.json", {
        "torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
        "safetensors": safetensors.__version__, "numpy": np.__version__, "torch_threads": 1})
    total = sum(f.stat().st_size for f in root.rglob("*") if f.is_file())
    print(f"{total / 1e6:.2f} MB in {sum(1 for f in root.rglob('*') if f.is_file())} files")
    assert total < MAX_BYTES, "too large to commit"


def add(root):
    """Computes goldens that are missing; the others stay, since other machines round differently."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = pathlib.Path(scratch)
        write_all(fresh, root)
        for path in sorted(p.relative_to(fresh) for p in fresh.rglob("*") if p.is_file()):
            if not (root / path).exists():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(fresh / path, root / path)
                print(f"  added {path}")
        shutil.copy(fresh / "generation.json", root / "generation.json")
    total = sum(f.stat().st_size for f in root.rglob("*") if f.is_file())
    print(f"{total / 1e6:.2f} MB in all")
    assert total < MAX_BYTES, "too large to commit"


def check(root):
    """Recomputes everything: expects the same files, with the same bytes or (on another machine or version) nearly the
    same tensors."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = pathlib.Path(scratch)
        write_all(fresh)
        names = {p.relative_to(fresh) for p in fresh.rglob("*") if p.is_file()}
        old = {p.relative_to(root) for p in root.rglob("*") if p.is_file()}
        failures = [f"{p}: only in one of the two" for p in sorted(names ^ old)]
        same = 0
        for path in sorted(names & old):
            if (fresh / path).read_bytes() == (root / path).read_bytes():
                same += 1
            elif path.suffix == ".safetensors":
                print(f"  {path}: other bytes, tensors compared")
                failures += compare_tensors(path, root / path, fresh / path)
            else:
                print(f"  {path}: other bytes (read the difference)")
        print(f"{same} of {len(names | old)} files have the same bytes")
    for failure in failures:
        print("FAILED", failure)
    return not failures


def compare_tensors(path, old_path, new_path):
    with safetensors.safe_open(old_path, "pt") as old, safetensors.safe_open(new_path, "pt") as new:
        if set(old.keys()) != set(new.keys()):
            return [f"{path}: other tensors"]
        failures = []
        for name in old.keys():
            a, b = old.get_tensor(name).double(), new.get_tensor(name).double()
            if a.shape != b.shape or (a - b).norm() > 1e-3 * a.norm() + 1e-4:
                failures.append(f"{path}: {name} differs")
        return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed goldens, write nothing")
    parser.add_argument("--add", action="store_true", help="add what is not there yet, keep the rest")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    warnings.filterwarnings("ignore", message="Setting `save_embedding_layers` to `True`")
    if arguments.check:
        sys.exit(0 if check(GOLDENS) else 1)
    if arguments.add:
        return add(GOLDENS)
    for old in sorted(GOLDENS.rglob("*"), reverse=True):
        old.unlink() if old.is_file() else old.rmdir()
    GOLDENS.mkdir(exist_ok=True)
    write_all(GOLDENS)


if __name__ == "__main__":
    main()
