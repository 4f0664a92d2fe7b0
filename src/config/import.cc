#include "config/import.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "config/foreign_defaults.h"
#include "config/foreign_names.h"
#include "config/foreign_objective.h"
#include "config/foreign_purpose.h"
#include "config/foreign_task.h"
#include "config/foreign_tools.h"
#include "config/import_data.h"
#include "config/import_output.h"
#include "config/import_rows.h"
#include "config/import_shares.h"
#include "config/import_tokens.h"
#include "config/import_training.h"
#include "config/validate.h"
#include "format/row_columns.h"

namespace temper {
namespace {

using Rule = void (*)(Translation&, const ForeignSetting&, const ForeignName&);

Rule TranslationRule(std::string_view name) {
  static const std::map<std::string_view, Rule> kRules = {
      {"@loaded_dtype", TakeLoadedDtype},
      {"@llama_factory_data", TakeNamedData},
      {"@list_of_data", TakeListOfData},
      {"@dataset_name", TakeDatasetName},
      {"@split", TakeSplit},
      {"@held_out", TakeHeldOut},
      {"@max_samples", TakeMaxSamples},
      {"@text_field", TakeTextField},
      {"@template", TakeNamedTemplate},
      {"@template_variable", TakeTemplateVariable},
      {"@template_file", TakeTemplateFile},
      {"@tokens", TakeTokens},
      {"@new_tokens", TakeNewTokens},
      {"@file_of_tokens", TakeFileOfTokens},
      {"@init_lora_weights", TakeInitLoraWeights},
      {"@needless", TakeNeedless},
      {"@tokenizer", TakeTokenizer},
      {"@packed_evaluation", TakePackedEvaluation},
      {"@padding", TakePadding},
      {"@excess_length", TakeExcessLength},
      {"@processes", TakeProcesses},
      {"@sharded_ranks", TakeShardedRanks},
      {"@modules", TakeModules},
      {"@saved_modules", TakeSavedModules},
      {"@optimizer", TakeOptimizer},
      {"@use_muon", TakeUseMuon},
      {"@schedule", TakeSchedule},
      {"@schedule_kwargs", TakeScheduleKwargs},
      {"@warmup", TakeWarmup},
      {"@steps", TakeSteps},
      {"@max_steps", TakeMaxSteps},
      {"@per_epoch", TakePerEpoch},
      {"@report", TakeReport},
      {"@shares", TakeShares},
      {"@best_metric", TakeBestMetric},
      {"@token_accuracy", TakeTokenAccuracy},
      {"@resume", TakeResume},
      {"@overwrite", TakeOverwrite},
  };
  return kRules.at(name);
}

class Importer {
 public:
  explicit Importer(Translation& run) : run_(run) {}

  Result<ImportedRun> Import() {
    TEMPER_RETURN_IF_ERROR(TakeObjective());
    TakeNegations();
    TakeNulls();
    const auto of_each_file = [&](const ForeignSetting& setting) {
      const ForeignName* const foreign = Find(setting.name);
      return foreign != nullptr && foreign->values == "@max_samples";
    };
    for (const bool files_known : {false, true}) {
      for (const ForeignSetting& setting : run_.settings()) {
        if (of_each_file(setting) == files_known) Translate(setting);
      }
    }
    if (run_.task.rule != nullptr && !run_.IsSet("task")) {  // TRL's files do not name it
      run_.config.objective.rule = run_.task.rule;
      run_.Note("task", run_.task.from);
    }
    SetDefaults();
    DropUnused();
    CompleteData(run_);
    TranslateShares(run_);
    TranslatePacking(run_);
    TranslateLongRows(run_);
    CompareSteps(run_);
    if (run_.task.rule != nullptr) {
      for (std::string& change : TaskChanges(run_.task, run_.tool(), run_.content()))
        run_.result.changed.push_back(std::move(change));
    }
    TEMPER_RETURN_IF_ERROR(run_.failed());
    const Status valid = Validate(run_.config, Purpose::kPlan);
    if (!valid.ok()) {
      return valid.WithContext(fmt::format("{}, translated{}", run_.file(), run_.TranslatedIn(valid.message())));
    }
    return run_.Written();
  }

 private:
  // What a name means in this tool, or nullptr.
  const ForeignName* Find(const std::string& name) const {
    const ForeignName* found = nullptr;
    for (const ForeignName& foreign : ForeignNames()) {
      if (foreign.foreign != name) continue;
      if (foreign.tool == run_.tool()) return &foreign;
      if (foreign.tool == ForeignTool::kAny && found == nullptr) found = &foreign;
    }
    return found;
  }

  bool IsKnown(const std::string& name) const { return Find(name) != nullptr || run_.options.Find(name) != nullptr; }

  // Refuses a recipe for something else, or names what it asks for.
  Status TakeObjective() {
    const ObjectiveRule* const as = run_.import().as;
    const bool as_sft = as == &Sft();
    ForeignTask& task = run_.task;
    if (!as_sft) task = TaskOf(run_.content(), run_.tool(), as);
    if (as != nullptr && !as_sft && task.rule != as && !task.refused) {
      return InvalidArgument(fmt::format("{}: --as {} is not what the file says ({}): leave it out", run_.file(),
                                         as->name, task.rule == nullptr ? "sft" : task.rule->name));
    }
    std::vector<OtherObjective> others = OtherObjectives(run_.content(), run_.tool(), task.rule != nullptr);
    if (task.refused) others.insert(others.begin(), *task.refused);
    if (others.empty()) return OkStatus();
    if (!as_sft) {
      const bool open = run_.tool() == ForeignTool::kTrl && !task.refused && run_.content().program.word.text.empty();
      return InvalidArgument(fmt::format(
          "{} {}. {}--as sft translates the rest of this recipe into fine-tuning on given answers and names what is "
          "left out",
          run_.file(), others[0].why,
          open ? "If it is for TRL's DPO, KTO, ORPO, CPO (simpo) or reward trainer, say so: --as dpo, kto, orpo, simpo "
                 "or "
                 "reward. "
               : ""));
    }
    for (const OtherObjective& other : others) {
      run_.result.lost.push_back(other.why);
      std::erase_if(run_.settings(), [&](const ForeignSetting& setting) { return setting.name == other.setting; });
    }
    return OkStatus();
  }

  // The command lines of LLaMA-Factory and TRL have --no_NAME for a setting that is true by default.
  void TakeNegations() {
    constexpr std::string_view kNo = "no_";
    for (ForeignSetting& setting : run_.settings()) {
      if (!setting.name.starts_with(kNo) || IsKnown(setting.name) || setting.value != true) continue;
      const std::string name = setting.name.substr(kNo.size());
      if (!IsKnown(name)) continue;
      setting.name = name;
      setting.value = false;
    }
  }

  // A null leaves a setting open. It says something where that is not what the tool does without it.
  void TakeNulls() {
    for (const ForeignSetting& setting : run_.settings()) {
      if (!setting.value.is_null()) continue;
      const ForeignName* const foreign = Find(setting.name);
      if (const auto theirs = ForeignDefault(run_.tool(), setting.name)) {
        if (foreign == nullptr || !foreign->ours.empty()) {
          run_.Lost(setting, fmt::format("nothing in place of the default, {}: the default counts", *theirs));
        } else if (foreign->needless) {
          run_.Needless(setting, foreign->note);
        } else {
          run_.Lost(setting, foreign->note);
        }
      } else if (foreign == nullptr && run_.options.Find(setting.name) == nullptr) {
        SayUnknown(setting);
      }
    }
    std::erase_if(run_.settings(), [](const ForeignSetting& setting) { return setting.value.is_null(); });
  }

  // With the name of the tool's that it may have been meant to be.
  void SayUnknown(const ForeignSetting& setting) {
    std::vector<std::string> names;
    for (const ForeignName& foreign : ForeignNames()) {
      if (foreign.tool == run_.tool() || foreign.tool == ForeignTool::kAny) names.emplace_back(foreign.foreign);
    }
    std::string advice = NearestName(setting.name, names);
    if (!advice.empty()) {
      advice = fmt::format("did you mean '{}'?", advice);
    } else if (advice = run_.options.Advice(setting.name); advice.starts_with("--help")) {
      advice = "it is left out";
    }
    run_.Lost(setting, fmt::format("this name is not known; {}", advice));
  }

  // Of a recipe for a task other than fine-tuning.
  void Take(const TaskSetting& becomes, const ForeignSetting& setting) {
    if (!becomes.changed.empty()) run_.Changed(setting, becomes.changed);
    if (!becomes.lost.empty()) run_.Lost(setting, becomes.lost);
    if (!becomes.needless.empty()) run_.Needless(setting, becomes.needless);
    for (const auto& [option, value] : becomes.sets) run_.Set(option, value, setting);
  }

  void Translate(const ForeignSetting& setting) {
    if (run_.task.rule != nullptr) {
      const auto becomes = TaskSettingOf(run_.task, run_.tool(), run_.content(), setting);
      if (becomes) return Take(*becomes, setting);
    }
    const ForeignName* const foreign = Find(setting.name);
    const std::string_view ours = foreign == nullptr ? std::string_view(setting.name) : foreign->ours;
    if (ours == "per_device_train_batch_size" && setting.Text() == "auto") {
      return run_.Lost(setting,
                       "elsewhere the most rows that fit, which change what a step is; here auto cuts the rows of "
                       "gradient_accumulation_steps into micro-batches that fit. Give a number of rows");
    }
    if (foreign == nullptr) {
      if (run_.options.Find(setting.name) != nullptr) return run_.Set(setting.name, setting.value, setting);
      return SayUnknown(setting);
    }
    if (foreign->values.starts_with('@')) return TranslationRule(foreign->values)(run_, setting, *foreign);
    if (!foreign->values.empty()) return TranslateValue(setting, *foreign);
    if (!foreign->ours.empty()) return run_.Set(foreign->ours, setting.value, setting);
    if (run_.SaysNothing(setting)) return;
    foreign->needless ? run_.Needless(setting, foreign->note) : run_.Lost(setting, foreign->note);
  }

  // By the pairs of the table.
  void TranslateValue(const ForeignSetting& setting, const ForeignName& foreign) {
    const std::string value = setting.Text();
    std::vector<std::string> known;
    for (std::string_view rest = foreign.values; !rest.empty();) {
      const std::string_view pair = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
      const size_t sign = pair.find_first_of("=~!");
      const std::string_view theirs = pair.substr(0, sign);
      known.emplace_back(theirs);
      const bool no = theirs == "no" && setting.value == false;  // YAML 1.1 makes it false
      if (theirs != value && theirs != "*" && !no) continue;
      const std::string ours(pair.substr(sign + 1));
      if (pair[sign] == '~') {
        run_.Changed(setting, foreign.note);
      } else if (ours.empty() && !run_.SaysNothing(setting)) {
        // A value that the table names says what Temper does anyway.
        run_.Needless(setting, pair[sign] == '!' ? "it is so here, too" : foreign.note);
      }
      if (ours.empty()) return;
      const auto parsed = ParseYamlValue(ours, run_.file());
      return run_.Set(foreign.ours, *parsed, setting);
    }
    if (foreign.ours.empty() && run_.SaysNothing(setting)) return;
    if (setting.value.is_string()) {
      const std::string nearest = NearestName(value, known);
      const bool has_digits = value.find_first_of("0123456789") != value.npos;  // int4 is not meant to be int8
      if (!nearest.empty() && !has_digits) return run_.Fail(setting, fmt::format("did you mean {}?", nearest));
      const bool yes_or_no =
          std::count(known.begin(), known.end(), "true") + std::count(known.begin(), known.end(), "false");
      if (yes_or_no) return run_.Fail(setting, "true or false is expected");
    }
    run_.Lost(setting, foreign.note);
  }

  void SetDefaults() {
    const RunConfig& c = run_.config;
    const auto open = [&](const std::string& name) { return !run_.IsSet(name); };
    std::vector<ToolDefault> of_task;
    if (run_.task.rule != nullptr) of_task = TaskDefaults(run_.task, run_.tool(), run_.content());
    for (const ToolDefault& fallback : of_task) {
      if (open(std::string(fallback.option))) {
        run_.SetDefault(std::string(fallback.option), std::string(fallback.value));
      }
    }
    for (const ToolDefault& fallback : DefaultsOf(run_.tool())) {
      const std::string name(fallback.option);
      const bool taken = std::any_of(of_task.begin(), of_task.end(),
                                     [&](const ToolDefault& own) { return own.option == fallback.option; });
      if (!open(name) || taken) continue;
      if (name == "warmup_ratio" && !open("warmup_steps")) continue;
      run_.SetDefault(name, std::string(fallback.value));
    }
    // As transformers: evaluation comes with the rows of the log.
    if (c.output.eval_strategy == CadenceStrategy::kSteps && open("eval_steps") && c.evaluates()) {
      const auto fallback = ForeignDefault(run_.tool(), "logging_steps");
      if (!open("logging_steps")) {
        run_.SetDefault("eval_steps", ValueAsYaml(*run_.options.Find("logging_steps")));
      } else if (fallback) {
        run_.SetDefault("eval_steps", std::string(*fallback));
      }
    }
    StayWithoutEvaluation();
    // LLaMA-Factory's alpha follows from its rank.
    if (run_.tool() == ForeignTool::kLlamaFactory && open("lora.alpha")) {
      run_.SetDefault("lora.alpha", std::to_string(2 * c.lora.r));
    }
    if (run_.tool() == ForeignTool::kTrl && c.model.method == TrainMethod::kLora && open("lora.target_modules")) {
      run_.result.changed.emplace_back(
          "lora_target_modules is not given: PEFT chooses some modules by the model's family, of attention for "
          "most; here it is all linear modules");
    }
  }

  // All three evaluate only if they are asked to (transformers' eval_strategy is no). Temper does where there is data.
  void StayWithoutEvaluation() {
    const auto given = [&](const char* name) { return run_.Given(name) != nullptr; };
    if (!run_.config.evaluates() || run_.IsSet("eval_strategy") || given("eval_strategy") ||
        given("evaluation_strategy")) {
      return;
    }
    if (run_.tool() == ForeignTool::kAxolotl && (given("eval_steps") || given("evals_per_epoch"))) return;
    // What needs evaluations is refused there without a strategy.
    for (const char* const name : {"load_best_model_at_end", "early_stopping_patience", "metric_for_best_model"}) {
      if (run_.IsSet(name)) return;
    }
    if (run_.IsTrue("do_eval")) {
      run_.result.changed.push_back(
          fmt::format("do_eval without eval_strategy: {} evaluates once, at the end; here also where checkpoints are "
                      "saved",
                      ToString(run_.tool())));
      return;
    }
    run_.SetDefault("eval_strategy", "no");
    run_.Drop("eval_strategy is not given, and without it there is no evaluation",
              [](const std::string& name) { return name == "eval_steps" || name == "per_device_eval_batch_size"; });
  }

  // What other tools ignore, and Temper refuses.
  void DropUnused() {
    const RunConfig& c = run_.config;
    if (!c.data.row_template.empty()) {
      run_.Drop("row_template makes the whole text of a row", [](const std::string& name) {
        return name == "chat_template" || name == "chat_template_kwargs" || name == "reasoning_turns" ||
               name == "columns" || name == "prompt_separator";
      });
    }
    if (c.model.method == TrainMethod::kFull) {
      run_.Drop("method is full, without LoRA", [](const std::string& name) {
        return name.starts_with("lora.") || name == "base_dtype" || name == "embedding_dtype" || name == "adapter" ||
               name == "train_modules" || name == "lora_plus_ratio";
      });
    }
    if (c.length.lr_scheduler_type == ScheduleKind::kConstant) {
      run_.Drop("the schedule constant has no warmup",
                [](const std::string& name) { return name == "warmup_ratio" || name == "warmup_steps"; });
    }
    if (!c.evaluates()) {
      run_.Drop("there is no evaluation data", [](const std::string& name) {
        return name == "eval_steps" || name == "eval_strategy" || name == "load_best_model_at_end" ||
               name == "per_device_eval_batch_size" || name == "early_stopping_patience" ||
               name == "metric_for_best_model" || name == "greater_is_better";
      });
    }
    const ForeignSetting* const metric = run_.Given("metric_for_best_model");
    const bool by_loss = metric == nullptr || metric->Text() == "loss" || metric->Text() == "eval_loss";
    if (!by_loss && !run_.IsSet("metric_for_best_model")) {
      run_.Drop("evaluations are then compared by their loss",
                [](const std::string& name) { return name == "greater_is_better"; });
    }
    if (!c.output.early_stopping_patience) {
      run_.Drop("early_stopping_patience is not given",
                [](const std::string& name) { return name == "early_stopping_threshold"; });
    }
    // Axolotl's floor belongs to its cosine.
    if (c.length.kwargs.min_lr_rate && c.length.lr_scheduler_type == ScheduleKind::kCosine) {
      run_.config.length.lr_scheduler_type = ScheduleKind::kCosineWithMinLr;
      if (!run_.IsSet("lr_scheduler_type")) run_.Note("lr_scheduler_type", "cosine_min_lr_ratio");
    }
  }

  Translation& run_;
};

}  // namespace

Result<ImportedRun> ImportRun(Env& env, std::string_view text, const std::string& file, const ImportOptions& options) {
  TEMPER_ASSIGN_OR_RETURN(ForeignFile content, ReadForeignFile(env, text, file));
  ImportOptions of_tool = options;
  if (of_tool.tool == ForeignTool::kAny) {
    TEMPER_ASSIGN_OR_RETURN(of_tool.tool, RecogniseTool(content, file));
  }
  TEMPER_RETURN_IF_ERROR(CheckTrains(content, of_tool.tool, file));
  Translation run(env, file, std::move(content), of_tool);
  return Importer(run).Import();
}

}  // namespace temper
