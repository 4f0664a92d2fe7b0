#!/usr/bin/env python3
"""Prints the golden values of update_test.cc (Adamw.FollowsTorchsAdamW). Needs torch."""
import torch

w = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64))
optimizer = torch.optim.AdamW([w], lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
for gradient in ([0.1, -0.2, 3.0], [-0.4, 0.0, 3.0]):
    w.grad = torch.tensor(gradient, dtype=torch.float64)
    optimizer.step()
    state = optimizer.state[w]
    print("{{" + "}, {".join(", ".join(f"{x:.17g}" for x in t.tolist())
                             for t in (w.data, state["exp_avg"], state["exp_avg_sq"])) + "}},")
