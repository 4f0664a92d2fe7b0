// OptionSet: the options of one command, declared once as a table in groups. From it come the reading of YAML
// (config/option_yaml.h) and of the command line (config/command_line.h), the answers to unknown names, and --help.
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
};

// A name other tools use. `ours` is the option that means the same, or empty; `note` completes the answer.
struct ForeignName {
  std::string_view foreign;
  std::string_view ours;
  std::string note;
};

class OptionSet {
 public:
  // Foreign names of options that this command lacks are left out: all commands may share one list.
  OptionSet(std::vector<OptionGroup> groups, std::vector<ForeignName> foreign);

  // nullptr where there is none. '-' counts as '_'.
  const Option* Find(std::string_view name) const;
  bool IsSection(std::string_view name) const;  // "lora"
  const std::vector<OptionGroup>& groups() const { return groups_; }

  // The answer to a name that is no option: our name for it, or the nearest one. Ends without a full stop.
  std::string Advice(std::string_view unknown) const;

  // Checks that every number lies in its option's range.
  Status CheckRanges() const;

 private:
  std::vector<OptionGroup> groups_;
  std::vector<ForeignName> foreign_;
};

}  // namespace temper
