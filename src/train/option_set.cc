#include "train/option_set.h"

#include <fmt/format.h>

#include <algorithm>

namespace temper {
namespace {

char Lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::string Normalised(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::string_view LastPart(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}  // npos + 1 == 0

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (Lower(a[i - 1]) != Lower(b[j - 1]))});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before = above;
    above = row;
  }
  return above[b.size()];
}

}  // namespace

OptionSet::OptionSet(std::vector<OptionGroup> groups, std::vector<ForeignName> foreign) : groups_(std::move(groups)) {
  for (ForeignName& name : foreign) {
    if (name.ours.empty() || Find(name.ours) != nullptr) foreign_.push_back(name);
  }
}

const Option* OptionSet::Find(std::string_view name) const {
  const std::string wanted = Normalised(name);
  for (const OptionGroup& group : groups_) {
    for (const Option& option : group.options) {
      if (option.name == wanted) return &option;
    }
  }
  return nullptr;
}

bool OptionSet::IsSection(std::string_view name) const {
  const std::string prefix = Normalised(name) + ".";
  for (const OptionGroup& group : groups_) {
    for (const Option& option : group.options) {
      if (option.name.starts_with(prefix)) return true;
    }
  }
  return false;
}

std::string OptionSet::Advice(std::string_view unknown) const {
  // Nobody mistypes a name into one much longer; the distance below costs length times length.
  constexpr size_t kLongest = 64;
  if (unknown.size() > kLongest) return "--help lists all names";
  const std::string name = Normalised(unknown);
  // The whole name first: in `lora.rank` the section adds nothing, in `lora.bias` it tells which bias.
  for (const std::string_view wanted : {std::string_view(name), LastPart(name)}) {
    for (const ForeignName& foreign : foreign_) {
      if (foreign.foreign != wanted) continue;
      if (foreign.ours.empty()) return std::string(foreign.note);
      return fmt::format("its name here is '{}'{}{}", foreign.ours, foreign.note.empty() ? "" : ": ", foreign.note);
    }
  }
  const Option* nearest = nullptr;
  // A third of the letters may be wrong; beyond that a suggestion is noise.
  size_t least = std::max<size_t>(1, LastPart(name).size() / 3) + 1;
  for (const OptionGroup& group : groups_) {
    for (const Option& option : group.options) {
      const size_t distance =
          std::min(EditDistance(name, option.name), EditDistance(LastPart(name), LastPart(option.name)));
      if (distance < least) {
        least = distance;
        nearest = &option;
      }
    }
  }
  if (nearest == nullptr) return "--help lists all names";
  return fmt::format("did you mean '{}'?", nearest->name);
}

Status OptionSet::CheckRanges() const {
  const auto check = [](const Option& option, double value) {
    if (option.range.Contains(value)) return OkStatus();
    return InvalidArgument(fmt::format("{} should be {}, but is {}", option.name, option.range.ToString(), value));
  };
  for (const OptionGroup& group : groups_) {
    for (const Option& option : group.options) {
      std::vector<double> values;
      std::visit(Overloaded{[&](int64_t* v) { values.push_back(static_cast<double>(*v)); },
                            [&](double* v) { values.push_back(*v); },
                            [&](std::optional<int64_t>* v) {
                              if (*v) values.push_back(static_cast<double>(**v));
                            },
                            [&](std::optional<double>* v) {
                              if (*v) values.push_back(**v);
                            },
                            [&](IntPatterns* v) {
                              for (const auto& [name, value] : *v) values.push_back(static_cast<double>(value));
                            },
                            [&](NumberPatterns* v) {
                              for (const auto& [name, value] : *v) values.push_back(value);
                            },
                            [](const auto&) {}},
                 option.target);
      for (const double value : values) TEMPER_RETURN_IF_ERROR(check(option, value));
    }
  }
  return OkStatus();
}

}  // namespace temper
