#!/usr/bin/env python3
"""Writes goldens.json: conversations rendered by transformers' apply_chat_template, with each family's own template.

    pip install transformers jinja2 && python tests/conversation/make_goldens.py DATA_FOLDER [TEMPLATE_FOLDER]

DATA_FOLDER is the folder of TEMPER_TEST_DATA: templates and vocabularies of published models. Families of the project
itself ("own"; among them the templates that come with the program) do not need it. If a family's vocabulary is missing, another replaces it, with the special tokens of the
family: the tests compare the template, its default system prompt and switches, and the beginning of spans.

With TEMPLATE_FOLDER, a folder of published templates that are not ours to copy, writes
TEMPLATE_FOLDER/goldens.json instead, which the test reads if TEMPER_TEST_TEMPLATES names that folder. Every *.jinja there
counts: ELSEWHERE names the tokens of some; of the others they are what looks like a marker in the template.

Per conversation: the ids of the prompt of every turn (from which generation starts), the ids of the conversation up to
and with every turn, and which of them are supervised. That is the mask of transformers if the template has
{% generation %} blocks; else the text after the prompt (where the turn does not begin with the prompt, from the turn's
reasoning, content or calls on), without white space after the token that ends the turn, or with EOS where no token ends it (docs/design/chat_spans.md).
src/data/conversation_golden_test.cc compares.
"""
import datetime
import json
import os
import re
import sys
import tempfile

import jinja2
import transformers
from transformers import GPT2Tokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer
from transformers.utils import chat_template_utils

DATE = datetime.datetime(2024, 7, 26)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLASSES = {"GPT2Tokenizer": GPT2Tokenizer, "Qwen2Tokenizer": Qwen2Tokenizer, "LlamaTokenizer": PreTrainedTokenizerFast}


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return DATE


chat_template_utils.datetime = FixedDate


def data(path):
    return {"data": path}


def own(path):
    return {"own": path}


def config_of(first_id, tokens, **roles):
    added = {str(first_id + i): {"content": t, "lstrip": False, "rstrip": False, "normalized": False,
                                 "single_word": False, "special": True} for i, t in enumerate(tokens)}
    return {"json": {"added_tokens_decoder": added, "tokenizer_class": "Qwen2Tokenizer", **roles}}


def family(template, vocabulary, config, stops, kwargs=({},), tools=False):
    files = dict(vocabulary)
    files["tokenizer_config.json"] = config
    files["generation_config.json"] = {"json": {"eos_token_id": stops}}
    files["chat_template.jinja"] = template
    return {"files": files, "kwargs": list(kwargs), "tools": tools}


QWEN = {"vocab.json": data("tokenizers/qwen2/vocab.json"), "merges.txt": data("tokenizers/qwen2/merges.txt")}
LLAMA3 = {"vocab.json": data("tokenizers/llama3/encoder.json"), "merges.txt": data("tokenizers/llama3/vocab.bpe")}
PHI3 = {"tokenizer.json": data("tokenizers/phi-3-mini/tokenizer.json")}
TINY = {"vocab.json": own("tests/tokenizer/tiny_gpt2/vocab.json"),
        "merges.txt": own("tests/tokenizer/tiny_gpt2/merges.txt")}
QWEN25_CONFIG, QWEN3_CONFIG = data("tokenizers/qwen2.5/tokenizer_config.json"), data("tokenizers/qwen3/tokenizer_config.json")
PHI3_CONFIG = data("tokenizers/phi-3-mini/tokenizer_config.json")
LLAMA3_TOKENS = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
                 "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>",
                 "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"]
LLAMA3_CONFIG = config_of(128000, LLAMA3_TOKENS, bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
CHATML_ON_LLAMA3 = config_of(128000, LLAMA3_TOKENS + ["<|im_start|>", "<|im_end|>"], eos_token="<|im_end|>",
                             bos_token="<|begin_of_text|>")
R1_TOKENS = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"]
GEMMA_TOKENS = ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"]
GRANITE_TOKENS = ["<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>"]
NEMO_TOKENS = ["[BOS]", "[EOS]",  # <s> and </s> are words of the replacement vocabulary
                "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"]
TINY_TOKENS = ["<|im_start|>", "<|im_end|>", "<|turn_end|>"]


def published(name):
    return data(f"chat_templates/{name}.jinja")


def tiny_size():
    with open(os.path.join(ROOT, TINY["vocab.json"]["own"])) as f:
        return len(json.load(f))


def tiny_config(**roles):
    config = config_of(tiny_size(), TINY_TOKENS, **roles)
    config["json"]["tokenizer_class"] = "GPT2Tokenizer"
    return config


# Our own templates, modelled on published ones.
CHATML_IN_BLOCKS = """{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}{% generation %}{{ m.content + '<|im_end|>\\n' }}{% endgeneration %}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
EOS_IN_A_BLOCK = """{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.role == 'assistant' %}{% generation %}{{ m.content + '<|turn_end|>\\n' }}{% endgeneration %}
    {%- else %}{{ m.content + '<|turn_end|>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
{%- else %}{% generation %}{{ eos_token }}{% endgeneration %}{% endif %}"""
# As OLMo 3's: EOS ends a conversation, another token a turn inside it; the prompt opens reasoning.
TWO_ENDS_IN_BLOCKS = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
    {%- if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token if loop.last else '<|turn_end|>\\n' }}{% endgeneration %}
    {%- else %}{{ m.content + '<|turn_end|>\\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>' }}{% endif %}"""
# As GLM-4's: only the header of the next message ends a turn.
HEADERS_ALONE = """{%- for m in messages %}{{ ('<|im_start|>' if m.role == 'user' else '<|turn_end|>') + '\\n' + m.content }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|turn_end|>\\n' }}{% endif %}"""
# As Cohere's: add_generation_prompt is ignored.
ALWAYS_A_HEADER = """{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{% endfor %}
{{- '<|im_start|>assistant\\n' }}"""
SWITCHES = """{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.role == 'assistant' and m.thinking and enable_thinking is not false %}{{ '(' + m.thinking + ')' }}{% endif %}
    {{- m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""



def shipped(name, markers=()):
    """A template that comes with the program, on a tokenizer with its markers."""
    with open(os.path.join(ROOT, TINY["vocab.json"]["own"])) as f:
        vocabulary = json.load(f)
    tokens = ["<s>", "</s>", *markers]
    config = config_of(tiny_size(), [t for t in tokens if t not in vocabulary], bos_token="<s>", eos_token="</s>")
    for known in set(tokens) & set(vocabulary):
        config["json"]["added_tokens_decoder"].update(config_of(vocabulary[known], [known])["json"]["added_tokens_decoder"])
    config["json"]["tokenizer_class"] = "GPT2Tokenizer"
    return family(own(f"examples/templates/{name}.jinja"), TINY, config, [])


FAMILIES = {
    "own: a header behind every conversation": family({"text": ALWAYS_A_HEADER}, TINY, tiny_config(eos_token="<|im_end|>"), []),
    "own: alpaca": shipped("alpaca"),
    "own: chatml": shipped("chatml", ["<|im_start|>", "<|im_end|>"]),
    "own: gemma": shipped("gemma", ["<start_of_turn>", "<end_of_turn>"]),
    "own: llama2": shipped("llama2"),
    "own: llama3": shipped("llama3", ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    "own: mistral": shipped("mistral", ["[INST]", "[/INST]"]),
    "own: phi3": shipped("phi3", ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]),
    "own: phi4": shipped("phi4", ["<|im_start|>", "<|im_sep|>", "<|im_end|>"]),
    "own: zephyr": shipped("zephyr"),
    "own: blocks that end in white space": family({"text": CHATML_IN_BLOCKS}, TINY, tiny_config(eos_token="<|im_end|>"), []),
    "own: eos in a block of its own": family({"text": EOS_IN_A_BLOCK}, TINY, tiny_config(eos_token="<|im_end|>"),
                                             [tiny_size() + 2]),
    "own: blocks with two ends": family({"text": TWO_ENDS_IN_BLOCKS}, TINY, tiny_config(eos_token="<|im_end|>"), [tiny_size() + 2]),
    "own: headers alone": family({"text": HEADERS_ALONE}, TINY, tiny_config(eos_token="<|im_end|>"), [tiny_size()]),
    "own: switches, system prompt, reasoning": family({"text": SWITCHES}, TINY, tiny_config(eos_token="<|im_end|>"), [],
                                                      ({}, {"enable_thinking": False})),
    "Qwen2.5": family(published("Qwen-Qwen2.5-7B-Instruct"), QWEN, QWEN25_CONFIG, [151645, 151643], tools=True),
    "Qwen3": family(published("Qwen-Qwen3-0.6B"), QWEN, QWEN3_CONFIG, [151645, 151643],
                    ({}, {"enable_thinking": False}), tools=True),
    "QwQ": family(published("Qwen-QwQ-32B"), QWEN, QWEN25_CONFIG, [151645, 151643]),
    "Phi-3": family({"config": "chat_template"}, PHI3, PHI3_CONFIG, [32007, 32001, 32000]),
    "Phi-3.5": family(published("microsoft-Phi-3.5-mini-instruct"), PHI3, PHI3_CONFIG, [32007, 32001, 32000]),
    "Llama 3.1": family(published("meta-llama-Llama-3.1-8B-Instruct"), LLAMA3, LLAMA3_CONFIG, [128001, 128008, 128009],
                        ({}, {"date_string": "1 May 2025"})),
    "Llama 3.2": family(published("meta-llama-Llama-3.2-3B-Instruct"), LLAMA3, LLAMA3_CONFIG, [128001, 128008, 128009],
                        ({}, {"date_string": "1 May 2025"})),
    "Llama 3.3": family(published("meta-llama-Llama-3.3-70B-Instruct"), LLAMA3, LLAMA3_CONFIG, [128001, 128008, 128009]),
    "SmolLM3": family(published("HuggingFaceTB-SmolLM3-3B"), LLAMA3, CHATML_ON_LLAMA3, 128012,
                      ({}, {"enable_thinking": False})),
    "Hermes 3": family(published("NousResearch-Hermes-3-Llama-3.1-8B-tool_use"), LLAMA3, CHATML_ON_LLAMA3, [128012, 128001],
                       tools="only"),
    "R1 distillate": family(published("deepseek-ai-DeepSeek-R1-Distill-Llama-8B"), LLAMA3,
                            config_of(128000, R1_TOKENS, bos_token=R1_TOKENS[0], eos_token=R1_TOKENS[1]), 128001),
    "Gemma 2": family(published("google-gemma-2-2b-it"), QWEN,
                      config_of(151643, GEMMA_TOKENS, bos_token="<bos>", eos_token="<eos>"), [151644, 151646]),
    "Granite 3.3": family(published("ibm-granite-granite-3.3-2B-Instruct"), QWEN,
                          config_of(151643, GRANITE_TOKENS, bos_token="<|end_of_text|>", eos_token="<|end_of_text|>"), 151643,
                          ({}, {"thinking": True})),
    "Mistral Nemo": family(published("mistralai-Mistral-Nemo-Instruct-2407"), QWEN,
                           config_of(151643, NEMO_TOKENS, bos_token="[BOS]", eos_token="[EOS]"), 151644, tools=True),
}

TWO_TURNS = [{"role": "user", "content": "How far is the moon?"}, {"role": "assistant", "content": "Far away."},
             {"role": "user", "content": "And the sun?\nTell me."},
             {"role": "assistant", "content": "Further still: light takes eight minutes.\n\nSee?"}]
CONVERSATIONS = {
    "two turns": (TWO_TURNS, None),
    "system": ([{"role": "system", "content": "Answer in one word."}] + TWO_TURNS, None),
    "reasoning": ([TWO_TURNS[0], {**TWO_TURNS[1], "reasoning_content": "The user asks a distance."}, TWO_TURNS[2],
                   {**TWO_TURNS[3], "thinking": "A longer one."}], None),
    "tools": ([{"role": "user", "content": "Weather in Rome?"},
               {"role": "assistant", "content": "", "tool_calls": [
                   {"type": "function", "function": {"name": "weather", "arguments": {"city": "Rome", "when": None}}}]},
               {"role": "tool", "name": "weather", "content": "sunny"},
               {"role": "assistant", "content": "It is sunny."}],
              [{"type": "function", "function": {"name": "weather", "description": "Tells the weather", "parameters": {
                  "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]),
}
# With the ids that Mistral's templates want.
CONVERSATIONS["system and tools"] = (
    [{"role": "system", "content": "Be brief."}, CONVERSATIONS["tools"][0][0],
     {**CONVERSATIONS["tools"][0][1], "tool_calls": [{"id": "abcdefghi", **CONVERSATIONS["tools"][0][1]["tool_calls"][0]}]},
     {**CONVERSATIONS["tools"][0][2], "tool_call_id": "abcdefghi"}, CONVERSATIONS["tools"][0][3]],
    CONVERSATIONS["tools"][1])


# Only for the templates of a folder: tests/conversation/goldens.json stays small.
def call(call_id, arguments):
    return {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def answer(call_id, content):
    return {"role": "tool", "name": "weather", "tool_call_id": call_id, "content": content}


def says(role, content, **more):
    return {"role": role, "content": content, **more}


ROME = [says("user", "Weather in Rome?"), answer("abcdefghi", "sunny"), says("assistant", "It is sunny."),
        says("user", "Thanks.")]
IN_ROME = [call("abcdefghi", {"city": "Rome"})]
MORE_CONVERSATIONS = {
    "one turn": ([says("user", "Hi there."), says("assistant", "Hello!")], None),
    "unicode": ([says("user", "Grüße, 你好 😀 <b>&\"'"), says("assistant", "Ça va, 再见 🎉 <i>&\"quoted\"</i> \\n"),
                 says("user", "ok"), says("assistant", "Bien sûr, 好.")], None),
    "thoughts in the content": ([says("user", "What is 1+1?"), says("assistant", "<think>\nEasy sum.\n</think>\n\nIt is two."),
                                 says("user", "And 2+2?"),
                                 says("assistant", "<think>\nHarder one.\n</think>\n\nIt is four.")], None),
    "reasoning in every turn": ([says("user", "What is 1+1?"), says("assistant", "It is two.", reasoning_content="Easy sum."),
                                 says("user", "And 2+2?"),
                                 says("assistant", "It is four.", reasoning_content="Harder one.")], None),
    "empty answer": ([says("user", "Say nothing."), says("assistant", ""), says("user", "Good."),
                      says("assistant", "Thanks, really.")], None),
    "white space": ([says("user", "  Hi \n"), says("assistant", " Hello there. \n"), says("user", "Bye\n\n"),
                     says("assistant", "\n\nSee you. ")], None),
    "words beside a call": ([ROME[0], says("assistant", "Let me look.", tool_calls=IN_ROME), *ROME[1:3]],
                            CONVERSATIONS["tools"][1]),
    "parallel calls": ([says("user", "Weather in Rome and Köln?"),
                        says("assistant", "", tool_calls=[
                            call("abcdefghi", {"city": "Rome", "days": 2}),
                            call("abcdefghj", {"city": "Köln", "deep": {"x": [1, 2.5, True, None, 'é"q']}})]),
                        ROME[1], answer("abcdefghj", '{"rain": true}'), says("assistant", "Sun and rain."), ROME[3],
                        says("assistant", "Welcome!")], CONVERSATIONS["tools"][1]),
    "reasoning before a call": ([ROME[0], says("assistant", "", reasoning_content="I need a tool.", tool_calls=IN_ROME), ROME[1],
                                 says("assistant", "It is sunny.", reasoning_content="The tool answered."), ROME[3],
                                 says("assistant", "Any time.", reasoning_content="Be polite.")], CONVERSATIONS["tools"][1]),
}
# In the published templates of a folder: markers, which become tokens, and those of them that end an assistant's turn.
MARKER = re.compile(r"<\|[^|<>\s'\"]+\|?>|<[^|<>\s'\"/]+\|>|<｜[^｜<>\s]+｜>|</?[a-z_]+(?::[a-z_]+)?>|<SPECIAL_\d+>"
                    r"|\[/?[A-Z_]{3,}\]|\[gMASK\]|\[\|[a-z]+\|\]|\]~!?b\[?\]?|\[e~\[")
TURN_ENDS = ["<|return|>", "<|im_end|>", "<|eot_id|>", "<|end_of_sentence|>", "<turn|>", "<end_of_turn>", "<|END_OF_TURN_TOKEN|>",
             "<|assistant_end|>", "<|end_of_text|>", "<seed:eos>", "<｜end▁of▁sentence｜>", "<SPECIAL_12>", "[e~[", "[|endofturn|]",
             "<end_of_sentence>", "<|endoftext|>"]
SWITCHES_OF_TEMPLATES = {"enable_thinking": [False, True], "thinking": [True], "reasoning_effort": ["low"], "thinking_budget": [0, 512],
                         "preserve_thinking": [True, False], "clear_thinking": [False], "keep_past_thinking": [True],
                         "truncate_history_thinking": [False]}


def found(folder, name):
    """A family made of a template alone: its markers are tokens, and so is a line end, which then merges with none."""
    with open(os.path.join(folder, name)) as f:
        source = f.read()
    markers = sorted(set(MARKER.findall(source)) - {"<s>", "</s>"})  # words of the replacement vocabulary
    eos = next((t for t in TURN_ENDS if t in markers), "[EOS]")
    tokens = [t for t in markers if t not in ("[BOS]", eos)] + ["[BOS]", eos]
    config = config_of(151643, tokens, bos_token="[BOS]", eos_token=eos)
    config["json"]["added_tokens_decoder"].update(config_of(151643 + len(tokens), ["\n"])["json"]["added_tokens_decoder"])
    config["json"]["added_tokens_decoder"][str(151643 + len(tokens))]["special"] = False
    kwargs = [{}] + [{switch: value} for switch, values in SWITCHES_OF_TEMPLATES.items() for value in values
                     if re.search(rf"(?<![\w.'\"]){switch}\b(?!\w|['\"])", source)]
    return family({"template": name}, QWEN, config, [151643 + len(tokens) - 1], kwargs, tools="tools" in source)


def elsewhere(name, tokens, bos=None, stops=None, **switches):
    """A family whose template lies in TEMPLATE_FOLDER. Its tokens are added to Qwen's vocabulary; the last one is EOS."""
    config = config_of(151643, tokens, eos_token=tokens[-1], **({"bos_token": bos} if bos else {}))
    return family({"template": f"{name}.jinja"}, QWEN, config, stops or [151643 + len(tokens) - 1], **switches)


GEMMA_ENDS = {"tokens": ["<bos>", "<start_of_turn>", "<end_of_turn>", "<eos>"], "bos": "<bos>", "stops": [151645, 151646]}
# The first Mistrals: [INST] is no token of its own there, and Llama 2's vocabulary, which Phi-3 has, is close to theirs.
MISTRAL_CONFIG = {"json": {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}}
# In later ones it is; their <s> and </s> are words of the replacement vocabulary.
MISTRAL_ENDS = {"tokens": ["[BOS]", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[SYSTEM_PROMPT]",
                           "[/SYSTEM_PROMPT]", "[THINK]", "[/THINK]", "[EOS]"], "bos": "[BOS]"}
OLMO_ENDS = {"tokens": ["<|im_start|>", "<|im_end|>", "<|endoftext|>"], "stops": [151644, 151645]}
COHERE_ENDS = {"tokens": ["<BOS_TOKEN>", "<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>", "<|SYSTEM_TOKEN|>",
                          "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|END_OF_TURN_TOKEN|>"], "bos": "<BOS_TOKEN>"}
PHI4_ENDS = {"tokens": ["<|im_start|>", "<|im_sep|>", "<|im_end|>"], "stops": [151645, 151643]}
ELSEWHERE = {
    "Gemma 1": elsewhere("gemma", **GEMMA_ENDS),
    "Gemma 1, in blocks": elsewhere("gemma_training", **GEMMA_ENDS),
    "Gemma 3": elsewhere("gemma3", **GEMMA_ENDS),
    "Gemma 3, in blocks": elsewhere("gemma3_training", **GEMMA_ENDS),
    "Mistral 7B v0.1": family({"template": "mistral_v0.jinja"}, PHI3, MISTRAL_CONFIG, 2),
    "Mistral 7B v0.2": family({"template": "mistral_v1.jinja"}, PHI3, MISTRAL_CONFIG, 2),
    "Mistral 7B v0.3": elsewhere("mistral_v3", **MISTRAL_ENDS),
    "Mistral Large 2411": elsewhere("mistral_v7", **MISTRAL_ENDS),
    "Mistral Small 3.2": elsewhere("mistral_small", **MISTRAL_ENDS),
    "Ministral 3": elsewhere("ministral3", **MISTRAL_ENDS),
    "Phi-4": elsewhere("phi4", **PHI4_ENDS),
    "Phi-4 reasoning, in blocks": elsewhere("phi4_reasoning", **PHI4_ENDS),
    "OLMo 2": elsewhere("olmo2", ["<|endoftext|>"], bos="<|endoftext|>"),
    "OLMo 3": elsewhere("olmo3_instruct", **OLMO_ENDS),
    "OLMo 3 Think": elsewhere("olmo3_think", **OLMO_ENDS),
    "OLMo 3, in blocks": elsewhere("olmo3_training", **OLMO_ENDS),
    "GLM-4": elsewhere("glm4", ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"],
                       stops=[151646, 151648, 151649]),
    "Cohere 2": elsewhere("cohere2", **COHERE_ENDS),
    "Cohere 2, in blocks": elsewhere("cohere2_training", **COHERE_ENDS),
    "Command R7B": elsewhere("command_r7b", **COHERE_ENDS),
    "Seed-OSS": elsewhere("seed_oss", ["<seed:bos>", "<seed:think>", "</seed:think>", "<seed:eos>"], bos="<seed:bos>",
                          kwargs=({}, {"thinking_budget": 0}, {"thinking_budget": 512})),
}


class CrossedBorder(Exception):
    """A golden of ids cannot say where the turn begins: we cut the token there, transformers does not."""


def content_of(source, roots, files):
    if "json" in source:
        return json.dumps(source["json"])
    if "text" in source:
        return source["text"]
    if "config" in source:
        return json.loads(content_of(files["tokenizer_config.json"], roots, files))[source["config"]]
    kind, path = next(iter(source.items()))
    with open(os.path.join(roots[kind], path)) as f:
        return f.read()


def has_blocks(tokenizer):
    return re.search(r"{%-?\s*generation", tokenizer.chat_template) is not None


def shared(a, b):
    """How many characters both begin with, without a marker or word of which they share only the beginning."""
    n = len(os.path.commonprefix([a, b]))
    for text in (a, b):
        for pattern in (MARKER, re.compile(r"\w+")):
            n = min([n] + [m.start() for m in pattern.finditer(text) if m.start() < n < m.end()])
    return n


def is_silent(message):
    """Such an answer is not trained."""
    return message["role"] == "assistant" and not any(message.get(key) for key in ("content", "tool_calls", "reasoning_content"))


def turn_of(tokenizer, messages, i, options):
    """The prompt of turn i, the text with it, and which of the text's ids are supervised for this turn."""
    def render(n, prompt):
        return tokenizer.apply_chat_template(messages[:n], add_generation_prompt=prompt, tokenize=False, **options)

    def encode(text):
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    prompt, full = render(i, True), render(i + 1, False)
    eos, behind = tokenizer.eos_token, ""
    if full == render(i + 1, True) and eos in full:  # perhaps with the header of the next turn, which the model does not write
        behind = full[full.rindex(eos) + len(eos):]
        behind = behind if behind.strip() and prompt.endswith(behind) else ""
        full = full[:len(full) - len(behind)]
    silent = is_silent(messages[i])
    if has_blocks(tokenizer):
        out = tokenizer.apply_chat_template(messages[:i + 1], return_assistant_tokens_mask=True, return_dict=True, **options)
        before = tokenizer.apply_chat_template(messages[:i], add_generation_prompt=True, return_assistant_tokens_mask=True,
                                               return_dict=True, **options)
        ids, mask = out["input_ids"], out["assistant_masks"]
        # Not the prompt's length: it may end in what the turn lacks (OLMo 3's <think>).
        first = len(os.path.commonprefix([before["input_ids"], ids]))
        return {"prompt": before["input_ids"], "ids": ids, "learnt": [] if silent else [k for k in range(first, len(ids)) if mask[k]]}
    content = messages[i]["content"]
    if full.startswith(prompt):
        text, begin = full, len(prompt)
    else:
        before = render(i, False)
        if behind and before.endswith(behind):
            before = before[:-len(behind)]
        if before.endswith(eos):
            before = before[:-len(eos)]
        header = prompt[len(render(i, False)):] if prompt.startswith(render(i, False)) else ""
        said = content.strip()
        at = full.rindex(said) if said and said in full else len(full)
        try:  # where it begins to depend on what is said
            other = tokenizer.apply_chat_template(messages[:i] + [{"role": "assistant", "content": "@"}], tokenize=False, **options)
            at = min(at, shared(full, other))
        except jinja2.TemplateError:  # a turn that must call
            pass
        stands = full.startswith(before)
        last_words = messages[i - 1]["content"].strip()
        start = full.rfind(header, max(full.rfind(last_words, 0, at), 0), at) if header else -1
        if start >= 0:
            at = start + len(header)
        elif stands and full[shared(prompt, full):at].strip():
            at = min(at, max(shared(prompt, full), len(before)))
        text, begin = (full, at) if stands else (prompt + full[at:], len(prompt))
    end, words = len(text.rstrip()), (content or "").split("</think>")[-1].strip()
    open_end = bool(words) and text[:end].endswith(words)  # nothing ends the turn (GLM-4): its white space counts, EOS is added
    end = len(text) if open_end else end
    head, ids = encode(text[:begin]), encode(text[:end])
    if ids[:len(head)] != head:
        raise CrossedBorder(f"a token crosses the border at {text[:begin][-40:]!r}: choose other words")
    if open_end:
        ids.append(tokenizer.eos_token_id)
    silent = silent or not content and text[begin:end].strip() == eos  # a template that prints no calls
    return {"prompt": encode(prompt), "ids": ids, "learnt": [] if silent else list(range(len(head), len(ids)))}


def check_published(root):
    """That the shipped templates print what the published ones of their families print, default system prompts aside."""
    def both(name, of, conversation):
        out = []
        for path in (os.path.join(ROOT, f"examples/templates/{name}.jinja"), os.path.join(root, f"chat_templates/{of}.jinja")):
            with open(path) as f:
                template = chat_template_utils._compile_jinja_template(f.read())
            out.append(template.render(messages=CONVERSATIONS[conversation][0], bos_token="<B>", eos_token="<E>",
                                       add_generation_prompt=False))
        return out
    ours, theirs = both("gemma", "google-gemma-2-2b-it", "two turns")
    assert ours == theirs, (ours, theirs)
    ours, theirs = both("chatml", "Qwen-Qwen2.5-7B-Instruct", "system")
    assert ours == "<B>" + theirs, (ours, theirs)
    ours, theirs = both("phi3", "microsoft-Phi-3.5-mini-instruct", "system")
    assert ours + "<E>" == "<B>" + theirs, (ours, theirs)
    ours, theirs = both("llama3", "meta-llama-Llama-3.1-8B-Instruct", "system")
    users = "<|start_header_id|>user"
    assert ours[ours.index(users):] == theirs[theirs.index(users):], (ours, theirs)


def main():
    roots = {"data": sys.argv[1], "own": ROOT}
    families, out_folder = FAMILIES, os.path.dirname(os.path.abspath(__file__))
    if len(sys.argv) > 2:
        out_folder = sys.argv[2]
        roots["template"] = out_folder
        names = sorted(name for name in os.listdir(out_folder) if name.endswith(".jinja"))
        families = {name: spec for name, spec in ELSEWHERE.items() if spec["files"]["chat_template.jinja"]["template"] in names}
        named = {spec["files"]["chat_template.jinja"]["template"] for spec in families.values()}
        families.update({name[:-len(".jinja")]: found(out_folder, name) for name in names if name not in named})
        CONVERSATIONS.update(MORE_CONVERSATIONS)
    else:
        check_published(roots["data"])
    goldens, crossed = [], 0
    for name, spec in families.items():
        with tempfile.TemporaryDirectory() as folder:
            for file, source in spec["files"].items():
                with open(os.path.join(folder, file), "w") as f:
                    f.write(content_of(source, roots, spec["files"]))
            config = json.loads(content_of(spec["files"]["tokenizer_config.json"], roots, spec["files"]))
            tokenizer = CLASSES[config["tokenizer_class"]].from_pretrained(folder)
            eos = spec["files"]["generation_config.json"]["json"]["eos_token_id"]
            stops = sorted(set(eos if isinstance(eos, list) else [eos]) | {tokenizer.eos_token_id})
            cases = []
            for title, (messages, tools) in CONVERSATIONS.items():
                if spec["tools"] == "only" if tools is None else not spec["tools"]:
                    continue
                for kwargs in spec["kwargs"]:
                    options = dict(kwargs, **({"tools": tools} if tools else {}))
                    turns = [i for i, m in enumerate(messages) if m["role"] == "assistant"]
                    try:
                        made = [turn_of(tokenizer, messages, i, options) for i in turns]
                    except CrossedBorder as error:
                        assert len(sys.argv) > 2, error
                        crossed += 1
                        continue
                    except Exception as error:  # raised by the template: Gemma has no system messages
                        if "jinja2" not in type(error).__module__ and not (len(sys.argv) > 2 and isinstance(error, TypeError)):
                            raise
                        print(name, title, "refused:", error)
                        cases.append({"title": title, "kwargs": kwargs, "refused": True})
                        continue
                    case = {"title": title, "kwargs": kwargs, "turns": made}
                    if has_blocks(tokenizer) and not any(map(is_silent, messages)):
                        whole = tokenizer.apply_chat_template(messages, return_assistant_tokens_mask=True, return_dict=True,
                                                              **options)
                        # Else earlier turns are printed otherwise, and each is a sample of its own.
                        if all(whole["input_ids"][:turn["learnt"][-1]] == turn["ids"][:turn["learnt"][-1]] for turn in made):
                            case["mask"] = whole["assistant_masks"]
                    cases.append(case)
            goldens.append({"family": name, "files": spec["files"], "stop_ids": stops, "cases": cases})
    out = {"made_with": {"transformers": transformers.__version__}, "date": DATE.strftime("%Y-%m-%d"),
           "conversations": {title: {"messages": m, "tools": t} for title, (m, t) in CONVERSATIONS.items()},
           "families": goldens}
    print(f"{len(goldens)} templates, {sum(len(f['cases']) for f in goldens)} conversations; "
          f"{crossed} more in which a token crosses a border are not compared")
    text = json.dumps(out, ensure_ascii=False, separators=(",", ":"))
    for mark in ('{"family"', '{"title"', '"conversations"', '"families"'):
        text = text.replace(mark, "\n" + mark)
    with open(os.path.join(out_folder, "goldens.json"), "w") as f:
        f.write(text + "\n")


if __name__ == "__main__":
    main()
