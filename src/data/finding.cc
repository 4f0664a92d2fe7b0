#include "data/finding.h"

#include <algorithm>
#include <string_view>

#include "base/utf8.h"

namespace temper {
namespace {

constexpr size_t kShown = 8;
constexpr const char* kOthers = "others";

std::string Shortened(std::string name) {
  constexpr std::string_view kMore = "...";
  if (name.size() <= FieldFindings::kLongestName + kMore.size()) return name;
  name.resize(FieldFindings::kLongestName);
  name.resize(utf8::ValidPrefix(name));
  return name += kMore;
}

}  // namespace

void Finding::Add(const Finding& other) {
  if (count == 0) first = other.first;
  count += other.count;
}

void FieldFindings::Add(const std::string& name, const Finding& finding) {
  const std::string key = Shortened(name);
  const bool room = by_name.size() < kMostNames || by_name.contains(key);
  by_name[room ? key : kOthers].Add(finding);
}

void FieldFindings::Add(const FieldFindings& other) {
  for (const auto& [name, finding] : other.by_name) Add(name, finding);
}

std::vector<std::pair<std::string, Finding>> FieldFindings::MostFrequent() const {
  std::vector<std::pair<std::string, Finding>> sorted(by_name.begin(), by_name.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.count > b.second.count; });
  sorted.resize(std::min(sorted.size(), kShown));
  return sorted;
}

}  // namespace temper
