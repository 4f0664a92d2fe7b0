// Every key that transformers' configuration classes have (tests/parity/make_config_keys.py) is computed with, refused
// by name, or stands in the table below. A key is computed with if some value of it changes the model: its graph, its
// weights, or what a run is told of it. That the change is the right one, parity shows.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/env.h"
#include "base/project_folder_for_test.h"
#include "graph/graph.h"
#include "model/families.h"

namespace temper::config_keys_test {
namespace {

// Keys that change nothing in what a text model computes, and why; with a class before them: of that class.
const std::map<std::string, std::set<std::string>> kHarmless = {
    {"names, versions, classes of tasks",
     {"_name_or_path", "architectures", "is_encoder_decoder", "model_type", "num_labels", "problem_type",
      "transformers_version"}},
    {"tokens: generation_config.json and the tokenizer say which are used",
     {"XGLMForCausalLM.decoder_start_token_id", "bos_token_id", "cls_token_id", "eod_token_id", "eos_token_id",
      "pad_token_id", "sep_token_id"}},
    {"of heads for other tasks than causal language modelling",
     {"CTRLLMHeadModel.id2label", "GPT2LMHeadModel.hidden_dropout", "GPTBigCodeForCausalLM.hidden_dropout",
      "MptForCausalLM.hidden_dropout", "classifier_dropout", "is_decoder", "summary_activation",
      "summary_first_dropout", "summary_last_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj"}},
    {"of embeddings of whole texts", {"pooling"}},
    {"of images and sound, which the modeling files of Emu 3 and Apertus 1.5 read, too",
     {"Apertus1p5TextForCausalLM.attn_resolutions",
      "Apertus1p5TextForCausalLM.audio_token_offset",
      "Apertus1p5TextForCausalLM.base_channels",
      "Apertus1p5TextForCausalLM.channel_multiplier",
      "Apertus1p5TextForCausalLM.codebook_size",
      "Apertus1p5TextForCausalLM.dropout",
      "Apertus1p5TextForCausalLM.embed_dim",
      "Apertus1p5TextForCausalLM.hop_length",
      "Apertus1p5TextForCausalLM.image_token_offset",
      "Apertus1p5TextForCausalLM.in_channels",
      "Apertus1p5TextForCausalLM.latent_channels",
      "Apertus1p5TextForCausalLM.num_res_blocks",
      "Apertus1p5TextForCausalLM.resolution",
      "Apertus1p5TextForCausalLM.spatial_scale_factor",
      "Apertus1p5ForConditionalGeneration.audio_token_offset",
      "Apertus1p5ForConditionalGeneration.image_token_offset",
      "Emu3ForCausalLM.attn_resolutions",
      "Emu3ForCausalLM.base_channels",
      "Emu3ForCausalLM.channel_multiplier",
      "Emu3ForCausalLM.codebook_size",
      "Emu3ForCausalLM.double_latent",
      "Emu3ForCausalLM.embed_dim",
      "Emu3ForCausalLM.in_channels",
      "Emu3ForCausalLM.latent_channels",
      "Emu3ForCausalLM.num_res_blocks",
      "Emu3ForCausalLM.out_channels",
      "Emu3ForCausalLM.temporal_downsample_factor",
      "FuyuForCausalLM.image_size",
      "FuyuForCausalLM.num_channels",
      "FuyuForCausalLM.patch_size",
      "image_seq_length",
      "vocabulary_map"}},
    {"scores and softmax are in f32 anyway",
     {"attention_softmax_in_fp32", "reorder_and_upcast_attn", "scale_attention_softmax_in_fp32"}},
    {"what a call returns, keeps, or does at a time",
     {"chunk_size_feed_forward", "output_attentions", "output_hidden_states", "pretraining_tp", "return_dict",
      "slow_but_exact", "use_cache"}},
    {"the type of the weights, which the files say themselves", {"dtype"}},
    {"of images, a vision tower and its projector, which are not computed",
     {"boi_token_id",
      "boi_token_index",
      "eoi_token_id",
      "eoi_token_index",
      "image_token_id",
      "image_token_index",
      "mm_tokens_per_image",
      "multimodal_projector_bias",
      "projector_hidden_act",
      "spatial_merge_size",
      "vision_feature_layer",
      "CohereCompassForCausalLM.deepstack_visual_indexes",
      "CohereCompassForCausalLM.depth",
      "CohereCompassForCausalLM.image_token_id",
      "CohereCompassForCausalLM.in_channels",
      "CohereCompassForCausalLM.num_heads",
      "CohereCompassForCausalLM.num_position_embeddings",
      "CohereCompassForCausalLM.out_hidden_size",
      "CohereCompassForCausalLM.patch_size",
      "CohereCompassForCausalLM.spatial_merge_size",
      "CohereCompassForCausalLM.temporal_patch_size",
      "Qwen3_5ForCausalLM.depth",
      "Qwen3_5MoeForCausalLM.depth",
      "Qwen3_5ForCausalLM.in_channels",
      "Qwen3_5MoeForCausalLM.in_channels",
      "Qwen3_5ForCausalLM.num_heads",
      "Qwen3_5MoeForCausalLM.num_heads",
      "Qwen3_5ForCausalLM.num_position_embeddings",
      "Qwen3_5MoeForCausalLM.num_position_embeddings",
      "Qwen3_5ForCausalLM.out_hidden_size",
      "Qwen3_5MoeForCausalLM.out_hidden_size",
      "Qwen3_5ForCausalLM.patch_size",
      "Qwen3_5MoeForCausalLM.patch_size",
      "Qwen3_5ForCausalLM.temporal_patch_size",
      "Qwen3_5MoeForCausalLM.temporal_patch_size",
      "video_token_id",
      "vision_end_token_id",
      "vision_start_token_id"}},
    {"of sound, and of images, which Gemma 4's modeling files read, too",
     {"audio_token_id",
      "boa_token_id",
      "eoa_token_index",
      "Gemma4ForCausalLM.attention_chunk_size",
      "Gemma4ForCausalLM.attention_context_left",
      "Gemma4ForCausalLM.attention_context_right",
      "Gemma4ForCausalLM.attention_invalid_logits_value",
      "Gemma4ForCausalLM.attention_logit_cap",
      "Gemma4ForCausalLM.conv_kernel_size",
      "Gemma4ForCausalLM.gradient_clipping",
      "Gemma4ForCausalLM.hidden_act",
      "Gemma4ForCausalLM.output_proj_dims",
      "Gemma4ForCausalLM.patch_size",
      "Gemma4ForCausalLM.pooling_kernel_size",
      "Gemma4ForCausalLM.position_embedding_size",
      "Gemma4ForCausalLM.residual_weight",
      "Gemma4ForCausalLM.standardize",
      "Gemma4ForCausalLM.subsampling_conv_channels",
      "Gemma4ForCausalLM.use_clipped_linears",
      "Gemma4UnifiedForCausalLM.mm_embed_dim",
      "Gemma4UnifiedForCausalLM.mm_posemb_size",
      "Gemma4UnifiedForCausalLM.model_patch_size",
      "Gemma4UnifiedForCausalLM.output_proj_dims"}},
    {"what follows from other keys", {"kv_sharing_modes", "qk_head_dim", "MiniCPM3ForCausalLM.logits_scaling"}},
    {"text_config has its own",
     {"FuyuForCausalLM.initializer_range", "Gemma3ForConditionalGeneration.initializer_range",
      "Gemma4ForConditionalGeneration.initializer_range", "Gemma4UnifiedForConditionalGeneration.initializer_range"}},
    {"of a loss that balances experts, which output_router_logits asks for", {"router_aux_loss_coef"}},
    {"asks for such a loss, which the class does not have",
     {"DeepseekV2ForCausalLM.output_router_logits", "DeepseekV3ForCausalLM.output_router_logits",
      "Glm4MoeForCausalLM.output_router_logits", "Glm4MoeLiteForCausalLM.output_router_logits"}},
    {"of YaRN, by which the class means longrope",
     {"Phi3ForCausalLM.beta_fast", "Phi3ForCausalLM.beta_slow", "Phi3ForCausalLM.mscale",
      "Phi3ForCausalLM.mscale_all_dim", "Phi3ForCausalLM.truncate"}},
    {"of rope_parameters: positions of images, which text does not have", {"mrope_section"}},
    {"of experts, which dense models have none of",
     {"Gemma4ForCausalLM.moe_intermediate_size", "Gemma4ForCausalLM.num_experts", "Gemma4ForCausalLM.top_k_experts",
      "NemotronHForCausalLM.moe_intermediate_size", "NemotronHForCausalLM.moe_latent_size",
      "NemotronHForCausalLM.moe_shared_expert_intermediate_size", "NemotronHForCausalLM.moe_shared_expert_overlap",
      "NemotronHForCausalLM.n_group", "NemotronHForCausalLM.n_routed_experts", "NemotronHForCausalLM.n_shared_experts",
      "NemotronHForCausalLM.norm_topk_prob", "NemotronHForCausalLM.num_experts_per_tok",
      "NemotronHForCausalLM.num_local_experts", "NemotronHForCausalLM.output_router_logits",
      "NemotronHForCausalLM.routed_scaling_factor", "NemotronHForCausalLM.topk_group"}},
    {"of layers for drafts, which the class does not load",
     {"mtp_layers_block_type", "num_mtp_layers", "num_nextn_predict_layers"}},
    {"tokens that a recurrence takes at a time", {"NemotronHForCausalLM.chunk_size", "mamba_chunk_size"}},
    {"how fast transformers computes, and in what type it keeps states",
     {"mamba_ssm_cache_dtype", "use_mamba_kernels"}},
    {"another name of layers_block_type, which the file has", {"NemotronHForCausalLM.layer_types"}},
    {"initial weights",
     {"initializer_cutoff_factor", "rescale_prenorm_residual", "time_step_floor", "time_step_max",
      "YoutuForCausalLM.embedding_initializer_range"}},
    {"what the class keeps and its model does not compute with",
     {"MptForCausalLM.emb_pdrop",
      "MptForCausalLM.embedding_fraction",
      "MptForCausalLM.expansion_ratio",
      "MptForCausalLM.init_device",
      "MptForCausalLM.learned_pos_emb",
      "MptForCausalLM.logit_scale",
      "MptForCausalLM.no_bias",
      "MptForCausalLM.norm_type",
      "MptForCausalLM.resid_pdrop",
      "BioGptForCausalLM.layer_norm_eps",
      "CodeGenForCausalLM.n_ctx",
      "GPTBigCodeForCausalLM.num_key_value_heads",
      "Gemma3ForCausalLM.attn_logit_softcapping",
      "NemotronHForCausalLM.attention_bias",
      "NemotronHForCausalLM.expand",
      "NemotronHForCausalLM.hidden_dropout",
      "NemotronHForCausalLM.mamba_proj_bias",
      "NemotronHForCausalLM.num_hidden_layers",
      "NemotronHForCausalLM.sliding_window",
      "NemotronHForCausalLM.time_step_limit",
      "num_logits_to_keep",
      "residual_in_fp32"}},
    {"what the class puts in its place itself: sliding_window_pattern, or 6; hidden_size / num_attention_heads; "
     "qk_rope_head_dim; one type of layer",
     {"FalconH1ForCausalLM.layer_types", "Gemma3ForCausalLM._sliding_window_pattern", "DeepseekV2ForCausalLM.head_dim",
      "MiniCPM3ForCausalLM.head_dim"}},
};
bool IsHarmless(const std::string& family, const std::string& key) {
  return std::any_of(kHarmless.begin(), kHarmless.end(), [&](const auto& group) {
    return group.second.contains(key) || group.second.contains(family + "." + key);
  });
}

const Json& Golden() {
  static const Json golden = *ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/parity/config_keys.json");
  return golden;
}

Json YarnParameters() {
  return {{"rope_type", "yarn"}, {"rope_theta", 1e4},    {"factor", 4.0}, {"original_max_position_embeddings", 4096},
          {"mscale", 1.0},       {"mscale_all_dim", 0.5}};
}

// `pairs` of elements of a head rotate.
Json LongropeParameters(size_t pairs) {
  const std::vector<double> factors(pairs, 2.0);
  return {{"rope_type", "longrope"},
          {"short_factor", factors},
          {"long_factor", factors},
          {"original_max_position_embeddings", 6}};
}

bool IsMultimodal(const std::string& family) {
  return family.ends_with("ForConditionalGeneration") || family == "FuyuForCausalLM";
}

// The families whose rope_parameters are always one for each type of layer.
const std::set<std::string> kRopeByType = {"CohereCompassForCausalLM", "Lfm3ForCausalLM",
                                           "ModernBertDecoderForCausalLM"};
// Mixtures whose files may say that some layers have an MLP.
const std::set<std::string> kSomeMlps = {"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM",
                                         "Qwen3NextForCausalLM"};
// The family whose class has experts where its files say nothing.
constexpr char kHasExperts[] = "GraniteMoeHybridForCausalLM", kHasExpertLayers[] = "NemotronHForCausalLM";

// Families with latent attention, whose head_dim is what turns of a head.
const std::set<std::string> kLatent = {"DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM",
                                       "MiniCPM3ForCausalLM", "YoutuForCausalLM"};

// Configurations of a family in one or another of which each of its keys means something.
std::vector<Json> BasesOf(const std::string& family) {
  const Json sizes = {{"vocab_size", 64},
                      {"hidden_size", 64},
                      {"num_hidden_layers", 4},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},
                      {"head_dim", 16},
                      {"intermediate_size", 32},
                      {"ffn_dim", 32},
                      {"ffn_hidden_size", 32},
                      {"num_kv_heads", 2},
                      {"max_position_embeddings", 8192},
                      // GPT-Neo's names.
                      {"num_layers", 4},
                      {"num_heads", 4},
                      {"attention_types", Json::parse(R"([[["global", "local"], 2]])")},
                      // GPT-2's names.
                      {"n_embd", 64},
                      {"n_layer", 4},
                      {"n_head", 4},
                      {"n_inner", 32},
                      {"n_positions", 8192},
                      {"rotary_dim", 8}};
  std::vector<Json> bases = {sizes};
  Json windows = sizes;
  windows.update({{"use_sliding_window", true}, {"sliding_window", 4}, {"max_window_layers", 1}});
  bases.push_back(windows);
  Json derived = sizes;  // what follows from other keys where these are missing
  for (const char* key :
       {"head_dim", "num_key_value_heads", "n_embd", "n_layer", "n_head", "n_positions", "num_layers", "num_heads"}) {
    derived.erase(key);
  }
  bases.push_back(derived);
  if (family == "ExaoneForCausalLM") {
    bases.push_back(sizes);
    bases.back().erase("num_hidden_layers");
  }
  if (kSomeMlps.contains(family)) {
    bases.push_back(sizes);
    bases.back().update({{"mlp_only_layers", {0}}, {"first_k_dense_replace", 1}});
  }
  if (family == "Lfm2ForCausalLM") {
    bases.push_back(sizes);
    bases.back().update({{"block_multiple_of", 1}, {"full_attn_idxs", {0}}});
  }
  if (family == "FalconH1ForCausalLM") {
    bases.push_back(sizes);
    bases.back().update({{"mamba_d_ssm", nullptr}, {"mamba_rms_norm", true}});
  }
  if (family.starts_with("Gemma4")) {
    bases.push_back(sizes);
    bases.back().update(
        {{"num_kv_shared_layers", 2},
         {"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}}});
  }
  if (family == kHasExperts) {
    bases.push_back(sizes);
    bases.back()["layer_types"] = {"linear_attention", "full_attention", "full_attention", "full_attention"};
  }
  if (family == "FalconForCausalLM") {
    bases.back()["new_decoder_architecture"] = true;
    bases.push_back(sizes);
    bases.back().erase("num_kv_heads");
    bases.back().update({{"parallel_attn", false}, {"multi_query", false}});
  }
  for (const Json& rope : {YarnParameters(),
                           Json{{"rope_type", "llama3"},
                                {"factor", 8.0},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0},
                                {"original_max_position_embeddings", 64}},
                           LongropeParameters(8), LongropeParameters(4), LongropeParameters(2)}) {
    Json scaled = sizes;
    scaled["rope_parameters"] = rope;
    // Phi-3 has it outside.
    if (rope["rope_type"] == "longrope") scaled["original_max_position_embeddings"] = 6;
    bases.push_back(scaled);
  }
  for (Json& base : bases) {
    if (kRopeByType.contains(family)) {
      if (base.contains("sliding_window")) base["layer_types"] = std::vector<std::string>(4, "sliding_attention");
      const Json rope = base.value("rope_parameters", Json{{"rope_type", "default"}});
      base["rope_parameters"] = {{"full_attention", rope}, {"sliding_attention", rope}};
      for (Json& of_type : base["rope_parameters"]) of_type.emplace("rope_theta", 1e4);
    }
    if (family.starts_with("Gemma4")) base.update({{"global_head_dim", 16}, {"vocab_size_per_layer_input", 64}});
    if (family == kHasExperts) {
      base.update({{"num_local_experts", 4}, {"num_experts_per_tok", 2}, {"shared_intermediate_size", 32}});
      if (base.contains("rope_parameters")) base["position_embedding_type"] = "rope";
    }
    if (family == kHasExpertLayers) {
      base["layers_block_type"] = {"linear_attention", "full_attention", "mlp"};
      base["n_groups"] = 2;
    }
    if (kLatent.contains(family)) {
      base.update({{"num_key_value_heads", 4},
                   {"q_lora_rank", 8},
                   {"kv_lora_rank", 8},
                   {"qk_nope_head_dim", 8},
                   {"qk_rope_head_dim", 16},
                   {"v_head_dim", 8},
                   {"moe_intermediate_size", 32},
                   {"n_routed_experts", 8},
                   {"num_experts_per_tok", 2},
                   {"n_group", 2},
                   {"topk_group", 1}});
      if (base.contains("use_sliding_window")) {
        base["topk_method"] = "group_limited_greedy";
        base.erase("n_routed_experts");  // so that other names of it count
      }
    }
    if (IsMultimodal(family)) base = {{"text_config", base}};
    base["architectures"] = {family};
  }
  return bases;
}

// All that is known of the model, as text; or the error.
struct Read {
  bool ok = false;
  std::string text;
};
Read ReadConfig(const Json& config) {
  const auto model = ModelFromConfig(config, "config.json");
  if (!model.ok()) return {false, model.status().message()};
  const ModelFacts& facts = (*model)->facts();
  Json known = {{"vocab", facts.vocab}, {"positions", facts.max_positions}, {"range", facts.initializer_range},
                {"tied", facts.tied},   {"notes", facts.training_notes},    {"balance", facts.router_aux_loss_coef},
                {"kinds", facts.kinds}};
  std::string text = known.dump();
  for (const int64_t row : {4, 8}) {  // within and beyond longrope's original length
    if (row == 8 || config.dump().find("longrope") != std::string::npos) {
      text += PrintGraph((*model)->Forward({.tokens = 8, .row = row, .training = true}));
    }
  }
  return {true, text};
}

// A configuration and what it is read as.
struct Base {
  Json config;
  Read read;
};
std::vector<Base> ReadableBases(const std::string& family, bool has_rope) {
  std::vector<Base> bases;
  for (Json& config : BasesOf(family)) {
    if (has_rope && !bases.empty() && !config.contains("rope_parameters")) continue;  // one of them is enough
    if (has_rope) {
      config["num_hidden_layers"] = 1;                                              // for speed
      if (family == "Lfm3ForCausalLM") config["layer_types"] = {"full_attention"};  // the class's first is no attention
      if (!kRopeByType.contains(family)) config["rope_parameters"].emplace("rope_theta", 1e4);
    }
    Read read = ReadConfig(config);
    if (read.ok) bases.push_back({std::move(config), std::move(read)});  // else a form that the family does not have
  }
  return bases;
}

std::vector<Json> OtherValues(const std::string& key, const Json& value) {
  if (key == "layer_types" || key == "layers_block_type") {
    return {{"sliding_attention", "full_attention", "full_attention", "full_attention"},
            {"full_attention", "full_attention", "full_attention", "full_attention"}};
  }
  if (key == "no_rope_layers") return {{0, 0, 1, 1}};
  if (key == "attention_layers") return {{"local", "global", "local", "local"}};
  if (key == "attention_types") return {Json::parse(R"([[["local"], 4]])")};
  if (key == "rope_parameters") return {{{"rope_theta", 123.0}}};
  if (key == "rope_type") return {"linear"};
  if (key == "short_factor" || key == "long_factor") {
    return {std::vector<double>(2, 3.0), std::vector<double>(4, 3.0), std::vector<double>(8, 3.0)};
  }
  if (value.is_boolean()) return {true, false};
  if (value.is_string()) return {"gelu", "relu", "silu", "x"};
  if (value.is_number_integer()) return {1, 2, 8, 128};
  if (value.is_number_float()) return {2 * value.get<double>() + 0.25, 0.5};
  return {1, 2, 8, 128, 0.5, true, false, "x"};
}

// `at`: where in the configuration the keys stand.
bool IsReadOrRefused(std::span<const Base> bases, const Json::json_pointer& at, const std::string& key,
                     const Json& value) {
  for (const Base& base : bases) {
    for (const Json& other : OtherValues(key, value)) {
      Json config = base.config;
      config[at / key] = other;
      const Read after = ReadConfig(config);
      const bool refused = !after.ok && after.text.find(key) != std::string::npos;
      if (refused || (after.ok && after.text != base.read.text)) return true;
    }
  }
  return false;
}

TEST(ConfigKeys, EveryKeyOfEveryFamilyIsReadRefusedOrHarmless) {
  for (const auto& [family, keys] : Golden()["families"].items()) {
    const std::vector<Base> bases = ReadableBases(family, /*has_rope=*/false);
    ASSERT_FALSE(bases.empty()) << family << ": " << ReadConfig(BasesOf(family)[0]).text;
    for (const auto& [key, value] : keys.items()) {
      const auto tried = std::span(bases).first(IsHarmless(family, key) ? 1 : bases.size());
      EXPECT_NE(IsReadOrRefused(tried, Json::json_pointer(), key, value), IsHarmless(family, key))
          << family << ": " << key << " (default " << value << ") "
          << (IsHarmless(family, key) ? "is called harmless and changes the model"
                                      : "changes nothing: compute it, refuse it by name, or say why it is harmless");
    }
  }
}

// Measured with transformers: a tiny model gives other logits with another value of the key.
TEST(ConfigKeys, NoKeyThatChangesTransformersLogitsIsCalledHarmless) {
  int64_t keys = 0;
  for (const auto& [family, changing] : Golden()["changes"].items()) {
    EXPECT_GE(changing.size(), 4u) << family;
    for (const Json& key : changing) {
      EXPECT_FALSE(IsHarmless(family, key.get<std::string>())) << family << ": " << key;
      ++keys;
    }
  }
  EXPECT_GE(keys, 600);
}

TEST(ConfigKeys, EveryKeyOfRopeParametersIsReadRefusedOrHarmless) {
  for (const auto& [family, keys] : Golden()["families"].items()) {
    if (!keys.contains("rope_parameters")) continue;
    const std::vector<Base> bases = ReadableBases(family, /*has_rope=*/true);
    for (const Json& key : Golden()["rope_parameters"]) {
      const auto name = key.get<std::string>();
      const char* const at = kRopeByType.contains(family) ? "/rope_parameters/full_attention" : "/rope_parameters";
      EXPECT_TRUE(IsHarmless(family, name) || IsReadOrRefused(bases, Json::json_pointer(at), name, nullptr))
          << family << ": " << name;
    }
  }
}

// Keys that a class does not have itself and that are read all the same: as files of earlier versions of transformers
// have them, or (layer_types of Mistral) because transformers then takes another class.
const std::set<std::string> kReadBeside = {
    "Cohere2ForCausalLM.sliding_window_pattern",  "Gemma3ForCausalLM.sliding_window_pattern",
    "Glm4ForCausalLM.partial_rotary_factor",      "Glm4MoeForCausalLM.partial_rotary_factor",
    "GlmForCausalLM.partial_rotary_factor",       "NemotronForCausalLM.partial_rotary_factor",
    "NemotronHForCausalLM.mamba_conv_bias",       "NemotronHForCausalLM.mamba_d_conv",
    "NemotronHForCausalLM.mamba_n_groups",        "Phi3ForCausalLM.partial_rotary_factor",
    "Qwen3NextForCausalLM.partial_rotary_factor", "Qwen3_5MoeForCausalLM.partial_rotary_factor",
    "Qwen3_5ForCausalLM.partial_rotary_factor",   "MistralForCausalLM.layer_types"};

TEST(ConfigKeys, AKeyThatTheClassDoesNotHaveChangesNothing) {
  Json all;  // a key that some family computes with, and its value there
  for (const auto& [family, keys] : Golden()["families"].items()) {
    for (const auto& [key, value] : keys.items()) {
      if (!IsHarmless(family, key) && (!all.contains(key) || all[key].is_null())) all[key] = value;
    }
  }
  for (const auto& [family, keys] : Golden()["families"].items()) {
    if (IsMultimodal(family)) continue;  // it has its keys in text_config
    const Json base = BasesOf(family).front();
    Json own;
    for (const auto& [key, value] : base.items()) {
      if (keys.contains(key)) own[key] = value;
    }
    const Read before = ReadConfig(own);
    ASSERT_TRUE(before.ok) << family << ": " << before.text;
    std::vector<std::pair<std::string, std::vector<Json>>> foreign;
    for (const auto& [key, value] : all.items()) {
      if (keys.contains(key) || kReadBeside.contains(family + "." + key)) continue;
      foreign.emplace_back(key, OtherValues(key, value));
    }
    // First all at once, for speed.
    Json together = own;
    for (const auto& [key, values] : foreign) together[key] = values[0];
    if (ReadConfig(together).text == before.text) continue;
    for (const auto& [key, values] : foreign) {
      Json changed = own;
      changed[key] = values[0];
      const Read after = ReadConfig(changed);
      EXPECT_TRUE(!after.ok || after.text == before.text) << family << ": " << key << " = " << values[0];
    }
  }
}

// config.json leaves out what equals the class's own values. (What a multimodal class has is in its text_config.)
TEST(ConfigKeys, AMissingKeyMeansTheValueOfTheClass) {
  for (const auto& [family, keys] : Golden()["families"].items()) {
    if (IsMultimodal(family)) continue;
    Json all = keys;
    Json empty = {{"architectures", {family}}};
    all.update(empty);
    if (family == "Glm4MoeForCausalLM") empty["head_dim"] = all["head_dim"] = 128;  // 4096 / 96 would not turn in half
    if (family == "DeepseekV2ForCausalLM") empty["num_experts_per_tok"] = all["num_experts_per_tok"] = 6;  // has none
    if (family == kHasExpertLayers) {
      for (const char* key : {"layers_block_type", "layer_types"}) empty[key] = all[key] = {"linear_attention", "mlp"};
    }
    const Read without = ReadConfig(empty), with = ReadConfig(all);
    EXPECT_TRUE(without.ok || kRopeByType.contains(family)) << family << ": " << without.text;
    EXPECT_TRUE(without.text == with.text) << family << (with.ok ? "" : ": " + with.text);
  }
}

// A key that a family's class does not have any more, and a family that the script has not seen.
TEST(ConfigKeys, TheTablesKnowTheFamiliesOfToday) {
  std::set<std::string> families, known, all;
#define TEMPER_FAMILY(architecture, model_type, reader) families.insert(#architecture);
#define TEMPER_MULTIMODAL(architecture, model_type, text_type, names) families.insert(#architecture);
#include "model/family_list.inc"
  for (const auto& [family, keys] : Golden()["families"].items()) {
    known.insert(family);
    for (const auto& [key, value] : keys.items()) all.insert({key, family + "." + key});
  }
  EXPECT_EQ(families, known) << "run tests/parity/make_config_keys.py";
  for (const Json& key : Golden()["rope_parameters"]) {
    all.insert(key.get<std::string>());
    for (const std::string& family : known) all.insert(family + "." + key.get<std::string>());
  }
  for (const auto& [reason, keys] : kHarmless) {
    for (const std::string& key : keys) EXPECT_TRUE(all.contains(key)) << key << " is no key of any class";
  }
}

}  // namespace
}  // namespace temper::config_keys_test
