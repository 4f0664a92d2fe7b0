#include "settings/optimizer_settings.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace temper {

OptimizerSettings::OptimizerSettings() {
  for (const UpdateRule* rule : UpdateRules()) {
    for (const UpdateSetting& setting : rule->settings) {
      const bool known = std::any_of(values_.begin(), values_.end(),
                                     [&](const Value& value) { return value.setting->option == setting.option; });
      if (!known) values_.push_back({rule, &setting, setting.fallback, setting.fallback != 0});
    }
  }
}

OptimizerSettings& OptimizerSettings::operator=(const OptimizerSettings& other) {
  std::copy(other.values_.begin(), other.values_.end(), values_.begin());
  return *this;
}

const OptimizerSettings::Value& OptimizerSettings::Find(std::string_view option) const {
  for (const Value& v : values_) {
    if (v.setting->option == option) return v;
  }
  TEMPER_CHECK(false) << option << " is no optimizer's setting";
  return values_.front();
}

void OptimizerSettings::Set(std::string_view option, double value) {
  Value& v = const_cast<Value&>(Find(option));
  v.number = value;
  v.flag = value != 0;
}

double OptimizerSettings::Get(std::string_view option) const {
  return Find(option).value();
}

Attributes OptimizerSettings::Of(const UpdateRule& rule) const {
  std::vector<std::pair<std::string_view, double>> own;
  for (const UpdateSetting& setting : rule.settings) own.emplace_back(setting.attribute, Get(setting.option));
  return rule.Settings(own);
}

Status OptimizerSettings::Check(const UpdateRule& chosen) const {
  const auto has = [](const UpdateRule* rule, std::string_view option) {
    return rule != nullptr && std::any_of(rule->settings.begin(), rule->settings.end(),
                                          [&](const UpdateSetting& setting) { return setting.option == option; });
  };
  for (const Value& v : values_) {
    if (has(&chosen, v.setting->option) || has(chosen.others(), v.setting->option)) continue;
    if (v.value() == v.setting->fallback) continue;
    return InvalidArgument(fmt::format("{} has no effect on optimizer: {}: remove it, or set optimizer: {}",
                                       v.setting->option, chosen.name, v.rule->name));
  }
  const std::string_view conflict = chosen.conflict == nullptr ? "" : chosen.conflict(Of(chosen));
  return conflict.empty() ? OkStatus() : InvalidArgument(std::string(conflict));
}

}  // namespace temper
