#include "config/option_set.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

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

OptionSet::OptionSet(std::vector<OptionGroup> groups, std::span<const ForeignName> foreign)
    : groups_(std::move(groups)) {
  for (const OptionGroup& group : groups_) {
    for (const Option& option : group.options) {
      const std::string_view name = option.name;
      for (const std::string_view known : {name, std::string_view(option.former)}) {
        if (known.empty()) continue;
        named_.push_back({&option, known, known.size(), LastPart(known).size()});
        by_name_.emplace(known, &option);
      }
      for (size_t dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1)) {
        sections_.insert(name.substr(0, dot));
      }
    }
  }
  for (const ForeignName& name : foreign) {
    if (name.ours.empty() || Find(name.ours) != nullptr) foreign_.emplace(name.foreign, &name);
  }
}

const Option* OptionSet::Find(std::string_view name) const {
  const auto found = by_name_.find(Normalised(name));
  return found == by_name_.end() ? nullptr : found->second;
}

bool OptionSet::IsFormer(std::string_view name) const {
  const Option* option = Find(name);
  return option != nullptr && option->name != Normalised(name);
}

bool OptionSet::IsSection(std::string_view name) const {
  return sections_.contains(Normalised(name));
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
    if (const auto found = foreign_.find(wanted); found != foreign_.end()) {
      const ForeignName& foreign = *found->second;
      if (!foreign.advice.empty() && (foreign.advised.empty() || Find(foreign.advised))) return foreign.advice;
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
  for (const Named& named : named_) {
    // Names differ by at least as many letters as their lengths do: most need no closer look.
    const size_t whole_at_least = Apart(named.size, name.size()),
                 at_least = std::min(whole_at_least, Apart(named.last_size, last.size()));
    if (at_least > least.first || (at_least == least.first && whole_at_least >= least.second)) continue;
    const std::string_view its_name = named.name;
    const size_t whole = to_name.From(its_name);
    const bool parts = in_section || named.last_size < named.size;
    const std::pair distance{
        parts ? std::min(whole, to_last.From(its_name.substr(named.size - named.last_size))) : whole, whole};
    if (distance < least) {
      least = distance;
      nearest = named.option;
    }
  }
  // A setting that takes FIELD=VALUE, written as a section.
  if (nearest == nullptr && in_section) nearest = Find(name.substr(0, name.size() - last.size() - 1));
  if (nearest == nullptr && !in_section) {
    for (const std::string_view section : sections_) {
      if (to_name.From(section) < least.first) return fmt::format("did you mean '{}'?", section);
    }
  }
  if (nearest == nullptr) return "--help lists all names";
  return fmt::format("did you mean '{}'?", nearest->name);
}

bool OptionSet::IsForeign(std::string_view name) const {
  return foreign_.contains(Normalised(name));
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
                            [&](const NumberOrAuto& v) { values.push_back(static_cast<double>(*v.number)); },
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
