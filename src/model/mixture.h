// Mixtures of experts: what their families read alike from config.json.
#pragma once

#include <string>

#include "model/decoder.h"

namespace temper {

// Reads how many experts there are (num_local_experts, or num_experts as other versions of transformers write it, or
// what `experts` names), how many a token goes to (num_experts_per_tok), and their size, under the key
// `ffn`. `defaults`: the values of absent keys, and all that has no key. They have the activation of the spec's MLPs.
// The spec gets their number, and `router_aux_loss_coef` (or `balance`, if the file has none) where
// output_router_logits asks for it.
Result<ExpertsSpec> ReadExperts(const Json& config, const char* ffn, const ExpertsSpec& defaults,
                                const std::string& where, DecoderSpec* spec, double balance = 0.001,
                                const char* experts = nullptr);

// Reads the experts of Qwen's mixtures (`defaults` as for ReadExperts; norm_topk_prob), and puts them in the place of
// the MLP in every decoder_sparse_step-th block that mlp_only_layers does not list.
Status SetQwenExperts(const Json& config, const ExpertsSpec& defaults, const std::string& where, DecoderSpec* spec);

// ReadExperts for classes that have no loss that balances experts, of n_routed_experts of moe_intermediate_size.
Result<ExpertsSpec> ReadUnbalancedExperts(Json config, const ExpertsSpec& defaults, const std::string& where,
                                          DecoderSpec* spec);

// routed_scaling_factor: by what weights are multiplied.
Status ReadExpertsScale(const Json& config, const std::string& where, ExpertsSpec* experts);
// n_group and topk_group, of experts that have their sizes; a group has `least` of them (1 or 2) or more.
Status ReadExpertGroups(const Json& config, const std::string& where, int64_t least, ExpertsSpec* experts);
// n_shared_experts: the width of the MLP of all tokens beside experts, so many times that of one.
Result<int64_t> ReadSharedExperts(const Json& config, const std::string& where, int64_t fallback,
                                  const ExpertsSpec& experts);

// Choice of experts as in DeepSeek-V3 (transformers, DeepseekV3TopkRouter): reads norm_topk_prob,
// routed_scaling_factor, n_group and topk_group into `experts`, which have their sizes; returns the width of the MLP of
// all tokens beside them.
Result<int64_t> SetBiasedChoice(const Json& config, const std::string& where, ExpertsSpec* experts);

// `experts` with an MLP of all tokens beside them, as DeepSeek's classes name it, but for its width as `like`; 0: none.
ExpertsSpec WithSharedMlp(ExpertsSpec experts, int64_t shared_ffn, const MlpSpec& like);

// Puts them in the place of the MLP in all blocks but the first first_k_dense_replace ones (or `fallback`).
Status SetExpertsBehindDense(const Json& config, int64_t fallback, const ExpertsSpec& experts, int64_t shared_ffn,
                             const std::string& where, DecoderSpec* spec);

// The MLP of all tokens beside Qwen's experts, of shared_expert_intermediate_size (`ffn`, if the file has none).
Result<MlpSpec> ReadSharedExpert(const Json& config, int64_t ffn, const DecoderSpec& spec, const std::string& where);

}  // namespace temper
