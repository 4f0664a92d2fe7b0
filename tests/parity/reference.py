"""The reference: transformers, one document at a time, so that documents are isolated by construction."""

import numpy as np
import torch

from packed_batch import IGNORED, PADDING, PackedBatch


def rope_type(model):
    return (getattr(model.config.get_text_config(), "rope_parameters", None) or {}).get("rope_type")


def words(model):
    """That the head has."""
    config = model.config.get_text_config()
    return getattr(config, "output_vocab_size", None) or config.vocab_size


def embedding_of(model, length):
    """What decides, of a document's length, its rotary embedding."""
    config = model.config.get_text_config()
    if rope_type(model) == "longrope":
        return length > config.rope_parameters["original_max_position_embeddings"]
    return max(length, config.max_position_embeddings) if rope_type(model) == "dynamic" else None


def forget_longer_documents(model):
    """With dynamic scaling transformers keeps the embedding of the longest document so far, until one comes that is
    shorter than max_position_embeddings."""
    if rope_type(model) == "dynamic":
        with torch.no_grad():
            model(input_ids=torch.tensor([[3]]), use_cache=False)


def document_losses(model, document):
    """Logits [n, vocab] and per-position losses [n] (0 where unsupervised) of one document on its own."""
    forget_longer_documents(model)
    ids = torch.from_numpy(document.ids.astype(np.int64))[None]
    logits = model(input_ids=ids, use_cache=False).logits[0].float()
    targets = torch.from_numpy(document.targets().astype(np.int64))
    losses = torch.nn.functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
    return logits, losses


def loss_sum(model, batch):
    """The differentiable sum over all supervised tokens."""
    return sum(document_losses(model, document)[1].sum() for row in batch.rows for document in row)


def as_it_is(name, value):
    return [(name, value)]


def forward_and_gradients(model, batch, in_files=as_it_is):
    """The batch's tensors, logits, per-token losses and the gradient of the loss SUM for each trainable parameter, as
    `in_files(name, value)` cuts it into files' tensors."""
    model.zero_grad(set_to_none=True)
    vocab = words(model)
    logits, losses = [], []
    for row in batch.rows:
        pairs = [document_losses(model, document) for document in row]
        for _, document_loss in pairs:
            if document_loss.sum().item() != 0.0:
                document_loss.sum().backward()
        logits.append(batch.place(row, [p[0].detach().numpy() for p in pairs], 0, np.float32, (vocab,)))
        losses.append(batch.place(row, [p[1].detach().numpy() for p in pairs], 0, np.float32))
    tensors = batch.tensors()
    tensors["logits"] = np.stack(logits)
    tensors["losses"] = np.stack(losses)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
            tensors.update(("grad." + n, part.copy()) for n, part in in_files(name, gradient.numpy()))
    model.zero_grad(set_to_none=True)
    return tensors


def padded_loss_sum(model, documents):
    longest = max(len(d.ids) for d in documents)
    ids, targets = (torch.tensor([[*values, *[fill] * (longest - len(values))] for values in rows], dtype=torch.long)
                    for rows, fill in (([d.ids for d in documents], 0), ([d.targets() for d in documents], IGNORED)))
    return torch.nn.functional.cross_entropy(
        model(input_ids=ids).logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")


def packed_loss_sum(model, batch):
    """The same sum from one packed forward with an explicit block-causal mask: another order of every reduction. Where
    transformers would give all documents the embedding of the longest, each has a forward of its own. (One token is not
    rotated.)"""
    documents = [d for row in batch.rows for d in row]
    if len({embedding_of(model, len(d.ids)) for d in documents if len(d.ids) > 1}) > 1:
        return sum(packed_loss_sum(model, PackedBatch([[d]], len(d.ids))) for d in documents if len(d.ids) > 1)
    # A row for each document, padded behind it, where the class takes no mask of pairs (with ALiBi, too), or has convolutions and states that
    # run on past a document's border.
    if model.config.get_text_config().model_type in ("bloom", "openai-gpt", "falcon_h1", "granitemoehybrid", "lfm2", "lfm3", "nemotron_h", "qwen3_5_text", "qwen3_5_moe_text",
                                                     "qwen3_next") or getattr(model.config, "alibi", False):
        return padded_loss_sum(model, documents)
    forget_longer_documents(model)
    t = {name: torch.from_numpy(value.astype(np.int64)) for name, value in batch.tensors().items()}
    rows, length = t["input_ids"].shape
    same = t["documents"][:, :, None] == t["documents"][:, None, :]
    visible = same & torch.ones(length, length, dtype=torch.bool).tril()

    def mask_of(window):
        seen = visible & torch.ones(length, length, dtype=torch.bool).triu(1 - window) if window else visible
        seen = seen | torch.eye(length, dtype=torch.bool)
        return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]

    # With a given mask transformers does not apply windows: pass one mask, or one for each type of layer.
    window = getattr(model.config.get_text_config(), "sliding_window", None)
    if len(set(getattr(model.config.get_text_config(), "layer_types", None) or [])) > 1:
        mask = {"sliding_attention": mask_of(window), "full_attention": mask_of(None)}
    else:
        mask = mask_of(window)
    logits = model(input_ids=t["input_ids"], attention_mask=mask, position_ids=t["positions"], use_cache=False).logits
    targets = torch.where(t["documents"] == PADDING, IGNORED, t["targets"])
    return torch.nn.functional.cross_entropy(
        logits.float().reshape(rows * length, -1), targets.reshape(-1), ignore_index=IGNORED, reduction="sum")


def cross_check(model, batch, tensors, in_files=as_it_is):
    """The difference between two orders of the same arithmetic: the reference's own noise. An error if near a
    tolerance."""
    model.zero_grad(set_to_none=True)
    total = packed_loss_sum(model, batch)
    total.backward()
    reference = float(tensors["losses"].astype(np.float64).sum())
    loss_error = abs(total.item() - reference) / reference
    global_norm = np.sqrt(sum((v.astype(np.float64) ** 2).sum() for n, v in tensors.items() if n.startswith("grad.")))
    worst = 0.0
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for n, got in in_files(name, gradient.numpy().astype(np.float64)):
            want = tensors["grad." + n].astype(np.float64)
            limit = max(1e-3 * np.linalg.norm(want), 1e-6 * global_norm)
            worst = max(worst, np.linalg.norm(got - want) / limit)
    model.zero_grad(set_to_none=True)
    assert loss_error < 2e-6, f"two orders of the reference differ by {loss_error} in the loss"
    assert worst < 0.5, f"two orders of the reference differ by {worst} of the gradient tolerance"
    return {"loss_relative": float(f"{loss_error:.0e}"), "gradient_of_tolerance": float(f"{worst:.0e}")}


def greedy(model, prompt, new_tokens, eos):
    """Greedy continuation, and the smallest gap between the best and second-best logit on the way."""
    forget_longer_documents(model)
    out = model.generate(
        input_ids=torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
        do_sample=False, max_new_tokens=new_tokens, eos_token_id=eos, pad_token_id=0,
        output_logits=True, return_dict_in_generate=True)
    margins = [float(torch.diff(step[0].topk(2).values).abs()) for step in out.logits]
    return out.sequences[0, len(prompt):].tolist(), min(margins)
