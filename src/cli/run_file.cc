#include "cli/run_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/env.h"
#include "base/log.h"
#include "config/option_yaml.h"
#include "config/run_options.h"
#include "format/quoted.h"

namespace temper {
namespace {

// Those of a run that mean something else here, or are set apart.
constexpr std::array<std::string_view, 4> kApart = {"model", "base", "adapter", "data"};

// Of two options that may have other names.
Status Copy(const Option& from, const Option& to, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const OrderedJson value, ParseYamlValue(ValueAsYaml(from), path));
  return SetFromJson(to, value, path);
}

Status CheckTrained(const RunConfig& run, const std::string& path) {
  const std::string& out = run.output.output_dir;
  if (out.empty()) {
    return InvalidArgument(path + ": it names no output_dir, where its result would be: give the model's folder");
  }
  if (PosixEnv().IsFolder(out)) return OkStatus();
  return NotFound(
      fmt::format("{}: its output_dir {} is not there: train it first, temper train {}", path, out, ShellWord(path)));
}

}  // namespace

bool IsRunFile(const std::string& word) {
  return (word.ends_with(".yaml") || word.ends_with(".yml")) && PosixEnv().IsFile(word);
}

Status TakeRunFile(const std::string& path, const Command& command, const OptionSet& options) {
  RunConfig run, fresh;
  const OptionSet of_run = RunOptions(run), defaults = RunOptions(fresh);
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(PosixEnv(), path, MiB(1)));
  if (const Status read = ReadYamlOptions(text, path, of_run); !read.ok()) return InvalidArgument(read.message());
  const bool begins = command.first_word == FirstWord::kModelToTrain;
  if (!begins) TEMPER_RETURN_IF_ERROR(CheckTrained(run, path));
  TEMPER_RETURN_IF_ERROR(Copy(*of_run.Find(begins ? "model" : "output_dir"), *options.Find("model"), path));
  if (command.first_word == FirstWord::kModel) return OkStatus();
  const bool held_out = !begins && !run.data.eval_data.empty();
  if (!begins) {
    for (DataSource& source : run.data.data) source.passes = 1;  // each row is looked at once
    if (!held_out) LogInfo(fmt::format("note        {} has no eval_data: this is of the data that it trains on", path));
  }
  TEMPER_RETURN_IF_ERROR(Copy(*of_run.Find(held_out ? "eval_data" : "data"), *options.Find("data"), path));
  for (const OptionGroup& group : options.groups()) {
    for (const Option& option : group.options) {
      const Option* const theirs = of_run.Find(option.name);
      if (theirs == nullptr || std::find(kApart.begin(), kApart.end(), option.name) != kApart.end()) continue;
      if (ValueAsYaml(*theirs) == ValueAsYaml(*defaults.Find(option.name))) continue;
      TEMPER_RETURN_IF_ERROR(Copy(*theirs, option, path));
    }
  }
  return OkStatus();
}

}  // namespace temper
