// LoraSelector: decides which modules of a model a configuration selects, and records which listed names select
// nothing.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/pattern.h"
#include "format/lora_config.h"
#include "model/lora_layers.h"
#include "model/weight.h"

namespace temper {

class LoraSelector {
 public:
  // `config` must outlive it. Errors: a bad expression; they name settings as ResolveLora's do.
  static Result<LoraSelector> Create(const LoraConfig& config, const std::string& file);

  Result<bool> Selects(const LinearModule& module);
  // Whether a module of these names gets no adapter although it is named.
  Result<bool> LeavesOut(const std::vector<std::string>& paths) const;
  // Whether target_modules, an expression, means a module of that name. REQUIRES: it is one.
  Result<bool> Matches(const std::string& key) const;

  // The names that have selected nothing, and what lists them.
  struct Idle {
    const char* setting;
    std::string name;
  };
  std::vector<Idle> Unmatched() const;

 private:
  explicit LoraSelector(const LoraConfig& config)
      : config_(config), saved_(config.saved_names()), parameters_(config.parameter_names()) {}

  const LoraConfig& config_;
  const std::vector<std::string> saved_, parameters_;
  std::optional<Pattern> targets_, excluded_;
  std::optional<LoraLayers> layers_;
  std::set<std::string> matched_, matched_parameters_;
};

}  // namespace temper
