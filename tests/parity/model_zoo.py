"""Tiny random-weight models, one per path through each architecture, and their forms of storage."""

import json
import pathlib
import shutil
import zlib

import numpy as np
import safetensors.torch
import torch
import transformers

VOCAB = 96

LLAMA = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=80,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    rms_norm_eps=1e-3,  # large enough to show if a reader uses a default instead
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
)
# Changes to LLAMA, for families of many models.
SMALL_PAIR = dict(hidden_size=24, intermediate_size=28, num_attention_heads=2, num_key_value_heads=2, vocab_size=48)
OPT = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    word_embed_proj_dim=32,
    ffn_dim=72,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=64,
    dropout=0.0,  # OPT's own default of 0.1 would make the reference random
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)

GPT2 = dict(
    vocab_size=64,
    n_embd=24,
    n_layer=1,
    n_head=3,
    n_positions=64,
    layer_norm_epsilon=1e-3,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
SMALL = dict(vocab_size=64, hidden_size=24, num_attention_heads=3, intermediate_size=40)

LITTLE = dict(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, num_key_value_heads=1, intermediate_size=20,
              vocab_size=48, tie_word_embeddings=True)

# Families of few new parts: sizes at which a variant takes 20 to 40 KB of goldens.
TINY = dict(num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
            vocab_size=32)
TINY_LAYER = dict(TINY, num_hidden_layers=1, num_key_value_heads=1)
TINY_GPT = dict(GPT2, vocab_size=32, n_embd=16, n_layer=2, n_head=2)
TINY_NEO = dict(TINY, max_position_embeddings=64, num_key_value_heads=None, layer_norm_epsilon=1e-3,
                attention_types=[[["global", "local"], 1]], pad_token_id=0, bos_token_id=1, eos_token_id=2)
TINY_PARTS = dict(vocab_size=32, hidden_size=16, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2,
                  head_dim=4, max_position_embeddings=256, layer_norm_epsilon=1e-3, pad_token_id=0, bos_token_id=1,
                  eos_token_id=2)
TINY_GEMMA4 = dict(vocab_size=32, hidden_size=12, intermediate_size=12, num_attention_heads=2, num_key_value_heads=1,
                   rms_norm_eps=0.02, sliding_window=6, tie_word_embeddings=False, rope_parameters=None)
TINY_ALIBI = dict(vocab_size=32, layer_norm_epsilon=1e-3, pad_token_id=0, bos_token_id=1, eos_token_id=2)
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
# Latent attention: widths that all differ.
TINY_LATENT = dict(TINY, num_key_value_heads=4, q_lora_rank=10, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4,
                   v_head_dim=5)
LATENT_LAYER = dict(TINY_LATENT, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)
# Both scales of YaRN, of the embedding and of scores.
LATENT_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0, "mscale": 0.7,
               "mscale_all_dim": 1.3, "original_max_position_embeddings": 16}

# With head_dim 16 the wavelengths are 6.3, 19.9, 62.8, 199, ...: below 128/4 kept, above 128/1 divided by the factor,
# 62.8 in the smooth part between them.
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}

MODELS = {
    # Plain multi-head attention, untied; nothing is a multiple of 16, so kernels' tails run.
    "llama_mha": ("llama", dict(
        hidden_size=36, intermediate_size=60, num_attention_heads=3, num_key_value_heads=3, vocab_size=101,
        rms_norm_eps=1e-6, tie_word_embeddings=False)),
    "llama_gqa_tied": ("llama", dict(tie_word_embeddings=True)),
    "llama_rope_llama3": ("llama", dict(num_attention_heads=2, num_key_value_heads=1, rope_parameters=LLAMA3_ROPE)),
    "llama_rope_linear": ("llama", dict(num_key_value_heads=4, tie_word_embeddings=True, rope_parameters={
        "rope_type": "linear", "rope_theta": 500000.0, "factor": 4.0})),
    "llama_biases": ("llama", dict(attention_bias=True, mlp_bias=True)),
    # Queries are 64 wide while the model is 32.
    "llama_head_dim": ("llama", dict(head_dim=16, num_key_value_heads=1, tie_word_embeddings=True)),
    # Fused projections with fewer key heads, and a window shorter than most documents.
    "phi3_window": ("phi3", dict(sliding_window=5)),
    "mistral_window": ("mistral", dict(sliding_window=6, head_dim=12, vocab_size=64)),
    "mistral_no_window": ("mistral", dict(sliding_window=None, tie_word_embeddings=True, vocab_size=64)),
    "ministral": ("ministral", dict(head_dim=8, sliding_window=6, vocab_size=64, layer_types=[
        "full_attention", "sliding_attention"])),
    "qwen2_tied": ("qwen2", dict(tie_word_embeddings=True, vocab_size=64)),
    # The last two of four blocks have a window.
    "qwen2_windows": ("qwen2", dict(use_sliding_window=True, sliding_window=5, max_window_layers=2,
                                    num_hidden_layers=4, vocab_size=64)),
    "qwen3": ("qwen3", dict(head_dim=16, vocab_size=64)),
    # Biases, one key head, and windows by a list.
    "qwen3_biases_layer_types": ("qwen3", dict(
        head_dim=8, num_key_value_heads=1, attention_bias=True, tie_word_embeddings=True, use_sliding_window=True,
        sliding_window=5, layer_types=["sliding_attention", "full_attention"], vocab_size=64)),
    "seed_oss": ("seed_oss", dict(head_dim=8, residual_dropout=0.0, attention_dropout=0.0, vocab_size=64)),
    "seed_oss_biases": ("seed_oss", dict(head_dim=12, attention_bias=False, attention_out_bias=True, mlp_bias=True,
                                         tie_word_embeddings=True, residual_dropout=0.0, attention_dropout=0.0,
                                         vocab_size=64)),
    # The first 12 of a head's 16 elements are rotated; rows are within the original context.
    "phi3_longrope": ("phi3", dict(
        hidden_size=48, num_attention_heads=3, num_key_value_heads=1, original_max_position_embeddings=64,
        tie_word_embeddings=True, vocab_size=64, intermediate_size=48, rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.1, 1.2, 1.3, 1.5, 2.0], "long_factor": [1.0, 1.5, 2.0, 4.0, 8.0, 16.0]})),
    # All documents are longer than the original context, except one of a single token, which is not rotated.
    "phi3_longrope_far": ("phi3", dict(
        original_max_position_embeddings=5, vocab_size=64, intermediate_size=48, rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.2, 1.3],
            "long_factor": [1.0, 1.5, 2.0, 4.0]})),
    # Documents on both sides of the original length, one of exactly that length.
    "phi3_longrope_mixed": ("phi3", dict(
        **LITTLE, original_max_position_embeddings=14, rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.2, 1.3],
            "long_factor": [1.0, 1.5, 2.0, 4.0]})),
    # The same, and documents beyond it differ from each other.
    "llama_rope_dynamic": ("llama", dict(
        **LITTLE, max_position_embeddings=14,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0})),
    "glm": ("glm", dict(head_dim=16, num_key_value_heads=1, vocab_size=64)),
    "glm4": ("glm4", dict(head_dim=12, vocab_size=64, attention_bias=False, tie_word_embeddings=True, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
    "olmo2": ("olmo2", dict(attention_bias=True, vocab_size=64)),
    # YaRN in the layers without a window.
    "olmo3": ("olmo3", dict(sliding_window=6, num_hidden_layers=4, intermediate_size=48, vocab_size=64, rope_parameters={
        "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0, "beta_fast": 32.0,
                           "beta_slow": 1.0, "attention_factor": 1.2079441541679836,
                           "original_max_position_embeddings": 32},
        "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0}})),
    # Positions only in layers 0 and 2, windows in the others.
    "smollm3": ("smollm3", dict(
        num_hidden_layers=4, intermediate_size=48, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=7,
        tie_word_embeddings=True, vocab_size=64)),
    "smollm3_listed": ("smollm3", dict(no_rope_layers=[0, 1], attention_bias=True, mlp_bias=True,
                                       tie_word_embeddings=False, vocab_size=64)),
    # Queries grow from position 16 on.
    "ministral3": ("ministral3", dict(head_dim=16, sliding_window=None, vocab_size=64, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1000000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})),
    "llama_rope_yarn": ("llama", dict(head_dim=16, num_hidden_layers=1, vocab_size=64, rope_parameters={
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
        "beta_fast": 4.0, "truncate": False})),
    "cohere2": ("cohere2", dict(SMALL, num_attention_heads=6, num_key_value_heads=3, layer_norm_eps=1e-3,
                                logit_scale=0.25, sliding_window=6, layer_types=["sliding_attention", "full_attention"],
                                tie_word_embeddings=True)),
    "cohere2_biases": ("cohere2", dict(SMALL, vocab_size=32, num_key_value_heads=None, attention_bias=True, sliding_window=9,
                                       num_hidden_layers=1, tie_word_embeddings=False)),
    "starcoder2": ("starcoder2", dict(SMALL, num_attention_heads=6, norm_epsilon=1e-3, sliding_window=5,
                                      tie_word_embeddings=True)),
    "starcoder2_no_biases": ("starcoder2", dict(SMALL, vocab_size=32, num_key_value_heads=1, use_bias=False,
                                                hidden_act="relu", num_hidden_layers=1, tie_word_embeddings=False)),
    "gpt2": ("gpt2", dict(n_layer=2, n_inner=40)),
    # Scores are divided by the number of the layer alone.
    "gpt2_by_layer": ("gpt2", dict(n_layer=2, n_embd=16, n_head=2, activation_function="gelu", vocab_size=32,
                                   scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True,
                                   reorder_and_upcast_attn=True, tie_word_embeddings=False)),
    "gpt_neox": ("gpt_neox", dict(SMALL, layer_norm_eps=1e-3, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25})),
    "gpt_neox_sequential": ("gpt_neox", dict(
        SMALL, vocab_size=32, num_hidden_layers=1, use_parallel_residual=False, attention_bias=False, hidden_act="gelu_fast",
        tie_word_embeddings=True, rope_parameters={
            "rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5})),
    # Untied, for generation: scaled embeddings that are the head, too, repeat the last token.
    "gemma": ("gemma", dict(SMALL_PAIR, head_dim=16, tie_word_embeddings=False)),
    "gemma_biases": ("gemma", dict(SMALL_PAIR, head_dim=12, num_key_value_heads=1, attention_bias=True,
                                   num_hidden_layers=1)),
    # Caps that bend most scores and logits.
    "gemma2": ("gemma2", dict(SMALL_PAIR, head_dim=16, sliding_window=6, query_pre_attn_scalar=24, tie_word_embeddings=False,
                              attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    # No caps, the exact GELU, biases, the window in the second layer.
    "gemma2_no_caps": ("gemma2", dict(
        SMALL_PAIR, head_dim=12, num_key_value_heads=1, sliding_window=5, query_pre_attn_scalar=12, attention_bias=True,
        attn_logit_softcapping=None, final_logit_softcapping=None, hidden_activation="gelu",
        layer_types=["full_attention", "sliding_attention"])),
    # A stretched embedding in the layer without a window.
    "gemma3": ("gemma3_text", dict(
        SMALL_PAIR, head_dim=16, sliding_window=6, query_pre_attn_scalar=20, tie_word_embeddings=False,
        layer_types=["sliding_attention", "full_attention"], rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})),
    "gemma3_capped": ("gemma3_text", dict(
        SMALL_PAIR, head_dim=12, num_key_value_heads=1, sliding_window=5, query_pre_attn_scalar=12, attention_bias=True,
        final_logit_softcapping=2.0, rope_parameters=None, layer_types=["full_attention", "sliding_attention"])),
    "granite": ("granite", dict(SMALL_PAIR, embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2,
                                logits_scaling=1.7)),
    "granite_biases": ("granite", dict(SMALL_PAIR, num_hidden_layers=1, num_key_value_heads=1, attention_bias=True,
                                       mlp_bias=True, attention_multiplier=0.3, tie_word_embeddings=True)),
    "cohere": ("cohere", dict(TINY, layer_norm_eps=1e-3, logit_scale=0.25, tie_word_embeddings=False)),
    "cohere_biases": ("cohere", dict(TINY_LAYER, attention_bias=True, tie_word_embeddings=True)),
    "cohere_norms": ("cohere", dict(TINY_LAYER, num_key_value_heads=2, vocab_size=16, layer_norm_eps=1e-3, use_qk_norm=True,
                                    tie_word_embeddings=True)),
    # A window and positions in the first layer, neither in the second.
    "cohere_compass": ("cohere_compass_text", dict(
        TINY, layer_norm_eps=1e-3, sliding_window=6, layer_types=["sliding_attention", "full_attention"],
        tie_word_embeddings=False, rope_parameters={"sliding_attention": PLAIN_ROPE, "full_attention": None})),
    "cohere_compass_ropes": ("cohere_compass_text", dict(
        TINY, attention_bias=True, logit_scale=0.5, sliding_window=5, tie_word_embeddings=True,
        layer_types=["full_attention", "sliding_attention"], rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}})),
    # The class's own stretched embedding, and its windows: not in the first of four layers.
    "cwm": ("cwm", dict(TINY, head_dim=8, sliding_window=6, rope_parameters=None)),
    "cwm_biases": ("cwm", dict(TINY_LAYER, head_dim=4, sliding_window=5, layer_types=["sliding_attention"], mlp_bias=True,
                               tie_word_embeddings=True)),
    "ernie4_5": ("ernie4_5", dict(TINY, head_dim=8, tie_word_embeddings=False)),
    "ernie4_5_biases": ("ernie4_5", dict(TINY_LAYER, head_dim=None, use_bias=True, tie_word_embeddings=True)),
    # Llama with other names in files.
    "exaone": ("exaone", dict(TINY, attention_bias=True)),
    "exaone_tied": ("exaone", dict(TINY_LAYER, head_dim=8, mlp_bias=True, tie_word_embeddings=True)),
    # A window and positions in the first layer.
    "exaone4": ("exaone4", dict(TINY, sliding_window=6, sliding_window_pattern=2)),
    "exaone4_no_window": ("exaone4", dict(TINY_LAYER, head_dim=8, sliding_window=None, layer_types=["full_attention"],
                                          tie_word_embeddings=True)),
    # As 7B: one KV head, one norm for both parts.
    "falcon": ("falcon", dict(TINY, layer_norm_epsilon=1e-3, ffn_hidden_size=24, tie_word_embeddings=False)),
    # As 40B: queries, key and value of each KV head follow each other.
    "falcon_new": ("falcon", dict(TINY, new_decoder_architecture=True, num_kv_heads=2, bias=True, ffn_hidden_size=24)),
    "falcon_new_one_norm": ("falcon", dict(
        TINY_LAYER, new_decoder_architecture=True, num_kv_heads=1, num_ln_in_parallel_attn=1,
        activation="gelu_new", ffn_hidden_size=24)),
    "falcon_sequential": ("falcon", dict(
        TINY_LAYER, parallel_attn=False, multi_query=False, bias=True, rope_parameters={
            "rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0})),
    # As RW: ALiBi. Slopes of 16 heads are not exact in bf16, to which the class rounds them and what they give.
    "falcon_rw": ("falcon", dict(TINY, alibi=True, tie_word_embeddings=False, parallel_attn=False, multi_query=False, bias=True, layer_norm_epsilon=1e-3)),
    "falcon_rounded_slopes": ("falcon", dict(
        TINY_LAYER, alibi=True, hidden_size=32, num_attention_heads=16, ffn_hidden_size=24, vocab_size=16)),
    "bloom": ("bloom", dict(tie_word_embeddings=False)),
    # Not a power of two.
    "bloom_heads": ("bloom", dict(n_layer=1, hidden_size=24, n_head=6, apply_residual_connection_post_layernorm=True)),
    "mpt": ("mpt", dict(tie_word_embeddings=False, attn_config=dict(clip_qkv=1.25))),
    "mpt_heads": ("mpt", dict(n_layers=1, d_model=24, n_heads=6, attn_config=dict(softmax_scale=0.3))),
    "apertus": ("apertus", dict(TINY, rope_parameters=LLAMA3_ROPE)),
    "apertus_biases": ("apertus", dict(TINY_LAYER, attention_bias=True, tie_word_embeddings=True)),
    # A head of fewer words than the embedding: 20 of 32.
    "apertus1p5": ("apertus1p5_text", dict(TINY, output_vocab_size=20, rope_parameters=LLAMA3_ROPE)),
    "xglm": ("xglm", dict(tie_word_embeddings=False)),
    "xglm_gelu_new": ("xglm", dict(num_layers=1, scale_embedding=False, activation_function="gelu_new")),
    "ctrl": ("ctrl", dict(tie_word_embeddings=False)),
    "ctrl_tied": ("ctrl", dict(n_layer=1)),
    "gpt_neox_japanese": ("gpt_neox_japanese", dict(TINY, tie_word_embeddings=False, hidden_size=24, intermediate_multiple_size=1, rope_parameters=dict(
        PLAIN_ROPE, rope_theta=500.0, partial_rotary_factor=0.67))),
    "gpt_neox_japanese_tied": ("gpt_neox_japanese", dict(TINY_LAYER, hidden_act="relu", intermediate_multiple_size=2)),
    # The first layer without a norm before attention, the second with a window; a dense layer before the head.
    "modernbert_decoder": ("modernbert-decoder", dict(
        TINY, norm_eps=1e-3, local_attention=12, tie_word_embeddings=False, rope_parameters=None)),
    "modernbert_decoder_biases": ("modernbert-decoder", dict(
        TINY_LAYER, norm_bias=True, attention_bias=True, mlp_bias=True, classifier_bias=True, decoder_bias=False, rope_parameters=None,
        classifier_activation="relu", layer_types=["sliding_attention"], local_attention=8)),
    "granite_swa": ("granite_swa", dict(TINY, sliding_window=6, layer_rope_theta=[0, 500.0], tie_word_embeddings=False,
                                        embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.3,
                                        logits_scaling=0.6)),
    "granite_swa_biases": ("granite_swa", dict(TINY_LAYER, layer_types=["sliding_attention"], sliding_window=4,
                                               attention_bias=True, mlp_bias=True)),
    "gpt_bigcode": ("gpt_bigcode", dict(n_inner=24, tie_word_embeddings=False)),
    "gpt_bigcode_heads": ("gpt_bigcode", dict(n_layer=1, multi_query=False, scale_attn_weights=False,
                                              activation_function="relu")),
    "gpt_neo": ("gpt_neo", dict(window_size=6, tie_word_embeddings=False)),
    "gpt_neo_local": ("gpt_neo", dict(num_hidden_layers=1, window_size=4, attention_types=[[["local"], 1]],
                                      intermediate_size=None, activation_function="gelu")),
    "helium": ("helium", dict(TINY, head_dim=4)),
    "helium_biases": ("helium", dict(TINY_LAYER, head_dim=4, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "hyperclovax": ("hyperclovax", dict(TINY, head_dim=8, embedding_multiplier=3.0, residual_multiplier=0.4,
                                        attention_multiplier=0.3, logits_scaling=0.6)),
    "hyperclovax_plain": ("hyperclovax", dict(TINY_LAYER, use_post_norm=False, attention_bias=True, mlp_bias=True,
                                              tie_word_embeddings=True)),
    "olmo": ("olmo", dict(TINY)),
    "olmo_clip": ("olmo", dict(TINY_LAYER, clip_qkv=1.0)),
    "olmo_biases": ("olmo", dict(TINY_LAYER, attention_bias=True, tie_word_embeddings=True)),
    "openai_gpt": ("openai-gpt", dict(tie_word_embeddings=False)),
    "openai_gpt_relu": ("openai-gpt", dict(n_layer=1, afn="relu")),
    "stablelm": ("stablelm", dict(TINY, layer_norm_eps=1e-3, rope_parameters=dict(PLAIN_ROPE, partial_rotary_factor=0.5))),
    "stablelm_parallel": ("stablelm", dict(
        TINY_LAYER, hidden_size=32, use_parallel_residual=True, use_qkv_bias=True, tie_word_embeddings=True,
        rope_parameters=dict(PLAIN_ROPE, partial_rotary_factor=0.25))),
    # Norms of each head, as 12B.
    "stablelm_norms": ("stablelm", dict(
        TINY_LAYER, num_key_value_heads=2, vocab_size=16, layer_norm_eps=1e-3, use_parallel_residual=True, qk_layernorm=True,
        tie_word_embeddings=True, rope_parameters=dict(PLAIN_ROPE, partial_rotary_factor=0.5))),
    # A head with a bias.
    "phi": ("phi", dict(TINY, layer_norm_eps=1e-3, rope_parameters=dict(PLAIN_ROPE, partial_rotary_factor=0.5))),
    "phi_norms": ("phi", dict(TINY_LAYER, vocab_size=16, qk_layernorm=True, hidden_act="relu", tie_word_embeddings=True,
                              rope_parameters=dict(PLAIN_ROPE, partial_rotary_factor=0.5))),
    "gptj": ("gptj", dict(n_layer=1, n_inner=24, rotary_dim=4)),
    "codegen": ("codegen", dict(n_head=4, n_inner=24, rotary_dim=2)),
    # Heads of two devices each.
    "codegen_tied": ("codegen", dict(n_layer=1, vocab_size=16, n_inner=20, rotary_dim=8, activation_function="gelu",
                                     tie_word_embeddings=True)),
    # Norms of q and k that all heads share.
    "persimmon": ("persimmon", dict(TINY_LAYER, layer_norm_eps=1e-3, rope_parameters=dict(PLAIN_ROPE, partial_rotary_factor=0.5))),
    "vaultgemma": ("vaultgemma", dict(TINY, head_dim=8, sliding_window=6, query_pre_attn_scalar=12,
                                      tie_word_embeddings=False, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "vaultgemma_no_caps": ("vaultgemma", dict(
        TINY_LAYER, head_dim=4, query_pre_attn_scalar=4, attention_bias=True, attn_logit_softcapping=None,
        final_logit_softcapping=None, hidden_activation="gelu", layer_types=["full_attention"])),
    "arcee": ("arcee", dict(TINY)),
    "arcee_biases": ("arcee", dict(TINY_LAYER, head_dim=8, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "jais2": ("jais2", dict(TINY, layer_norm_eps=1e-3)),
    "jais2_no_biases": ("jais2", dict(TINY_LAYER, attention_bias=False, mlp_bias=False, hidden_act="gelu",
                                      tie_word_embeddings=True)),
    "nemotron": ("nemotron", dict(TINY, head_dim=8, norm_eps=1e-3, rope_parameters=dict(
        PLAIN_ROPE, partial_rotary_factor=0.5))),
    "nemotron_biases": ("nemotron", dict(TINY_LAYER, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                         rope_parameters=dict(PLAIN_ROPE, partial_rotary_factor=0.5))),
    # A base that is stretched once.
    "hunyuan": ("hunyuan_v1_dense", dict(TINY, head_dim=8, rope_parameters={
        "rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0})),
    "hunyuan_biases": ("hunyuan_v1_dense", dict(TINY_LAYER, head_dim=4, attention_bias=True, tie_word_embeddings=True)),
    "nanochat": ("nanochat", dict(TINY, final_logit_softcapping=3.0)),
    "nanochat_biases": ("nanochat", dict(TINY_LAYER, attention_bias=True, final_logit_softcapping=None, hidden_act="relu",
                                         tie_word_embeddings=True)),
    # A gated short convolution, then attention.
    "lfm2": ("lfm2", dict(TINY, intermediate_size=36, norm_eps=1e-3, block_multiple_of=8, tie_word_embeddings=False,
                          layer_types=["conv", "full_attention"])),
    "lfm2_biases": ("lfm2", dict(TINY, conv_bias=True, conv_L_cache=4, block_auto_adjust_ff_dim=False,
                                 full_attn_idxs=[0])),
    # A gated delta net of two value heads for each key head, then attention with a gated output.
    "qwen3_5": ("qwen3_5_text", dict(
        TINY, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12,
        linear_value_head_dim=6, layer_types=["linear_attention", "full_attention"], rope_parameters=dict(
            PLAIN_ROPE, partial_rotary_factor=0.5, mrope_section=[1, 1, 0], mrope_interleaved=True))),
    "qwen3_5_tied": ("qwen3_5_text", dict(
        TINY, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=8,
        linear_value_head_dim=4, linear_conv_kernel_dim=3, full_attention_interval=2, attention_bias=True,
        tie_word_embeddings=True)),
    # As E2B: vectors for each layer; keys and values that the last layers take, whose MLPs are twice as wide.
    "gemma4": ("gemma4_text", dict(
        TINY_GEMMA4, num_hidden_layers=5, head_dim=8, global_head_dim=12, hidden_size_per_layer_input=6,
        vocab_size_per_layer_input=32, num_kv_shared_layers=2, use_double_wide_mlp=True, final_logit_softcapping=3.0,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 2000.0}})),
    # As 31B: neither of these; layers of full attention have no values of their own, and other KV heads.
    "gemma4_k_eq_v": ("gemma4_text", dict(
        TINY_GEMMA4, vocab_size=16, num_hidden_layers=2, num_key_value_heads=2, head_dim=4, global_head_dim=8,
        hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1, attention_bias=True,
        hidden_activation="gelu", tie_word_embeddings=True, layer_types=["sliding_attention", "full_attention"])),
    "gemma4_per_layer": ("gemma4_text", dict(
        TINY_GEMMA4, vocab_size=16, num_hidden_layers=1, head_dim=4, global_head_dim=8, hidden_size_per_layer_input=6,
        vocab_size_per_layer_input=20, sliding_window=64, layer_types=["full_attention"], tie_word_embeddings=True)),
    # As 12B, whose class is its own; keys that are values are shared.
    "gemma4_unified": ("gemma4_unified_text", dict(
        TINY_GEMMA4, num_hidden_layers=3, head_dim=4, global_head_dim=8, attention_k_eq_v=True,
        num_global_key_value_heads=1, num_kv_shared_layers=1,
        layer_types=["sliding_attention", "full_attention", "full_attention"])),
    # Experts in all blocks, or in one of two.
    "mixtral": ("mixtral", dict(TINY, num_local_experts=4, num_experts_per_tok=2)),
    "mixtral_window": ("mixtral", dict(TINY_LAYER, num_local_experts=3, num_experts_per_tok=1, sliding_window=5,
                                       tie_word_embeddings=True)),
    "olmoe": ("olmoe", dict(TINY, num_experts=5, num_experts_per_tok=2)),
    "olmoe_clip": ("olmoe", dict(TINY_LAYER, num_experts=3, num_experts_per_tok=2, clip_qkv=1.0)),
    "olmoe_normalised": ("olmoe", dict(TINY_LAYER, num_experts=4, num_experts_per_tok=3, norm_topk_prob=True,
                                       attention_bias=True)),
    # Beside an MLP of all tokens, with a gate.
    "qwen2_moe": ("qwen2_moe", dict(TINY, moe_intermediate_size=12, shared_expert_intermediate_size=20, num_experts=4,
                                    num_experts_per_tok=2)),
    "qwen2_moe_windows": ("qwen2_moe", dict(
        TINY, moe_intermediate_size=8, shared_expert_intermediate_size=12, num_experts=3, num_experts_per_tok=2,
        decoder_sparse_step=2, norm_topk_prob=True, use_sliding_window=True, sliding_window=5, qkv_bias=False)),
    # Those experts in a model of gated delta nets, in files that stack all experts of a layer.
    "qwen3_5_moe": ("qwen3_5_moe_text", dict(
        TINY, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8,
        linear_value_head_dim=6, layer_types=["linear_attention", "full_attention"], moe_intermediate_size=12,
        shared_expert_intermediate_size=20, num_experts=4, num_experts_per_tok=2, rope_parameters=dict(
            PLAIN_ROPE, partial_rotary_factor=0.5, mrope_section=[1, 1, 0], mrope_interleaved=True))),
    # The model before it: projections of a delta net fused by key head, experts in files of their own, an MLP first.
    "qwen3_next": ("qwen3_next", dict(
        TINY, head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
        linear_value_head_dim=4, full_attention_interval=2, moe_intermediate_size=8, shared_expert_intermediate_size=12,
        num_experts=4, num_experts_per_tok=2, mlp_only_layers=[0], rope_parameters=dict(
            PLAIN_ROPE, partial_rotary_factor=0.25))),
    # Experts chosen by logistic scores and a bias, in two groups of which one is left, behind a block with an MLP.
    "glm4_moe": ("glm4_moe", dict(
        TINY, head_dim=8, moe_intermediate_size=10, n_routed_experts=6, n_shared_experts=2, num_experts_per_tok=2, n_group=2,
        topk_group=1, routed_scaling_factor=1.5, use_qk_norm=True, rope_parameters=dict(PLAIN_ROPE, partial_rotary_factor=0.5))),
    "glm4_moe_plain": ("glm4_moe", dict(
        TINY_LAYER, head_dim=8, moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2, first_k_dense_replace=0,
        norm_topk_prob=False, attention_bias=True, tie_word_embeddings=True, rope_parameters=dict(
            PLAIN_ROPE, partial_rotary_factor=0.5))),
    # Latent attention. Lite: queries without latents; experts by their probability, behind a block with an MLP.
    "deepseek_v2": ("deepseek_v2", dict(
        TINY_LATENT, q_lora_rank=None, moe_intermediate_size=10, n_routed_experts=6, n_shared_experts=2,
        num_experts_per_tok=2, first_k_dense_replace=1, rope_parameters=LATENT_YARN)),
    "deepseek_v2_groups": ("deepseek_v2", dict(
        LATENT_LAYER, moe_intermediate_size=8, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=2, n_group=3,
        topk_group=2, topk_method="group_limited_greedy", routed_scaling_factor=2.0, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=True)),
    "deepseek_v3": ("deepseek_v3", dict(
        TINY_LATENT, moe_intermediate_size=10, n_routed_experts=8, num_experts_per_tok=3, n_group=4, topk_group=2,
        routed_scaling_factor=1.5, first_k_dense_replace=1, rope_parameters=LATENT_YARN)),
    "deepseek_v3_plain": ("deepseek_v3", dict(
        LATENT_LAYER, q_lora_rank=None, moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2, n_group=1,
        topk_group=1, first_k_dense_replace=0, norm_topk_prob=False, rope_interleave=False, attention_bias=True,
        tie_word_embeddings=True)),
    # The same class, by another configuration.
    "sarvam_mla": ("sarvam_mla", dict(
        LATENT_LAYER, q_lora_rank=None, moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2,
        first_k_dense_replace=0)),
    "glm4_moe_lite": ("glm4_moe_lite", dict(
        TINY_LATENT, v_head_dim=10, moe_intermediate_size=10, n_routed_experts=6, num_experts_per_tok=2)),
    "glm4_moe_lite_plain": ("glm4_moe_lite", dict(
        LATENT_LAYER, q_lora_rank=None, moe_intermediate_size=8, n_routed_experts=4, num_experts_per_tok=2,
        mlp_layer_types=["sparse"], n_group=2, topk_group=1, rope_interleave=False, attention_bias=True,
        tie_word_embeddings=True)),
    "youtu": ("youtu", dict(TINY_LATENT, tie_word_embeddings=False)),
    # Documents on both sides of longrope's original length.
    "minicpm3": ("minicpm3", dict(
        TINY_LATENT, scale_emb=5, scale_depth=0.9, dim_model_base=10, tie_word_embeddings=False, max_position_embeddings=28,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 14,
                         "short_factor": [1.0, 1.2], "long_factor": [1.0, 3.0]})),
    "minicpm3_plain": ("minicpm3", dict(
        LATENT_LAYER, q_lora_rank=None, v_head_dim=None, scale_emb=2, scale_depth=None, dim_model_base=None,
        attention_bias=True, mlp_bias=True)),
    "qwen3_moe": ("qwen3_moe", dict(TINY, head_dim=8, moe_intermediate_size=12, num_experts=6, num_experts_per_tok=2,
                                    norm_topk_prob=True)),
    "qwen3_moe_mixed": ("qwen3_moe", dict(TINY, head_dim=4, moe_intermediate_size=8, num_experts=4,
                                          num_experts_per_tok=2, mlp_only_layers=[0], attention_bias=True)),
    # Clamped experts with biases, sinks, a window in the first of two layers. A limit that bounds a part of the numbers.
    "gpt_oss": ("gpt_oss", dict(TINY, head_dim=4, intermediate_size=12, num_local_experts=4, num_experts_per_tok=2,
                                sliding_window=6, swiglu_limit=1.2, rope_parameters={
                                    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 4.0,
                                    "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 16})),
    "gpt_oss_plain": ("gpt_oss", dict(
        TINY_LAYER, head_dim=4, intermediate_size=12, num_local_experts=3, num_experts_per_tok=2, attention_bias=False,
        sliding_window=5, swiglu_alpha=1.0, swiglu_limit=0.8, layer_types=["sliding_attention"], tie_word_embeddings=True,
        rope_parameters=PLAIN_ROPE)),
    # Mamba-2, then attention without a rotary embedding; multipliers as Granite's.
    "granite_hybrid": ("granitemoehybrid", dict(
        TINY, shared_intermediate_size=28, num_local_experts=0, mamba_n_heads=4, mamba_d_state=6,
        layer_types=["mamba", "attention"], embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.2,
        logits_scaling=1.5)),
    # With experts, which files stack, beside the MLP.
    "granite_hybrid_experts": ("granitemoehybrid", dict(
        TINY, intermediate_size=12, shared_intermediate_size=20, num_local_experts=4, num_experts_per_tok=2,
        mamba_n_heads=4, mamba_d_state=6, layer_types=["mamba", "attention"], embedding_multiplier=3.0,
        residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=1.5)),
    # Attention and Mamba-2 beside each other, with all multipliers; no norm, one behind the gate of two groups, one before.
    "falcon_h1": ("falcon_h1", dict(
        TINY, mamba_d_ssm=24, mamba_n_heads=4, mamba_d_state=6, embedding_multiplier=2.0, lm_head_multiplier=0.6,
        key_multiplier=0.7, attention_out_multiplier=0.8, ssm_in_multiplier=1.3, ssm_out_multiplier=0.7,
        ssm_multipliers=[0.8, 1.2, 0.9, 1.1, 0.7], mlp_multipliers=[1.3, 0.6])),
    "falcon_h1_norm": ("falcon_h1", dict(
        TINY_LAYER, mamba_d_ssm=None, mamba_expand=1, mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=4, mamba_d_conv=3,
        mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_conv_bias=False, mamba_proj_bias=True,
        projectors_bias=True, attention_bias=True, mlp_bias=True, attention_in_multiplier=0.9, ssm_in_multiplier=1.2,
        tie_word_embeddings=True)),
    "falcon_h1_norm_first": ("falcon_h1", dict(
        TINY_LAYER, mamba_d_ssm=16, mamba_n_heads=2, mamba_d_state=4, mamba_rms_norm=True)),
    "granite_moe": ("granitemoe", dict(
        TINY, num_local_experts=4, num_experts_per_tok=2, embedding_multiplier=3.0, residual_multiplier=0.4,
        attention_multiplier=0.4, logits_scaling=1.5)),
    "granite_moe_shared": ("granitemoeshared", dict(
        TINY_LAYER, num_local_experts=3, num_experts_per_tok=2, shared_intermediate_size=12, attention_bias=True,
        tie_word_embeddings=True)),
    "granite_hybrid_rope": ("granitemoehybrid", dict(
        TINY, shared_intermediate_size=24, num_local_experts=0, mamba_n_heads=2, mamba_d_state=4, mamba_d_conv=3,
        mamba_expand=1, mamba_conv_bias=False, mamba_proj_bias=True, attention_bias=True, tie_word_embeddings=True,
        position_embedding_type="rope", layer_types=["attention", "mamba"])),
    # Mamba-2 of two groups of heads, an MLP, attention, an MLP: a part a block.
    "nemotron_h": ("nemotron_h", dict(
        TINY_PARTS, mamba_num_heads=4, mamba_head_dim=6, n_groups=2, ssm_state_size=5,
        layers_block_type=["linear_attention", "mlp", "full_attention", "mlp"])),
    # Many steps are the least.
    "nemotron_h_biases": ("nemotron_h", dict(
        TINY_PARTS, mamba_num_heads=2, mamba_head_dim=8, n_groups=1, ssm_state_size=4, conv_kernel=3, use_conv_bias=False,
        use_bias=True, mlp_bias=True, time_step_min=0.7, layers_block_type=["linear_attention", "full_attention", "mlp"])),
    # A convolution, attention with a window, attention with half of each head's pairs turning; gates of heads.
    "lfm3": ("lfm3", dict(
        TINY, num_hidden_layers=3, head_dim=8, conv_L_cache=5, sliding_window=6, rope_parameters=None,
        layer_types=["conv", "sliding_attention", "full_attention"], tie_word_embeddings=False)),
    "lfm3_plain": ("lfm3", dict(
        TINY_LAYER, num_hidden_layers=2, head_dim=4, conv_L_cache=3, conv_bias=True, use_sandwich_norm=False,
        use_attention_gate=False, attention_bias=True, layer_types=["full_attention", "conv"], rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}})),
    "emu3": ("emu3_text_model", dict(TINY, attention_dropout=0.0)),
    "biogpt": ("biogpt", dict(TINY, tie_word_embeddings=False)),
    "biogpt_plain": ("biogpt", dict(TINY_LAYER, scale_embedding=False, hidden_act="relu")),
    "opt_pre_norm": ("opt", dict()),
    "opt_post_norm_projected": ("opt", dict(do_layer_norm_before=False, word_embed_proj_dim=20)),
    # The other combination that the config allows: norms before, and the final norm feeds project_out.
    "opt_pre_norm_projected": ("opt", dict(word_embed_proj_dim=20, num_hidden_layers=1)),
    "opt_untied": ("opt", dict(tie_word_embeddings=False, num_hidden_layers=1)),
    "opt_no_biases": ("opt", dict(enable_bias=False, num_hidden_layers=1)),
    "opt_plain_norms_gelu": ("opt", dict(layer_norm_elementwise_affine=False, activation_function="gelu",
                                         num_hidden_layers=1)),
    "opt_no_final_norm": ("opt", dict(_remove_final_layer_norm=True, num_hidden_layers=1)),
}


NO_DROPOUT = dict(max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
SIZES = {
    "opt": OPT, "gpt2": GPT2, "gpt_bigcode": TINY_GPT, "openai-gpt": TINY_GPT, "gpt_neo": TINY_NEO,
    "biogpt": dict(LLAMA, **NO_DROPOUT), "nemotron_h": {}, "gptj": TINY_GPT, "codegen": TINY_GPT,
    "bloom": dict(TINY_ALIBI, hidden_size=16, n_layer=2, n_head=4),
    "mpt": dict(TINY_ALIBI, d_model=16, n_layers=2, n_heads=4, max_seq_len=64),
    "xglm": dict(vocab_size=32, d_model=16, ffn_dim=24, num_layers=2, attention_heads=4, max_position_embeddings=64,
                 dropout=0.0, attention_dropout=0.0, pad_token_id=0, bos_token_id=1, eos_token_id=2),
    "ctrl": dict(TINY_ALIBI, n_embd=16, dff=24, n_layer=2, n_head=4, n_positions=64, resid_pdrop=0.0, embd_pdrop=0.0),
    "gpt_neox_japanese": dict(LLAMA, layer_norm_eps=1e-3, attention_dropout=0.0),
    "lfm3": dict({k: v for k, v in LLAMA.items() if k != "rms_norm_eps"}, norm_eps=1e-3),
}
# Files of these are in bf16, which halves them. Their numbers are the same: all weights are exact in bf16.
IN_BF16 = {
    "arcee", "biogpt", "codegen", "cohere", "cohere_compass_text", "cwm", "deepseek_v2", "deepseek_v3", "ernie4_5", "exaone", "exaone4", "falcon", "falcon_h1", "gemma4_text", "gemma4_unified_text", "glm4_moe", "glm4_moe_lite", "minicpm3", "sarvam_mla", "youtu",
    "gpt_bigcode", "gpt_neo", "gpt_oss", "gptj", "granitemoe", "granitemoehybrid", "granitemoeshared", "helium", "hunyuan_v1_dense", "hyperclovax", "jais2", "lfm2", "lfm3", "emu3_text_model", "mixtral", "nanochat",
    "nemotron",
    "apertus", "apertus1p5_text", "bloom", "ctrl", "gpt_neox_japanese", "granite_swa", "modernbert-decoder", "mpt", "xglm",
    "nemotron_h", "olmo", "olmoe", "openai-gpt", "persimmon", "phi", "qwen2_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_moe", "qwen3_next", "stablelm", "vaultgemma",
}

# Multimodal folders around the text models above, whose weights they share: (class, text model, settings).
VISION = {
    "gemma3": dict(image_token_index=5, boi_token_index=6, eoi_token_index=7, mm_tokens_per_image=4, vision_config=dict(
        model_type="siglip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        image_size=4, patch_size=2)),
    "gemma4": dict(image_token_id=1, video_token_id=2, audio_token_id=2, audio_config=None, vision_config=dict(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=8,
        patch_size=2, position_embedding_size=4, pooling_kernel_size=1)),
    "qwen3_5": dict(image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8, vision_config=dict(
        depth=1, hidden_size=8, intermediate_size=8, num_heads=1, out_hidden_size=16, patch_size=2,
        num_position_embeddings=4)),
    "qwen3_5_moe": dict(image_token_id=5, video_token_id=6, vision_start_token_id=7, vision_end_token_id=8,
                        vision_config=dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=1, out_hidden_size=16,
                                           patch_size=2, num_position_embeddings=4)),
    "emu3": dict(vocabulary_map={"<image>": 5}, vq_config=dict(
        codebook_size=8, embed_dim=2, latent_channels=2, base_channels=32, channel_multiplier=[1], num_res_blocks=1,
        attn_resolutions=[], hidden_size=4)),
    "fuyu": dict(image_token_id=5, patch_size=1),
    "got_ocr2": dict(image_token_index=5, vision_config=dict(
        hidden_size=8, output_channels=2, num_hidden_layers=1, num_attention_heads=1, image_size=4, patch_size=2, mlp_dim=8,
        window_size=2, global_attn_indexes=[0])),
    "mistral3": dict(image_token_index=5, spatial_merge_size=1, vision_config=dict(
        model_type="pixtral", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, head_dim=8,
        image_size=4, patch_size=2)),
}
# Whose other parts are too large for goldens.
WALKED_ONLY = {"emu3_multimodal": ("emu3", "emu3")}
MULTIMODAL = {
    "fuyu": ("fuyu", "persimmon"),
    "got_ocr2": ("got_ocr2", "qwen2_tied"),
    "gemma3_multimodal": ("gemma3", "gemma3"),
    "gemma4_multimodal": ("gemma4", "gemma4"),
    "qwen3_5_multimodal": ("qwen3_5", "qwen3_5"),
    "qwen3_5_moe_multimodal": ("qwen3_5_moe", "qwen3_5_moe"),
    "mistral3": ("mistral3", "ministral3"),
    "mistral3_tied": ("mistral3", "mistral_no_window"),
}


def exact_in_16_bits(values):
    """Rounded so that f32, bf16 and f16 files of the same model hold the same numbers."""
    values = torch.from_numpy(values.astype(np.float32)).to(torch.bfloat16).to(torch.float32)
    values = torch.round(values * 2.0**24) / 2.0**24  # f16's smallest subnormal
    assert torch.equal(values, values.to(torch.float16).to(torch.float32))
    assert torch.equal(values, values.to(torch.bfloat16).to(torch.float32))
    return values


def random_weights(model, seed):
    """Large enough that attention is peaked, norms and biases matter, and no path's error is hidden by another's."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            values = rng.standard_normal(parameter.shape)
            if name.endswith("bias"):
                values *= 0.15
            elif "norm" in name or ".ln_" in name:
                # Gemma's norms scale by 1 + w, and all of Qwen 3.5's and Qwen3-Next's but those of delta nets.
                plus_one = "gemma" in model.config.model_type and "gemma4" not in model.config.model_type or (
                    model.config.model_type.startswith(("qwen3_5", "qwen3_next")) and "linear_attn" not in name)
                values = 0.2 * values + (0.0 if plus_one else 1.0)
            elif name.endswith(("A_log", ".D", ".sinks", ".alpha_p", ".alpha_n")):
                values *= 0.5
            elif "embed" in name or ".wte" in name or ".wpe" in name:
                values *= 0.25
            elif ".c_" in name and model.config.model_type in ("gpt2", "openai-gpt"):  # Conv1D: in x out
                values *= 1.2 / np.sqrt(parameter.shape[0])
            else:
                values *= 1.2 / np.sqrt(parameter.shape[-1] if "experts" in name else parameter.shape[1])
            parameter.copy_(exact_in_16_bits(values))
        for name, buffer in model.named_buffers():
            # Stored, and not trained: of Gemma 4; what experts are chosen by.
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            if name.endswith("layer_scalar"):
                buffer.copy_(exact_in_16_bits(0.8 + 0.3 * rng.standard_normal(buffer.shape)))
            elif name.endswith("act_fn.beta"):  # of xIELU, whose class has 0.5 and -1e-6
                buffer.fill_(0.375)
            elif name.endswith("act_fn.eps"):
                buffer.fill_(-0.0078125)
            elif name.endswith("e_score_correction_bias"):
                buffer.copy_(exact_in_16_bits(0.2 * rng.standard_normal(buffer.shape)))


# PyTorch's product over groups does not take rows of all lengths.
EAGER = dict(attn_implementation="eager", experts_implementation="eager")


def implementation(config):
    """Falcon's eager attention adds ALiBi twice: to the scores, and in the mask. The default, sdpa, adds it once."""
    return dict(EAGER, attn_implementation="sdpa") if getattr(config, "alibi", False) else EAGER


# Text models of multimodal classes whose configuration AutoModelForCausalLM does not know by itself.
UNLISTED = {"emu3_text_model": transformers.Emu3ForCausalLM}


def text_class(config):
    return UNLISTED.get(config.model_type, transformers.AutoModelForCausalLM)


def build(name):
    family, overrides = MODELS[name]
    sizes = SIZES.get(family, LLAMA)
    config = transformers.AutoConfig.for_model(family, **{**sizes, **overrides})
    model = text_class(config)._from_config(config, **implementation(config)) if family in UNLISTED else (
        transformers.AutoModelForCausalLM.from_config(config, **implementation(config)))
    random_weights(model, seed=zlib.crc32(name.encode()))
    return model.to(torch.float32).eval()


def load(folder, dtype=torch.float32):
    config = transformers.AutoConfig.from_pretrained(folder)
    multimodal = config.get_text_config() is not config
    auto = transformers.AutoModelForImageTextToText if multimodal else text_class(config)
    return auto.from_pretrained(folder, dtype=dtype, **implementation(config)).eval()


def text_name(name):
    """What a parameter of a multimodal model is called in the text model alone; None: it is none of its."""
    if name.startswith(("model.vision", "model.visual", "model.multi_modal", "model.embed_vision", "model.vqmodel")):
        return None
    return name.replace("model.language_model.", "model.").replace("model.text_model.", "model.")


def build_multimodal(name):
    family, text = (MULTIMODAL | WALKED_ONLY)[name]
    text = build(text)
    tied = text.config.tie_word_embeddings
    config = transformers.AutoConfig.for_model(
        family, text_config=text.config.to_dict(), tie_word_embeddings=tied, **VISION[family])
    model = transformers.AutoModelForImageTextToText.from_config(config, attn_implementation="eager")
    weights = {**dict(text.named_parameters()), **dict(text.named_buffers())}
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    with torch.no_grad():
        for n, parameter in model.named_parameters():
            other = text_name(n) is None
            parameter.copy_(torch.from_numpy(rng.standard_normal(parameter.shape)) if other else weights[text_name(n)])
        for n, buffer in model.named_buffers():
            if n.endswith("layer_scalar"):
                buffer.copy_(weights[text_name(n)])
    return model.eval()


def config_v4(config):
    """The same config.json as written by transformers 4."""
    config = dict(config, transformers_version="4.46.3")
    config["torch_dtype"] = config.pop("dtype")
    rope = config.pop("rope_parameters", None)
    by_layer = rope is not None and "full_attention" in rope
    if by_layer:  # Gemma 3, whose layer_types came later, too
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
        config["sliding_window_pattern"] = config.pop("layer_types").index("full_attention") + 1
    if rope is not None:
        config["rope_theta"] = rope.pop("rope_theta")
        if rope["rope_type"] == "linear" and not by_layer:
            rope["type"] = rope.pop("rope_type")  # the key's name before 4.43
        config["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    return config


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


# Whose files have experts as the class has them, as published ones do; save_pretrained would write each on its own.
STACKED = ("qwen3_5_moe", "qwen3_5_moe_text")


def save(model, folder, **options):
    if model.config.model_type in STACKED:
        options.setdefault("save_original_format", False)
    model.save_pretrained(folder, **options)


def rename_tensors(folder, rename, metadata, more={}):
    path = folder / "model.safetensors"
    tensors = {rename(name): tensor for name, tensor in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file({**tensors, **more}, path, metadata=metadata)


def save_storage_forms(models):
    """The same models in other forms of storage; returns {form: original}. Each must give the original's numbers."""
    forms = {}

    def form(original, suffix, dtype, **options):
        folder = models / f"{original}_{suffix}"
        model = build(original).to(dtype)
        save(model, folder, **options)
        forms[folder.name] = original
        return folder

    form("llama_gqa_tied", "bf16", torch.bfloat16)
    form("qwen3_5_moe", "each", torch.bfloat16, save_original_format=True)  # a tensor for each matrix of an expert
    folder = form("llama_gqa_tied", "f16_v4", torch.float16)
    write_json(folder / "config.json", config_v4(json.loads((folder / "config.json").read_text())))
    form("llama_gqa_tied", "bf16_sharded", torch.bfloat16, max_shard_size="20KB")
    folder = form("llama_gqa_tied", "bf16_lm_head", torch.bfloat16)  # only the output's name of the tied weight
    rename_tensors(folder, lambda n: "lm_head.weight" if n == "model.embed_tokens.weight" else n,
                   {"format": "pt", "model.embed_tokens.weight": "lm_head.weight"})
    folder = form("opt_pre_norm", "bf16_old_names", torch.bfloat16)  # as in the first OPT files
    rename_tensors(folder, lambda n: n.removeprefix("model."), {"format": "pt"})
    # As on the hub: without "transformer.", and with the masks that the class stored with its weights.
    folder = form("gpt2", "bf16_hub", torch.bfloat16)
    rename_tensors(folder, lambda n: n.removeprefix("transformer."), {"format": "pt"}, {
        f"h.{n}.attn.{name}": tensor for n in range(2) for name, tensor in (
            ("bias", torch.ones(1, 1, 4, 4).tril()), ("masked_bias", torch.tensor(-1e4)))})
    folder = form("gpt_neox", "f16_v4", torch.float16)
    config = config_v4(json.loads((folder / "config.json").read_text()))
    rope = config.pop("rope_scaling")
    assert rope is None
    config.update(rotary_emb_base=config.pop("rope_theta"), rotary_pct=0.25)
    write_json(folder / "config.json", config)
    rename_tensors(folder, lambda n: n, {"format": "pt"}, {
        f"gpt_neox.layers.{n}.attention.{name}": tensor for n in range(2) for name, tensor in (
            ("bias", torch.ones(1, 1, 4, 4).tril()), ("masked_bias", torch.tensor(-1e9)),
            ("rotary_emb.inv_freq", torch.tensor([1.0])))})
    for name in ("llama_rope_llama3", "llama_rope_linear", "gemma3"):  # these test rope_scaling
        folder = models / f"{name}_v4"
        save(build(name).to(torch.bfloat16), folder)
        write_json(folder / "config.json", config_v4(json.loads((folder / "config.json").read_text())))
        forms[folder.name] = name
    # Names of files as the Hub has them; and as transformers 5 has them in memory, where config.json says nothing of the
    # head, which the file has.
    for name, (_, text) in MULTIMODAL.items():
        save(build_multimodal(name).to(torch.bfloat16), models / name)
        forms[name] = text
    folder = models / "mistral3_names_of_memory"
    save(build_multimodal("mistral3").to(torch.bfloat16), folder)
    rename_tensors(folder, lambda n: n.replace("language_model.lm_head", "lm_head").replace(
        "language_model.model.", "model.language_model.").replace("vision_tower", "model.vision_tower").replace(
            "multi_modal", "model.multi_modal"), {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    del config["tie_word_embeddings"], config["text_config"]["tie_word_embeddings"]
    write_json(folder / "config.json", config)
    forms[folder.name] = MULTIMODAL["mistral3"][1]
    return forms


def save_models(models):
    if models.exists():
        shutil.rmtree(models)
    for name, (family, _) in MODELS.items():
        save(build(name).to(torch.bfloat16 if family in IN_BF16 else torch.float32), models / name)
    forms = save_storage_forms(models)
    for folder in models.iterdir():
        # The defaults of model.generate depend on the version of transformers and do not matter here.
        (pathlib.Path(folder) / "generation_config.json").unlink(missing_ok=True)
    return forms
