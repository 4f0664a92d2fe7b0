#!/usr/bin/env python3
"""Goldens for the reader of torch.save's files, by PyTorch (pip install torch safetensors numpy; made with torch 2.15).

  make_torch_goldens.py                  writes tests/format/torch/: each NAME.bin by torch.save, and NAME.safetensors with
                                         what torch.load reads of it, by safetensors' own library
  make_torch_goldens.py --random N OUT   N pairs of random state dicts into OUT; then
                                         TEMPER_TORCH_GOLDENS=OUT temper_format_tests --gtest_filter='TorchGolden.*'
"""
import argparse
import collections
import os
import random

import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool]


def numbers(shape, dtype, start=0):
    n = 1
    for d in shape:
        n *= d
    x = (torch.arange(start, start + n) * 37 % 101 - 50).to(torch.float64) / 8
    if dtype in (torch.bool, torch.uint8):
        x = x.abs()
    return (x.to(dtype) if dtype.is_floating_point else (x * 8).to(dtype)).reshape(shape)


def tensors():
    """Every dtype, and every way in which a tensor lies in its storage."""
    base = numbers([6, 8], torch.float32)
    wide = numbers([5, 12], torch.bfloat16, 7)
    out = collections.OrderedDict()
    for dtype in DTYPES:
        out["of." + str(dtype).removeprefix("torch.")] = numbers([3, 5], dtype)
    out["embed.weight"] = base
    out["head.weight"] = base                       # tied
    out["rows"] = base[2:5]                         # a part of a storage
    out["transposed"] = base.t()
    out["columns"] = wide[:, 3:10]
    out["column"] = wide[:, 4]
    out["permuted"] = numbers([2, 3, 4], torch.float16).permute(2, 0, 1)
    out["every_other"] = numbers([20], torch.int64)[1::2]
    out["expanded"] = numbers([3, 1], torch.float32).expand(3, 4)
    out["one_row"] = numbers([7], torch.float32).expand(1, -1)
    out["scalar"] = numbers([], torch.float32, 3)
    out["empty"] = torch.zeros([0, 4])
    out["h.\u00e9"] = numbers([2], torch.float32, 9)
    out["parameter"] = torch.nn.Parameter(numbers([4], torch.float32))
    return out


def write(folder, name, value, expected=None, **options):
    """`expected` of a loaded object: its tensors, by the names that they should have."""
    path = os.path.join(folder, name + ".bin")
    torch.save(value, path, **options)
    loaded = torch.load(path, weights_only=False)  # of protocol 4 it reads nothing else
    wanted = (expected or (lambda x: x))(loaded)
    save_file({k: v.detach().clone(memory_format=torch.contiguous_format) for k, v in wanted.items() if torch.is_tensor(v)},
              os.path.join(folder, name + ".safetensors"))


def random_dict(rng):
    out = collections.OrderedDict()
    for i in range(rng.randint(1, 12)):
        x = numbers([rng.randint(1, 9) for _ in range(rng.randint(0, 4))], rng.choice(DTYPES), rng.randint(0, 99))
        for _ in range(rng.randint(0, 3)):  # views of it, and of those
            kind = rng.randint(0, 3)
            if kind == 0 and x.dim() > 1:
                x = x.permute(rng.sample(range(x.dim()), x.dim()))
            elif kind == 1 and x.dim() > 0:
                d = rng.randrange(x.dim())
                first = rng.randrange(x.shape[d])
                x = x.narrow(d, first, rng.randint(1, x.shape[d] - first))
            elif kind == 2 and x.dim() > 0:
                x = x[..., :: rng.randint(1, 3)]
            elif kind == 3 and x.dim() < 4:
                x = x.unsqueeze(-1).expand(*x.shape, rng.randint(1, 3))
            out[f"t{i}.{len(out)}"] = x
        out[f"t{i}"] = x
    # Larger than what is read at once.
    long = numbers([rng.randint(100, 400), rng.randint(100, 400)], rng.choice(DTYPES[:4]))
    out["long"] = rng.choice([long, long.t(), long[:, 3:77], long[3:].t(), long.reshape(-1)[::2]])
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--random", nargs=2, metavar=("N", "OUT"))
    arguments = parser.parse_args()
    if arguments.random:
        count, folder = int(arguments.random[0]), arguments.random[1]
        os.makedirs(folder, exist_ok=True)
        rng = random.Random(1)
        for i in range(count):
            write(folder, f"random{i}", random_dict(rng), pickle_protocol=rng.randint(2, 5),
                  _use_new_zipfile_serialization=rng.random() < 0.7)
        return
    folder = os.path.join(HERE, "torch")
    os.makedirs(folder, exist_ok=True)
    write(folder, "archive", tensors())
    write(folder, "protocol_4", tensors(), pickle_protocol=4)
    write(folder, "sequence", tensors(), _use_new_zipfile_serialization=False)
    write(folder, "no_sums", {"a": numbers([3], torch.float32)})
    torch.serialization.set_crc32_options(False)
    write(folder, "no_sums", {"a": numbers([3], torch.float32)})
    torch.serialization.set_crc32_options(True)
    write(folder, "untyped", {"f8": numbers([4, 2], torch.float32).to(torch.float8_e4m3fn),
                              "u16": torch.arange(5).to(torch.uint16)})
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    torch.manual_seed(0)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    write(folder, "training_run",
          {"epoch": 3, "loss": 0.5, "rng": torch.get_rng_state()[:8].clone(),
           "state_dict": collections.OrderedDict(("module." + k, v) for k, v in module.state_dict().items()),
           "optimizer": optimizer.state_dict(), "names": ["a", ("b", None)], "big": 2**80, "flags": {1, 2}},
          expected=lambda x: {k.removeprefix("module."): v for k, v in x["state_dict"].items()})


if __name__ == "__main__":
    main()
