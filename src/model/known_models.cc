#include "model/known_models.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/edit_distance.h"

namespace temper {
namespace {

std::string Lowercase(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

}  // namespace

std::vector<std::string> KnownModelNames() {
  std::vector<std::string> names;
  for (const std::string_view text : KnownModelFiles()) {
    const OrderedJson file = *ParseOrderedJson(text, "a known model");
    for (const auto& [name, config] : file.items()) names.push_back(name);
  }
  return names;
}

std::optional<Json> FindKnownModel(std::string_view name) {
  const std::string wanted = Lowercase(name);
  for (const std::string_view text : KnownModelFiles()) {
    const Json file = *ParseJson(text, "a known model");
    if (const auto it = file.find(wanted); it != file.end()) return *it;
  }
  return std::nullopt;
}

std::string NearestKnownModel(std::string_view name) {
  constexpr size_t kLongest = 40;  // the edit distance costs length times length
  if (name.size() > kLongest) return "";
  std::string nearest;
  size_t least = 1 + name.size() / 4;
  for (const std::string& known : KnownModelNames()) {
    const size_t distance = EditDistance(Lowercase(name), known);
    if (distance >= least) continue;
    least = distance;
    nearest = known;
  }
  return nearest;
}

}  // namespace temper
