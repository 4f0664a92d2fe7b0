// OptionSet: the options of one command, declared once as a table in groups. It drives the reading of YAML
// (config/option_yaml.h) and of the command line (config/command_line.h), the advice on unknown names, and --help.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "config/option.h"

namespace temper {

struct OptionGroup {
  std::string title;
  std::vector<Option> options;
  OnResume on_resume = OnResume::kSame;  // of options that do not say otherwise
};

enum class ForeignTool : uint8_t { kAny, kLlamaFactory, kAxolotl, kTrl };

// An option name of other tools. `ours`: the option with the same meaning, or empty. `note` completes the advice;
// without `ours` it is the reason.
struct ForeignName {
  std::string_view foreign;
  std::string_view ours;
  std::string note;
  // How `temper import` translates values: "true=bf16 false=" are pairs, ours empty for a value that needs no option;
  // '~' for '=' where the meaning changes as `note` says, '!' where nothing does; "*" is any value. A value that is not
  // listed has no equivalent. Empty: the value stays. "@rule" is a rule of config/import.cc.
  std::string_view values = {};
  ForeignTool tool = ForeignTool::kAny;  // the only tool where the name has this meaning
  bool needless = false;                 // without `ours`: nothing is lost without it
  // What one who gives the name is told, where the note is about files of other tools; for commands that have the
  // option `advised`, if there is one.
  std::string advice = {};
  std::string_view advised = {};
};

class OptionSet {
 public:
  // Foreign names of options that this command lacks have no effect: all commands share one list, which must outlive
  // the set.
  OptionSet(std::vector<OptionGroup> groups, std::span<const ForeignName> foreign);
  OptionSet(OptionSet&&) = default;
  OptionSet(const OptionSet&) = delete;  // what is found by name lies in groups_
  OptionSet& operator=(const OptionSet&) = delete;

  // By its name or its former one; nullptr if there is none. '-' counts as '_'.
  const Option* Find(std::string_view name) const;
  bool IsFormer(std::string_view name) const;   // whether an option has another name now
  bool IsSection(std::string_view name) const;  // "lora"
  const std::vector<OptionGroup>& groups() const { return groups_; }

  // Advice on an unknown name: our name for it, or the closest option. Ends without a full stop.
  std::string Advice(std::string_view unknown) const;

  bool IsForeign(std::string_view name) const;  // whether it is a name of another tool

  // Checks that every number is in its option's range.
  Status CheckRanges() const;

 private:
  struct Named {
    const Option* option;
    std::string_view name;   // its own or its former one
    size_t size, last_size;  // of that, and of the part behind the last dot
  };

  std::vector<OptionGroup> groups_;
  // A file may have thousands of unknown keys, each of which is looked for in all of these.
  std::vector<Named> named_;  // all, in order
  std::unordered_map<std::string_view, const Option*> by_name_;
  std::set<std::string_view> sections_;
  std::unordered_map<std::string_view, const ForeignName*> foreign_;  // of options that this set has
};

}  // namespace temper
