// Sizes of published models, as their config.json files give them, and their parameters, as transformers 5.24 and most
// of their pages count them; a tied head counts once. What is left out of a file here equals the class's default or
// changes no size.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "format/json.h"

namespace temper {

struct PublishedSize {
  const char* name;
  const char* architecture;
  int64_t vocab, hidden, ffn, blocks, heads, kv_heads;  // 0: the family has no such key, or its default
  const char* more;                                     // keys besides, as JSON
  int64_t parameters;

  Json Config() const {
    Json config = Json::parse(more);
    config["architectures"] = {architecture};
    const std::pair<const char*, int64_t> sizes[] = {{"vocab_size", vocab},          {"hidden_size", hidden},
                                                     {"intermediate_size", ffn},     {"num_hidden_layers", blocks},
                                                     {"num_attention_heads", heads}, {"num_key_value_heads", kv_heads}};
    for (const auto& [key, size] : sizes) {
      if (size > 0) config[key] = size;
    }
    if (kv_heads == 0) config["ffn_dim"] = ffn;
    return config;
  }
};

inline constexpr char kTied[] = R"({"tie_word_embeddings": true})";

inline const std::vector<PublishedSize> kPublishedSizes = {
    // clang-format off
    {"Llama-2-7b", "LlamaForCausalLM", 32000, 4096, 11008, 32, 32, 32, "{}", 6738415616},
    {"Llama-2-13b", "LlamaForCausalLM", 32000, 5120, 13824, 40, 40, 40, "{}", 13015864320},
    {"Llama-2-70b", "LlamaForCausalLM", 32000, 8192, 28672, 80, 64, 8, "{}", 68976648192},
    {"Llama-3.2-1B", "LlamaForCausalLM", 128256, 2048, 8192, 16, 32, 8, R"({"head_dim": 64, "tie_word_embeddings": true})", 1235814400},
    {"Llama-3.2-3B", "LlamaForCausalLM", 128256, 3072, 8192, 28, 24, 8, R"({"head_dim": 128, "tie_word_embeddings": true})", 3212749824},
    {"Llama-3.1-8B", "LlamaForCausalLM", 128256, 4096, 14336, 32, 32, 8, "{}", 8030261248},
    {"Llama-3.1-70B", "LlamaForCausalLM", 128256, 8192, 28672, 80, 64, 8, "{}", 70553706496},
    {"Llama-3.1-405B", "LlamaForCausalLM", 128256, 16384, 53248, 126, 128, 8, "{}", 405853388800},
    {"TinyLlama-1.1B", "LlamaForCausalLM", 32000, 2048, 5632, 22, 32, 4, "{}", 1100048384},
    {"SmolLM2-135M", "LlamaForCausalLM", 49152, 576, 1536, 30, 9, 3, kTied, 134515008},
    {"SmolLM2-360M", "LlamaForCausalLM", 49152, 960, 2560, 32, 15, 5, kTied, 361821120},
    {"SmolLM2-1.7B", "LlamaForCausalLM", 49152, 2048, 8192, 24, 32, 32, kTied, 1711376384},
    {"Yi-6B", "LlamaForCausalLM", 64000, 4096, 11008, 32, 32, 4, "{}", 6061035520},
    {"Yi-34B", "LlamaForCausalLM", 64000, 7168, 20480, 60, 56, 8, "{}", 34388917248},
    {"Falcon3-1B", "LlamaForCausalLM", 131072, 2048, 8192, 18, 8, 4, R"({"head_dim": 256})", 1669408768},
    {"Falcon3-3B", "LlamaForCausalLM", 131072, 3072, 9216, 22, 12, 4, R"({"head_dim": 256})", 3227655168},
    {"Falcon3-7B", "LlamaForCausalLM", 131072, 3072, 23040, 28, 12, 4, R"({"head_dim": 256})", 7455550464},
    {"Falcon3-10B", "LlamaForCausalLM", 131072, 3072, 23040, 40, 12, 4, R"({"head_dim": 256})", 10305653760},
    {"Qwen2.5-0.5B", "Qwen2ForCausalLM", 151936, 896, 4864, 24, 14, 2, kTied, 494032768},
    {"Qwen2.5-1.5B", "Qwen2ForCausalLM", 151936, 1536, 8960, 28, 12, 2, kTied, 1543714304},
    {"Qwen2.5-3B", "Qwen2ForCausalLM", 151936, 2048, 11008, 36, 16, 2, kTied, 3085938688},
    {"Qwen2.5-7B", "Qwen2ForCausalLM", 152064, 3584, 18944, 28, 28, 4, "{}", 7615616512},
    {"Qwen2.5-14B", "Qwen2ForCausalLM", 152064, 5120, 13824, 48, 40, 8, "{}", 14770033664},
    {"Qwen2.5-32B", "Qwen2ForCausalLM", 152064, 5120, 27648, 64, 40, 8, "{}", 32763876352},
    {"Qwen2.5-72B", "Qwen2ForCausalLM", 152064, 8192, 29568, 80, 64, 8, "{}", 72706203648},
    {"Qwen3-0.6B", "Qwen3ForCausalLM", 151936, 1024, 3072, 28, 16, 8, kTied, 596049920},
    {"Qwen3-1.7B", "Qwen3ForCausalLM", 151936, 2048, 6144, 28, 16, 8, kTied, 1720574976},
    {"Qwen3-4B", "Qwen3ForCausalLM", 151936, 2560, 9728, 36, 32, 8, kTied, 4022468096},
    {"Qwen3-8B", "Qwen3ForCausalLM", 151936, 4096, 12288, 36, 32, 8, "{}", 8190735360},
    {"Qwen3-14B", "Qwen3ForCausalLM", 151936, 5120, 17408, 40, 40, 8, "{}", 14768307200},
    {"Qwen3-32B", "Qwen3ForCausalLM", 151936, 5120, 25600, 64, 64, 8, "{}", 32762123264},
    {"Mistral-7B-v0.1", "MistralForCausalLM", 32000, 4096, 14336, 32, 32, 8, "{}", 7241732096},
    {"Mistral-7B-v0.3", "MistralForCausalLM", 32768, 4096, 14336, 32, 32, 8, "{}", 7248023552},
    {"Mistral-Nemo-12B", "MistralForCausalLM", 131072, 5120, 14336, 40, 32, 8, R"({"head_dim": 128})", 12247782400},
    {"Mistral-Small-24B", "MistralForCausalLM", 131072, 5120, 32768, 40, 32, 8, R"({"head_dim": 128})", 23572403200},
    {"Mistral-Large-123B", "MistralForCausalLM", 32768, 12288, 28672, 88, 96, 8, "{}", 122610069504},
    {"Ministral-8B", "MinistralForCausalLM", 131072, 4096, 12288, 36, 32, 8, R"({"head_dim": 128})", 8019808256},
    {"Ministral-3-3B (text)", "Ministral3ForCausalLM", 131072, 3072, 9216, 26, 32, 8, R"({"head_dim": 128, "tie_word_embeddings": true})", 3429006336},
    {"Ministral-3-8B (text)", "Ministral3ForCausalLM", 131072, 4096, 14336, 34, 32, 8, R"({"head_dim": 128})", 8489553920},
    {"Ministral-3-14B (text)", "Ministral3ForCausalLM", 131072, 5120, 16384, 40, 32, 8, R"({"head_dim": 128})", 13506073600},
    {"Phi-3-mini", "Phi3ForCausalLM", 32064, 3072, 8192, 32, 32, 32, "{}", 3821079552},
    {"Phi-3-medium", "Phi3ForCausalLM", 32064, 5120, 17920, 40, 40, 10, "{}", 13960238080},
    {"Phi-4", "Phi3ForCausalLM", 100352, 5120, 17920, 40, 40, 10, "{}", 14659507200},
    {"Phi-4-mini", "Phi3ForCausalLM", 200064, 3072, 8192, 32, 24, 8, kTied, 3836021760},
    {"LFM2-350M", "Lfm2ForCausalLM", 65536, 1024, 6656, 16, 16, 8, R"({"full_attn_idxs": [2, 5, 8, 10, 12, 14]})", 354483968},
    {"LFM2-700M", "Lfm2ForCausalLM", 65536, 1536, 10240, 16, 24, 8, R"({"full_attn_idxs": [2, 5, 8, 10, 12, 14]})", 742489344},
    {"LFM2-1.2B", "Lfm2ForCausalLM", 65536, 2048, 12288, 16, 32, 8, R"({"full_attn_idxs": [2, 5, 8, 10, 12, 14]})", 1170340608},
    {"Granite-4.0-H-Micro", "GraniteMoeHybridForCausalLM", 100352, 2048, 8192, 40, 32, 8, R"({"shared_intermediate_size": 8192, "num_local_experts": 0, "mamba_n_heads": 64, "mamba_d_state": 128, "tie_word_embeddings": true, "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba"]})", 3191396096},
    {"Falcon-H1-0.5B", "FalconH1ForCausalLM", 32784, 1024, 2048, 36, 8, 2, R"({"head_dim": 64, "mamba_d_ssm": 1536, "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128})", 521411104},
    {"Falcon-H1-1.5B", "FalconH1ForCausalLM", 65537, 2048, 4608, 24, 8, 2, R"({"head_dim": 128, "mamba_d_ssm": 3072, "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 256})", 1554789760},
    {"Qwen3.5-9B (text)", "Qwen3_5ForCausalLM", 248320, 4096, 12288, 32, 16, 4, "{}", 8953803264},
    {"Gemma-4-E2B (text)", "Gemma4ForCausalLM", 262144, 1536, 6144, 35, 8, 1, R"({"num_kv_shared_layers": 20, "use_double_wide_mlp": true, "final_logit_softcapping": 30.0, "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]})", 4628569344},
    {"Gemma-4-E4B (text)", "Gemma4ForCausalLM", 262144, 2560, 10240, 42, 8, 2, R"({"num_kv_shared_layers": 18, "final_logit_softcapping": 30.0})", 7463013376},
    {"Gemma-4-12B (text)", "Gemma4UnifiedForCausalLM", 262144, 3840, 15360, 48, 16, 8, R"({"num_global_key_value_heads": 1, "attention_k_eq_v": true, "final_logit_softcapping": 30.0})", 11907350272},
    {"Gemma-4-31B (text)", "Gemma4ForCausalLM", 262144, 5376, 21504, 60, 32, 16, R"({"num_global_key_value_heads": 4, "attention_k_eq_v": true, "hidden_size_per_layer_input": 0, "final_logit_softcapping": 30.0, "sliding_window": 1024})", 30697345280},
    {"SmolLM3-3B", "SmolLM3ForCausalLM", 128256, 2048, 11008, 36, 16, 4, "{}", 3075098624},
    {"OLMo-2-1B", "Olmo2ForCausalLM", 100352, 2048, 8192, 16, 16, 16, "{}", 1484916736},
    {"OLMo-2-7B", "Olmo2ForCausalLM", 100352, 4096, 11008, 32, 32, 32, "{}", 7298617344},
    {"OLMo-2-13B", "Olmo2ForCausalLM", 100352, 5120, 13824, 40, 40, 40, "{}", 13716198400},
    {"OLMo-2-32B", "Olmo2ForCausalLM", 100352, 5120, 27648, 64, 40, 8, "{}", 32234279936},
    {"OLMo-3-7B", "Olmo3ForCausalLM", 100278, 4096, 11008, 32, 32, 32, "{}", 7298011136},
    {"OLMo-3-32B", "Olmo3ForCausalLM", 100278, 5120, 27648, 64, 40, 8, "{}", 32233522176},
    {"GLM-4-9B", "GlmForCausalLM", 151552, 4096, 13696, 40, 32, 2, R"({"head_dim": 128})", 9399951360},
    {"GLM-4-9B-0414", "Glm4ForCausalLM", 151552, 4096, 13696, 40, 32, 2, R"({"head_dim": 128})", 9400279040},
    {"GLM-4-32B-0414", "Glm4ForCausalLM", 151552, 6144, 23040, 61, 48, 2, R"({"head_dim": 128, "attention_bias": false})", 32566081536},
    {"Seed-OSS-36B", "SeedOssForCausalLM", 155136, 5120, 27648, 64, 80, 8, R"({"head_dim": 128})", 36151104512},
    {"opt-125m", "OPTForCausalLM", 50272, 768, 3072, 12, 12, 0, "{}", 125239296},
    {"opt-350m", "OPTForCausalLM", 50272, 1024, 4096, 24, 16, 0, R"({"word_embed_proj_dim": 512, "do_layer_norm_before": false})", 331196416},
    {"opt-1.3b", "OPTForCausalLM", 50272, 2048, 8192, 24, 32, 0, R"({"word_embed_proj_dim": 2048})", 1315758080},
    {"opt-2.7b", "OPTForCausalLM", 50272, 2560, 10240, 32, 32, 0, R"({"word_embed_proj_dim": 2560})", 2651596800},
    {"opt-6.7b", "OPTForCausalLM", 50272, 4096, 16384, 32, 32, 0, R"({"word_embed_proj_dim": 4096})", 6658473984},
    {"opt-13b", "OPTForCausalLM", 50272, 5120, 20480, 40, 40, 0, R"({"word_embed_proj_dim": 5120})", 12853473280},
    {"opt-30b", "OPTForCausalLM", 50272, 7168, 28672, 48, 56, 0, R"({"word_embed_proj_dim": 7168})", 29974540288},
    {"gemma-2b", "GemmaForCausalLM", 256000, 2048, 16384, 18, 8, 1, R"({"head_dim": 256})", 2506172416},
    {"gemma-7b", "GemmaForCausalLM", 256000, 3072, 24576, 28, 16, 16, R"({"head_dim": 256})", 8537680896},
    {"gemma-2-2b", "Gemma2ForCausalLM", 256000, 2304, 9216, 26, 8, 4, R"({"head_dim": 256})", 2614341888},
    {"gemma-2-9b", "Gemma2ForCausalLM", 256000, 3584, 14336, 42, 16, 8, R"({"head_dim": 256})", 9241705984},
    {"gemma-2-27b", "Gemma2ForCausalLM", 256000, 4608, 36864, 46, 32, 16, R"({"head_dim": 128})", 27227128320},
    {"gemma-3-270m", "Gemma3ForCausalLM", 262144, 640, 2048, 18, 4, 1, R"({"head_dim": 256})", 268098176},
    {"gemma-3-1b", "Gemma3ForCausalLM", 262144, 1152, 6912, 26, 4, 1, R"({"head_dim": 256})", 999885952},
    {"gemma-3-4b (text)", "Gemma3ForCausalLM", 262208, 2560, 10240, 34, 8, 4, R"({"head_dim": 256})", 3880263168},
    {"gemma-3-12b (text)", "Gemma3ForCausalLM", 262208, 3840, 15360, 48, 16, 8, R"({"head_dim": 256})", 11766034176},
    {"gemma-3-27b (text)", "Gemma3ForCausalLM", 262208, 5376, 21504, 62, 32, 16, R"({"head_dim": 128})", 27009346304},
    {"granite-3.1-2b", "GraniteForCausalLM", 49155, 2048, 8192, 40, 32, 8, kTied, 2533531648},
    {"granite-3.3-2b", "GraniteForCausalLM", 49159, 2048, 8192, 40, 32, 8, kTied, 2533539840},
    {"granite-3.1-8b", "GraniteForCausalLM", 49155, 4096, 12800, 40, 32, 8, kTied, 8170848256},
    {"gpt2", "GPT2LMHeadModel", 50257, 0, 0, 0, 0, 0, "{}", 124439808},
    {"gpt2-medium", "GPT2LMHeadModel", 50257, 0, 0, 0, 0, 0, R"({"n_embd": 1024, "n_layer": 24, "n_head": 16})", 354823168},
    {"gpt2-large", "GPT2LMHeadModel", 50257, 0, 0, 0, 0, 0, R"({"n_embd": 1280, "n_layer": 36, "n_head": 20})", 774030080},
    {"gpt2-xl", "GPT2LMHeadModel", 50257, 0, 0, 0, 0, 0, R"({"n_embd": 1600, "n_layer": 48, "n_head": 25})", 1557611200},
    {"pythia-70m", "GPTNeoXForCausalLM", 50304, 512, 2048, 6, 8, 0, "{}", 70426624},
    {"gpt-neox-20b", "GPTNeoXForCausalLM", 50432, 6144, 24576, 44, 64, 0, "{}", 20554567680},
    {"starcoder2-3b", "Starcoder2ForCausalLM", 49152, 3072, 12288, 30, 24, 2, "{}", 3030371328},
    {"biogpt", "BioGptForCausalLM", 42384, 1024, 4096, 24, 16, 0, "{}", 346763264},
    {"phi-1_5", "PhiForCausalLM", 51200, 2048, 8192, 24, 32, 32, "{}", 1418270720},
    {"phi-2", "PhiForCausalLM", 51200, 2560, 10240, 32, 32, 32, R"({"partial_rotary_factor": 0.4})", 2779683840},
    {"gpt-j-6b", "GPTJForCausalLM", 50400, 0, 0, 0, 0, 0, "{}", 6050882784},
    {"codegen-350M-mono", "CodeGenForCausalLM", 51200, 0, 0, 0, 0, 0, R"({"n_embd": 1024, "n_layer": 20, "rotary_dim": 32})", 356712448},
    {"codegen-16B-mono", "CodeGenForCausalLM", 51200, 0, 0, 0, 0, 0, R"({"n_embd": 6144, "n_layer": 34, "n_head": 24})", 16032155648},
    {"persimmon-8b-base", "PersimmonForCausalLM", 262144, 4096, 16384, 36, 64, 0, "{}", 9397175296},
    {"c4ai-command-r-plus", "CohereForCausalLM", 256000, 12288, 33792, 64, 96, 8, R"({"use_qk_norm": true})", 103810674688},
    {"stablelm-2-12b", "StableLmForCausalLM", 100352, 5120, 13824, 40, 32, 8, R"({"qk_layernorm": true, "use_parallel_residual": true})", 12143185920},
    {"c4ai-command-r-v01", "CohereForCausalLM", 256000, 8192, 22528, 40, 64, 64, "{}", 34980831232},
    {"cwm", "CwmForCausalLM", 128256, 6144, 21504, 64, 48, 8, "{}", 32581097472},
    {"ERNIE-4.5-0.3B", "Ernie4_5ForCausalLM", 103424, 1024, 3072, 18, 16, 2, "{}", 360748032},
    {"AFM-4.5B", "ArceeForCausalLM", 128004, 2560, 18432, 36, 20, 4, R"({"head_dim": 128})", 4619184640},
    {"Minitron-4B", "NemotronForCausalLM", 256000, 3072, 9216, 32, 24, 8, R"({"head_dim": 128})", 4190509056},
    {"Nemotron-4-340B", "NemotronForCausalLM", 256000, 18432, 73728, 96, 96, 8, "{}", 341029195776},
    {"Hunyuan-7B", "HunYuanDenseV1ForCausalLM", 128167, 4096, 14336, 32, 32, 8, R"({"head_dim": 128, "tie_word_embeddings": true})", 7504568320},
    {"EXAONE-3.0-7.8B", "ExaoneForCausalLM", 102400, 4096, 14336, 32, 32, 8, "{}", 7818448896},
    {"EXAONE-3.5-2.4B", "ExaoneForCausalLM", 102400, 2560, 7168, 30, 32, 8, kTied, 2405327360},
    {"EXAONE-4.0-1.2B", "Exaone4ForCausalLM", 102400, 2048, 4096, 30, 32, 8, R"({"head_dim": 64, "tie_word_embeddings": true, "sliding_window": null})", 1279391488},
    {"EXAONE-4.0-32B", "Exaone4ForCausalLM", 102400, 5120, 27392, 64, 40, 8, R"({"head_dim": 128})", 32003216384},
    {"falcon-7b", "FalconForCausalLM", 65024, 4544, 0, 32, 71, 0, "{}", 6921720704},
    {"falcon-40b", "FalconForCausalLM", 65024, 8192, 0, 60, 128, 0, R"({"new_decoder_architecture": true, "num_kv_heads": 8})", 41303293952},
    {"starcoder", "GPTBigCodeForCausalLM", 49152, 0, 0, 0, 0, 0, R"({"n_embd": 6144, "n_layer": 40, "n_head": 48, "n_inner": 24576, "n_positions": 8192})", 15517456384},
    {"santacoder", "GPTBigCodeForCausalLM", 49280, 0, 0, 0, 0, 0, R"({"n_embd": 2048, "n_layer": 24, "n_head": 16, "n_inner": 8192, "n_positions": 2048})", 1124886528},
    {"gpt-neo-125m", "GPTNeoForCausalLM", 50257, 768, 0, 12, 12, 0, R"({"attention_types": [[["global", "local"], 6]]})", 125198592},
    {"gpt-neo-1.3B", "GPTNeoForCausalLM", 50257, 2048, 0, 0, 0, 0, "{}", 1315575808},
    {"gpt-neo-2.7B", "GPTNeoForCausalLM", 50257, 2560, 0, 0, 0, 0, R"({"num_layers": 32, "num_heads": 20, "attention_types": [[["global", "local"], 16]]})", 2651307520},
    {"helium-1-preview-2b", "HeliumForCausalLM", 48000, 2560, 7040, 24, 20, 20, "{}", 2172643840},
    {"HyperCLOVAX-SEED-Think-14B", "HyperCLOVAXForCausalLM", 110592, 6144, 14336, 38, 48, 8, R"({"head_dim": 128})", 14748112896},
    {"OLMo-1B", "OlmoForCausalLM", 50304, 2048, 8192, 16, 16, 16, kTied, 1176764416},
    {"OLMo-7B", "OlmoForCausalLM", 50304, 4096, 11008, 32, 32, 32, "{}", 6888095744},
    {"openai-gpt", "OpenAIGPTLMHeadModel", 40478, 0, 0, 0, 0, 0, "{}", 116534784},
    {"stablelm-3b-4e1t", "StableLmForCausalLM", 50304, 2560, 6912, 32, 32, 32, "{}", 2795443200},
    {"stablelm-2-1_6b", "StableLmForCausalLM", 100352, 2048, 5632, 24, 32, 32, R"({"use_qkv_bias": true})", 1644515328},
    {"Qwen1.5-MoE-A2.7B", "Qwen2MoeForCausalLM", 151936, 2048, 5632, 24, 16, 16, "{}", 14315784192},
    {"Qwen2-57B-A14B", "Qwen2MoeForCausalLM", 151936, 3584, 18944, 28, 28, 4, R"({"moe_intermediate_size": 2560, "shared_expert_intermediate_size": 20480, "num_experts": 64, "num_experts_per_tok": 8})", 57408658944},
    {"Qwen3-30B-A3B", "Qwen3MoeForCausalLM", 151936, 2048, 6144, 48, 32, 4, R"({"head_dim": 128, "moe_intermediate_size": 768, "num_experts": 128})", 30532122624},
    {"Qwen3-235B-A22B", "Qwen3MoeForCausalLM", 151936, 4096, 12288, 94, 64, 4, R"({"head_dim": 128, "moe_intermediate_size": 1536, "num_experts": 128})", 235093634560},
    {"Mixtral-8x7B", "MixtralForCausalLM", 32000, 4096, 14336, 32, 32, 8, "{}", 46702792704},
    {"Mixtral-8x22B", "MixtralForCausalLM", 32768, 6144, 16384, 56, 48, 8, "{}", 140630071296},
    {"Qwen3.5-35B-A3B (text)", "Qwen3_5MoeForCausalLM", 248320, 2048, 0, 40, 16, 2, "{}", 34660610688},
    {"Qwen3.5-122B-A10B (text)", "Qwen3_5MoeForCausalLM", 248320, 3072, 0, 48, 32, 2, R"({"moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024, "linear_num_value_heads": 64})", 122111526912},
    {"Qwen3.5-397B-A17B (text)", "Qwen3_5MoeForCausalLM", 248320, 4096, 0, 60, 32, 2, R"({"num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024, "linear_num_value_heads": 64})", 396346350336},
    {"Qwen3-Next-80B-A3B", "Qwen3NextForCausalLM", 151936, 2048, 5120, 48, 16, 2, "{}", 79674391296},
    {"Granite-3.1-1b-a400m", "GraniteMoeForCausalLM", 49155, 1024, 512, 24, 16, 8, R"({"num_local_experts": 32, "num_experts_per_tok": 8, "tie_word_embeddings": true})", 1334628352},
    {"Granite-3.1-3b-a800m", "GraniteMoeForCausalLM", 49155, 1536, 512, 32, 24, 8, R"({"num_local_experts": 40, "num_experts_per_tok": 8, "tie_word_embeddings": true})", 3298793472},
    {"Granite-4.0-H-Tiny", "GraniteMoeHybridForCausalLM", 100352, 1536, 512, 40, 12, 4, R"({"num_local_experts": 64, "num_experts_per_tok": 6, "shared_intermediate_size": 1024, "mamba_n_heads": 48, "mamba_d_state": 128, "tie_word_embeddings": true, "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba"]})", 6939037248},
    {"Granite-4.0-H-Small", "GraniteMoeHybridForCausalLM", 100352, 4096, 768, 40, 32, 8, R"({"num_local_experts": 72, "num_experts_per_tok": 10, "shared_intermediate_size": 1536, "mamba_n_heads": 128, "mamba_d_state": 128, "tie_word_embeddings": true, "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba"]})", 32207337984},
    {"GLM-4.5-Air", "Glm4MoeForCausalLM", 151552, 4096, 10944, 46, 96, 8, R"({"head_dim": 128})", 106851586048},
    {"GLM-4.5, 4.6, 4.7", "Glm4MoeForCausalLM", 151552, 5120, 12288, 92, 96, 8, R"({"head_dim": 128, "n_routed_experts": 160, "moe_intermediate_size": 1536, "first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "use_qk_norm": true})", 352796495872},
    {"DeepSeek-V2-Lite", "DeepseekV2ForCausalLM", 102400, 2048, 10944, 27, 16, 16, R"({"q_lora_rank": null, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1408, "first_k_dense_replace": 1})", 15706484224},
    {"DeepSeek-V2", "DeepseekV2ForCausalLM", 102400, 5120, 12288, 60, 128, 128, R"({"n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6, "moe_intermediate_size": 1536, "first_k_dense_replace": 1, "topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3, "routed_scaling_factor": 16.0})", 235741434880},
    {"DeepSeek-V3, R1", "DeepseekV3ForCausalLM", 129280, 7168, 18432, 61, 128, 128, "{}", 671026404352},
    {"GLM-4.7-Flash", "Glm4MoeLiteForCausalLM", 154880, 2048, 10240, 47, 20, 20, "{}", 29943390976},
    {"Youtu-LLM-2B", "YoutuForCausalLM", 128256, 2048, 6144, 32, 16, 16, "{}", 1961560064},
    {"MiniCPM3-4B", "MiniCPM3ForCausalLM", 73448, 2560, 6400, 62, 40, 40, "{}", 4073875968},
    {"gpt-oss-20b", "GptOssForCausalLM", 201088, 2880, 2880, 24, 64, 8, R"({"num_local_experts": 32})", 20914757184},
    {"gpt-oss-120b", "GptOssForCausalLM", 201088, 2880, 2880, 36, 64, 8, R"({"num_local_experts": 128})", 116829156672},
    {"OLMoE-1B-7B", "OlmoeForCausalLM", 50304, 2048, 1024, 16, 16, 16, "{}", 6919161856},
    {"c4ai-command-r7b-12-2024", "Cohere2ForCausalLM", 256000, 4096, 14336, 32, 32, 8, "{}", 8028033024},
    // clang-format on
};

}  // namespace temper
