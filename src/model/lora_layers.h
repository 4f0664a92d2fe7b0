// LoraLayers: of which of a model's layers an adapter is: layers_to_transform and layers_pattern of PEFT's LoraConfig.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/pattern.h"
#include "format/lora_config.h"

namespace temper {

class LoraLayers {
 public:
  // Errors as PEFT's: a regular expression in target_modules leaves no layers to choose, and a pattern needs them.
  static Result<LoraLayers> Create(const LoraConfig& config);

  // Whether `config` chooses layers.
  bool choose() const { return !layers_.empty(); }
  // The number of the layer that a module's path names: the first behind a list that layers_pattern names or, where
  // there is none, behind any. nullopt: it is in none, such as the head.
  Result<std::optional<int64_t>> LayerOf(const std::string& path) const;
  Result<bool> Has(const std::string& path) const;

 private:
  std::vector<int64_t> layers_;
  std::vector<Pattern> lists_;  // each of a path up to a layer's number
};

}  // namespace temper
