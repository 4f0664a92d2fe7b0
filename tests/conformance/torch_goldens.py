#!/usr/bin/env python3
"""Writes torch_goldens.h: results of PyTorch and transformers for small inputs, in double, so that the reference
kernels match those libraries. Needs torch, transformers, trl, lion-pytorch and bitsandbytes.
Usage: torch_goldens.py > torch_goldens.h"""
import ctypes

import torch
import torch.nn.functional as F
from lion_pytorch import Lion
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import Adafactor
from transformers.activations import ReLUSquaredActivation, XIELUActivation
from transformers.trainer_pt_utils import LabelSmoother
from transformers.models.deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.gpt_oss import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssMLP, eager_attention_forward as gpt_oss_attention
from transformers.models.granitemoehybrid.modeling_granitemoehybrid import mamba2_chunk_scan
from transformers.models.llama.modeling_llama import LlamaRMSNorm, apply_rotary_pos_emb
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule
from transformers.models.qwen3_moe import Qwen3MoeConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor as bloom_alibi
from transformers.models.falcon.modeling_falcon import build_alibi_tensor as falcon_alibi
from transformers.models.xglm.modeling_xglm import XGLMSinusoidalPositionalEmbedding
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock, load_balancing_loss_func
from trl.experimental.gkd import GKDTrainer

torch.set_default_dtype(torch.float64)


def wave(seed, *shape):
    """The inputs: 2 sin(seed + 0.7 i), which C++ can compute, too."""
    n = torch.Size(shape).numel()
    return (2 * torch.sin(seed + 0.7 * torch.arange(n))).reshape(shape).requires_grad_()


def show(name, t):
    numbers = ", ".join(f"{x:.17g}" for x in t.detach().flatten().tolist())
    print(f"inline constexpr double k{name}[] = {{{numbers}}};")


print("// Written by torch_goldens.py; do not edit.\n#pragma once\n\nnamespace temper::goldens {\n")
print(f"// torch {torch.__version__.split('+')[0]}\n// clang-format off")

x, w, b = wave(1, 3, 4), wave(2, 4), wave(3, 4)
norm = LlamaRMSNorm(4, eps=1e-5)
norm.weight.data = w.detach()
show("RmsNorm", F.rms_norm(x, (4,), w, 1e-5))  # LlamaRMSNorm computes in f32 for any input: compared, not written
assert torch.allclose(norm(x), F.rms_norm(x, (4,), w, 1e-5), atol=1e-6)
show("LayerNorm", F.layer_norm(x, (4,), w, b, 1e-5))
show("ReluSquared", ReLUSquaredActivation()(x))
show("Clamp", x.clamp(-1.25, 1.25))
xielu = XIELUActivation(dtype=torch.float64)
xielu.alpha_p.data[0], xielu.alpha_n.data[0] = 0.625, -0.75
show("Xielu", xielu(x))
for which, g in zip(("X", "P", "N"), torch.autograd.grad((xielu(x) * wave(4, 3, 4)).sum(), (x, xielu.alpha_p, xielu.alpha_n))):
    show(f"XieluD{which}", g)
show("GeluErf", F.gelu(x))
show("GeluTanh", F.gelu(x, approximate="tanh"))
show("Swiglu", F.silu(x) * wave(4, 3, 4))

show("Relu", F.relu(x))
show("Softcap", 1.5 * torch.tanh(x / 1.5))  # Gemma 2's
show("Added", x + wave(4, 3, 4))
show("AddedVector", x + w)
show("Scaled", 0.7 * x)
show("SlicedColumns", x[:, 1:3])
a, w, b = wave(41, 2, 4), wave(42, 3, 4), wave(43, 3, 2)
show("RowSquares", (torch.linalg.norm(w + 0.7 * b @ a, dim=1) ** 2 - torch.linalg.norm(w, dim=1) ** 2 + wave(44, 3)))
scaled = wave(46, 3) / torch.tensor([0.5, 2, 3]).sqrt() * wave(45, 4, 3)
show("ScaledColumns", scaled)
show("ScaledColumnsLessOne", scaled - wave(45, 4, 3))
x, w, b = wave(1, 3, 4), wave(2, 4), wave(3, 4)
show("CastBf16", x.to(torch.bfloat16).double())

# Rows of a table; a linear with a bias, a second pair and a scale; matrices stacked in rows, and in turn in columns.
show("Embedding", F.embedding(torch.tensor([4, 0, 4]), wave(11, 5, 4)))
x2, w1, w2 = wave(25, 3, 2), wave(26, 5, 4), wave(27, 5, 2)
show("Linear", 0.7 * (F.linear(x, w1) + F.linear(x2, w2)) + wave(28, 5))
show("LinearsFirst", 0.7 * F.linear(x, w1))
show("LinearsSecond", 0.7 * F.linear(x, wave(29, 6, 4)))
show("GatedHeads", (wave(47, 3, 2, 4) * torch.sigmoid(wave(48, 3, 2)).unsqueeze(-1)).reshape(3, 8))  # Lfm3Attention
show("HeadsAndTail", torch.cat([wave(47, 3, 4, 2), wave(48, 3, 1, 2).expand(3, 4, 2)], dim=-1))
show("UnstackedRows", wave(30, 6, 4).view(2, 3, 4))
show("UnstackedColumns", wave(30, 3, 8).view(3, 4, 2).permute(2, 0, 1))

# Two of 4 experts for each of 5 tokens of 4 elements, each expert a SwiGLU of 3: the block of Qwen3-MoE, and that of
# DeepSeek-V3 (scores are logistic, a bias chooses, one of two groups is left), without its shared expert.
sizes = dict(hidden_size=4, moe_intermediate_size=3, num_experts_per_tok=2, norm_topk_prob=True)
qwen = Qwen3MoeSparseMoeBlock(Qwen3MoeConfig(num_experts=4, **sizes))
deepseek = DeepseekV3MoE(DeepseekV3Config(n_routed_experts=4, n_group=2, topk_group=1, routed_scaling_factor=2.5, **sizes))
x = wave(31, 5, 4)
torch.float, torch.float32, single = torch.float64, torch.float64, torch.float32  # routers compute in float32
for name, block in (("Qwen3Moe", qwen), ("DeepseekV3Moe", deepseek)):
    block.gate.weight.data = wave(32, 4, 4).detach()
    block.experts.gate_up_proj.data = torch.cat((wave(33, 4, 3, 4), wave(34, 4, 3, 4)), 1).detach()
    block.experts.down_proj.data = wave(35, 4, 4, 3).detach()
deepseek.gate.e_score_correction_bias = torch.tensor([0.0, 0.05, -0.1, 0.2])
deepseek.shared_experts.forward = torch.zeros_like
for name, block in (("Qwen3Moe", qwen), ("DeepseekV3Moe", deepseek)):
    y = block(x[None])
    show(name, (y[0] if isinstance(y, tuple) else y)[0])
# gpt-oss: stored in x out, gate and up in turn, biases, clamped at 1.5, where many of these numbers are.
gpt_oss = GptOssMLP(GptOssConfig(hidden_size=4, intermediate_size=3, num_local_experts=4, num_experts_per_tok=2))
gpt_oss.router.weight.data, gpt_oss.router.bias.data = wave(32, 4, 4).detach(), wave(38, 4).detach()
experts = gpt_oss.experts
experts.gate_up_proj.data, experts.down_proj.data = (wave(s, 4, o, i).mT.contiguous().detach()
                                                     for s, o, i in ((33, 6, 4), (35, 4, 3)))
experts.gate_up_proj_bias.data, experts.down_proj_bias.data = wave(39, 4, 6).detach(), wave(40, 4, 4).detach()
experts.limit = 1.5
show("GptOssMoe", gpt_oss(x[None])[0][0])
torch.float = torch.float32 = single

# A short convolution of documents of 4 and 2 tokens: 3 channels, 3 taps.
x, w = wave(14, 6, 3), wave(15, 3, 1, 3)
u = torch.cat([F.conv1d(F.pad(d.T[None], (2, 0)), w, groups=3)[0].T for d in x.split((4, 2))])
show("ShortConv", u)
show("ShortConvSilu", F.silu(u))
for which, g in zip("XW", torch.autograd.grad((F.silu(u) * wave(16, 6, 3)).sum(), (x, w))):
    show(f"ShortConvD{which}", g)

# The loss that balances the 4 experts of two blocks, of which each of 5 tokens chooses 2; one token is padding.
blocks = (wave(36, 5, 4), wave(37, 5, 4))
torch.float32, single, torch.Tensor.float, to_single = torch.float64, torch.float32, torch.Tensor.double, torch.Tensor.float
loss = load_balancing_loss_func(blocks, 4, 2, torch.tensor([[1, 1, 1, 0, 1]]))
torch.float32, torch.Tensor.float = single, to_single
show("Balance", loss)
for which, g in zip(("First", "Second"), torch.autograd.grad(loss, blocks)):
    show(f"Balance{which}D", g)

# A gated delta rule over one document of 6 tokens: 2 key heads of 3, 4 value heads of 2.
q, k, v, b = wave(17, 6, 6), wave(18, 6, 6), wave(19, 6, 8), wave(20, 6, 4)
a, a_log, dt_bias = wave(21, 6, 4), wave(22, 4), wave(23, 4)
g = -a_log.exp() * F.softplus(a + dt_bias)
show("Decay", g)
# The function computes in float32, whatever it is given: here what it calls float32 is double.
torch.float32, single = torch.float64, torch.float32
o = torch_chunk_gated_delta_rule(q.view(1, 6, 2, 3), k.view(1, 6, 2, 3), v.view(1, 6, 4, 2), g[None], b.sigmoid()[None],
                                 use_qk_l2norm_in_kernel=True)[0]
torch.float32 = single
show("GatedDelta", o)
grads = torch.autograd.grad((o.reshape(6, 8) * wave(24, 6, 8)).sum(), (q, k, v, b, a, a_log, dt_bias))
for which, grad in zip(("Q", "K", "V", "B", "A", "ALog", "DtBias"), grads):
    show(f"GatedDeltaD{which}", grad)

# The state-space duality over one document of 6 tokens in chunks of 4: 4 heads of 2 in 2 groups of 3.
x, b, c, a = wave(61, 6, 8), wave(62, 6, 6), wave(63, 6, 6), wave(64, 6, 4)
a_log, dt_bias, d = wave(65, 4), wave(66, 4), wave(67, 4)
torch.Tensor.float, single = torch.Tensor.double, torch.Tensor.float  # as above
y = mamba2_chunk_scan(x.view(1, 6, 4, 2), a[None], -a_log.exp(), b.view(1, 6, 2, 3), c.view(1, 6, 2, 3), chunk_size=4, D=d,
                      dt_bias=dt_bias, dt_softplus=True)[0]
torch.Tensor.float = single
show("Ssd", y)
grads = torch.autograd.grad((y.reshape(6, 8) * wave(68, 6, 8)).sum(), (x, b, c, a, a_log, dt_bias, d))
for which, grad in zip(("X", "B", "C", "A", "ALog", "DtBias", "D"), grads):
    show(f"SsdD{which}", grad)

# Rope: 3 tokens at positions 0, 5, 9; 2 heads of 4.
position = torch.tensor([0, 5, 9])
inv_freq = torch.tensor([1.0, 0.01])
angles = position[:, None] * inv_freq
emb = torch.cat((angles, angles), -1)[None]
q = wave(5, 3, 8).reshape(1, 3, 2, 4).transpose(1, 2)
show("Rope", apply_rotary_pos_emb(q, q, emb.cos(), emb.sin())[0].transpose(1, 2))

# Attention: 5 tokens in documents {0, 1, 2} and {3, 4}; 4 query heads, 2 key heads of 3; window 2.
q, k, v = wave(6, 5, 4, 3), wave(7, 5, 2, 3), wave(8, 5, 2, 3)
t = torch.arange(5)
document = torch.tensor([0, 0, 0, 1, 1])
for name, window in (("Attention", 99), ("AttentionWindow2", 2)):
    seen = (t[None] <= t[:, None]) & (document[None] == document[:, None]) & (t[:, None] - t[None] < window)
    o = F.scaled_dot_product_attention(
        q.transpose(0, 1), k.repeat_interleave(2, 1).transpose(0, 1), v.repeat_interleave(2, 1).transpose(0, 1),
        attn_mask=seen, scale=0.6).transpose(0, 1)
    show(name, o)
    grads = torch.autograd.grad((o * wave(9, 5, 4, 3)).sum(), (q, k, v))
    for which, g in zip("QKV", grads):
        show(f"{name}D{which}", g)

# Attention with a sink per head (gpt-oss) and keys wider than values (DeepSeek's latent attention): 40 tokens in documents
# of 25 and 15; 4 query heads, 2 key heads of 192, values of 128. Operands are rounded to bf16, so that kernels of f32 and
# of bf16 have the same; of the results every 97th element.
class Sinks(torch.nn.Module):
    num_key_value_groups = 2
    training = False


def rounded(t):
    return t.detach().to(torch.bfloat16).double().requires_grad_()


q, k, v, d_o = (rounded(wave(s, 40, n, e)) for s, n, e in ((12, 4, 192), (13, 2, 192), (14, 2, 128), (15, 4, 128)))
sinks = Sinks()
sinks.sinks = torch.nn.Parameter(torch.tensor([-1.0, 0.5, 2.0, 0.0]))
t = torch.arange(40)
seen = (t[None] <= t[:, None]) & ((t[None] < 25) == (t[:, None] < 25))
mask = torch.where(seen, 0.0, -torch.inf)[None, None]
o = gpt_oss_attention(sinks, *(x[None].transpose(1, 2) for x in (q, k, v)), mask, scaling=0.01)[0][0]
show("AttentionSink", o.flatten()[::97])
grads = torch.autograd.grad((o * d_o).sum(), (q, k, v, sinks.sinks))
for which, g in zip("QKV", grads):
    show(f"AttentionSinkD{which}", g.flatten()[::97])
show("AttentionSinkDSink", grads[3])

# Attention with ALiBi: 5 tokens, 6 heads of 3 elements, so that the heads are no power of two. The slopes, and Falcon's,
# which are rounded to bf16, as what they give for each of 300 places.
q, k, v = (wave(s, 5, 6, 3) for s in (71, 72, 73))
seen = torch.where(torch.ones(5, 5).tril() > 0, 0.0, -torch.inf)
alibi = bloom_alibi(torch.ones(1, 5), 6, torch.float64)
scores = alibi.baddbmm(batch1=q.transpose(0, 1), batch2=k.permute(1, 2, 0), beta=1.0, alpha=3 ** -0.5) + seen
o = (scores.softmax(-1) @ v.transpose(0, 1)).transpose(0, 1)
show("AttentionAlibi", o)
for which, g in zip("QKV", torch.autograd.grad((o * wave(74, 5, 6, 3)).sum(), (q, k, v))):
    show(f"AttentionAlibiD{which}", g)
show("AlibiSlopes", bloom_alibi(torch.ones(1, 2), 6, torch.float64)[:, 0, 1])
falcon = falcon_alibi(torch.ones(1, 300, dtype=torch.long), 16, torch.float64)[:, 0, :]
show("FalconAlibi", (falcon - falcon[:, -1:])[:, ::23])

# Sinusoids: XGLM's of 3 positions in 8 elements.
with torch.no_grad():
    show("Sinusoids", XGLMSinusoidalPositionalEmbedding(8, 8).weights[torch.tensor([2, 5, 9])].double())

# The loss of 3 tokens over 5 words, the second without a target; sum over tokens.
x, w = wave(10, 3, 4), wave(11, 5, 4)
loss = F.cross_entropy(x @ w.T, torch.tensor([4, -100, 1]), reduction="none")
show("CrossEntropy", loss)
d_x, d_w = torch.autograd.grad(loss.sum(), (x, w), retain_graph=True)
show("CrossEntropyDX", d_x)
show("CrossEntropyDW", d_w)

# The same with a weight for every token.
weighted = loss * torch.tensor([0.5, 3.0, 2.25])
show("WeightedCrossEntropy", weighted)
d_x, d_w = torch.autograd.grad(weighted.sum(), (x, w))
show("WeightedCrossEntropyDX", d_x)
show("WeightedCrossEntropyDW", d_w)
# With smooth labels: of one token at a time, so that the mean over tokens is over one, and of all three, whose mean is over
# the two that have a target.
smoother, target = LabelSmoother(epsilon=0.1), torch.tensor([4, -100, 1])
each = [smoother({"logits": (x @ w.T)[i:i + 1]}, target[i:i + 1]) for i in (0, 2)]
mean = smoother({"logits": x @ w.T}, target)
assert torch.allclose(mean, (each[0] + each[1]) / 2, atol=1e-7)  # the part of all words is summed in f32
log_probs = torch.log_softmax(x @ w.T, -1)
exact = -0.9 * log_probs[torch.arange(3), target.clamp(0)] - 0.1 * log_probs.mean(-1)  # the same in f64
assert all(torch.allclose(e, exact[i], atol=1e-7) for e, i in zip(each, (0, 2)))
smooth = exact * torch.tensor([1.0, 0.0, 1.0])
show("SmoothCrossEntropy", smooth)
d_x, d_w = torch.autograd.grad(smooth.sum(), (x, w), retain_graph=True)
show("SmoothCrossEntropyDX", d_x)
show("SmoothCrossEntropyDW", d_w)
logprob = torch.log_softmax(x @ w.T, -1)
show("TokenLogprob", torch.stack([logprob[0, 4], torch.tensor(0.0), logprob[2, 1]]))

# The divergence of 3 tokens, the second without a target, from a teacher of width 6, by TRL's own function: forward and
# reverse KL and between them, with temperatures, and once with a cap, biases and weights.
student, teacher, labels = x @ w.T, wave(70, 3, 6) @ wave(71, 5, 6).T, torch.tensor([4, -100, 1])


def divergence(student, teacher, **settings):
    of_words = GKDTrainer.generalized_jsd_loss(student[None], teacher[None], labels[None], reduction="none", **settings)
    return of_words.sum(-1)


for name, settings in (("Forward", {"beta": 0}), ("Reverse", {"beta": 1}), ("Jsd", {"beta": 0.3, "temperature": 2.0})):
    loss = divergence(student, teacher, **settings)
    show(f"Divergence{name}", torch.stack([loss[0], torch.tensor(0.0), loss[1]]))
    d_x, d_w = torch.autograd.grad(loss.sum(), (x, w), retain_graph=True)
    show(f"Divergence{name}DX", d_x)
    show(f"Divergence{name}DW", d_w)
bias, teacher_bias = wave(72, 5), wave(73, 5)
capped, of_teacher = 1.5 * torch.tanh((x @ w.T + bias) / 1.5), 2.5 * torch.tanh((teacher + teacher_bias) / 2.5)
loss = divergence(capped, of_teacher, beta=0.5, temperature=0.7) * torch.tensor([0.5, 2.25])
show("DivergenceCapped", torch.stack([loss[0], torch.tensor(0.0), loss[1]]))
d_x, d_w, d_bias = torch.autograd.grad(loss.sum(), (x, w, bias))
show("DivergenceCappedDX", d_x)
show("DivergenceCappedDW", d_w)
show("DivergenceCappedDBias", d_bias)

# Which targets are the largest logit, as TRL's mean_token_accuracy counts them. Every word is there twice: the first of
# equal logits counts.
x8, w10 = wave(10, 8, 4), torch.cat((w, w))
target = torch.tensor([2, 8, 4, -100, 9, 0, 6, 2])
show("Ranked", ((x8 @ w10.T).argmax(-1) == target) & (target != -100))

# Preferences of a pair of answers, TRL's formula for DPO: the loss by the difference of both log-ratios, and minus its
# derivative by the log-probabilities of the chosen answer's tokens.
policy = torch.tensor([-1.0, -2.5, -3.0], requires_grad=True)  # two tokens of the chosen answer, one of the rejected
chosen, rejected = policy[:2].sum() + 4.0, policy[2] + 2.0
delta, per_token = chosen - rejected, chosen / 2 - rejected
for name, loss in (("Sigmoid", -F.logsigmoid(0.5 * delta)), ("Hinge", torch.relu(1 - 0.5 * delta)),
                   ("Ipo", (per_token - 1 / (2 * 0.5))**2)):
    show(f"Preference{name}", torch.cat((loss.detach()[None], -torch.autograd.grad(loss, policy, retain_graph=True)[0])))

# The same without a reference, by means (CPOTrainer with loss_type simpo, gamma 0.3, smoothing 0.1; ORPOTrainer).
chosen, rejected = policy[:2].mean(), policy[2]
logit = 0.5 * (chosen - rejected) - 0.3
log_odds = (chosen - rejected) - (torch.log1p(-chosen.exp()) - torch.log1p(-rejected.exp()))
for name, loss in (("Simpo", -0.9 * F.logsigmoid(logit) - 0.1 * F.logsigmoid(-logit)), ("Orpo", -0.5 * F.logsigmoid(log_odds))):
    show(f"Preference{name}", torch.cat((loss.detach()[None], -torch.autograd.grad(loss, policy, retain_graph=True)[0])))
# KTOTrainer: a good answer of two tokens, a bad one of one, with weights 1.5 and 0.5 and kl 0.25.
good, bad = policy[:2].sum() + 4.0, policy[2] + 2.0
losses = torch.stack((1.5 * (1 - torch.sigmoid(0.5 * (good - 0.25))), 0.5 * (1 - torch.sigmoid(0.5 * (0.25 - bad)))))
show("UnpairedPreference", torch.cat((losses.detach(), -torch.autograd.grad(losses.sum(), policy)[0])))

# Rewards of a pair's answers, TRL's formula for reward models, with a margin and a centre; gradients of both rewards.
rewards = torch.tensor([0.75, -0.5], requires_grad=True)
loss = -F.logsigmoid(rewards[0] - rewards[1] - 0.25) + 0.3 * rewards.sum()**2
show("RewardLoss", torch.cat((loss.detach()[None], torch.autograd.grad(loss, rewards)[0])))
# The class of the greatest logit of each token.
show("ClassReport", wave(36, 5, 3).argmax(-1).double())

# Clipping the gradient of the mean over 10 tokens, given the sum's.
p = torch.nn.Parameter(torch.zeros(4))
p.grad = torch.tensor([3.0, -4.0, 12.0, 84.0]) / 10
norm = torch.nn.utils.clip_grad_norm_([p], 1.0)
show("ClippedGradient", p.grad)
show("ClipNorm", norm)

# AdamW: w, m, v after each of two steps.
p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
optimizer = torch.optim.AdamW([p], lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
for step, gradient in ((1, [0.1, -0.2, 3.0]), (2, [-0.4, 0.0, 3.0])):
    p.grad = torch.tensor(gradient)
    optimizer.step()
    state = optimizer.state[p]
    show(f"AdamwStep{step}", torch.stack((p.data, state["exp_avg"], state["exp_avg_sq"])))

# SGD: w and the momentum after each of three steps.
for name, momentum, nesterov in (("Sgd", 0.9, False), ("SgdNesterov", 0.9, True), ("SgdPlain", 0.0, False)):
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    optimizer = torch.optim.SGD([p], lr=1e-2, momentum=momentum, nesterov=nesterov, weight_decay=0.1)
    values = []
    for gradient in ([0.1, -0.2, 3.0], [-0.4, 0.0, 3.0], [0.2, 0.5, -1.0]):
        p.grad = torch.tensor(gradient)
        optimizer.step()
        values += [p.data.clone(), optimizer.state[p]["momentum_buffer"].clone() if momentum else torch.zeros(3)]
    show(name, torch.stack(values))

# Lion: w and the mean after each of three steps.
p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
optimizer = Lion([p], lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1)
values = []
for gradient in ([0.1, -0.2, 3.0], [-0.4, 0.0, 3.0], [0.2, 0.5, -1.0]):
    p.grad = torch.tensor(gradient)
    optimizer.step()
    values += [p.data.clone(), optimizer.state[p]["exp_avg"].clone()]
show("Lion", torch.stack(values))

# bitsandbytes' maps, and its AdamW8bit: w, the codes of m and v with their absmaxes, after each of three steps of a block
# and a part of one. Without its native library, whose codes are those of the nearest of 65,536 steps.
# In f32.
torch.set_default_dtype(torch.float32)
load, ctypes.cdll.LoadLibrary = ctypes.cdll.LoadLibrary, None
import bitsandbytes  # noqa: E402

ctypes.cdll.LoadLibrary = load
show("DynamicMap", bitsandbytes.functional.create_dynamic_map(signed=True))
show("UnsignedDynamicMap", bitsandbytes.functional.create_dynamic_map(signed=False))
i = torch.arange(300)
p = torch.nn.Parameter((i * 37 % 101 - 50) / 64)
optimizer = bitsandbytes.optim.AdamW8bit([p], lr=1e-2, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, min_8bit_size=1)
values = []
for step in range(3):
    # Magnitudes from 2^-20 to 1, and zeros.
    p.grad = ((i * 29 + step * 7) % 83 - 41) / 41 * 2.0 ** -(i * 11 % 21)
    optimizer.step()
    state = optimizer.state[p]
    values += [x.clone().double() for x in (p.data, state["state1"], state["absmax1"], state["state2"], state["absmax2"])]
show("Adamw8bit", torch.cat(values))
torch.set_default_dtype(torch.float64)


# torch.optim.Muon, which iterates in bf16, with its iteration in f32: w and the momentum after each of two steps of a wide
# and a tall matrix.
def orthogonal(grad, coefficients, steps, eps):
    a, b, c = coefficients
    x = grad if grad.size(0) <= grad.size(1) else grad.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if grad.size(0) <= grad.size(1) else x.T


torch.optim._muon._zeropower_via_newtonschulz = orthogonal
for name, shape, adjust, nesterov in (("MuonWide", (3, 5), None, True), ("MuonTall", (5, 3), "match_rms_adamw", False)):
    i = torch.arange(15)
    p = torch.nn.Parameter(((i * 7 % 13 - 6) / 8).reshape(shape))
    optimizer = torch.optim.Muon([p], lr=1e-2, weight_decay=0.1, nesterov=nesterov, adjust_lr_fn=adjust)
    values = []
    for step in range(2):
        p.grad = (((i + step) * 5 % 11 - 5) / 16).reshape(shape)
        optimizer.step()
        values += [p.data.clone(), optimizer.state[p]["momentum_buffer"].clone()]
    show(name, torch.stack(values))

# transformers' Adafactor as its Trainer makes it: w and the states after each of two steps of a matrix, of two matrices
# in one tensor whose learning rate its scale multiplies, and of a vector.
for name, shape, scale in (("AdafactorMatrix", (3, 5), False), ("AdafactorStack", (2, 3, 2), True), ("AdafactorVector", (7,), False)):
    i = torch.arange(torch.Size(shape).numel())
    p = torch.nn.Parameter(((i * 7 % 13 - 6) / 8).reshape(shape))
    optimizer = Adafactor([p], lr=1e-2, weight_decay=0.1, scale_parameter=scale, relative_step=False)
    values = []
    for step in range(2):
        p.grad = (((i + step) * 5 % 11 - 5) / 16).reshape(shape)
        optimizer.step()
        state = optimizer.state[p]
        values += [x.clone().flatten() for x in (p.data, *(state[k] for k in ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq")
                                                          if k in state))]
    show(name, torch.cat(values))

# torch's moving average of weights after each of three steps, with a decay above and one below 0.5.
for name, decay in (("AverageSlow", 0.9), ("AverageFast", 0.3)):
    module = torch.nn.Linear(4, 1, bias=False)
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(decay))
    values = []
    for step in range(3):
        module.weight.data = wave(70 + step, 1, 4).detach()
        average.update_parameters(module)
        values.append(average.module.weight.detach().clone())
    show(name, torch.cat(values))

print("// clang-format on\n\n}  // namespace temper::goldens")
