#!/usr/bin/env python3
"""Holds `temper export --format gguf` to llama.cpp itself, to transformers and to the gguf package. By hand:

    python tests/parity/gguf/check_gguf.py --temper build/temper --work DIR CHECK ... [--data SHARED] [--only NAME ...]

CHECK:
  families    every model of goldens/models: refused by name, or llama.cpp's logits are those of transformers, and 60
              greedy tokens are the same, in f32 and f16
  tokenizers  500 texts give the same tokens in llama.cpp as in the tokenizers library
  blocks      every tensor of every type has the bits that llama.cpp's own quantiser writes
  adapters    every LoRA of goldens/adapters as a file beside its base: refused by name, or llama.cpp's logits are PEFT's
  converter   metadata and tensors are those of llama.cpp's convert_hf_to_gguf.py (--llama_cpp SOURCE)
SHARED: a folder with tokenizers/, models/ and datasets/. Exit status 0: all hold.

Needs torch, transformers, tokenizers, numpy, gguf, llama-cpp-python (pip).
"""

import argparse
import json
import pathlib
import random
import re
import shutil
import subprocess
import sys
import unicodedata
import warnings

import gguf
import numpy as np
import torch
import transformers

import llama

HERE = pathlib.Path(__file__).parent
GOLDENS = HERE.parent / "goldens" / "models"
GREEDY = 60
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
warnings.filterwarnings("ignore")


class Failures:
    def __init__(self):
        self.names = []

    def say(self, name, good, text):
        print(f"{'ok  ' if good else 'FAIL'} {name}: {text}", flush=True)
        if not good:
            self.names.append(name)


def export(args, model, out, kind, *more):
    """The file, or the program's message."""
    shutil.rmtree(out, ignore_errors=True)
    done = subprocess.run([args.temper, "export", str(model), "--output_dir", str(out), "--format", "gguf", "--gguf_type",
                           kind, *more], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()
    return out / f"model-{kind}.gguf", done.stderr + done.stdout


def reference(folder, half, without_window):
    kind = transformers.AutoModelForCausalLM
    if json.loads((folder / "config.json").read_text())["architectures"][0] == "Mistral3ForConditionalGeneration":
        kind = transformers.AutoModelForImageTextToText
    more = {}
    scaling = getattr(transformers.AutoConfig.from_pretrained(folder), "rope_parameters", None) or {}
    if "long_factor" in scaling:  # llama.cpp goes by its context, which has 256 tokens at least
        more = dict(config=transformers.AutoConfig.from_pretrained(folder))
        more["config"].rope_parameters["short_factor"] = scaling["long_factor"]
    if without_window:  # llama.cpp leaves it out, as the export says
        more = dict(config=transformers.AutoConfig.from_pretrained(folder))
        more["config"].sliding_window = None
        more["config"].layer_types = ["full_attention"] * more["config"].num_hidden_layers
    model = kind.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager",
                                 experts_implementation="eager", **more).eval()
    if half:  # matrices are rounded, vectors are not
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.data = p.data.half().float()
    return model


def greedy(model, ids, n):
    """As llama.cpp decodes; and of each step how near the two largest logits are, of the largest."""
    out, gaps = [], []
    past = None
    with torch.no_grad():
        given = torch.tensor([ids])
        for _ in range(n):
            step = model(given, past_key_values=past, use_cache=True)
            past = step.past_key_values
            logits = step.logits[0, -1]
            top = logits.topk(2).values
            gaps.append(float(top[0] - top[1]) / float(logits.abs().max()))
            out.append(int(logits.argmax()))
            given = torch.tensor([[out[-1]]])
    return out, gaps


SIZES = dict(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2)
DELTA = dict(head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
             linear_conv_kernel_dim=4)
EXPERTS = dict(num_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=24)
LATENT = dict(num_key_value_heads=4, n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=16, n_shared_experts=2,
              first_k_dense_replace=1, kv_lora_rank=12, q_lora_rank=20, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
              head_dim=8, routed_scaling_factor=1.5)
# As published models have it, where goldens/models vary what llama.cpp does not.
PLAIN = {
    "gemma": (transformers.GemmaConfig, dict(head_dim=16)),
    "gemma2": (transformers.Gemma2Config, dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=8)),
    "gemma3": (transformers.Gemma3TextConfig, dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=8,
                                                   num_hidden_layers=7)),
    "cohere": (transformers.CohereConfig, dict(tie_word_embeddings=True, logit_scale=0.25)),
    "cohere2": (transformers.Cohere2Config, dict(tie_word_embeddings=True, sliding_window=8)),
    "exaone4": (transformers.Exaone4Config, dict(sliding_window=None, layer_types=["full_attention"] * 4)),
    "glm": (transformers.GlmConfig, dict(head_dim=8)),
    "glm4": (transformers.Glm4Config, dict(head_dim=8)),
    "nemotron": (transformers.NemotronConfig, {}),
    "olmo2": (transformers.Olmo2Config, {}),
    "olmo2 tied": (transformers.Olmo2Config, dict(tie_word_embeddings=True)),
    "olmoe": (transformers.OlmoeConfig, dict(num_key_value_heads=4, num_experts=8, num_experts_per_tok=2)),
    "qwen3_5": (transformers.Qwen3_5TextConfig, DELTA),
    "qwen3_5 tied": (transformers.Qwen3_5TextConfig, {**DELTA, "tie_word_embeddings": True, "linear_num_value_heads": 2}),
    "qwen3_5_moe": (transformers.Qwen3_5MoeTextConfig, {**DELTA, **EXPERTS}),
    "qwen3_next": (transformers.Qwen3NextConfig, {**DELTA, **EXPERTS}),
    "deepseek_v2": (transformers.DeepseekV2Config, {**LATENT, "topk_method": "greedy"}),
    "deepseek_v3": (transformers.DeepseekV3Config, {**LATENT, "n_group": 2, "topk_group": 1}),
    "deepseek_v3 yarn": (transformers.DeepseekV3Config, {**LATENT, "n_group": 2, "topk_group": 1, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 1.0,
        "mscale_all_dim": 1.0}}),
    "deepseek_v2 yarn": (transformers.DeepseekV2Config, {**LATENT, "topk_method": "greedy", "q_lora_rank": None,
                                                         "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64, "mscale": 0.707,
        "mscale_all_dim": 0.707}}),
    "glm4_moe_lite": (transformers.Glm4MoeLiteConfig, {**LATENT, "head_dim": 8, "n_group": 1, "topk_group": 1}),
    "granite_hybrid experts": (transformers.GraniteMoeHybridConfig, dict(
        layer_types=["mamba", "attention", "mamba", "mamba"], mamba_n_heads=8, mamba_d_head=8, mamba_d_state=16,
        mamba_n_groups=1, num_local_experts=8, num_experts_per_tok=2, shared_intermediate_size=24, intermediate_size=16,
        position_embedding_type="rope", embedding_multiplier=2.0, residual_multiplier=0.5, attention_multiplier=0.3,
        logits_scaling=2.0)),
    "falcon_h1": (transformers.FalconH1Config, dict(
        mamba_d_ssm=48, mamba_n_heads=6, mamba_d_head=8, mamba_d_state=16, mamba_n_groups=2, mamba_rms_norm=True,
        mamba_norm_before_gate=False, head_dim=8, tie_word_embeddings=True, embedding_multiplier=2.0,
        lm_head_multiplier=0.5, mlp_multipliers=[0.7, 1.3], ssm_multipliers=[0.5, 1.5, 0.8, 1.2, 0.9], key_multiplier=0.6,
        attention_in_multiplier=1.4, attention_out_multiplier=0.8, ssm_in_multiplier=1.3, ssm_out_multiplier=0.7)),
    "smollm3": (transformers.SmolLM3Config, dict(num_hidden_layers=8, tie_word_embeddings=True)),
    "falcon": (transformers.FalconConfig, dict(bias=False, new_decoder_architecture=False, multi_query=True)),
    "falcon 40b": (transformers.FalconConfig, dict(bias=False, new_decoder_architecture=True, num_kv_heads=2)),
    "gpt_neox sequential": (transformers.GPTNeoXConfig, dict(use_parallel_residual=False, rotary_pct=0.25)),
    "starcoder2": (transformers.Starcoder2Config, dict(sliding_window=None)),
    "llama yarn": (transformers.LlamaConfig, dict(rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64})),
    "llama yarn factor": (transformers.LlamaConfig, dict(rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
        "attention_factor": 1.3})),
    "gemma3 linear": (transformers.Gemma3TextConfig, dict(
        head_dim=16, query_pre_attn_scalar=16, sliding_window=8, num_hidden_layers=7, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})),
}


def plain(args):
    for name, (kind, changes) in PLAIN.items():
        if args.only and name not in args.only:
            continue
        folder = args.work / "plain" / name.replace(" ", "_")
        shutil.rmtree(folder, ignore_errors=True)
        torch.manual_seed(5)
        config = kind(**{**SIZES, **changes})
        model = transformers.AutoModelForCausalLM.from_config(config, torch_dtype=torch.float32)
        for p in model.parameters():  # zeros and ones of norms and biases show nothing
            p.data += torch.randn_like(p) * 0.1
        model.save_pretrained(folder)
        yield name, folder


def families(args, failures):
    goldens = [(f.name, f) for f in sorted(GOLDENS.iterdir()) if (f / "config.json").exists()]
    for title, folder in list(plain(args)) + goldens:
        if args.only and title not in args.only:
            continue
        for kind in ("f32", "f16"):
            name = f"{title} {kind}"
            path, said = export(args, folder, args.work / "families", kind)
            if path is None:
                print(f"---- {title}: refused: {said[-230:]}", flush=True)
                break
            try:
                compare(folder, path, kind, name, said, failures)
            except Exception as e:  # a model that llama.cpp does not load is a result
                failures.say(name, False, f"{type(e).__name__}: {str(e)[-400:]}")


def compare(folder, path, kind, name, said, failures):
    model = reference(folder, kind == "f16", "no sliding window" in said)
    config = model.config.get_text_config()
    limit = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", 64)
    length = min(24, limit // 3)
    rng = random.Random(7)
    ids = [rng.randrange(3, config.vocab_size) for _ in range(length)]
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0].numpy()
    n = min(GREEDY, limit - length)
    expected, gaps = greedy(model, ids, n)
    ours = llama.Model(path)
    ours.open(256)
    logits = ours.logits(ids)
    got = ours.greedy(ids, n)
    ours.close()
    error = float(np.abs(logits - theirs).max() / np.abs(theirs).max())
    # f16 products round what they read: 11 bits, some products behind each other. llama.cpp looks gelu up in a table of
    # f16, and has no gelu but that by tanh.
    table = "gelu" in str(getattr(config, "hidden_act", "")) + str(getattr(config, "activation_function", "")) + str(
        getattr(config, "activation", "")) or config.model_type.startswith(
        ("gemma", "bloom", "mpt"))
    good = error < (1e-2 if kind == "f16" else 3e-3 if table else 2e-5)
    same = next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b), n)
    near = same < n and gaps[same] < 2 * error  # either is right
    failures.say(name, good and (same == n or near), f"logits differ by {error:.1e} of the largest, {same} of {n} greedy tokens "
                 f"are the same" + (f" (then two logits differ by {gaps[same]:.1e})" if same < n else ""))


def adapters(args, failures):
    """Every LoRA of goldens/adapters: llama.cpp with base and adapter gives the logits of PEFT and the merged file's tokens."""
    import peft
    for file in sorted(GOLDENS.parent.joinpath("adapters").glob("lora_*/adapter_config.json")):
        folder, name = file.parent, file.parent.name
        base = GOLDENS / pathlib.Path(json.loads(file.read_text())["base_model_name_or_path"]).name
        if (args.only and name not in args.only) or not base.exists():
            continue
        whole, said = export(args, base, args.work / "base", "f32")
        alone, why = export(args, base, args.work / "adapter", "f32", "--adapter", str(folder), "--merge", "false")
        merged, _ = export(args, base, args.work / "merged", "f32", "--adapter", str(folder))
        if whole is None or not (args.work / "adapter/adapter-f32.gguf").exists():
            print(f"---- {name}: refused: {(said if whole is None else why)[-200:]}", flush=True)
            continue
        try:
            model = peft.PeftModel.from_pretrained(reference(base, False, "no sliding window" in said), folder).eval()
            rng = random.Random(7)
            ids = [rng.randrange(3, model.config.get_text_config().vocab_size) for _ in range(20)]
            with torch.no_grad():
                theirs = model(torch.tensor([ids])).logits[0].numpy()
            ours, other = llama.Model(whole), llama.Model(merged)
            for m in (ours, other):
                m.open(256)
            without = ours.logits(ids)
            ours.adapt(args.work / "adapter/adapter-f32.gguf")
            logits, got, expected = ours.logits(ids), ours.greedy(ids, 40), other.greedy(ids, 40)
            for m in (ours, other):
                m.close()
            error = float(np.abs(logits - theirs).max() / np.abs(theirs).max())
            effect = float(np.abs(without - theirs).max() / np.abs(theirs).max())
            same = next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b), 40)
            failures.say(f"adapter {name}", error < 3e-3 and error < effect / 20 and same == 40,
                         f"logits differ by {error:.1e} from PEFT's, by {effect:.1e} without it; {same} of 40 tokens are the "
                         f"merged file's")
        except Exception as e:
            failures.say(f"adapter {name}", False, f"{type(e).__name__}: {str(e)[-300:]}")


def texts(args):
    """500: lines of several languages and code, and what tokenizers trip over."""
    out = ["", " ", "  ", "\n", "\n\n \n", "a", " a", "a ", "Hello, world!", "I'll we've HE'S don't 'S", "3.14159 1000000",
           "tabs\tand\r\nline ends\r", "naïve café Ünïcödé", "数学是美丽的。日本語のテキスト", "русский текст", "नमस्ते दुनिया", "مرحبا بالعالم",
           "🦙🚀👩‍👩‍👧‍👦 emoji", "def f(x):\n    return x ** 2  # square\n", "<b>html</b> & \"quotes\" 'single'", "   leading spaces",
           "trailing spaces   ", "a\u00a0no-break\u2003em space", "x" * 300, "#" * 40 + "====", "http://example.com/?q=1&r=2#frag",
           "snake_case camelCase SCREAMING_CASE", "1st 2nd 3rd 42nd", "\u200bzero\u200bwidth", "e\u0301 combining"]
    rng = random.Random(11)
    data = args.data / "datasets"
    for name, count in (("text/wikitext-2/valid.txt", 170), ("text/tinyshakespeare.txt", 100)):
        lines = [line for line in (data / name).read_text().split("\n") if line.strip()]
        out += [line[:400] for line in rng.sample(lines, count)]
    rows = [json.loads(line) for line in (data / "gsm8k/test.jsonl").read_text().splitlines()]
    out += [row["answer"][:400] for row in rng.sample(rows, 100)]
    code = (HERE / "check_gguf.py").read_text().split("\n")
    out += ["\n".join(code[i:i + 4]) for i in range(0, 120, 3)]
    while len(out) < 500:
        out.append("".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(160, 0x250), rng.randrange(0x400, 0x460),
                                           rng.randrange(0x4E00, 0x4F00)))) for _ in range(rng.randrange(1, 40))))
    return out[:500]


def folder_with(work, files, rows, architecture="LlamaForCausalLM"):
    """A little model with that vocabulary."""
    shutil.rmtree(work, ignore_errors=True)
    config = transformers.LlamaConfig(vocab_size=rows, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
                                      num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512,
                                      tie_word_embeddings=True)
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(work)
    for name, source in files.items():
        if isinstance(source, pathlib.Path):
            shutil.copy(source, work / name)
        else:
            (work / name).write_text(source)
    for file in work.iterdir():
        file.chmod(0o644)
    return work


def trained(steps, ignore_merges, corpus):
    """A tokenizer.json with these pre-tokenizers, trained on the corpus."""
    import tokenizers
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=ignore_merges))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    made.decoder = tokenizers.decoders.ByteLevel()
    made.train_from_iterator(corpus, tokenizers.trainers.BpeTrainer(
        vocab_size=3000, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    return made.to_str()


def known_pre_tokenizers():
    """Those of gguf_pre_tokenizer.cc, as tokenizer.json files have them."""
    from tokenizers import Regex
    from tokenizers import pre_tokenizers as p
    words, bytes_ = p.ByteLevel(add_prefix_space=False), p.ByteLevel(add_prefix_space=False, use_regex=False)
    split = lambda expression: p.Split(Regex(expression), "isolated")  # noqa: E731
    short = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    ends = r"\s*[\r\n]+|\s+(?!\S)|\s+"
    upper, lower = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
    llama3 = short + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + ends
    return {
        "gpt-2": ([words], False),
        "starcoder": ([p.Digits(individual_digits=True), words], False),
        "llama-bpe": ([split(llama3), bytes_], True),
        "smaug-bpe": ([split(llama3), bytes_], False),
        "qwen2": ([split(llama3.replace("{1,3}", "")), bytes_], False),
        "qwen35": ([split(short + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + ends), bytes_],
                   False),
        "seed-coder": ([split(short + "|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|"
                              "\\s+(?!\\S)|\\s+"), bytes_], False),
        "gpt-4o": ([split(r"[^\r\n\p{L}\p{N}]?" + upper + "*" + lower + "+" + short + r"?|[^\r\n\p{L}\p{N}]?" + upper + "+"
                          + lower + "*" + short + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + ends), bytes_], False),
        "tekken": ([split(r"[^\r\n\p{L}\p{N}]?" + upper + "*" + lower + r"+|[^\r\n\p{L}\p{N}]?" + upper + "+" + lower
                          + r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + ends), bytes_], True),
        "deepseek-v3": ([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
            "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), bytes_], False),
        "falcon": ([p.Punctuation("contiguous"), words, p.Digits(individual_digits=False), split("[0-9][0-9][0-9]")], False),
    }


def tokenizers(args, failures):
    import tokenizers as hf
    shared = args.data / "tokenizers"
    all_texts = texts(args)
    corpus = (args.data / "datasets/text/wikitext-2/test.txt").read_text().split("\n")[:4000]
    folders = {}
    for name, files in {"gpt2": ["vocab.json", "merges.txt"], "qwen2": ["vocab.json", "merges.txt", "tokenizer_config.json"],
                        "llama2": ["tokenizer.json", "tokenizer_config.json"], "llama2 proto": ["tokenizer.model"],
                        "phi-3-mini": ["tokenizer.json", "tokenizer_config.json"],
                        "torchtune-tiny": ["tokenizer.json", "tokenizer_config.json"]}.items():
        folders[name] = {file: shared / name.split()[0] / file for file in files}
    folders["tinystories"] = {file: args.data / "models/tinystories-656k" / file
                              for file in ("tokenizer.json", "tokenizer_config.json")}
    for name, (steps, ignores) in known_pre_tokenizers().items():
        folders["pre " + name] = {"tokenizer.json": trained(steps, ignores, corpus)}
    for name, files in folders.items():
        if args.only and name not in args.only:
            continue
        folder = folder_with(args.work / "tokenizer", files, 152000 if name == "qwen2" else 51000)
        path, said = export(args, folder, args.work / "vocabulary", "f16")
        if path is None:
            print(f"---- {name}: refused: {said[-300:]}", flush=True)
            continue
        ours = llama.Model(path, vocab_only=True)
        if (folder / "tokenizer.json").exists():
            theirs = hf.Tokenizer.from_file(str(folder / "tokenizer.json"))
            encode = lambda text: theirs.encode(text, add_special_tokens=False).ids  # noqa: E731
        elif (folder / "tokenizer.model").exists():
            import sentencepiece
            processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
            encode = processor.encode
        else:
            theirs = hf.Tokenizer(hf.models.BPE.from_file(str(folder / "vocab.json"), str(folder / "merges.txt")))
            theirs.pre_tokenizer = hf.pre_tokenizers.Sequence(known_pre_tokenizers()["qwen2" if name == "qwen2" else "gpt-2"][0])
            if name == "qwen2":
                theirs.normalizer = hf.normalizers.NFC()
            encode = lambda text: theirs.encode(text, add_special_tokens=False).ids  # noqa: E731
        pre = gguf.GGUFReader(path).fields["tokenizer.ggml.pre"].contents()
        known = set(theirs.get_vocab()) if "tinystories" in name else None
        different, skipped = [], 0
        for text in all_texts:
            if known is not None and not set(text.replace(" ", "▁")) <= known:
                skipped += 1  # the vocabulary has no bytes: llama.cpp fails there
                continue
            if known is not None and "<unk>" in text:
                skipped += 1  # the library finds this file's special tokens at the text's start only; Temper as transformers
                continue
            if "(NFC)" in said and unicodedata.normalize("NFC", text) != text:
                skipped += 1  # as the export says
                continue
            got = ours.tokens(text, special=False, parse=True)
            if got != list(encode(text)):
                different.append((text, got, list(encode(text))))
        ours.close()
        failures.say(name, not different, f"{pre}: {len(all_texts) - skipped - len(different)} of {len(all_texts) - skipped} "
                     f"texts have the same tokens{f' ({skipped} left out)' if skipped else ''}"
                     + "".join(f"\n     {t!r}: {a[:12]} {b[:12]}" for t, a, b in different[:3]))


def tensors(path):
    return {t.name: (t.tensor_type.name, list(t.shape), t.data.tobytes()) for t in gguf.GGUFReader(path).tensors}


def blocks(args, failures):
    """A model with rows of 512 and 256, one with rows that are not whole blocks, one of 8 experts; some have odd numbers."""
    torch.manual_seed(3)
    small = dict(vocab_size=1024, hidden_size=512, intermediate_size=768, num_hidden_layers=9, num_attention_heads=8,
                 num_key_value_heads=2, max_position_embeddings=256)
    models = {
        "rows of 512 and 768": transformers.LlamaForCausalLM(transformers.LlamaConfig(**small)),
        "tied": transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**small, "tie_word_embeddings": True})),
        "rows of 96 and 160": transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**{
            **small, "hidden_size": 96, "intermediate_size": 160, "num_attention_heads": 4})),
        "fused": transformers.Phi3ForCausalLM(transformers.Phi3Config(**{**small, "pad_token_id": 0})),
        "8 experts": transformers.MixtralForCausalLM(transformers.MixtralConfig(**{
            **small, "num_hidden_layers": 4, "intermediate_size": 256, "num_local_experts": 8})),
    }
    for name, model in models.items():
        if args.only and name not in args.only:
            continue
        folder = args.work / "blocks"
        shutil.rmtree(folder, ignore_errors=True)
        with torch.no_grad():
            rows = dict(model.named_parameters())["model.layers.0.self_attn.o_proj.weight"]
            rows[0] = 0
            rows[1] = 0.25
            rows[2] *= 1e-8
            rows[3] = -rows[3].abs()
            rows[4, 5] = 40.0
        model.save_pretrained(folder)
        whole, said = export(args, folder, args.work / "whole", "f32")
        assert whole is not None, said
        for kind in llama.FILE_TYPES:
            ours, said = export(args, folder, args.work / "ours", kind)
            assert ours is not None, said
            theirs = args.work / "theirs.gguf"
            llama.quantise(whole, theirs, kind)
            a, b = tensors(ours), tensors(theirs)
            wrong = [n for n in sorted(a.keys() | b.keys()) if a.get(n) != b.get(n)]
            kinds = sorted({t[0] for t in a.values()})
            failures.say(f"{name} {kind}", not wrong, f"{len(a)} tensors ({', '.join(kinds)}), {len(wrong)} differ" + "".join(
                f"\n     {n}: {a.get(n, ['none'])[0]} {b.get(n, ['none'])[0]}" for n in wrong[:5]))


def converter(args, failures):
    """Keys that ours adds are good; keys and tensors of the converter that ours lacks or has otherwise are listed."""
    ignored = re.compile(r"^GGUF\.|^general\.(name|basename|size_label|finetune|version|license|tags|.*base_model.*|dataset.*|"
                         r"organization|file_type|quantized_by|alignment|languages)|\.vocab_size$|^split\.")
    for folder in sorted(GOLDENS.iterdir()):
        if args.only and folder.name not in args.only:
            continue
        named = args.work / "named"
        shutil.rmtree(named, ignore_errors=True)
        shutil.copytree(folder, named)
        rows = json.loads((named / "config.json").read_text())
        rows = rows.get("vocab_size") or rows["text_config"]["vocab_size"]
        spell = {chr(0x21 + i) if i < 90 else f"t{i}": i for i in range(rows)}
        (named / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": spell, "merges": []}}))
        (named / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
        path, said = export(args, named, args.work / "ours", "f16")
        if path is None:
            continue
        theirs = args.work / "converted.gguf"
        theirs.unlink(missing_ok=True)
        done = subprocess.run([sys.executable, str(HERE / "convert.py"), str(args.llama_cpp), str(named), str(theirs)],
                              capture_output=True, text=True)
        if done.returncode:
            print(f"---- {folder.name}: the converter fails: {done.stderr.strip()[-200:]}", flush=True)
            continue
        a, b = gguf.GGUFReader(path), gguf.GGUFReader(theirs)
        wrong = []
        for key, field in b.fields.items():
            if ignored.search(key) or key.startswith("tokenizer."):
                continue
            ours = a.fields[key].contents() if key in a.fields else None
            if ours != field.contents():
                wrong.append(f"{key}: ours {ours}, the converter's {field.contents()}")
        mine, other = tensors(path), tensors(theirs)
        for n in sorted(mine.keys() | other.keys()):
            if mine.get(n) != other.get(n):
                kinds = [(t[n][0], t[n][1]) if n in t else None for t in (mine, other)]
                wrong.append(f"{n}: ours {kinds[0]}, the converter's {kinds[1]}")
        failures.say(folder.name, not wrong, f"{len(other)} tensors" + "".join("\n     " + w for w in wrong[:6]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checks", nargs="+", choices=["families", "tokenizers", "blocks", "adapters", "converter"])
    parser.add_argument("--temper", required=True)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--llama_cpp", type=pathlib.Path)
    parser.add_argument("--only", nargs="*")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(2)
    failures = Failures()
    for check in args.checks:
        globals()[check](args, failures)
    print(f"{len(failures.names)} failed: {', '.join(failures.names)}" if failures.names else "all hold")
    return 1 if failures.names else 0


if __name__ == "__main__":
    sys.exit(main())
