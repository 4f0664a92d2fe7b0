"""Short trainings like transformers' Trainer, written out step by step."""

import numpy as np
import torch
import transformers

import reference

STEPS = 32
MICRO_BATCHES = 2
ROW_LENGTH = 32


def parameter_groups(model, weight_decay):
    """Trainer's rule: no decay on norms and biases; embeddings decay. It knows norms by names, among which post_norm1 and
    post_norm2 (HyperCLOVA X) and norm_f (Nemotron-H) are not: there it decays what it means not to."""
    decayed = {n for n in transformers.Trainer.get_decay_parameter_names(None, model) if ".post_norm" not in n and ".norm_f" not in n}
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return [
        {"params": [p for n, p in named if n in decayed], "weight_decay": weight_decay},
        {"params": [p for n, p in named if n not in decayed], "weight_decay": 0.0},
    ]


def optimizer_of(groups, learning_rate, sgd):
    """AdamW, or SGD with the momentum and nesterov given."""
    if sgd is not None:
        return torch.optim.SGD(groups, lr=learning_rate, **sgd, foreach=False)
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.999), eps=1e-8, foreach=False)


def train(model, batches, *, learning_rate, weight_decay, scheduler, warmup_steps, max_grad_norm, sgd=None,
          packed=False):
    """Losses (mean per supervised token over both micro-batches), norms before clipping, and the rates applied."""
    optimizer = optimizer_of(parameter_groups(model, weight_decay), learning_rate, sgd)
    schedule = transformers.get_scheduler(
        scheduler, optimizer, num_warmup_steps=warmup_steps, num_training_steps=len(batches))
    trained = [p for p in model.parameters() if p.requires_grad]
    losses, norms, rates = [], [], []
    for step in batches:
        tokens = sum(batch.token_count() for batch in step)
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for batch in step:
            loss = (reference.packed_loss_sum if packed else reference.loss_sum)(model, batch)
            (loss / tokens).backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, max_grad_norm, foreach=False).item())
        losses.append(total / tokens)
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    return np.array(losses), np.array(norms), np.array(rates)


def batch_tensors(batches):
    """[steps, micro_batches, row_length] int32 each."""
    per_step = [[batch.tensors() for batch in step] for step in batches]
    return {
        name: np.stack([np.concatenate([t[name] for t in step]) for step in per_step]) for name in per_step[0][0]
    }


def schedules():
    """The factors on the learning rate of every step for each schedule kind."""
    result = []
    kinds = [
        ("linear", {}), ("cosine", {}), ("constant", {}), ("constant_with_warmup", {}),
        ("cosine_with_min_lr", {"min_lr_rate": 0.1}), ("warmup_stable_decay", {"num_decay_steps": 6}),
        ("warmup_stable_decay", {"num_decay_steps": 6, "decay_type": "linear", "min_lr_ratio": 0.05}),
        ("warmup_stable_decay", {"num_decay_steps": 6, "decay_type": "1-sqrt"}),
    ]
    for steps, warmup in ((20, 0), (20, 3), (33, 5)):
        for kind, options in kinds:
            optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
            schedule = transformers.get_scheduler(
                kind, optimizer, num_warmup_steps=warmup, num_training_steps=steps,
                scheduler_specific_kwargs=options)
            factors = []
            for _ in range(steps):
                factors.append(schedule.get_last_lr()[0])
                optimizer.step()
                schedule.step()
            result.append({"kind": kind, "options": options, "steps": steps, "warmup_steps": warmup,
                           "factors": factors})
    return result
