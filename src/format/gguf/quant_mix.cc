#include "format/gguf/quant_mix.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

namespace temper {
namespace {

struct Mix {
  std::string_view name;
  uint32_t file_type;
  BlockType type;  // of tensors that nothing is said of
};
constexpr Mix kMixes[] = {
    // in the order of QuantMix
    {"f32", 0, BlockType::kF32},     {"f16", 1, BlockType::kF16},     {"bf16", 32, BlockType::kBF16},
    {"q8_0", 7, BlockType::kQ8_0},   {"q6_k", 18, BlockType::kQ6K},   {"q5_k_m", 17, BlockType::kQ5K},
    {"q4_k_m", 15, BlockType::kQ4K}, {"q4_k_s", 14, BlockType::kQ4K},
};

const Mix& Of(QuantMix mix) {
  return kMixes[static_cast<size_t>(mix)];
}

bool Has(std::string_view name, std::string_view part) {
  return name.find(part) != name.npos;
}

// Dims that ggml counts: it drops those of 1 in front of the others.
size_t CountedDims(const GgufDeclaration& tensor) {
  size_t first = 0;
  while (first < tensor.dims.size() && tensor.dims[first] == 1) ++first;
  return tensor.dims.size() - first;
}

// Small tensors on which much depends.
bool StaysF32(const GgufDeclaration& tensor) {
  const std::string_view name = tensor.name;
  return CountedDims(tensor) < 2 || !name.ends_with(".weight") || name.ends_with("_norm.weight") ||
         Has(name, "ffn_gate_inp") || name == "position_embd.weight" || Has(name, "ssm_conv1d") ||
         Has(name, "shortconv.conv");
}

// The first and the last eighth of the blocks, and every third between them.
bool UseMoreBits(int64_t block, int64_t blocks) {
  return block < blocks / 8 || block >= 7 * blocks / 8 || (block - blocks / 8) % 3 == 2;
}

// llama.cpp's 70B, by which it means models whose values are an eighth of the queries.
bool IsSeventyB(const MixedModel& model) {
  const std::string_view arch = model.architecture;
  if (model.blocks == 80)
    return arch == "qwen2" || arch == "olmo" || (arch == "llama" && model.heads != model.kv_heads);
  return model.blocks == 68 && arch == "jais2";
}

bool IsAttentionValue(std::string_view name) {
  return Has(name, "attn_v.weight") || Has(name, "attn_qkv.weight");
}

class Choice {
 public:
  Choice(QuantMix mix, const MixedModel& model, std::span<const GgufDeclaration> tensors) : mix_(mix), model_(model) {
    for (const GgufDeclaration& t : tensors) {
      values_ += IsAttentionValue(t.name) ? 1 : 0;
      tied_ = tied_ && t.name != "output.weight";
    }
  }

  BlockType Of(const GgufDeclaration& tensor) {
    const std::string_view name = tensor.name;
    const BlockType usual = temper::Of(mix_).type;
    const bool falcon = model_.architecture == "falcon";
    if (name == "output.weight" || (tied_ && name == "token_embd.weight")) {
      const bool whole = tensor.dims.back() % FormatOf(usual).elements == 0;
      if (falcon || !whole) return BlockType::kQ8_0;
      return usual == BlockType::kQ8_0 ? usual : BlockType::kQ6K;
    }
    if (name == "token_embd.weight") return usual;
    if (IsAttentionValue(name)) return OfValue(usual, value_++);
    if (Has(name, "attn_k.weight")) return model_.experts == 8 ? BlockType::kQ8_0 : usual;
    if (Has(name, "attn_output.weight")) {
      const bool of_four = mix_ == QuantMix::kQ4KM || mix_ == QuantMix::kQ4KS;
      return model_.experts == 8 && of_four && !falcon ? BlockType::kQ5K : usual;
    }
    if (Has(name, "ffn_down")) return OfDown(usual, name, falcon);
    return usual;
  }

 private:
  BlockType OfValue(BlockType type, int64_t value) const {
    if ((mix_ == QuantMix::kQ4KM || mix_ == QuantMix::kQ5KM) && UseMoreBits(value, values_)) {
      type = BlockType::kQ6K;
    } else if (mix_ == QuantMix::kQ4KS && value < 4) {
      type = BlockType::kQ5K;
    }
    if (IsSeventyB(model_) && type == BlockType::kQ4K) type = BlockType::kQ5K;
    return model_.experts == 8 ? BlockType::kQ8_0 : type;
  }

  BlockType OfDown(BlockType type, std::string_view name, bool falcon) {
    int64_t block = down_++;
    if (model_.experts > 1) block = std::atoll(name.substr(std::string_view("blk.").size()).data());
    const bool more = UseMoreBits(block, model_.blocks);
    if (mix_ == QuantMix::kQ4KM && falcon) {
      return block < model_.blocks / 16 ? BlockType::kQ6K : more ? BlockType::kQ5K : type;
    }
    if ((mix_ == QuantMix::kQ4KM || mix_ == QuantMix::kQ5KM) && more) return BlockType::kQ6K;
    if (mix_ == QuantMix::kQ4KS && !falcon && block < model_.blocks / 8) return BlockType::kQ5K;
    return type;
  }

  const QuantMix mix_;
  const MixedModel& model_;
  int64_t values_ = 0, value_ = 0, down_ = 0;
  bool tied_ = true;
};

// Of rows that are not whole blocks.
BlockType Smaller(BlockType type, int64_t columns) {
  if (columns % FormatOf(type).elements == 0) return type;
  const BlockType smaller = type == BlockType::kQ4K   ? BlockType::kQ5_0
                            : type == BlockType::kQ5K ? BlockType::kQ5_1
                            : type == BlockType::kQ6K ? BlockType::kQ8_0
                                                      : type;
  return columns % FormatOf(smaller).elements == 0 ? smaller : BlockType::kF16;
}

}  // namespace

std::string_view NameOf(QuantMix mix) {
  return Of(mix).name;
}

std::vector<std::string_view> MixNames() {
  std::vector<std::string_view> names;
  for (const Mix& mix : kMixes) names.push_back(mix.name);
  return names;
}

uint32_t FileTypeOf(QuantMix mix) {
  return Of(mix).file_type;
}

std::vector<std::string> ChooseTypes(QuantMix mix, const MixedModel& model, std::span<GgufDeclaration> tensors) {
  Choice choice(mix, model, tensors);
  struct Fallback {
    int64_t tensors = 0;
    std::string first;
  };
  std::map<std::pair<BlockType, BlockType>, Fallback> fallbacks;
  for (GgufDeclaration& tensor : tensors) {
    if (StaysF32(tensor)) {
      tensor.type = BlockType::kF32;
      continue;
    }
    const BlockType chosen = FormatOf(Of(mix).type).quantised() ? choice.Of(tensor) : Of(mix).type;
    tensor.type = Smaller(chosen, tensor.dims.back());
    if (tensor.type == chosen) continue;
    Fallback& fallback = fallbacks[{chosen, tensor.type}];
    if (fallback.tensors++ == 0) {
      fallback.first = fmt::format("{} with rows of {}", tensor.name, tensor.dims.back());
    }
  }
  std::vector<std::string> lines;
  for (const auto& [types, fallback] : fallbacks) {
    lines.push_back(fmt::format("{} tensors are {} instead of {}, whose blocks have {} numbers: the first is {}",
                                fallback.tensors, FormatOf(types.second).name, FormatOf(types.first).name,
                                FormatOf(types.first).elements, fallback.first));
  }
  return lines;
}

}  // namespace temper
