#include "model/lora_layers.h"

#include <algorithm>

namespace temper {
namespace {

bool IsNumber(std::string_view text) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && text.size() <= 9 && std::all_of(text.begin(), text.end(), digit);
}

}  // namespace

Result<LoraLayers> LoraLayers::Create(const LoraConfig& config) {
  LoraLayers chosen;
  if (config.layers_to_transform.empty()) {
    if (config.layers_patterns().empty()) return chosen;
    return InvalidArgument("layers_pattern says where layers are, but layers_to_transform chooses none: add it");
  }
  if (!config.target_regex().empty()) {
    return InvalidArgument(
        "layers_to_transform needs a list of names in target_modules (or all-linear), not a regular expression, which "
        "can name layers itself");
  }
  chosen.layers_ = config.layers_to_transform;
  for (const std::string& pattern : config.layers_patterns()) {
    Result<Pattern> list = Pattern::Compile("(?:.*\\.)?(?:" + pattern + ")\\.");
    if (!list.ok()) return list.status().WithContext("layers_pattern");
    chosen.lists_.push_back(std::move(*list));
  }
  return chosen;
}

Result<std::optional<int64_t>> LoraLayers::LayerOf(const std::string& path) const {
  // PEFT takes the first of the patterns that matches, and of its matches the first.
  for (size_t list = 0; list < std::max<size_t>(lists_.size(), 1); ++list) {
    int names = 0;  // before the number
    for (size_t begin = 0, end; (end = path.find('.', begin)) != path.npos; begin = end + 1, ++names) {
      const std::string number = path.substr(begin, end - begin);
      if (!IsNumber(number)) continue;
      bool found = names >= 2;  // of any list: something that has it
      if (!lists_.empty()) {
        TEMPER_ASSIGN_OR_RETURN(found, lists_[list].Matches(path.substr(0, begin)));
      }
      if (found) return std::optional<int64_t>(std::stoll(number));
    }
  }
  return std::optional<int64_t>();
}

Result<bool> LoraLayers::Has(const std::string& path) const {
  TEMPER_ASSIGN_OR_RETURN(const std::optional<int64_t> layer, LayerOf(path));
  return layer && std::find(layers_.begin(), layers_.end(), *layer) != layers_.end();
}

}  // namespace temper
