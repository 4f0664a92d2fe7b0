// OptionSet: the options of one command, declared once as a table in groups. It drives the reading of YAML
// (config/option_yaml.h) and of the command line (config/command_line.h), the advice on unknown names, and --help.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "config/option.h"

namespace temper {

struct OptionGroup {
  std::string title;
  std::vector<Option> options;
  OnResume on_resume = OnResume::kSame;  // of options that do not say otherwise
};

// An option name of other tools. `ours`: the option with the same meaning, or empty; `note` completes the advice.
struct ForeignName {
  std::string_view foreign;
  std::string_view ours;
  std::string note;
};

class OptionSet {
 public:
  // Foreign names of options that this command lacks are left out: all commands may share one list.
  OptionSet(std::vector<OptionGroup> groups, std::vector<ForeignName> foreign);

  // nullptr if there is none. '-' counts as '_'.
  const Option* Find(std::string_view name) const;
  bool IsSection(std::string_view name) const;  // "lora"
  const std::vector<OptionGroup>& groups() const { return groups_; }

  // Advice on an unknown name: our name for it, or the closest option. Ends without a full stop.
  std::string Advice(std::string_view unknown) const;

  // Checks that every number is in its option's range.
  Status CheckRanges() const;

 private:
  std::vector<OptionGroup> groups_;
  std::vector<ForeignName> foreign_;
};

}  // namespace temper
