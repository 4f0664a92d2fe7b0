#include "model/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "format/quoted.h"

namespace temper {
namespace {

// Numbers are floats in the file: the shortest text that is this float is what config.json had.
double Shortest(float x) {
  return std::stod(fmt::format("{}", x));
}

// Reads the keys of one file, "<architecture>." in front.
class Keys {
 public:
  explicit Keys(const GgufFile& file) : file_(file) {
    const GgufValue* const name = file.keys().Find("general.architecture");
    const auto* const text = name == nullptr ? nullptr : std::get_if<std::string>(name);
    if (text != nullptr) architecture_ = *text;
  }
  const std::string& architecture() const { return architecture_; }
  const GgufFile& file() const { return file_; }
  bool HasTensor(const char* name) const { return file_.Find(name) != nullptr; }
  bool Has(const char* key) const { return Find(key) != nullptr; }
  const GgufValue* Find(const char* key) const { return file_.keys().Find(architecture_ + "." + key); }

  // One number, or a list of the same number for each block.
  Result<int64_t> Count(const char* key) const {
    const GgufValue* const value = Find(key);
    if (value == nullptr) return NotFound(fmt::format("{} has no {}.{}", file_.path(), architecture_, key));
    if (const auto* const n = std::get_if<uint32_t>(value)) return int64_t{*n};
    if (const auto* const n = std::get_if<int32_t>(value); n != nullptr && *n >= 0) return int64_t{*n};
    if (const auto* const list = std::get_if<std::vector<int32_t>>(value)) {
      const bool same =
          !list->empty() && std::all_of(list->begin(), list->end(), [&](int32_t n) { return n == list->front(); });
      if (same && list->front() >= 0) return int64_t{list->front()};
      return Unsupported(fmt::format("{}: {}.{} differs from layer to layer", file_.path(), architecture_, key));
    }
    return Corrupt(fmt::format("{}: {}.{} should be a number", file_.path(), architecture_, key));
  }
  Result<int64_t> CountOr(const char* key, int64_t fallback) const { return Has(key) ? Count(key) : fallback; }
  Result<double> NumberOrElse(const char* key, double fallback) const {
    const GgufValue* const value = Find(key);
    if (value == nullptr) return fallback;
    if (const auto* const x = std::get_if<float>(value); x != nullptr && std::isfinite(*x)) return Shortest(*x);
    return Corrupt(fmt::format("{}: {}.{} should be a number", file_.path(), architecture_, key));
  }
  std::string TextOr(const char* key, const char* fallback) const {
    const GgufValue* const value = Find(key);
    const auto* const text = value == nullptr ? nullptr : std::get_if<std::string>(value);
    return text == nullptr ? fallback : *text;
  }
  // The numbers of a small tensor; empty if there is none.
  Result<std::vector<float>> Numbers(const std::string& tensor) const {
    constexpr int64_t kMost = 1 << 16;
    const StoredTensor* const t = file_.Find(tensor);
    if (t == nullptr) return std::vector<float>();
    if (t->elements() > kMost) return Corrupt(fmt::format("{}: {} is too large", file_.path(), tensor));
    std::vector<float> numbers(static_cast<size_t>(t->elements()));
    TEMPER_RETURN_IF_ERROR(file_.ReadAs(tensor, DType::kF32, std::as_writable_bytes(std::span(numbers))));
    return numbers;
  }

 private:
  const GgufFile& file_;
  std::string architecture_;
};

std::vector<double> AllShortest(const std::vector<float>& numbers) {
  std::vector<double> out;
  for (const float x : numbers) out.push_back(Shortest(x));
  return out;
}

Status AddRope(const Keys& keys, Json& config) {
  TEMPER_ASSIGN_OR_RETURN(const double theta, keys.NumberOrElse("rope.freq_base", 10000));
  config["rope_theta"] = theta;
  const std::string type = keys.TextOr("rope.scaling.type", "none");
  TEMPER_ASSIGN_OR_RETURN(const double factor, keys.NumberOrElse("rope.scaling.factor", 1));
  TEMPER_ASSIGN_OR_RETURN(const int64_t original, keys.CountOr("rope.scaling.original_context_length", 0));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<float> factors, keys.Numbers("rope_freqs.weight"));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<float> long_factors, keys.Numbers("rope_factors_long.weight"));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<float> short_factors, keys.Numbers("rope_factors_short.weight"));
  if (!factors.empty()) {
    // The file has what Llama 3's rule gives, not its numbers: these are published ones, which the check compares.
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", Shortest(*std::max_element(factors.begin(), factors.end()))},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 8192}};
  } else if (!long_factors.empty()) {
    config["original_max_position_embeddings"] = original;
    config["rope_scaling"] = {
        {"type", "longrope"}, {"long_factor", AllShortest(long_factors)}, {"short_factor", AllShortest(short_factors)}};
  } else if (type == "linear") {
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
  } else if (type == "yarn") {
    TEMPER_ASSIGN_OR_RETURN(const double fast, keys.NumberOrElse("rope.scaling.yarn_beta_fast", 32));
    TEMPER_ASSIGN_OR_RETURN(const double slow, keys.NumberOrElse("rope.scaling.yarn_beta_slow", 1));
    config["rope_scaling"] = {{"rope_type", "yarn"},
                              {"factor", factor},
                              {"original_max_position_embeddings", original},
                              {"beta_fast", fast},
                              {"beta_slow", slow}};
  }
  return OkStatus();
}

using FillConfig = Status (*)(const Keys& keys, Json& config);

Status FillNothing(const Keys&, Json&) {
  return OkStatus();
}
Status FillBiases(const Keys& keys, Json& config) {
  config["attention_bias"] = keys.HasTensor("blk.0.attn_q.bias");
  config["mlp_bias"] = keys.HasTensor("blk.0.ffn_up.bias");
  return OkStatus();
}
Status FillLlama(const Keys& keys, Json& config) {
  if (!keys.Has("expert_count")) return FillBiases(keys, config);
  config["architectures"] = {"MixtralForCausalLM"};
  config["model_type"] = "mixtral";
  TEMPER_ASSIGN_OR_RETURN(config["num_local_experts"], keys.Count("expert_count"));
  TEMPER_ASSIGN_OR_RETURN(config["num_experts_per_tok"], keys.Count("expert_used_count"));
  return OkStatus();
}
Status FillQwenExperts(const Keys& keys, Json& config) {
  TEMPER_ASSIGN_OR_RETURN(config["num_experts"], keys.Count("expert_count"));
  TEMPER_ASSIGN_OR_RETURN(config["num_experts_per_tok"], keys.Count("expert_used_count"));
  TEMPER_ASSIGN_OR_RETURN(config["moe_intermediate_size"], keys.Count("expert_feed_forward_length"));
  if (keys.Has("expert_shared_feed_forward_length")) {
    TEMPER_ASSIGN_OR_RETURN(config["shared_expert_intermediate_size"], keys.Count("expert_shared_feed_forward_length"));
  }
  config["norm_topk_prob"] = keys.architecture() == "qwen3moe";
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = Json::array();
  config["attention_bias"] = keys.HasTensor("blk.0.attn_q.bias");
  return OkStatus();
}
Status FillGemma(const Keys&, Json& config) {
  config["hidden_act"] = config["hidden_activation"] = "gelu_pytorch_tanh";
  return OkStatus();
}
// llama.cpp knows the scale of scores by the number of blocks.
Status FillLaterGemma(const Keys& keys, Json& config, int64_t blocks_of_largest) {
  TEMPER_RETURN_IF_ERROR(FillGemma(keys, config));
  const bool largest = config["num_hidden_layers"] == blocks_of_largest;
  config["query_pre_attn_scalar"] =
      largest ? config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>()
              : config["head_dim"].get<int64_t>();
  if (keys.Has("attention.sliding_window")) {
    TEMPER_ASSIGN_OR_RETURN(config["sliding_window"], keys.Count("attention.sliding_window"));
  }
  // llama.cpp's own files leave the layers to the architecture.
  const GgufValue* const pattern = keys.Find("attention.sliding_window_pattern");
  if (const auto* const windows = pattern == nullptr ? nullptr : std::get_if<std::vector<bool>>(pattern)) {
    for (const bool slides : *windows) {
      config["layer_types"].push_back(slides ? "sliding_attention" : "full_attention");
    }
  }
  config["attn_logit_softcapping"] = config["final_logit_softcapping"] = nullptr;
  if (keys.Has("attn_logit_softcapping")) {
    TEMPER_ASSIGN_OR_RETURN(config["attn_logit_softcapping"], keys.NumberOrElse("attn_logit_softcapping", 0));
  }
  if (keys.Has("final_logit_softcapping")) {
    TEMPER_ASSIGN_OR_RETURN(config["final_logit_softcapping"], keys.NumberOrElse("final_logit_softcapping", 0));
  }
  return OkStatus();
}
Status FillGemma2(const Keys& keys, Json& config) {
  return FillLaterGemma(keys, config, 46);
}
Status FillGemma3(const Keys& keys, Json& config) {
  TEMPER_ASSIGN_OR_RETURN(config["rope_local_base_freq"], keys.NumberOrElse("rope.freq_base_swa", 10000));
  return FillLaterGemma(keys, config, 62);
}
Status FillPhi3(const Keys& keys, Json& config) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t turned,
                          keys.CountOr("rope.dimension_count", config["head_dim"].get<int64_t>()));
  config["partial_rotary_factor"] =
      static_cast<double>(turned) / static_cast<double>(config["head_dim"].get<int64_t>());
  // llama.cpp leaves it out.
  TEMPER_ASSIGN_OR_RETURN(const int64_t window, keys.CountOr("attention.sliding_window", 0));
  const bool slides = window > 0 && window < config["max_position_embeddings"].get<int64_t>();
  config["sliding_window"] = slides ? Json(window) : Json(nullptr);
  return OkStatus();
}
Status FillGranite(const Keys& keys, Json& config) {
  TEMPER_RETURN_IF_ERROR(FillBiases(keys, config));
  TEMPER_ASSIGN_OR_RETURN(config["attention_multiplier"], keys.NumberOrElse("attention.scale", 1));
  TEMPER_ASSIGN_OR_RETURN(config["embedding_multiplier"], keys.NumberOrElse("embedding_scale", 1));
  TEMPER_ASSIGN_OR_RETURN(config["residual_multiplier"], keys.NumberOrElse("residual_scale", 1));
  TEMPER_ASSIGN_OR_RETURN(config["logits_scaling"], keys.NumberOrElse("logit_scale", 1));
  return OkStatus();
}

struct Architecture {
  const char *name, *family, *model_type;
  FillConfig fill;
};
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", "llama", FillLlama},
    {"arcee", "ArceeForCausalLM", "arcee", FillBiases},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", FillNothing},
    {"qwen2moe", "Qwen2MoeForCausalLM", "qwen2_moe", FillQwenExperts},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", FillBiases},
    {"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe", FillQwenExperts},
    {"gemma", "GemmaForCausalLM", "gemma", FillGemma},
    {"gemma2", "Gemma2ForCausalLM", "gemma2", FillGemma2},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text", FillGemma3},
    {"phi3", "Phi3ForCausalLM", "phi3", FillPhi3},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3", FillBiases},
    {"granite", "GraniteForCausalLM", "granite", FillGranite},
    {"olmo2", "Olmo2ForCausalLM", "olmo2", FillBiases},
};

// The type to compute in: of the embedding, or bf16 where that is quantised.
const char* TypeOf(const GgufFile& file, const StoredTensor& embedding) {
  if (file.BlocksOf(embedding) != nullptr || embedding.dtype->name == "BF16") return "bfloat16";
  return embedding.dtype->name == "F16" ? "float16" : "float32";
}

bool SameNumber(double a, double b) {
  return std::abs(a - b) <= 1e-5 * std::max(std::abs(a), std::abs(b));
}

// Whether both say the same: a list of equal numbers is that number.
bool SaysSame(const GgufValue& said, const GgufValue& meant) {
  if (said == meant) return true;
  const auto number = [](const GgufValue& v) -> std::optional<double> {
    if (const auto* const x = std::get_if<float>(&v)) return *x;
    if (const auto* const x = std::get_if<uint32_t>(&v)) return *x;
    if (const auto* const x = std::get_if<int32_t>(&v)) return *x;
    const auto* const list = std::get_if<std::vector<int32_t>>(&v);
    if (list == nullptr || list->empty()) return std::nullopt;
    const bool same = std::all_of(list->begin(), list->end(), [&](int32_t n) { return n == list->front(); });
    return same ? std::optional<double>(list->front()) : std::nullopt;
  };
  const auto a = number(said), b = number(meant);
  return a && b && SameNumber(*a, *b);
}

// Whether a key that the description does not have changes nothing.
bool ChangesNothing(std::string_view key, const GgufValue& value, std::string_view architecture) {
  for (const char* known :
       {"vocab_size", "context_length", "rope.dimension_count", "rope.scaling.finetuned", "tensor_data_layout",
        "attention.key_length", "attention.value_length", "rope.scaling.attn_factor"}) {
    if (key == known) return key != "rope.scaling.attn_factor" || value == GgufValue(1.f);
  }
  if (key == "rope.scaling.type") return value == GgufValue(std::string("none"));
  if (key == "rope.scaling.factor" || key == "expert_weights_scale") return SaysSame(value, 1.f);
  if (key == "attention.sliding_window" && architecture == "phi3") return true;  // the configuration has it
  if (key == "expert_count" || key == "expert_used_count" || key == "attention.sliding_window") {
    return SaysSame(value, uint32_t{0});
  }
  return false;
}

}  // namespace

Result<Json> ConfigOfGguf(const GgufFile& file) {
  const Keys keys(file);
  const auto* const known = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                         [&](const Architecture& a) { return a.name == keys.architecture(); });
  if (known == std::end(kArchitectures)) {
    std::vector<std::string> names;
    for (const Architecture& a : kArchitectures) names.push_back(a.name);
    return Unsupported(fmt::format(
        "{}: GGUF files of the architecture {} are not read, those of {} are. Use the model's Hugging Face folder",
        file.path(), Quoted(keys.architecture()), fmt::join(names, ", ")));
  }
  const StoredTensor* const embedding = file.Find("token_embd.weight");
  if (embedding == nullptr || embedding->dims.size() != 2) {
    return Corrupt(file.path() + " has no matrix token_embd.weight: it is not a whole model");
  }
  Json config = {{"architectures", {known->family}},
                 {"model_type", known->model_type},
                 {"vocab_size", embedding->dims[0]},
                 {"tie_word_embeddings", !keys.HasTensor("output.weight")},
                 {"dtype", TypeOf(file, *embedding)}};
  TEMPER_ASSIGN_OR_RETURN(config["hidden_size"], keys.Count("embedding_length"));
  TEMPER_ASSIGN_OR_RETURN(config["num_hidden_layers"], keys.Count("block_count"));
  TEMPER_ASSIGN_OR_RETURN(config["max_position_embeddings"], keys.Count("context_length"));
  TEMPER_ASSIGN_OR_RETURN(config["intermediate_size"], keys.Count("feed_forward_length"));
  TEMPER_ASSIGN_OR_RETURN(const int64_t heads, keys.Count("attention.head_count"));
  TEMPER_ASSIGN_OR_RETURN(config["num_key_value_heads"], keys.CountOr("attention.head_count_kv", heads));
  if (heads == 0) return Corrupt(file.path() + ": attention.head_count is 0");
  config["num_attention_heads"] = heads;
  TEMPER_ASSIGN_OR_RETURN(config["head_dim"],
                          keys.CountOr("attention.key_length", config["hidden_size"].get<int64_t>() / heads));
  TEMPER_ASSIGN_OR_RETURN(config["rms_norm_eps"], keys.NumberOrElse("attention.layer_norm_rms_epsilon", 1e-6));
  TEMPER_RETURN_IF_ERROR(AddRope(keys, config));
  TEMPER_RETURN_IF_ERROR(known->fill(keys, config));
  return config;
}

Status CheckGgufModel(const GgufFile& file, const GgufModel& model) {
  const Keys keys(file);
  if (const GgufValue* const parts = file.keys().Find("split.count"); parts != nullptr) {
    const bool one = *parts == GgufValue(uint32_t{0}) || *parts == GgufValue(uint32_t{1});
    if (!one) {
      return Unsupported(fmt::format(
          "{} is a part of a model in several files: join them first (llama-gguf-split --merge)", file.path()));
    }
  }
  const std::string prefix = keys.architecture() + ".";
  for (const auto& [key, said] : file.keys().pairs()) {
    if (!key.starts_with(prefix)) continue;
    // Beside experts it is the width of an MLP that no block has, or that of an expert.
    if (model.experts > 0 && key == prefix + "feed_forward_length") continue;
    const GgufValue* const meant = model.metadata.Find(key);
    if (meant != nullptr ? SaysSame(said, *meant)
                         : ChangesNothing(std::string_view(key).substr(prefix.size()), said, keys.architecture())) {
      continue;
    }
    return Unsupported(fmt::format("{}: {} {}: this model would be computed otherwise. Use its Hugging Face folder",
                                   file.path(), key,
                                   meant != nullptr ? "is not what Temper makes of its other keys" : "is not known"));
  }
  std::set<std::string_view> described;
  for (const GgufTensor& tensor : model.tensors) {
    described.insert(tensor.name);
    const StoredTensor* const stored = file.Find(tensor.name);
    if (stored == nullptr) {
      return Corrupt(fmt::format("{} lacks the tensor {} of its architecture", file.path(), Quoted(tensor.name)));
    }
    if (stored->dims != tensor.dims()) {
      return Corrupt(fmt::format("{}: tensor {} is {}, and its keys make it [{}]", file.path(), Quoted(tensor.name),
                                 stored->ToString(), fmt::join(tensor.dims(), ", ")));
    }
    if (tensor.numbers.empty()) continue;
    TEMPER_ASSIGN_OR_RETURN(const std::vector<float> numbers, keys.Numbers(tensor.name));
    if (!std::equal(numbers.begin(), numbers.end(), tensor.numbers.begin(), tensor.numbers.end(), SameNumber)) {
      return Unsupported(
          fmt::format("{}: the rotary factors in {} are none that Temper knows. Use the model's Hugging "
                      "Face folder",
                      file.path(), Quoted(tensor.name)));
    }
  }
  for (const StoredTensor& stored : file.tensors()) {
    if (described.contains(stored.name)) continue;
    return Unsupported(
        fmt::format("{}: the tensor {} is not of its architecture as Temper knows it. Use the model's "
                    "Hugging Face folder",
                    file.path(), Quoted(stored.name)));
  }
  return OkStatus();
}

}  // namespace temper
