#include "config/optimizer_options.h"

#include <fmt/core.h>

namespace temper {
namespace {

Range RangeOf(UpdateSetting::Range range) {
  switch (range) {
    case UpdateSetting::Range::kFraction:
      return {.at_least = 0, .below = 1};
    case UpdateSetting::Range::kPositive:
      return {.above = 0};
    case UpdateSetting::Range::kNegative:
      return {.below = 0};
    case UpdateSetting::Range::kFlag:
      break;
  }
  return {};
}

}  // namespace

std::vector<Option> OptimizerOptions(OptimizerSettings& settings) {
  std::vector<Option> options;
  for (OptimizerSettings::Value& v : settings.values()) {
    const OptionTarget target = v.is_flag() ? OptionTarget(&v.flag) : OptionTarget(&v.number);
    options.push_back({std::string(v.setting->option), target, fmt::format("{}: {}", v.rule->name, v.setting->help),
                       RangeOf(v.setting->range)});
  }
  return options;
}

}  // namespace temper
