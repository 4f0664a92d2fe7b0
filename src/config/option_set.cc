#include "config/option_set.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/edit_distance.h"

namespace temper {
namespace {

std::string Normalised(std::string_view name) {
  std::string out(name);
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

std::string_view LastPart(std::string_view name) {
  return name.substr(name.rfind('.') + 1);
}  // npos + 1 == 0

size_t Apart(size_t a, size_t b) {
  return a < b ? b - a : a - b;
}

}  // namespace

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
  // Typing errors do not make a name much longer; the edit distance below takes 64 characters.
  constexpr size_t kLongest = 64;
  if (unknown.size() > kLongest) return "--help lists all names";
  const std::string name = Normalised(unknown);
  // The whole name first: in `lora.rank` the section adds nothing, in `lora.bias` it tells which bias.
  const std::string_view last = LastPart(name);
  const bool in_section = last.size() < name.size();
  for (const std::string_view wanted : {std::string_view(name), last}) {
    for (const ForeignName& foreign : foreign_) {
      if (foreign.foreign != wanted || !Has(foreign)) continue;
      if (foreign.ours.empty()) return foreign.note + "; remove it";
      return fmt::format("its name here is '{}'{}{}", foreign.ours, foreign.note.empty() ? "" : ": ", foreign.note);
    }
    if (!in_section) break;
  }
  const Option* nearest = nullptr;
  const EditDistanceTo to_name(name), to_last(last);
  // Up to a third of the letters may be wrong; beyond that a suggestion is noise.
  // Among names with equally close last parts, the section decides: memory.devise is memory.device, not device.
  std::pair<size_t, size_t> least{std::max<size_t>(1, last.size() / 3) + 1, 0};
  for (const OptionGroup& group : groups_) {
    for (const Option& option : group.options) {
      const std::string_view its_last = LastPart(option.name);
      // Names differ by at least as many letters as their lengths do: most need no closer look.
      const size_t whole_at_least = Apart(option.name.size(), name.size());
      const std::pair at_least{std::min(whole_at_least, Apart(its_last.size(), last.size())), whole_at_least};
      if (at_least >= least) continue;
      const size_t whole = to_name.From(option.name);
      const bool parts = in_section || its_last.size() < option.name.size();
      const std::pair distance{parts ? std::min(whole, to_last.From(its_last)) : whole, whole};
      if (distance < least) {
        least = distance;
        nearest = &option;
      }
    }
  }
  if (nearest == nullptr) return "--help lists all names";
  return fmt::format("did you mean '{}'?", nearest->name);
}

bool OptionSet::IsForeign(std::string_view name) const {
  return std::any_of(foreign_.begin(), foreign_.end(),
                     [&](const ForeignName& f) { return f.foreign == name && Has(f); });
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
