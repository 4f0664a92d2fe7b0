"""Trains the tiny tokenizers that the tests load from this folder, on the text below.

    pip install 'transformers==4.46.3' sentencepiece protobuf
    python tests/tokenizer/train_tiny.py
"""
import json
import os
import tempfile

import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = """
A tokenizer cuts a text into pieces and gives every piece a number. The pieces are learned: the program looks at a lot of
text, counts which two neighbours stand together most often, and makes one piece of them. Then it counts again. After some
hundred rounds the common words are pieces of their own, and the rare words are put together from parts.
Why not take letters? Because a model would have to read five times as many of them. Why not take words? Because there are
too many, and tomorrow somebody will write a new one. The parts between letters and words are a good compromise.
Does it matter where the spaces go? It does! "the cat" and " the cat" may begin with two different pieces. I don't like it,
you don't like it, they've learned to live with it, and we'll do the same. It's how it is; that's all there's to say.
Numbers: 1, 2, 3, 10, 42, 100, 365, 1000, 1984, 2024, 31415, 271828. Prices: 3.50, 12.99. Dates: 2024-02-29.
for (int i = 0; i < 10; ++i) {
    total += values[i];  // the sum of all values
}
def mean(values):
    return sum(values) / len(values)
Der Wald ist still, die Vögel schlafen. Où est la bibliothèque ? ¿Dónde está el perro? Über allen Gipfeln ist Ruh.
Кошка спит на окне. 猫は窓で寝ています。 고양이가 창가에서 잔다. 猫在窗边睡觉。 😀 😃 🚀
The river runs to the sea, and the sea is never full. The cook puts the pot on the fire, and the fire warms the pot.
Sailors know the wind, farmers know the rain, and both of them know how to wait. In the morning the mist lies on the water,
in the evening the light lies on the hills. A small boat with a red sail comes home before the night.
"""


def byte_level():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=640, special_tokens=["<|begin|>", "<|end|>", "<|pad|>"], show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(TEXT.split("\n"), trainer)
    tokenizer.add_tokens([AddedToken("<|sep|>", lstrip=True, rstrip=True), AddedToken("kobold", single_word=True)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A $B",
                                                             special_tokens=[("<|begin|>", 0)])
    folder = os.path.join(HERE, "tiny_byte_level")
    os.makedirs(folder, exist_ok=True)
    tokenizer.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    # The same as GPT-2's two files.
    folder = os.path.join(HERE, "tiny_gpt2")
    os.makedirs(folder, exist_ok=True)
    model = json.loads(tokenizer.to_str())["model"]
    with open(os.path.join(folder, "vocab.json"), "w") as f:
        json.dump(model["vocab"], f, ensure_ascii=False)
    with open(os.path.join(folder, "merges.txt"), "w") as f:
        f.write("#version: 0.2\n")
        for merge in model["merges"]:
            f.write((merge if isinstance(merge, str) else " ".join(merge)) + "\n")
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<|begin|>", "eos_token": "<|end|>",
                   "unk_token": "<|end|>", "pad_token": "<|pad|>", "add_bos_token": True}, f, indent=1)


def sentencepiece_style():
    """A BPE over whole texts with '▁' for a space and byte fallback, as Llama 2 has it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    # Words for training only: Llama 2 has no pre-tokenizer.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("▁"), "merged_with_next")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator([line for line in TEXT.split("\n") if line.isascii()], trainer)
    out = json.loads(tokenizer.to_str())
    out["pre_tokenizer"] = None
    out["added_tokens"] = [dict(t, normalized=False) for t in out["added_tokens"] if t["id"] < 3]
    out["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
    out["post_processor"] = {"type": "TemplateProcessing", "single": [
        {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    folder = os.path.join(HERE, "tiny_llama2")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(out, f, ensure_ascii=False)


def sentencepiece_model():
    folder = os.path.join(HERE, "tiny_sentencepiece")
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXT.strip().split("\n")), model_prefix=os.path.join(work, "m"), model_type="bpe",
            vocab_size=640, byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False,
            character_coverage=0.98, split_digits=True, minloglevel=2)
        with open(os.path.join(work, "m.model"), "rb") as f:
            model = f.read()
    with open(os.path.join(folder, "tokenizer.model"), "wb") as f:
        f.write(model)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
                   "add_bos_token": True, "add_eos_token": False, "legacy": False}, f, indent=1)


if __name__ == "__main__":
    byte_level()
    sentencepiece_style()
    sentencepiece_model()
