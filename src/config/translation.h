// Translation: a recipe of another tool on its way to a run of ours: the settings of the one, the configuration of the
// other, and a sentence for whatever does not carry over as it is. One thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "config/foreign_file.h"
#include "config/foreign_task.h"
#include "config/imported_run.h"
#include "config/option_set.h"
#include "settings/run_config.h"

namespace temper {

struct ImportOptions {
  ForeignTool tool = ForeignTool::kAny;  // recognised from the names
  // Sft(): a recipe for anything else becomes fine-tuning on given answers; what it asked for is named. Another task:
  // the one that TRL's trainer of the file has, where its names do not show it. Null: as the file says, and a recipe
  // for what is not trained here (config/foreign_objective.h) is an error.
  const ObjectiveRule* as = nullptr;
  std::span<const std::string_view> templates = {};  // names of the chat templates that Temper has
};

class Translation {
 public:
  // `env`, `file` and `options` must outlive it.
  Translation(Env& env, const std::string& file, ForeignFile content, const ImportOptions& options);
  Translation(const Translation&) = delete;

  // The recipe.
  Env& env() const { return env_; }
  const std::string& file() const { return file_; }
  const ForeignFile& content() const { return content_; }
  const ImportOptions& import() const { return import_; }
  ForeignTool tool() const { return result.tool; }
  std::vector<ForeignSetting>& settings() { return settings_; }  // those that are left to translate
  const ForeignSetting* Given(std::string_view name) const;      // nullptr: it is not there
  bool IsTrue(std::string_view name) const;                      // whether it is given as true
  // Whether the value says what the tool does without it.
  bool SaysNothing(const ForeignSetting& setting) const;
  RowUse Rows() const { return task.rule == nullptr ? RowUse::kAnswers : task.rule->rows; }

  // The run. What is not set has Temper's default and is not written.
  bool IsSet(const std::string& option) const { return notes_.contains(option); }
  // Sets an option. What two settings give it is said, and the first counts; a value that an option cannot take is
  // without an equivalent, one that means nothing in any tool an error.
  void Set(std::string_view option, const OrderedJson& value, const ForeignSetting& setting);
  // The default of the tool, or another `reason`, as the comment of its line; not where Temper's is the same.
  void SetDefault(const std::string& option, const std::string& value, const std::string& reason = "");
  void Note(const std::string& option, std::string note) { notes_[option] = std::move(note); }
  // Adds a variable to chat_template_kwargs. False: it has another value.
  bool SetTemplateVariable(const ForeignSetting& setting);
  void Forget(const std::string& option);
  // Forgets the options of which belongs(name) is true: other tools ignore them for this reason.
  template <class Belongs>
  void Drop(const std::string& reason, const Belongs& belongs);

  // What is said of a setting; without a sentence the setting alone is listed.
  void Lost(const ForeignSetting& setting, std::string_view why) { Say(result.lost, setting, why); }
  void Changed(const ForeignSetting& setting, std::string_view why) { Say(result.changed, setting, why); }
  void Needless(const ForeignSetting& setting, std::string_view why) { Say(result.needless, setting, why); }
  // Ends the import with an error; the first one counts.
  void Fail(const ForeignSetting& setting, std::string_view why);
  const Status& failed() const { return failed_; }

  // " (adapter is lora_model_dir)": what the file calls the options that a message names.
  std::string TranslatedIn(const std::string& message) const;
  ImportedRun Written();

  RunConfig config;
  const OptionSet options;
  ForeignTask task;    // with a rule: other than fine-tuning
  ImportedRun result;  // until Written: without its text

 private:
  void Say(std::vector<std::string>& list, const ForeignSetting& setting, std::string_view why) const;
  void ForgetFor(const std::string& reason, const std::vector<std::string>& names);

  Env& env_;
  const std::string& file_;
  const ForeignFile content_;
  std::vector<ForeignSetting> settings_;
  const ImportOptions& import_;
  std::map<std::string, std::string> notes_;  // of the options that are set: the name that set each
  Status failed_ = OkStatus();
};

template <class Belongs>
void Translation::Drop(const std::string& reason, const Belongs& belongs) {
  std::vector<std::string> names;
  for (const auto& [name, note] : notes_) {
    if (belongs(name)) names.push_back(name);
  }
  ForgetFor(reason, names);
}

}  // namespace temper
