// OptimizerSettings: the values of all settings that optimizers declare (UpdateRule::settings), by the names of their
// options (config/optimizer_options.h). A value type; one thread at a time.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "graph/update_rule.h"

namespace temper {

class OptimizerSettings {
 public:
  OptimizerSettings();  // all at their defaults
  OptimizerSettings(const OptimizerSettings&) = default;
  // Keeps the addresses of the values, to which options point.
  OptimizerSettings& operator=(const OptimizerSettings& other);

  // In the order of UpdateRules(); `rule` is the first optimizer that has the setting. Options point into it.
  struct Value {
    const UpdateRule* rule;
    const UpdateSetting* setting;
    double number;
    bool flag;  // number != 0, for a flag's option to point to

    bool is_flag() const { return setting->range == UpdateSetting::Range::kFlag; }
    double value() const { return !is_flag() ? number : flag ? 1 : 0; }
  };
  std::span<Value> values() { return values_; }

  // REQUIRES: `option` is a setting of some optimizer; of a flag 0 or 1.
  void Set(std::string_view option, double value);
  double Get(std::string_view option) const;
  // Attributes for the op of `rule`.
  Attributes Of(const UpdateRule& rule) const;
  // An error for a setting that `chosen` and the optimizer of the values that it does not take do not have, and for
  // settings of `chosen` that contradict each other.
  Status Check(const UpdateRule& chosen) const;

 private:
  const Value& Find(std::string_view option) const;

  std::vector<Value> values_;
};

}  // namespace temper
