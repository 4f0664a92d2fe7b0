#include "checkpoint/configured_dtype.h"

#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "format/json.h"

namespace temper {
namespace {

constexpr std::array<std::pair<const char*, DType>, 3> kNames = {
    {{"bfloat16", DType::kBF16}, {"float16", DType::kF16}, {"float32", DType::kF32}}};

}  // namespace

Result<std::optional<DType>> ConfiguredDType(const OrderedJson& config, const std::string& where) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    const auto it = config.find(key);
    if (it == config.end() || it->is_null()) continue;
    for (const auto& [name, type] : kNames) {
      if (*it == name) return std::optional(type);
    }
    return Unsupported(fmt::format("{}: {} is {}", where, key, DumpJson(*it).substr(0, 40)));
  }
  return std::optional<DType>();
}

std::string TorchName(DType type) {
  for (const auto& [name, one] : kNames) {
    if (one == type) return name;
  }
  TEMPER_CHECK(false) << "torch has another name for " << ToString(type);
  return "";
}

}  // namespace temper
