#!/usr/bin/env python3
"""Trains the example's tokenizer on its data and writes the folder model/ but for the weights.

Byte-level BPE of 2,048 tokens, in the files that every tool reads. Needs `pip install tokenizers`; run it after
make_data.py. train_base.sh trains the weights.
"""
import json
import pathlib

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE / "model"
VOCABULARY = 2048
# Begin of a text, end of a turn, and whose turn it is.
SPECIAL = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"]
BEGIN, END = 0, 1

CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% for message in messages %}"
    "{% if message['role'] not in ['user', 'assistant'] %}"
    "{{ raise_exception('this model knows the roles user and assistant only') }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 160,
    "intermediate_size": 448,
    "num_hidden_layers": 5,
    "num_attention_heads": 5,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "initializer_range": 0.02,
    "bos_token_id": BEGIN,
    "eos_token_id": END,
    "torch_dtype": "bfloat16",
}


def texts():
    """What the base learns, and both voices, so that a pirate's words are as short in tokens as plain ones."""
    for name in ("base_train", "pirate_train", "chef_train"):
        for line in (HERE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            for message in json.loads(line)["messages"]:
                yield message["content"]


def write_json(name, value):
    (MODEL / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B", special_tokens=[("<|begin|>", BEGIN)]
    )
    assert tokenizer.get_vocab_size() == VOCABULARY, tokenizer.get_vocab_size()

    MODEL.mkdir(exist_ok=True)
    tokenizer.save(str(MODEL / "tokenizer.json"))
    write_json("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BEGIN],
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[END],
        "model_max_length": CONFIG["max_position_embeddings"],
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(i): {"content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                     "special": True}
            for i, token in enumerate(SPECIAL)
        },
        "chat_template": CHAT_TEMPLATE,
    })
    write_json("special_tokens_map.json",
               {"bos_token": SPECIAL[BEGIN], "eos_token": SPECIAL[END], "pad_token": SPECIAL[END]})
    write_json("generation_config.json", {"bos_token_id": BEGIN, "eos_token_id": END, "pad_token_id": END})
    write_json("config.json", CONFIG)
    count = sum(len(tokenizer.encode(text).ids) for text in texts())
    print(f"{VOCABULARY} tokens; the data is {count} of them")


if __name__ == "__main__":
    main()
