#!/usr/bin/env python3
"""Writes recipe_goldens.json: what LLaMA-Factory and Axolotl make of rows, by their own code: which tokens of turns stay
in rows that are too long, and the prompts of Axolotl's alpaca and of prompt styles of one's own.

usage: make_recipe_goldens.py FOLDER      # site-packages, or unpacked wheels of llamafactory and axolotl

The functions are taken out of the sources, so that neither has to be installed. src/data/long_rows_test.cc and
src/run/recipe_golden_test.cc compare.
"""
import ast, functools, json, pathlib, random, sys, types, typing

FOLDER = pathlib.Path(sys.argv[1])


def load(path, names, **given):
    """The classes and functions of these names from a source, in a namespace of their own."""
    tree = ast.parse((FOLDER / path).read_text())
    nodes = [n for n in tree.body if getattr(n, "name", None) in names]
    assert len(nodes) == len(names), path
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            node.decorator_list = []
    space = {**vars(typing), "Enum": __import__("enum").Enum, "partial": functools.partial, **given}
    exec(compile(ast.Module(nodes, []), path, "exec"), space)
    return space


def method(path, cls, name, **given):
    tree = ast.parse((FOLDER / path).read_text())
    (owner,) = [n for n in tree.body if getattr(n, "name", None) == cls]
    (node,) = [n for n in owner.body if getattr(n, "name", None) == name]
    space = {**vars(typing), **given}
    exec(compile(ast.fix_missing_locations(ast.Module([ast.parse("from __future__ import annotations").body[0], node], [])),
                 path, "exec"), space)
    return space[name]


def long_rows():
    infer = load("llamafactory/data/processor/processor_utils.py", ["infer_seqlen"])["infer_seqlen"]
    encode = method("llamafactory/data/processor/supervised.py", "SupervisedDatasetProcessor", "_encode_data_example",
                    infer_seqlen=infer, IGNORE_INDEX=-100)
    draw = random.Random(1)
    cases = []
    for _ in range(60):
        turns, token = [], 0
        for _ in range(draw.choice([1, 1, 2, 3])):
            lengths = [draw.choice([1, 3, 7, 20, 60]) + draw.randrange(5) for _ in range(2)]
            turns.append([list(range(token, token + lengths[0])),
                          list(range(token + lengths[0], token + sum(lengths)))])
            token += sum(lengths)
        room = draw.choice([8, 16, 33, 64])
        plugin = types.SimpleNamespace(process_messages=lambda m, *_: m, process_token_ids=lambda *_: ([], []))
        template = types.SimpleNamespace(mm_plugin=plugin, preserve_thinking=False, efficient_eos=False,
                                         encode_multiturn=lambda *_: turns)
        data = types.SimpleNamespace(mask_history=False, cutoff_len=room, train_on_prompt=False)
        processor = types.SimpleNamespace(template=template, data_args=data, tokenizer=None, processor=None)
        ids, labels = encode(processor, [], [], None, None, [], [], [])
        cases.append({"turns": [[len(p), len(a)] for p, a in turns], "room": room, "ids": ids,
                      "counts": [int(label != -100) for label in labels]})
    return cases


ROWS = [{"instruction": "Add.", "input": "1 and 2", "output": "3"}, {"instruction": "Say hi.", "output": "Hi"},
        {"instruction": "Say {hi}.", "input": "", "output": "Hi\n", "system": "Be \"short\"."},
        {"instruction": "Zähle.\nBitte", "input": "bis 3", "output": "1 2 3", "system": ""}]
STYLES = [{}, {"format": "[INST] {instruction} {input} [/INST]", "no_input_format": "[INST] {instruction} [/INST]"},
          {"system_prompt": "You help.", "system_format": "<<SYS>>{system}<</SYS>>\n", "format": "{input}\n\n{instruction}\n> ",
           "no_input_format": "{instruction}\n> "},
          {"field_instruction": "q", "field_input": "more", "field_output": "a", "field_system": "s",
           "format": "Q: {instruction}\n{{{input}}}\nA:", "no_input_format": "Q: {instruction}\nA:"},
          {"format": "{instruction}", "no_input_format": "{instruction}", "system_format": ""}]


def styles():
    logger = types.SimpleNamespace(getLogger=lambda *_: None)
    prompters = load("axolotl/prompters.py", ["PromptStyle", "Prompter", "AlpacaPrompter"], LOG=logger, REPR_TEMPLATE="")
    base = type("PromptTokenizingStrategy", (), {"__init__": lambda self, prompter, *_: setattr(self, "prompter", prompter)})
    system = load("axolotl/prompt_strategies/alpaca_w_system.py",
                  ["InstructionWSystemPromptTokenizingStrategy", "SystemDataPrompter"], PromptTokenizingStrategy=base,
                  IGNORE_INDEX=-100, **{k: prompters[k] for k in ("AlpacaPrompter", "PromptStyle")})
    tree = ast.parse((FOLDER / "axolotl/prompt_strategies/user_defined.py").read_text())
    space = {**vars(typing), "dataclass": __import__("dataclasses").dataclass, "partial": functools.partial, **system,
             "__name__": "user_defined"}
    sys.modules["user_defined"] = types.ModuleType("user_defined")
    exec(compile(ast.Module([n for n in tree.body if not isinstance(n, (ast.Import, ast.ImportFrom))], []), "user_defined",
                 "exec"), space)
    cases = []
    for style in STYLES:
        strategy = space["load"](None, types.SimpleNamespace(train_on_inputs=False, sequence_len=9),
                                 space["UserDefinedDatasetConfig"](**style))
        columns = {f: style.get("field_" + f, f) for f in ("instruction", "input", "output", "system")}
        for row in ROWS:
            row = {columns[k]: v for k, v in row.items()}
            instruction, given, output, of_system = strategy.parse_instruction_fields(row)
            prompt = next(iter(strategy.prompter.build_prompt_w_system(of_system, instruction, given)))
            cases.append({"type": style, "row": row, "prompt": prompt, "answer": output})
    alpaca = []
    prompter = prompters["AlpacaPrompter"]()
    for row in ROWS:
        prompt = next(iter(prompter.build_prompt(row["instruction"], row.get("input", ""))))
        alpaca.append({"row": {k: v for k, v in row.items() if k != "system"}, "prompt": prompt})
    return cases, alpaca


own, alpaca = styles()
goldens = {"long_rows": long_rows(), "styles": own, "alpaca": alpaca}
out = pathlib.Path(__file__).parent / "recipe_goldens.json"
out.write_text("{" + ",\n".join(f'"{key}": [\n' + ",\n".join(json.dumps(c) for c in cases) + "]"
                                for key, cases in goldens.items()) + "}\n")
