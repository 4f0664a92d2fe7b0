#!/usr/bin/env python3
"""Walks a tiny random model of each family through what a user does, and prints the table that README has.

    python tests/parity/family_walk.py --temper build/temper --data SHARED --work DIR [--only CLASS ...]

SHARED: a folder with tokenizers/, chat_templates/ and datasets/llama-factory/identity.json. For each family a model
with a real tokenizer and, where one is at hand, the family's chat template is previewed, trained (LoRA and full),
asked, evaluated and exported by the program. Then transformers and PEFT load what it wrote: answers must be the same
texts, losses of the same tokens and logits of adapter and merged model the same numbers. Exit status 0: all are.

Needs torch, transformers, peft, numpy, safetensors (pip). Everything is computed in f32, so that answers can be equal.
"""

import argparse
import copy
import json
import pathlib
import shutil
import subprocess
import sys
import warnings

import peft
import torch
import transformers

import model_zoo

QUESTIONS = ["Who are you?", "What is your name?", "What can you do?"]
ROW = 512  # tokens; the longest sample has fewer
CHATML = "chatml"  # a template that ships with the program, for families whose own is not at hand

# Folders of SHARED/tokenizers: byte-level BPE, and the pieces of SentencePiece.
BYTES, PIECES = "qwen2", "phi-3-mini"

# class, with a word behind it where a class has two forms: (its name for people, model of model_zoo.py, vocabulary, chat template, its special tokens, the last one ends
# an answer). Without a folder's own special tokens a template's would be split into pieces of text.
FAMILIES = {
    "LlamaForCausalLM": ("Llama", "llama_rope_llama3", BYTES, "meta-llama-Llama-3.1-8B-Instruct.jinja", [
        "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    "MistralForCausalLM": ("Mistral", "mistral_window", PIECES, "mistralai-Mistral-Nemo-Instruct-2407.jinja", [
        "[INST]", "[/INST]", "</s>"]),
    "MinistralForCausalLM": ("Ministral 8B", "ministral", PIECES, "mistralai-Mistral-Nemo-Instruct-2407.jinja", [
        "[INST]", "[/INST]", "</s>"]),
    "Ministral3ForCausalLM": ("Ministral 3", "ministral3", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Mistral3ForConditionalGeneration": ("Mistral Small 3.1 (text)", "mistral3", PIECES, CHATML, [
        "<|im_start|>", "<|im_end|>"]),
    "Qwen2ForCausalLM": ("Qwen 2, 2.5", "qwen2_windows", BYTES, "Qwen-Qwen2.5-7B-Instruct.jinja", [
        "<|im_start|>", "<|im_end|>"]),
    "Qwen3ForCausalLM": ("Qwen 3", "qwen3", BYTES, "Qwen-Qwen3-0.6B.jinja", ["<|im_start|>", "<|im_end|>"]),
    "Phi3ForCausalLM": ("Phi-3, 3.5, 4", "phi3_longrope", PIECES, "microsoft-Phi-3.5-mini-instruct.jinja", [
        "<|system|>", "<|user|>", "<|assistant|>", "<|endoftext|>", "<|end|>"]),
    "SmolLM3ForCausalLM": ("SmolLM3", "smollm3", BYTES, "HuggingFaceTB-SmolLM3-3B.jinja", [
        "<|im_start|>", "<|im_end|>"]),
    "Olmo2ForCausalLM": ("OLMo 2", "olmo2", BYTES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Olmo3ForCausalLM": ("OLMo 3", "olmo3", BYTES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GlmForCausalLM": ("GLM-4 9B", "glm", BYTES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Glm4ForCausalLM": ("GLM-4-0414", "glm4", BYTES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GemmaForCausalLM": ("Gemma", "gemma", PIECES, "google-gemma-2-2b-it.jinja", ["<start_of_turn>", "<end_of_turn>"]),
    "Gemma2ForCausalLM": ("Gemma 2", "gemma2", PIECES, "google-gemma-2-2b-it.jinja", [
        "<start_of_turn>", "<end_of_turn>"]),
    "Gemma3ForCausalLM": ("Gemma 3", "gemma3", PIECES, "google-gemma-2-2b-it.jinja", [
        "<start_of_turn>", "<end_of_turn>"]),
    "Gemma3ForConditionalGeneration": ("Gemma 3 (text of it)", "gemma3_multimodal", PIECES, "google-gemma-2-2b-it.jinja", [
        "<start_of_turn>", "<end_of_turn>"]),
    "GraniteForCausalLM": ("Granite 3", "granite", BYTES, "ibm-granite-granite-3.3-2B-Instruct.jinja", [
        "<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>"]),
    "SeedOssForCausalLM": ("Seed-OSS", "seed_oss", BYTES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Cohere2ForCausalLM": ("Command R7B, A", "cohere2", BYTES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Starcoder2ForCausalLM": ("StarCoder 2", "starcoder2", BYTES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GPT2LMHeadModel": ("GPT-2", "gpt2", BYTES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GPTNeoXForCausalLM": ("GPT-NeoX, Pythia", "gpt_neox", BYTES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "ArceeForCausalLM": ("AFM 4.5B", "arcee", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Jais2ForCausalLM": ("Jais 2", "jais2", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "CohereForCausalLM": ("Command R", "cohere", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "CohereCompassForCausalLM": ("North Micro Vision (text)", "cohere_compass", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "OpenAIGPTLMHeadModel": ("GPT", "openai_gpt", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GPTNeoForCausalLM": ("GPT-Neo", "gpt_neo", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GPTBigCodeForCausalLM": ("StarCoder", "gpt_bigcode", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "FalconForCausalLM": ("Falcon", "falcon_new", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "StableLmForCausalLM": ("StableLM", "stablelm", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "PersimmonForCausalLM": ("Persimmon", "persimmon", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "PhiForCausalLM": ("Phi 1, 1.5, 2", "phi", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GPTJForCausalLM": ("GPT-J", "gptj", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "CodeGenForCausalLM": ("CodeGen", "codegen", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "BioGptForCausalLM": ("BioGPT", "biogpt", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "CwmForCausalLM": ("CWM", "cwm", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Ernie4_5ForCausalLM": ("ERNIE 4.5 0.3B", "ernie4_5", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "HeliumForCausalLM": ("Helium 1", "helium", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "ExaoneForCausalLM": ("EXAONE 3", "exaone", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Exaone4ForCausalLM": ("EXAONE 4", "exaone4", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "HyperCLOVAXForCausalLM": ("HyperCLOVA X", "hyperclovax", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "OlmoForCausalLM": ("OLMo", "olmo", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "VaultGemmaForCausalLM": ("VaultGemma", "vaultgemma", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "NemotronForCausalLM": ("Nemotron, Minitron", "nemotron", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "HunYuanDenseV1ForCausalLM": ("Hunyuan", "hunyuan", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "NanoChatForCausalLM": ("nanochat", "nanochat", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "ApertusForCausalLM": ("Apertus", "apertus", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "BloomForCausalLM": ("BLOOM", "bloom", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "MptForCausalLM": ("MPT", "mpt", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "XGLMForCausalLM": ("XGLM", "xglm", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "CTRLLMHeadModel": ("CTRL", "ctrl", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GPTNeoXJapaneseForCausalLM": ("GPT-NeoX Japanese", "gpt_neox_japanese", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GraniteSWAForCausalLM": ("Granite SWA", "granite_swa", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "ModernBertDecoderForCausalLM": ("ModernBERT's decoder", "modernbert_decoder", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Lfm2ForCausalLM": ("LFM2, 2.5", "lfm2", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Qwen3_5ForCausalLM": ("Qwen 3.5 (text alone)", "qwen3_5", BYTES, "Qwen-Qwen3-0.6B.jinja", ["<|im_start|>", "<|im_end|>"]),
    "Qwen3_5ForConditionalGeneration": ("Qwen 3.5, 3.6, 3.8 (text)", "qwen3_5_multimodal", BYTES, "Qwen-Qwen3-0.6B.jinja", [
        "<|im_start|>", "<|im_end|>"]),
    "MixtralForCausalLM": ("Mixtral", "mixtral", PIECES, "mistralai-Mistral-Nemo-Instruct-2407.jinja", [
        "[INST]", "[/INST]", "</s>"]),
    "OlmoeForCausalLM": ("OLMoE", "olmoe", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Qwen2MoeForCausalLM": ("Qwen 2 MoE", "qwen2_moe", BYTES, "Qwen-Qwen2.5-7B-Instruct.jinja", ["<|im_start|>", "<|im_end|>"]),
    "Qwen3MoeForCausalLM": ("Qwen 3 MoE", "qwen3_moe", BYTES, "Qwen-Qwen3-0.6B.jinja", ["<|im_start|>", "<|im_end|>"]),
    "FalconForCausalLM ALiBi": ("Falcon RW", "falcon_rw", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Lfm3ForCausalLM": ("LFM3", "lfm3", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Emu3ForConditionalGeneration": ("Emu 3 (text)", "emu3_multimodal", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "FuyuForCausalLM": ("Fuyu (text)", "fuyu", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GotOcr2ForConditionalGeneration": ("GOT-OCR 2 (text)", "got_ocr2", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Gemma4ForCausalLM": ("Gemma 4", "gemma4", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Gemma4UnifiedForCausalLM": ("Gemma 4 12B", "gemma4_unified", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "Gemma4ForConditionalGeneration": ("Gemma 4 (text)", "gemma4_multimodal", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "FalconH1ForCausalLM": ("Falcon-H1", "falcon_h1", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "NemotronHForCausalLM": ("Nemotron-H", "nemotron_h", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GraniteMoeHybridForCausalLM": ("Granite 4", "granite_hybrid_experts", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "GptOssForCausalLM": ("gpt-oss", "gpt_oss", PIECES, CHATML, ["<|im_start|>", "<|im_end|>"]),
    "OPTForCausalLM": ("OPT", "opt_pre_norm", BYTES, CHATML, ["<|im_start|>", "<|im_end|>"]),
}


class Failed(Exception):
    pass


def check(good, what):
    if not good:
        raise Failed(what)


def temper(arguments, *words, stdin=None):
    done = subprocess.run([arguments.temper, *map(str, words)], input=stdin and stdin.encode(), capture_output=True, timeout=600)
    # Not text=True, which would change line ends of answers.
    said, log = done.stdout.decode(), done.stderr.decode()
    with open(arguments.work / "log.txt", "a", encoding="utf-8", newline="") as file:
        file.write(f"$ temper {' '.join(map(str, words))}\n{said}{log}\n")
    check(done.returncode == 0, f"temper {words[0]}: exit {done.returncode}: {log.strip().splitlines()[-1:]}")
    return said


def make_tokenizer(arguments, vocabulary, template, special, folder):
    # As its tokenizer.json says: transformers 5 would make that of a LlamaTokenizer anew, otherwise than families have it.
    made = transformers.PreTrainedTokenizerFast if vocabulary == PIECES else transformers.AutoTokenizer
    tokenizer = made.from_pretrained(arguments.data / "tokenizers" / vocabulary)
    tokenizer.add_special_tokens({"additional_special_tokens": [t for t in special if t not in tokenizer.get_vocab()]})
    tokenizer.eos_token = special[-1]
    if template != CHATML:
        tokenizer.chat_template = (arguments.data / "chat_templates" / template).read_text(encoding="utf-8")
    else:
        tokenizer.chat_template = None
    tokenizer.save_pretrained(folder)
    return tokenizer


def resized(name, tokenizer):
    """The settings of a model of model_zoo.py for a whole vocabulary and rows of ROW tokens."""
    family, settings = model_zoo.MODELS[name]
    needs_ids = family in ("emu3_text_model", "modernbert-decoder")  # their classes want numbers
    bos = 0 if family == "cwm" or needs_ids else None
    pad = 0 if needs_ids else None
    ids = dict(bos_token_id=bos, eos_token_id=tokenizer.eos_token_id, pad_token_id=pad)
    longest = {"mpt": "max_seq_len", "bloom": "seq_length", **dict.fromkeys(
        ("ctrl", "gpt2", "gpt_bigcode", "openai-gpt", "gptj", "codegen"), "n_positions")}.get(family, "max_position_embeddings")
    # Classes write defaults of their own into the parameters of rope that they are given.
    rope = copy.deepcopy(settings.get("rope_parameters", model_zoo.LLAMA["rope_parameters"]))
    settings = dict(settings, vocab_size=len(tokenizer), **ids, **{longest: ROW})
    # Longrope's long factors are for rows longer than this, in transformers for documents longer than this.
    if family not in ("gpt2", "gpt_bigcode", "gpt_neo", "openai-gpt", "opt", "biogpt", "gptj", "codegen", "bloom", "mpt",
                      "ctrl", "xglm", "modernbert-decoder", "nemotron_h"):
        settings["rope_parameters"] = rope
    if "vocab_size_per_layer_input" in settings:
        settings["vocab_size_per_layer_input"] = len(tokenizer)
    if "original_max_position_embeddings" in settings:
        settings["original_max_position_embeddings"] = ROW
    return family, settings


def make_model(name, tokenizer, folder):
    zoo = model_zoo.MODELS
    multimodal = model_zoo.MULTIMODAL | model_zoo.WALKED_ONLY
    text = multimodal[name][1] if name in multimodal else name
    kept = zoo[text]
    zoo[text] = resized(text, tokenizer)
    try:
        model = (model_zoo.build_multimodal if text != name else model_zoo.build)(name)
    finally:
        zoo[text] = kept
    # So that answers end where a user's model would end them.
    model.generation_config = transformers.GenerationConfig(eos_token_id=tokenizer.eos_token_id)
    model.save_pretrained(folder)


def ids_of(tokenizer, question):
    return tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_tensors="pt", return_dict=True).input_ids


def answers_of(model, tokenizer):
    texts = []
    for question in QUESTIONS:
        ids = ids_of(tokenizer, question)
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False,
                                 eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.eos_token_id)
        texts.append(tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True).strip())
    return texts


def same_text(ours, theirs):
    """Of bytes that are no text the program prints those that are, as they come; tokenizers replaces them together."""
    until = theirs.find("\ufffd")
    return ours == theirs if until < 0 else ours[:until] == theirs[:until]


def logits_of(model, tokenizer):
    with torch.no_grad():
        return torch.cat([model(input_ids=ids_of(tokenizer, q), use_cache=False).logits[0].float() for q in QUESTIONS])


def loss_of(model, samples):
    total = tokens = 0
    for sample in samples:
        ids, labels = torch.tensor([sample["input_ids"]]), torch.tensor(sample["labels"])
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
        total += torch.nn.functional.cross_entropy(logits, labels[1:], ignore_index=-100, reduction="sum").item()
        tokens += int((labels[1:] >= 0).sum())
    return total / tokens


def losses(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [row["loss"] for row in rows if "loss" in row]
    return rows[0], rows[-1]


def walk(arguments, name, row):
    title, zoo_name, vocabulary, template, special = row
    folder = arguments.work / name.replace(" ", "_")
    shutil.rmtree(folder, ignore_errors=True)
    base = folder / "base"
    base.mkdir(parents=True)
    tokenizer = make_tokenizer(arguments, vocabulary, template, special, base)
    make_model(zoo_name, tokenizer, base)
    data = arguments.work / "data.jsonl"
    chat = ["--chat_template", CHATML] if template == CHATML else []
    run = ["--data", data, "--max_seq_len", ROW, *chat]

    samples = [json.loads(line) for line in temper(arguments, "data", "preview", base, *run, "--json").splitlines()]
    chats = [json.loads(line)["messages"] for line in data.read_text(encoding="utf-8").splitlines()]
    check(len(samples) == len(chats), f"{len(samples)} samples of {len(chats)} rows")
    if template != CHATML:
        for sample, chat in zip(samples, chats):
            want = tokenizer.apply_chat_template(chat, return_dict=True)["input_ids"]
            ours = sample["input_ids"]  # up to the last token that counts
            blank = tokenizer.decode(want[len(ours):]).strip() == ""
            check(ours == want[:len(ours)] and blank, f"tokens {ours}, transformers {want}")
    result = {"title": title, "class": name.split()[0], "template": template.removesuffix(".jinja")}
    common = ["--model", base, *run, "--dtype", "f32", "--max_steps", 30, "--logging_steps", 1, "--save_steps", 0]
    for method, rate in (("lora", 2e-2), ("full", 2e-3)):
        out = folder / method
        temper(arguments, "train", *common, "--method", method, "--learning_rate", rate, "--output_dir", out)
        first, last = losses(out)
        check(last < first - 0.2, f"{method}: loss {first} to {last}")
        ours = [temper(arguments, "generate", out, "--chat", "--prompt", q, "--max_new_tokens", 24, "--dtype", "f32").strip()
                for q in QUESTIONS]
        said = temper(arguments, "chat", out, "--max_new_tokens", 24, "--dtype", "f32", stdin=QUESTIONS[0] + "\n")
        check(ours[0].splitlines()[0] in said if ours[0] else True, f"{method}: chat says {said!r}, generate {ours[0]!r}")
        model = model_zoo.load(base if method == "lora" else out)
        if method == "lora":
            model = peft.PeftModel.from_pretrained(model, out).eval()
        theirs_tokenizer = transformers.AutoTokenizer.from_pretrained(out)
        theirs = answers_of(model, theirs_tokenizer)
        check(all(map(same_text, ours, theirs)), f"{method}: answers {ours!r}, transformers {theirs!r}")
        loss = json.loads(temper(arguments, "eval", out, "--data", data, "--max_seq_len", ROW, "--dtype", "f32"))["eval_loss"]
        want = loss_of(model, samples)
        check(abs(loss - want) < 2e-5 * want, f"{method}: eval_loss {loss}, transformers {want}")
        result[method] = f"{first:.2f} → {last:.2f}"
        result[f"{method}_loss"] = abs(loss - want) / want
        if method == "lora":
            merged = folder / "merged"
            temper(arguments, "export", out, "--output_dir", merged)
            a, b = logits_of(model, theirs_tokenizer), logits_of(model_zoo.load(merged), theirs_tokenizer)
            result["merged"] = ((a - b).abs().max() / a.abs().max()).item()
            check(result["merged"] < 1e-5, f"merged: logits differ by {result['merged']:.1e}")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--temper", required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--only", nargs="*", choices=list(FAMILIES))
    arguments = parser.parse_args()
    arguments.temper = str(pathlib.Path(arguments.temper).resolve())
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore")
    arguments.work.mkdir(parents=True, exist_ok=True)
    (arguments.work / "log.txt").unlink(missing_ok=True)
    rows = json.loads((arguments.data / "datasets/llama-factory/identity.json").read_text(encoding="utf-8"))
    with open(arguments.work / "data.jsonl", "w", encoding="utf-8") as file:
        for row in rows:
            turns = [{"role": "user", "content": row["instruction"]}, {"role": "assistant", "content": row["output"]}]
            file.write(json.dumps({"messages": turns}) + "\n")

    failures = 0
    print("| family | class | chat template | LoRA: loss | full: loss | merged: logits | eval: loss |\n|---|---|---|---|---|---|---|")
    for name, row in FAMILIES.items():
        if arguments.only and name not in arguments.only:
            continue
        try:
            r = walk(arguments, name, row)
        except Exception as error:  # what transformers or PEFT does not load is a result, too
            failures += 1
            print(f"{name}: {str(error)[:1000]}", file=sys.stderr, flush=True)
            continue
        print(f"{name}: ok", file=sys.stderr, flush=True)
        print(f"| {r['title']} | `{r['class']}` | {r['template']} | {r['lora']} | {r['full']} | {r['merged']:.0e} | "
              f"{max(r['lora_loss'], r['full_loss']):.0e} |", flush=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
