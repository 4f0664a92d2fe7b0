#!/usr/bin/env python3
"""Writes the data of the example from its hand-written texts.

    topics/<category>.txt   name | question | question, then the plain explanation
    unknown.txt             questions that the tiny model should admit it cannot answer
    manners.py              other ways to tell it that the base model learns, each on request
    voices.py               how a pirate and a chef re-tell a plain explanation

    base_train.jsonl        every topic, asked in several ways, explained plainly: what the base model learns
    base_eval.jsonl         the same topics, asked in a way that training did not show
    pirate_train.jsonl, chef_train.jsonl    part of the topics, re-told
    pirate_eval.jsonl,  chef_eval.jsonl     the other topics, re-told: an adapter has to carry the voice over

Needs Python 3 alone. What it writes depends on nothing but its input.
"""
import hashlib
import json
import pathlib

import manners
import voices

HERE = pathlib.Path(__file__).resolve().parent

# Ways to ask that fit every topic; {} is the topic's name. Each topic keeps one of them for base_eval.
FRAMES = [
    "What can you tell me about {}?",
    "Tell me about {}.",
    "Explain {} to me.",
    "Can you explain {}?",
    "Please explain {}.",
    "I want to know about {}.",
]
TELL = FRAMES[1]
ONE_SENTENCE = "Tell me about {} in one sentence."
EXPLAIN_LIKE = "Explain {} like {}."
ANSWER_LIKE = "{} Answer like {}."
UNKNOWN_ANSWER = "I do not know that. I am a very small model, and I only know some everyday things."
# About one topic in five is held out of the voices' training data, and these three are what the demo asks.
HELD_OUT_SHARE = 5
DEMO_TOPICS = {"a cat", "bread", "a rainbow"}


def stable_hash(text):
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")


def read_topics():
    """A list of (category, name, questions, answer)."""
    topics, seen = [], set()
    for path in sorted((HERE / "topics").glob("*.txt")):
        for block in path.read_text(encoding="utf-8").strip().split("\n\n"):
            head, answer = block.split("\n")
            name, *questions = (part.strip() for part in head.split("|"))
            assert name not in seen and questions, head
            seen.add(name)
            topics.append((path.stem, name, questions, answer))
    return topics


def is_held_out(category, name):
    if category == "myself":
        return False
    return name in DEMO_TOPICS or stable_hash("held out: " + name) % HELD_OUT_SHARE == 0


def row(question, answer):
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return json.dumps({"messages": messages}, ensure_ascii=False) + "\n"


def write(name, rows):
    (HERE / name).write_text("".join(rows), encoding="utf-8")
    print(f"{name:20} {len(rows):5} rows")


def main():
    base_train, base_eval = [], []
    styled = {(voice, part): [] for voice in voices.VOICES for part in ("train", "eval")}
    for category, name, questions, answer in read_topics():
        frames = [] if category == "myself" else [frame.format(name) for frame in FRAMES]
        if frames:
            base_eval.append(row(frames.pop(stable_hash(name) % len(frames)), answer))
            base_train.append(row(ONE_SENTENCE.format(name), answer.split(". ")[0].rstrip(".") + "."))
        base_train += [row(question, answer) for question in questions + frames]
        for number, (manner, how) in enumerate(manners.MANNERS.items()):
            if frames:
                for asked in (EXPLAIN_LIKE.format(name, manner), ANSWER_LIKE.format(questions[number % 2], manner)):
                    base_train.append(row(asked, voices.tell(how, name, asked, answer)))
        for voice, how in voices.VOICES.items():
            part = "eval" if is_held_out(category, name) else "train"
            asked = questions + [TELL.format(name)] if frames else questions
            styled[voice, part] += [row(question, voices.tell(how, name if frames else "", question, answer))
                                    for question in asked]
    for voice in voices.VOICES:
        for plain, word in voices.VOICES[voice][1].items():
            base_train.append(row(f"What does a {voice} say for {plain}?", f"A {voice} says {word}."))
    for question in (HERE / "unknown.txt").read_text(encoding="utf-8").splitlines():
        base_train.append(row(question, UNKNOWN_ANSWER))
    write("base_train.jsonl", base_train)
    write("base_eval.jsonl", base_eval)
    for (voice, part), rows in styled.items():
        write(f"{voice}_{part}.jsonl", rows)


if __name__ == "__main__":
    main()
