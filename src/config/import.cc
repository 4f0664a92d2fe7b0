#include "config/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "config/foreign_data.h"
#include "config/foreign_defaults.h"
#include "config/foreign_file.h"
#include "config/foreign_names.h"
#include "config/foreign_objective.h"
#include "config/foreign_task.h"
#include "config/foreign_tools.h"
#include "config/option_yaml.h"
#include "config/run_options.h"
#include "config/validate.h"
#include "format/json.h"
#include "format/quoted.h"
#include "graph/update_rule.h"
#include "settings/best_metric.h"

namespace temper {
namespace {

// Whether `word` is one of `words`, which are separated by spaces.
class Importer {
 public:
  Importer(Env& env, const std::string& file, ForeignFile content, const ImportOptions& options)
      : env_(env), file_(file), content_(std::move(content)), settings_(content_.settings), import_(options) {
    result_.tool = options.tool;
  }

  Result<ImportedRun> Import() {
    TEMPER_RETURN_IF_ERROR(TakeObjective());
    TakeNulls();
    const auto of_each_file = [&](const ForeignSetting& setting) {
      const ForeignName* const foreign = Find(setting.name);
      return foreign != nullptr && foreign->values == "@max_samples";
    };
    for (const bool files_known : {false, true}) {
      for (const ForeignSetting& setting : settings_) {
        if (of_each_file(setting) == files_known) Translate(setting);
      }
    }
    if (task_.rule != nullptr && !notes_.contains("task")) {  // TRL's files do not name it
      config_.objective.rule = task_.rule;
      notes_["task"] = task_.from;
    }
    SetDefaults();
    DropUnused();
    TranslatePadding();
    SayWhatCounts();
    const Status valid = Validate(config_, Purpose::kPlan);
    if (!valid.ok()) return valid.WithContext(fmt::format("{}, translated{}", file_, TranslatedIn(valid.message())));
    result_.settings = notes_.size();
    result_.yaml = Head() + PrintYamlOptions(options_, notes_, PrintedOptions::kWithNotes);
    return std::move(result_);
  }

 private:
  using Rule = void (Importer::*)(const ForeignSetting&, const ForeignName&);

  const ForeignSetting* Given(std::string_view name) const {
    for (const ForeignSetting& setting : settings_) {
      if (setting.name == name) return &setting;
    }
    return nullptr;
  }

  // What a name means in this tool, or nullptr.
  const ForeignName* Find(const std::string& name) const {
    const ForeignName* found = nullptr;
    for (const ForeignName& foreign : ForeignNames()) {
      if (foreign.foreign != name) continue;
      if (foreign.tool == result_.tool) return &foreign;
      if (foreign.tool == ForeignTool::kAny && found == nullptr) found = &foreign;
    }
    return found;
  }

  // Refuses a recipe for something else, or names what it asks for.
  Status TakeObjective() {
    const bool as_sft = import_.as == &Sft();
    if (!as_sft) task_ = TaskOf(content_, result_.tool, import_.as);
    if (import_.as != nullptr && !as_sft && task_.rule != import_.as && !task_.refused) {
      return InvalidArgument(fmt::format("{}: --as {} is not what the file says ({}): leave it out", file_,
                                         import_.as->name, task_.rule == nullptr ? "sft" : task_.rule->name));
    }
    std::vector<OtherObjective> others = OtherObjectives(content_, result_.tool, task_.rule != nullptr);
    if (task_.refused) others.insert(others.begin(), *task_.refused);
    if (others.empty()) return OkStatus();
    if (!as_sft) {
      const bool open = result_.tool == ForeignTool::kTrl && !task_.refused && content_.programs.empty();
      return InvalidArgument(fmt::format(
          "{} {}. {}--as sft translates the rest of this recipe into fine-tuning on given answers and names what is "
          "left out",
          file_, others[0].why,
          open ? "If it is for TRL's DPO, KTO, ORPO, CPO (simpo) or reward trainer, say so: --as dpo, kto, orpo, simpo "
                 "or "
                 "reward. "
               : ""));
    }
    for (const OtherObjective& other : others) {
      result_.lost.push_back(other.why);
      std::erase_if(settings_, [&](const ForeignSetting& setting) { return setting.name == other.setting; });
    }
    return OkStatus();
  }

  // A null leaves a setting open. It says something where that is not what the tool does without it.
  void TakeNulls() {
    for (const ForeignSetting& setting : settings_) {
      if (!setting.value.is_null()) continue;
      const ForeignName* const foreign = Find(setting.name);
      if (const auto theirs = ForeignDefault(result_.tool, setting.name)) {
        if (foreign == nullptr || !foreign->ours.empty()) {
          Say(result_.lost, setting, fmt::format("nothing in place of the default, {}: the default counts", *theirs));
        } else {
          Say(foreign->needless ? result_.needless : result_.lost, setting, foreign->note);
        }
      } else if (foreign == nullptr && options_.Find(setting.name) == nullptr) {
        Say(result_.lost, setting, fmt::format("this name is not known; {}", options_.Advice(setting.name)));
      }
    }
    std::erase_if(settings_, [](const ForeignSetting& setting) { return setting.value.is_null(); });
  }

  void Say(std::vector<std::string>& list, const ForeignSetting& setting, std::string_view why) const {
    list.push_back(why.empty() ? setting.Shown() : fmt::format("{}: {}", setting.Shown(), why));
  }

  // `yaml`: ValueAsYaml of such an option.
  static void Restore(const Option& option, const std::string& yaml) {
    const auto value = ParseYamlValue(yaml, "");
    TEMPER_CHECK(value.ok() && SetFromJson(option, *value, "").ok()) << option.name << ": " << yaml;
  }

  // Sets one of our options. `from` becomes the comment of its line.
  void Set(std::string_view name, const OrderedJson& value, const ForeignSetting& setting) {
    const Option& option = *options_.Find(name);
    const std::string before = ValueAsYaml(option);
    const bool given = notes_.contains(option.name);
    const std::string where = fmt::format("line {}", setting.line);
    const Status set = SetFromJson(option, value, where);
    if (!set.ok()) return Say(result_.lost, setting, set.message().substr(where.size() + 2));
    if (given && ValueAsYaml(option) != before) {
      Restore(option, before);
      return Say(result_.changed, setting,
                 fmt::format("{} sets {}, too, to {}, which counts", notes_[option.name], option.name, before));
    }
    if (!given) notes_[option.name] = setting.name == option.name ? "" : setting.name;
  }

  // Of a recipe for a task other than fine-tuning.
  void Take(const TaskSetting& becomes, const ForeignSetting& setting) {
    for (const auto& [list, why] : {std::pair(&result_.changed, &becomes.changed),
                                    {&result_.lost, &becomes.lost},
                                    {&result_.needless, &becomes.needless}}) {
      if (!why->empty()) Say(*list, setting, *why);
    }
    for (const auto& [option, value] : becomes.sets) Set(option, value, setting);
  }

  void Translate(const ForeignSetting& setting) {
    if (task_.rule != nullptr) {
      if (const auto becomes = TaskSettingOf(task_, result_.tool, content_, setting)) return Take(*becomes, setting);
    }
    const ForeignName* const foreign = Find(setting.name);
    const std::string_view ours = foreign == nullptr ? std::string_view(setting.name) : foreign->ours;
    if (ours == "per_device_train_batch_size" && setting.Text() == "auto") {
      return Say(result_.lost, setting,
                 "elsewhere the most rows that fit, which change what a step is; here auto cuts the rows of "
                 "gradient_accumulation_steps into micro-batches that fit. Give a number of rows");
    }
    if (foreign == nullptr) {
      if (options_.Find(setting.name) != nullptr) return Set(setting.name, setting.value, setting);
      return Say(result_.lost, setting, fmt::format("this name is not known; {}", options_.Advice(setting.name)));
    }
    if (foreign->values.starts_with('@')) return (this->*Rules().at(foreign->values))(setting, *foreign);
    if (!foreign->values.empty()) return TranslateValue(setting, *foreign);
    if (!foreign->ours.empty()) return Set(foreign->ours, setting.value, setting);
    if (!SaysNothing(setting)) Say(foreign->needless ? result_.needless : result_.lost, setting, foreign->note);
  }

  // Whether the value says what the tool does without it.
  bool SaysNothing(const ForeignSetting& setting) const { return IsDefault(result_.tool, setting.name, setting.value); }

  // By the pairs of the table.
  void TranslateValue(const ForeignSetting& setting, const ForeignName& foreign) {
    const std::string value = setting.Text();
    for (std::string_view rest = foreign.values; !rest.empty();) {
      const std::string_view pair = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(pair.size() + 1, rest.size()));
      const size_t sign = pair.find_first_of("=~");
      const std::string_view theirs = pair.substr(0, sign);
      const bool no = theirs == "no" && setting.value == false;  // YAML 1.1 makes it false
      if (theirs != value && theirs != "*" && !no) continue;
      const std::string ours(pair.substr(sign + 1));
      if (pair[sign] == '~') {
        Say(result_.changed, setting, foreign.note);
      } else if (ours.empty() && !SaysNothing(setting)) {
        // A value that the table names says what Temper does anyway.
        Say(result_.needless, setting, foreign.note);
      }
      if (ours.empty()) return;
      const auto parsed = ParseYamlValue(ours, file_);
      return Set(foreign.ours, *parsed, setting);
    }
    if (foreign.ours.empty() && SaysNothing(setting)) return;
    Say(result_.lost, setting, foreign.note);
  }

  static const std::map<std::string_view, Rule>& Rules() {
    static const std::map<std::string_view, Rule> kRules = {
        {"@loaded_dtype", &Importer::LoadedDtype},
        {"@llama_factory_data", &Importer::NamedData},
        {"@list_of_data", &Importer::ListOfData},
        {"@held_out", &Importer::HeldOut},
        {"@max_samples", &Importer::MaxSamples},
        {"@text_field", &Importer::TextField},
        {"@template", &Importer::NamedTemplate},
        {"@template_variable", &Importer::TemplateVariable},
        {"@template_file", &Importer::TemplateFile},
        {"@modules", &Importer::Modules},
        {"@saved_modules", &Importer::SavedModules},
        {"@optimizer", &Importer::Optimizer},
        {"@schedule", &Importer::ScheduleType},
        {"@schedule_kwargs", &Importer::ScheduleKwargs},
        {"@warmup", &Importer::Warmup},
        {"@steps", &Importer::Steps},
        {"@max_steps", &Importer::MaxSteps},
        {"@per_epoch", &Importer::PerEpoch},
        {"@report", &Importer::Report},
        {"@special_tokens", &Importer::SpecialTokens},
        {"@best_metric", &Importer::BestMetric},
    };
    return kRules;
  }

  // The type in which weights are loaded: with bf16 they are computed in bf16 beside f32 weights, as here.
  void LoadedDtype(const ForeignSetting& setting, const ForeignName& foreign) {
    const std::string value = setting.Text();
    const ForeignSetting* const bf16 = Given("bf16");
    if (value == "auto" || (bf16 != nullptr && bf16->Text() == "true")) {
      return Say(result_.needless, setting, "the optimizer's weights are f32 in any case");
    }
    const bool half = value == "bfloat16" || value == "bf16";
    if (!half && value != "float32" && value != "fp32" && value != "f32") {
      return Say(result_.lost, setting, foreign.note);
    }
    Set("dtype", half ? "bf16" : "f32", setting);
  }

  RowUse Rows() const { return task_.rule == nullptr ? RowUse::kAnswers : task_.rule->rows; }

  void NamedData(const ForeignSetting& setting, const ForeignName& foreign) {
    const ForeignSetting* const folder = Given("dataset_dir");
    TakeData(LlamaFactoryData(env_, setting.value, folder == nullptr ? "data" : folder->Text(), file_, Rows()), setting,
             foreign);
  }

  void ListOfData(const ForeignSetting& setting, const ForeignName& foreign) {
    TakeData(ListedData(setting.value, Rows()), setting, foreign);
  }

  void TakeData(const ForeignData& data, const ForeignSetting& setting, const ForeignName& foreign) {
    const bool has_passes = foreign.ours == "data";
    DataSources files;
    for (const DataSource& file : data.files) {
      const auto same =
          std::find_if(files.begin(), files.end(), [&](const DataSource& other) { return other.path == file.path; });
      if (same == files.end()) {
        files.push_back(file);
      } else if (has_passes && same->max_samples == file.max_samples) {
        same->passes += 1;
      } else {
        result_.lost.push_back(
            fmt::format("line {}, {}: {} is given twice; the first counts", setting.line, setting.name, file.path));
      }
    }
    OrderedJson list = OrderedJson::array();
    for (const DataSource& file : files) {
      OrderedJson entry = {{"path", file.path}};
      if (file.passes != 1) entry["passes"] = file.passes;
      if (file.max_samples) entry["max_samples"] = *file.max_samples;
      for (const RowColumn& column : file.columns) entry["columns"][column.field] = column.column;
      list.push_back(std::move(entry));
    }
    if (!list.empty()) Set(foreign.ours, list, setting);
    for (const auto& [from, to] : {std::pair(&data.changed, &result_.changed),
                                   {&data.lost, &result_.lost},
                                   {&data.needless, &result_.needless}}) {
      for (const std::string& sentence : *from) {
        to->push_back(fmt::format("line {}, {}", setting.line, OneLine(sentence)));
      }
    }
  }

  // A part of the rows, or their number.
  void HeldOut(const ForeignSetting& setting, const ForeignName& foreign) {
    if (setting.value.is_number() && setting.value.get<double>() >= 1) {
      return Say(result_.lost, setting, "rows are held out as a fraction: eval_fraction: 0.05");
    }
    Set(foreign.ours, setting.value == false ? OrderedJson(0) : setting.value, setting);
  }

  // Of each file.
  void MaxSamples(const ForeignSetting& setting, const ForeignName& foreign) {
    if (!setting.value.is_number_integer() || setting.value.get<int64_t>() < 1) {
      return Say(result_.lost, setting, "a number of rows, at least 1, is expected");
    }
    // LLaMA-Factory's counts for evaluation, too.
    const bool both = setting.name == "max_samples";
    const bool training = foreign.ours == "data";
    bool taken = false;
    for (DataSources* files :
         {training ? &config_.data.data : nullptr, training && !both ? nullptr : &config_.data.eval_data}) {
      if (files == nullptr) continue;
      for (DataSource& file : *files) {
        const auto most = setting.value.get<int64_t>();
        file.max_samples = std::min(file.max_samples.value_or(most), most);  // a data set may have its own
        taken = true;
      }
    }
    if (!taken) Say(result_.lost, setting, "no file is given that it could count for");
  }

  // Of rows that are one text.
  void TextField(const ForeignSetting& setting, const ForeignName& foreign) {
    const std::string column = setting.Text();
    if (column == "text") return;
    if (column.empty()) return Say(result_.lost, setting, "the name of a column is expected");
    Set(foreign.ours, OrderedJson{{"text", column}}, setting);
  }

  // Adds a variable to chat_template_kwargs.
  void TemplateVariable(const ForeignSetting& setting, const ForeignName& foreign) {
    if (SaysNothing(setting)) return;
    std::string& text = config_.data.chat_template_kwargs.text;
    OrderedJson variables = OrderedJson::object();
    if (!text.empty()) variables = *ParseYamlValue(text, file_);  // as dump() below or Set wrote it
    if (variables.contains(setting.name))
      return Say(result_.changed, setting, "chat_template_kwargs has it, which counts");
    variables[setting.name] = setting.value;
    text = DumpJson(variables);
    std::string& note = notes_[std::string(foreign.ours)];
    note += (note.empty() ? "" : ", ") + setting.name;
    Say(result_.changed, setting, foreign.note);
  }

  // Other tools write these templates by themselves; Temper takes a model's own by default.
  void NamedTemplate(const ForeignSetting& setting, const ForeignName& foreign) {
    const std::string name = setting.Text();
    if (name == "tokenizer_default") return;  // the default, here too
    if (name == "jinja") return Say(result_.needless, setting, "the template is that of chat_template_jinja");
    if (name.find("{%") != std::string::npos || name.find("{{") != std::string::npos) {
      return TemplateFile(setting, foreign);
    }
    std::string ours = name;  // some write an underscore before the version
    std::erase(ours, '_');
    if (std::find(import_.templates.begin(), import_.templates.end(), ours) == import_.templates.end()) {
      return Say(result_.changed, setting,
                 "the model's own chat template is used; a model without one needs chat_template");
    }
    Say(result_.changed, setting, "Temper's template of that name is used; without it, the model's own");
    Set(foreign.ours, ours, setting);
  }

  void TemplateFile(const ForeignSetting& setting, const ForeignName& foreign) {
    const std::string file = setting.Text();
    if (file.ends_with(".jinja") || env_.IsFile(file)) return Set(foreign.ours, file, setting);
    Say(result_.lost, setting, "write the template to a file: chat_template: FILE");
  }

  void Modules(const ForeignSetting& setting, const ForeignName& foreign) {
    OrderedJson value = setting.value;
    if (value.is_array() && value.size() == 1) value = value[0];
    if (value == "all" || value == "all-linear") {
      value = "all-linear";
    } else if (value.is_string()) {
      const std::string text = value.get<std::string>();
      // Names with commas; anything else that is not a name is a regular expression, as in PEFT.
      if (text.find_first_of("*.()[]|^$\\") == std::string::npos) value = NamesIn(text);
    }
    Set(foreign.ours, value, setting);
  }

  void SavedModules(const ForeignSetting& setting, const ForeignName& foreign) {
    const bool text = setting.value.is_string();
    Set(foreign.ours, text ? NamesIn(setting.value.get<std::string>()) : setting.value, setting);
  }

  // Of names with commas between them.
  static OrderedJson NamesIn(const std::string& text) {
    OrderedJson names = OrderedJson::array();
    for (size_t from = 0; from <= text.size();) {
      const size_t to = std::min(text.find(',', from), text.size());
      std::string name = text.substr(from, to - from);
      std::erase(name, ' ');
      if (!name.empty()) names.push_back(name);
      from = to + 1;
    }
    return names;
  }

  void Optimizer(const ForeignSetting& setting, const ForeignName& foreign) {
    const std::string name = setting.Text();
    for (const UpdateRule* rule : UpdateRules()) {
      const bool variant = IsListed(rule->other_variants, name);
      if (name != rule->name && !variant && !IsListed(rule->other_names, name)) continue;
      if (variant) {
        Say(result_.changed, setting,
            fmt::format("{}, whose states are {} here and stay in memory (memory.optimizer)", rule->name,
                        rule->states_are));
      }
      return Set("optimizer", std::string(rule->name), setting);
    }
    Say(result_.lost, setting, foreign.note);
  }

  void ScheduleType(const ForeignSetting& setting, const ForeignName&) {
    Set("lr_scheduler_type", setting.value, setting);
  }

  // A mapping with our names, or JSON text of one.
  void ScheduleKwargs(const ForeignSetting& setting, const ForeignName&) {
    const auto parsed = setting.value.is_string() ? ParseYamlValue(setting.Text(), file_) : Result(setting.value);
    if (!parsed.ok() || !parsed->is_object()) {
      return Say(result_.lost, setting, "a mapping of settings is expected");
    }
    for (auto it = parsed->begin(); it != parsed->end(); ++it) {
      const std::string name = "lr_scheduler_kwargs." + it.key();
      if (options_.Find(name) == nullptr) {
        Say(result_.lost, setting, fmt::format("{} has no equivalent", it.key()));
      } else if (!it.value().is_null()) {
        Set(name, it.value(), setting);
      }
    }
  }

  // As transformers: a fraction is a ratio, and warmup_ratio counts where there are 0 steps.
  void Warmup(const ForeignSetting& setting, const ForeignName& foreign) {
    const double steps = setting.value.is_number() ? setting.value.get<double>() : 1;
    if (steps == 0 && Given("warmup_ratio") != nullptr) {
      if (!SaysNothing(setting)) Say(result_.needless, setting, "warmup_ratio counts");
      return;
    }
    if (steps > 0 && steps < 1) return Set("warmup_ratio", setting.value, setting);
    Steps(setting, foreign);
  }

  void Steps(const ForeignSetting& setting, const ForeignName& foreign) {
    const double steps = setting.value.is_number() ? setting.value.get<double>() : 0;
    const bool part = steps > 0 && steps < 1;
    if (part && foreign.ours == "max_steps") return Say(result_.lost, setting, "a number of steps is expected");
    // Axolotl writes floats.
    const bool whole = setting.value.is_number_float() && std::abs(steps) < 1e9 && steps == std::floor(steps);
    Set(foreign.ours, whole ? OrderedJson(static_cast<int64_t>(steps)) : setting.value, setting);
  }

  // As transformers: only a number above 0 counts.
  void MaxSteps(const ForeignSetting& setting, const ForeignName& foreign) {
    if (!setting.value.is_number() || setting.value.get<double>() > 0) return Steps(setting, foreign);
    if (!SaysNothing(setting)) Say(result_.needless, setting, "num_train_epochs counts");
  }

  // Times an epoch, as Axolotl turns it into a part of the run.
  void PerEpoch(const ForeignSetting& setting, const ForeignName& foreign) {
    if (SaysNothing(setting)) return;
    if (setting.value == 0) return Say(result_.needless, setting, "it is not by epochs");
    const ForeignSetting* const given = Given("num_epochs");
    const double epochs = given != nullptr && given->value.is_number() ? given->value.get<double>() : 1;
    const double times = setting.value.is_number() ? setting.value.get<double>() * epochs : 0;
    if (times <= 1) return Say(result_.lost, setting, "at most once in the run; it comes at the end in any case");
    Set(foreign.ours, 1 / times, setting);
  }

  void Report(const ForeignSetting& setting, const ForeignName& foreign) {
    const OrderedJson list = setting.value.is_array() ? setting.value : OrderedJson::array({setting.value});
    bool tensorboard = false;
    for (const OrderedJson& one : list) {
      const std::string name = one.is_string() ? one.get<std::string>() : DumpJson(one);
      if (name == "tensorboard" || name == "all") {
        tensorboard = true;
      } else if (name != "none" && name != "false") {
        result_.lost.push_back(fmt::format("line {}, {}: {}: only metrics.jsonl and TensorBoard are written",
                                           setting.line, setting.name, Quoted(name)));
      }
    }
    Set(foreign.ours, tensorboard, setting);
  }

  void SpecialTokens(const ForeignSetting& setting, const ForeignName& foreign) {
    const bool pad_only = setting.value.is_object() && setting.value.size() == 1 && setting.value.contains("pad_token");
    if (pad_only) return Say(result_.needless, setting, "padding is never read");
    if (!SaysNothing(setting)) Say(result_.lost, setting, foreign.note);
  }

  void BestMetric(const ForeignSetting& setting, const ForeignName& foreign) {
    const std::string name = setting.Text();
    if (name == "loss" || name == "eval_loss") {
      if (!SaysNothing(setting)) Say(result_.needless, setting, "evaluations are compared by their loss");
      return;
    }
    RunConfig probe;
    probe.objective.rule = task_.rule == nullptr ? &Sft() : task_.rule;
    probe.output.metric_for_best_model = name;
    const auto metric = BestMetricOf(probe);
    if (!metric.ok()) {
      lost_metric_ = true;
      return Say(result_.lost, setting, metric.status().message());
    }
    Set(foreign.ours, name, setting);
    // As transformers, by the name alone.
    if (Given("greater_is_better") == nullptr && metric->greater_is_better == name.ends_with("loss")) {
      SetDefault("greater_is_better", metric->greater_is_better ? "false" : "true");
    }
  }

  void SetDefaults() {
    const auto open = [&](const std::string& name) { return !notes_.contains(name); };
    std::vector<ToolDefault> of_task;
    if (task_.rule != nullptr) of_task = TaskDefaults(task_, result_.tool, content_);
    for (const ToolDefault& fallback : of_task) {
      if (open(std::string(fallback.option))) SetDefault(std::string(fallback.option), std::string(fallback.value));
    }
    for (const ToolDefault& fallback : DefaultsOf(result_.tool)) {
      const std::string name(fallback.option);
      const bool taken = std::any_of(of_task.begin(), of_task.end(),
                                     [&](const ToolDefault& own) { return own.option == fallback.option; });
      if (!open(name) || taken) continue;
      if (name == "warmup_ratio" && !open("warmup_steps")) continue;
      SetDefault(name, std::string(fallback.value));
    }
    // As transformers: evaluation comes with the rows of the log.
    if (config_.output.eval_strategy == CadenceStrategy::kSteps && open("eval_steps") && config_.evaluates()) {
      const auto fallback = ForeignDefault(result_.tool, "logging_steps");
      if (!open("logging_steps")) {
        SetDefault("eval_steps", ValueAsYaml(*options_.Find("logging_steps")));
      } else if (fallback) {
        SetDefault("eval_steps", std::string(*fallback));
      }
    }
    // LLaMA-Factory's alpha follows from its rank.
    if (result_.tool == ForeignTool::kLlamaFactory && open("lora.alpha")) {
      SetDefault("lora.alpha", std::to_string(2 * config_.lora.r));
    }
    if (result_.tool == ForeignTool::kTrl && config_.model.method == TrainMethod::kLora &&
        open("lora.target_modules")) {
      result_.changed.emplace_back(
          "lora_target_modules is not given: PEFT chooses some modules by the model's family, of attention for "
          "most; here it is all linear modules");
    }
  }

  void SetDefault(const std::string& name, const std::string& value) {
    const Option& option = *options_.Find(name);
    const std::string before = ValueAsYaml(option);
    TEMPER_CHECK(SetFromText(option, value, "").ok());
    // Ours is the same.
    if (ValueAsYaml(option) != before) notes_[name] = fmt::format("the default of {}", ToString(result_.tool));
  }

  // " (adapter is lora_model_dir)": what the file calls the options that a message names.
  std::string TranslatedIn(const std::string& message) const {
    std::string text;
    for (const auto& [name, note] : notes_) {
      if (note.empty() || note.starts_with("the default") || message.find(name) == std::string::npos) continue;
      text += fmt::format("{}{} is {}", text.empty() ? " (" : ", ", name, note);
    }
    return text.empty() ? "" : text + ")";
  }

  // Forgets an option: it is not printed, and has its default.
  void Forget(const std::string& name) {
    notes_.erase(name);
    RunConfig fresh;
    const OptionSet defaults = RunOptions(fresh);
    Restore(*options_.Find(name), ValueAsYaml(*defaults.Find(name)));
  }

  // What other tools ignore, and Temper refuses.
  void DropUnused() {
    const auto drop = [&](const std::string& reason, auto&& belongs) {
      std::vector<std::string> names;
      for (const auto& [name, note] : notes_) {
        if (belongs(name)) names.push_back(name);
      }
      for (const std::string& name : names) {
        if (!notes_[name].starts_with("the default")) {
          const std::string theirs = notes_[name].empty() ? "" : fmt::format(" ({})", notes_[name]);
          result_.needless.push_back(fmt::format("{}{}: {}", name, theirs, reason));
        }
        Forget(name);
      }
    };
    if (config_.model.method == TrainMethod::kFull) {
      drop("method is full, without LoRA", [](const std::string& name) {
        return name.starts_with("lora.") || name == "base_dtype" || name == "embedding_dtype" || name == "adapter" ||
               name == "train_modules" || name == "lora_plus_ratio";
      });
    }
    if (config_.length.lr_scheduler_type == ScheduleKind::kConstant) {
      drop("the schedule constant has no warmup",
           [](const std::string& name) { return name == "warmup_ratio" || name == "warmup_steps"; });
    }
    if (!config_.evaluates()) {
      drop("there is no evaluation data", [](const std::string& name) {
        return name == "eval_steps" || name == "eval_strategy" || name == "load_best_model_at_end" ||
               name == "per_device_eval_batch_size" || name == "early_stopping_patience" ||
               name == "metric_for_best_model" || name == "greater_is_better";
      });
    }
    if (lost_metric_) {
      drop("evaluations are then compared by their loss",
           [](const std::string& name) { return name == "greater_is_better"; });
    }
    if (!config_.output.early_stopping_patience) {
      drop("early_stopping_patience is not given",
           [](const std::string& name) { return name == "early_stopping_threshold"; });
    }
    // Axolotl's floor belongs to its cosine.
    if (config_.length.kwargs.min_lr_rate && config_.length.lr_scheduler_type == ScheduleKind::kCosine) {
      config_.length.lr_scheduler_type = ScheduleKind::kCosineWithMinLr;
      notes_.try_emplace("lr_scheduler_type", "cosine_min_lr_ratio");
    }
  }

  // Without packing other tools pad a row to the longest of its batch, ours to one of a few lengths.
  void TranslatePadding() {
    const ForeignSetting* given = Given("packing");
    if (given == nullptr) given = Given("sample_packing");
    const ForeignSetting *const to_full = Given("pad_to_sequence_len"), *const stage = Given("stage");
    const bool plain = stage != nullptr && stage->Text() == "pt";  // which LLaMA-Factory packs by default
    if (given == nullptr ? plain : notes_.contains("packing") && config_.data.packing) {
      const ForeignSetting* const neat = Given("neat_packing");
      if (result_.tool == ForeignTool::kLlamaFactory && (neat == nullptr || neat->value == false)) {
        result_.changed.emplace_back(
            "packed documents are isolated from each other; LLaMA-Factory's see each other without neat_packing");
      }
      return;
    }
    if (notes_.contains("packing") && config_.data.packing) return;  // neat_packing
    if (to_full != nullptr && to_full->value == true) {
      config_.data.packing = false;
      notes_["packing"] = given != nullptr && given->name == "packing" ? "" : to_full->name;
      result_.changed.emplace_back(
          "packing is false: each document has a padded row of its own; with packing: true a row holds several, "
          "isolated "
          "from each other, and the run is faster");
      return;
    }
    if (given != nullptr) {
      return Say(
          result_.changed, *given,
          fmt::format("{} pads each row to the longest of its batch, Temper to the shortest of a few lengths that "
                      "holds them; with packing: true a row holds several documents, isolated from each other, "
                      "and the run is faster",
                      ToString(result_.tool)));
    }
    Forget("packing");
    result_.changed.push_back(
        fmt::format("packing is not given: {} pads each row to the longest of its batch; here a row holds several "
                    "documents, isolated from each other, so that a step sees more of them (packing: false gives each "
                    "its own row)",
                    ToString(result_.tool)));
  }

  // Differences that no single name shows.
  void SayWhatCounts() {
    if (task_.rule != nullptr) {
      for (std::string& change : TaskChanges(task_, result_.tool, content_))
        result_.changed.push_back(std::move(change));
      return;
    }
    if (result_.tool == ForeignTool::kTrl && !notes_.contains("train_on_prompt")) {
      result_.changed.emplace_back(
          "assistant_only_loss is not given: TRL trains on every token of rows with messages; here only on what the "
          "assistant says (train_on_prompt: true for every token)");
    }
  }

  std::string Head() const {
    std::string text = fmt::format("# From {} ({}), by temper import.\n", OneLine(file_), ToString(result_.tool));
    const auto list = [&](const char* title, const std::vector<std::string>& sentences) {
      if (sentences.empty()) return;
      text += fmt::format("#\n# {}:\n", title);
      for (const std::string& sentence : sentences) text += fmt::format("#   {}\n", OneLine(sentence));
    };
    list("No equivalent", result_.lost);
    list("The meaning changes", result_.changed);
    list("Not needed", result_.needless);
    return text + "\n";
  }

  Env& env_;
  const std::string& file_;
  const ForeignFile content_;
  std::vector<ForeignSetting> settings_;
  const ImportOptions& import_;
  ForeignTask task_;  // with a rule: other than fine-tuning
  RunConfig config_;
  const OptionSet options_ = RunOptions(config_);
  bool lost_metric_ = false;                  // the recipe's metric_for_best_model has no equivalent
  std::map<std::string, std::string> notes_;  // of the options that are set: the name that set each
  ImportedRun result_;
};

}  // namespace

Result<ImportedRun> ImportRun(Env& env, std::string_view text, const std::string& file, const ImportOptions& options) {
  TEMPER_ASSIGN_OR_RETURN(ForeignFile content, ReadForeignFile(text, file));
  ImportOptions of_tool = options;
  if (of_tool.tool == ForeignTool::kAny) {
    TEMPER_ASSIGN_OR_RETURN(of_tool.tool, RecogniseTool(content, file));
  }
  return Importer(env, file, std::move(content), of_tool).Import();
}

}  // namespace temper
