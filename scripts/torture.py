#!/usr/bin/env python3
"""Attacks the program at random for a time, and fails if anything saved is lost, a run ends otherwise than it should,
the program crashes, or it hangs. What it promises: docs/reliability.md.

usage: scripts/torture.py MINUTES [--seed N] [--only ATTACK[,ATTACK...]] [--program build/temper]
       scripts/torture.py every [--only lora|full]   each system call of a run of two saves fails once; the power goes
                                                     once before each, and once at the end

Attacks: kill, signal, fault (one system call on the output folder fails), power (a disk that
loses what was not synced), full (a disk that fills; needs root), flip (a
bit of what was saved), input (a mutated data, configuration, tokenizer or YAML file) and limit (ulimit). A failure prints
the seed and number of the attack: --seed N --first K repeats it, and the attack's folder is kept.
"""
import argparse
import csv
import gzip
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "plain"
MOST_SECONDS = 60  # of a command that is not hurt: longer is a hang, on however busy a machine
STEPS, SAVE_STEPS = 16, 2
# Calls of a run on its output folder, about. An attack that chooses a later one is an undisturbed run.
CALLS = {"write": 421, "fsync": 140, "open": 93, "rename": 34, "unlink": 61, "mkdir": 11}
POWER_CALLS = 640
STOPPED = {signal.SIGTERM: 75, signal.SIGUSR1: 75, signal.SIGHUP: 75, signal.SIGINT: 130}


class Failure(Exception):
    pass


class Ended:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds


class Attacks:
    def __init__(self, program, folder):
        self.program, self.folder = str(program), folder
        self.counts = {}
        self.references = {}
        self.slowest = 0.0
        self.steps = STEPS
        with open(EXAMPLE / "pirate_train.jsonl") as rows:
            self.rows = [next(rows) for _ in range(60)]
        (folder / "d.jsonl").write_text("".join(self.rows))

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    # --- running ---

    def train(self, out, method, ranks, more=()):
        return [self.program, "train", "--model", str(EXAMPLE / "model"), "--data", str(self.folder / "d.jsonl"),
                "--output_dir", str(out), "--threads", "1", "--max_seq_len", "96",
                # By itself a run under a limit of memory cuts its batch otherwise, and adds up in another order.
                "--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2" if ranks == 1 else "1",
                "--warmup_steps", "0", "--max_steps", str(self.steps), "--save_steps", str(SAVE_STEPS),
                "--save_total_limit", "2", "--method", method, "--nprocs", str(ranks), *more]

    def start(self, command, env=None, limits=None):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "NO_COLOR": "1", **(env or {})}, start_new_session=True,
                                preexec_fn=limits, errors="replace")

    def end(self, process, began):
        try:
            out, err = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Failure(f"a hang: {process.args}") from None
        seconds = time.monotonic() - began
        self.slowest = max(self.slowest, seconds)
        return Ended(process.returncode, out, err, seconds)

    def run(self, command, env=None, limits=None):
        began = time.monotonic()
        return self.end(self.start(command, env, limits), began)

    def expect_decent(self, ended, codes=(0, 1, 2)):
        """Ends by itself, with a code of its own and without admitting a bug."""
        if ended.code not in codes:
            raise Failure(f"exit code {ended.code}, expected one of {codes}\n{ended.err[-2000:]}")
        if "bug in temper" in ended.err or "check failed" in ended.err:
            raise Failure(f"a bug\n{ended.err[-2000:]}")
        # A plan is no error; its last lines say that the run would be refused.
        told = "error: " in ended.err or "the run would be refused" in ended.out or "would refuse the run" in ended.err
        if ended.code in (1, 2) and not told:
            raise Failure(f"exit code {ended.code} without a word\n{ended.err[-2000:]}")

    # --- what a run leaves ---

    @staticmethod
    def losses(out):
        rows = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        return {row["step"]: row["loss"] for row in rows if "loss" in row}

    def state(self, out, method):
        name = "adapter_model.safetensors" if method == "lora" else "model.safetensors"
        return self.losses(out), (out / name).read_bytes()

    def reference(self, method, ranks):
        if (method, ranks) not in self.references:
            out = self.folder / f"reference-{method}-{ranks}"
            ended = self.run(self.train(out, method, ranks))
            if ended.code != 0:
                raise Failure(f"an undisturbed run failed\n{ended.err[-2000:]}")
            self.references[method, ranks] = (self.state(out, method), ended.seconds, out)
        return self.references[method, ranks]

    def saved(self, ended):
        """The last step that the run has told or treated as saved: it came to its end, stopped, or wrote the next save."""
        if ended.code == 0:
            return self.steps
        stopped = re.search(r"saving step (\d+)", ended.err)
        if stopped and ended.code in STOPPED.values():
            return int(stopped[1])
        later = re.search(r"^(?:POWER LOST at|FAILED \w+ of) .*/checkpoint-(\d+)", ended.err, re.MULTILINE)
        return int(later[1]) - SAVE_STEPS if later else 0

    def resume_to_end(self, out, method, ranks, saved=0):
        """The run goes on as if nothing had happened, from step `saved` or a later one."""
        began = time.monotonic()
        ended = self.run(self.train(out, method, ranks, ["--resume"]))
        while ended.code == 69 and time.monotonic() - began < MOST_SECONDS:
            self.count("waited for a dying run (69)")
            ended = self.run(self.train(out, method, ranks, ["--resume"]))
        if ended.code != 0:
            raise Failure(f"the run does not go on: {ended.code}\n{ended.err[-2000:]}")
        resumed = re.search(r"^resume +from .* at step (\d+)", ended.err, re.MULTILINE)
        if saved > (int(resumed[1]) if resumed else 0):
            raise Failure(f"the run goes on from an earlier step than {saved}, which was saved\n{ended.err[-2000:]}")
        losses, weights = self.state(out, method)
        expected = self.reference(method, ranks)[0]
        if losses != expected[0]:
            raise Failure(f"other losses: {losses} instead of {expected[0]}")
        if weights != expected[1]:
            raise Failure("other weights than those of an undisturbed run")

    # --- attacks ---

    def kill(self, r, out):
        method, ranks = r.choice(["lora", "full"]), r.choice([1, 1, 2, 4])
        seconds, saved = self.reference(method, ranks)[1], 0
        for _ in range(r.choice([1, 1, 3])):
            process = self.start(self.train(out, method, ranks, ["--resume"]))
            time.sleep(r.uniform(0, 1.1 * seconds))
            victims = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
            pids = [int(p) for p in victims.stdout.split()]
            how = r.choice(["all", "launcher", "rank"]) if ranks > 1 and pids else "launcher"
            try:
                if how == "all":
                    os.killpg(process.pid, signal.SIGKILL)
                elif how == "rank":
                    os.kill(r.choice(pids), signal.SIGKILL)
                else:
                    process.kill()
            except ProcessLookupError:
                pass  # it has ended
            saved = max(saved, self.saved(self.end(process, time.monotonic())))
            self.count(f"kills ({how}, {'1 rank' if ranks == 1 else 'several ranks'})")
        self.resume_to_end(out, method, ranks, saved)

    def signal(self, r, out):
        method, ranks, number = r.choice(["lora", "full"]), r.choice([1, 1, 2]), r.choice(list(STOPPED))
        process = self.start(self.train(out, method, ranks))
        began = time.monotonic()
        time.sleep(r.uniform(0.05, 1.1 * self.reference(method, ranks)[1]))
        process.send_signal(number)
        ended = self.end(process, began)
        # Before main has begun the signal's own action ends the process.
        self.expect_decent(ended, (0, STOPPED[number], -number, 128 + number))
        if ended.code in (-number, 128 + number) and "plan  " in ended.err and number != signal.SIGINT:
            raise Failure(f"signal {number} ended the run by itself\n{ended.err[-2000:]}")
        self.count("signals")
        self.resume_to_end(out, method, ranks, self.saved(ended))

    def library(self, name):
        path = pathlib.Path(os.environ.get("PRELOADED", ROOT / "build")) / f"lib{name}.so"
        if path.exists():
            return str(path)
        self.count(f"attacks skipped (build {name})")
        return None

    def fault(self, r, out):
        call = r.choice(list(CALLS))
        self.fail(out, r.choice(["lora", "full"]), call, r.randint(1, CALLS[call]), r.choice(["EIO", "ENOSPC"]))

    def fail(self, out, method, call, nth, error):
        """Whether the run made as many calls."""
        library = self.library("failing_disk")
        if not library:
            return False
        env = {"LD_PRELOAD": library, "FAIL_PATH": str(out), "FAIL_CALL": call, "FAIL_ONCE": "/",
               "FAIL_NTH": str(nth), "FAIL_AS": error}
        ended = self.run(self.train(out, method, 1), env)
        self.expect_decent(ended)
        failed = "FAILED " in ended.err
        if failed:
            self.count("system calls failed")
        self.resume_to_end(out, method, 1, self.saved(ended))
        return failed

    def power(self, r, out):
        self.lose_power(out, r.choice(["lora", "full"]), r.randint(1, POWER_CALLS), r.choice(["lost", "kept"]))

    def lose_power(self, out, method, nth, names):
        """Whether the run made as many calls. If not, the power goes when it has ended."""
        library = self.library("power_loss")
        if not library:
            return False
        env = {"LD_PRELOAD": library, "POWER_PATH": str(out), "POWER_NTH": str(nth), "POWER_NAMES": names}
        began = time.monotonic()
        ended = self.end(self.start(self.train(out, method, 1), env), began)
        lost = "POWER LOST at " in ended.err
        self.count("losses of power" if lost else "losses of power after the end")
        if not lost:
            self.expect_decent(ended, (0,))
            if "POWER LOST after the end" not in ended.err or self.state(out, method) != self.reference(method, 1)[0]:
                raise Failure(f"the result of a run that has ended is lost\n{ended.err[-2000:]}")
        self.resume_to_end(out, method, 1, self.saved(ended))
        return lost

    def every(self, methods):
        """Each system call of a short run fails once, and the power goes once before each and at the end: pairs of a name
        and an attack on a folder, which says whether there is a next one."""
        for method in methods:
            for names in ["lost", "kept"]:
                yield f"power, {method}, names {names}", lambda out, n: self.lose_power(out, method, n, names)
            for call in CALLS:
                error = "EIO" if call in ["fsync", "unlink"] else "ENOSPC"
                yield f"{call}, {method}", lambda out, n: self.fail(out, method, call, n, error)

    def full(self, r, out):
        if os.geteuid() != 0:
            return self.count("full disks skipped (not root)")
        method, size = r.choice(["lora", "full"]), r.randrange(64, 6 << 10)
        out.mkdir()
        kept = out.with_suffix(".kept")
        kept.mkdir()
        # Another process fills the disk during the run, so that the check before it does not see it coming.
        script = ('mount -t tmpfs -o size="$SIZE"k tmpfs "$OUT" || exit 99; '
                  '(sleep "$WAIT"; dd if=/dev/zero of="$OUT/filler" bs=1k 2>/dev/null) & "$@"; code=$?; wait; '
                  'rm -f "$OUT/filler"; cp -r "$OUT"/. "$KEPT"/; exit $code')
        ended = self.run(["unshare", "-m", "sh", "-c", script, "x", *self.train(out, method, 1)],
                         {"OUT": str(out), "KEPT": str(kept), "SIZE": str(size), "WAIT": f"{r.uniform(0, 0.6):.2f}"})
        self.expect_decent(ended)
        self.count("disks filled")
        shutil.rmtree(out)
        kept.rename(out)
        self.resume_to_end(out, method, 1)

    def flip(self, r, out):
        method = r.choice(["lora", "full"])
        shutil.copytree(self.reference(method, 1)[2], out)
        checkpoint = sorted(out.glob("checkpoint-*"), key=lambda p: int(p.name[11:]))[-1]
        weights = "adapter_model.safetensors" if method == "lora" else "model.safetensors"
        path = r.choice([p for p in checkpoint.iterdir()] + [out / weights])
        data = bytearray(path.read_bytes())
        bit = r.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        if path.parent == out:
            command = r.choice([["export", "--model", str(out), "--output_dir", str(out) + ".e"],
                                ["generate", "--model", str(out), "--prompt", "x", "--max_new_tokens", "1"],
                                ["inspect", str(out)]])
        else:
            command = r.choice([["inspect", str(checkpoint)], self.train(out, method, 1, ["--resume"])[1:]])
        ended = self.run([self.program, *command])
        harmless = path.name == "clock.json"  # no number depends on it
        self.expect_decent(ended, (0, 1, 2) if harmless else (1, 2))
        self.count("bits flipped")
        shutil.rmtree(str(out) + ".e", ignore_errors=True)

    def input(self, r, out):
        out.mkdir()
        model = out / "model"
        shutil.copytree(EXAMPLE / "model", model)
        data_name = r.choice(["d.jsonl", "d.jsonl", "d.csv", "d.jsonl.gz"])
        if data_name == "d.csv":
            with open(out / data_name, "w", newline="") as file:
                table = csv.writer(file)
                table.writerow(["prompt", "completion"])
                table.writerows([m["content"] for m in json.loads(row)["messages"][-2:]] for row in self.rows)
        else:
            packed = gzip.compress if data_name.endswith(".gz") else bytes
            (out / data_name).write_bytes(packed("".join(self.rows).encode()))
        (out / "run.yaml").write_text((ROOT / "examples" / "pirate.yaml").read_text())
        names = [data_name, "run.yaml", *(f"model/{p.name}" for p in model.iterdir())]
        path = out / r.choice(names)
        data = bytearray(path.read_bytes())
        for _ in range(r.choice([1, 1, 2, 8])):
            at, n = r.randrange(len(data)), r.choice([1, 1, 4, 64])
            kind = r.randrange(5)
            if kind == 0:
                data[at] = r.randrange(256)
            elif kind == 1:
                del data[at:at + n]
            elif kind == 2:
                data[at:at] = data[at:at + n] * r.choice([1, 2, 50])
            elif kind == 3:
                data[at:at] = r.choice([b"9" * 20, b"-1", b"null", b"{", b"]", b'"', b"\0", b"\xff", b"1e999", b"{{", b"%}"])
            else:
                del data[at:]
            if not data:
                data = bytearray(b" ")
        path.write_bytes(data)
        common = ["--model", str(model), "--data", str(out / data_name)]
        train = ["train", *common, "--output_dir", str(out / "o"), "--max_steps", "1", "--threads", "1", "--max_seq_len", "96"]
        command = r.choice([["data", "preview", *common], ["plan", *common], ["inspect", str(model)], train,
                            ["generate", "--model", str(model), "--prompt", "x", "--max_new_tokens", "2"],
                            ["eval", *common]])
        if path.name == "run.yaml":
            command = ["plan", str(path), *common]
        self.expect_decent(self.run([self.program, *command]))
        self.count("inputs mutated")

    def limit(self, r, out):
        kind, value = r.choice([(resource.RLIMIT_AS, r.randrange(60 << 20, 600 << 20)),
                                (resource.RLIMIT_FSIZE, r.randrange(1, 3 << 20)),
                                (resource.RLIMIT_NOFILE, r.randrange(3, 40))])
        method = r.choice(["lora", "full"])
        ended = self.run(self.train(out, method, 1), limits=lambda: resource.setrlimit(kind, (value, value)))
        # 127: the loader itself found no room for the libraries.
        if ended.code == 127 and "shared libraries" in ended.err:
            return self.count("limits before the start")
        self.expect_decent(ended)
        self.count("limits")
        self.resume_to_end(out, method, 1)


def main():
    names = ["kill", "signal", "fault", "power", "full", "flip", "input", "limit"]
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    parser.add_argument("minutes", type=lambda text: text if text == "every" else float(text))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", help=",".join(names))
    parser.add_argument("--program", default=ROOT / "build" / "temper", type=pathlib.Path)
    options = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="torture-"))
    attacks = Attacks(options.program.resolve(), folder)
    only = options.only.split(",") if options.only else ["lora", "full"] if options.minutes == "every" else names
    began, number, failures = time.monotonic(), options.first, 0
    if options.minutes == "every":
        attacks.steps = 4
        for name, attack in attacks.every(only):
            n, goes_on = 0, True
            while goes_on:
                n += 1
                out = folder / f"{number}-{n}"
                try:
                    goes_on = attack(out, n)
                    shutil.rmtree(out, ignore_errors=True)
                except Failure as failure:
                    failures += 1
                    print(f"FAILED {name}, call {n}, kept in {out}: {failure}\n", flush=True)
            print(f"{n - 1:7} {name}", flush=True)
            number += 1
        options.minutes = 0
    while time.monotonic() - began < 60 * options.minutes:
        r = random.Random(f"{options.seed} {number}")
        name = r.choice(only)
        out = folder / f"{number}-{name}"
        try:
            getattr(attacks, name)(r, out)
            shutil.rmtree(out, ignore_errors=True)
        except Failure as failure:
            failures += 1
            print(f"FAILED {name} (--seed {options.seed} --first {number}), kept in {out}: {failure}\n", flush=True)
        number += 1
    for what in sorted(attacks.counts):
        print(f"{attacks.counts[what]:7} {what}")
    print(f"{number - options.first} attacks in {time.monotonic() - began:.0f} s, {failures} failed; the slowest command "
          f"took {attacks.slowest:.1f} s; seed {options.seed}")
    if failures:
        sys.exit(1)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
