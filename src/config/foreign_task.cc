#include "config/foreign_task.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "config/foreign_defaults.h"
#include "config/launch_line.h"
#include "format/json.h"

namespace temper {
namespace {

const ForeignSetting* Given(const ForeignFile& file, std::string_view name) {
  for (const ForeignSetting& setting : file.settings) {
    if (setting.name == name && !setting.value.is_null()) return &setting;
  }
  return nullptr;
}

std::string TextOf(const ForeignFile& file, std::string_view name, std::string_view fallback) {
  const ForeignSetting* const setting = Given(file, name);
  return setting != nullptr ? setting->Text() : std::string(fallback);
}

const ObjectiveRule* RuleNamed(std::string_view name) {
  for (const ObjectiveRule* const rule : Objectives()) {
    if (rule->name == name && FactsOf(rule->rows).prefers()) return rule;
  }
  return nullptr;
}

// The task of a command: "dpo.py", "trl kto", "reward_modeling.py". TRL's CPO is SimPO by one of its losses.
const ObjectiveRule* RuleOfCommand(std::string_view program) {
  for (const std::string& word : NameWords(program)) {
    const std::string_view name = word == "cpo" ? "simpo" : word == "rm" ? "reward" : std::string_view(word);
    if (const ObjectiveRule* const rule = RuleNamed(name)) return rule;
  }
  return nullptr;
}

ForeignTask RefuseLoss(const ForeignSetting& setting, std::string_view why) {
  return {.from = setting.name, .refused = OtherObjective{setting.name, fmt::format("{}: {}", setting.Shown(), why)}};
}

// The losses of task dpo, by the names of the tools.
constexpr std::string_view kPairLosses = "sigmoid hinge ipo robust sigmoid_norm";

// A list of losses and their weights, as in TRL's DPOConfig: one of pairs, and perhaps the cross-entropy of the chosen
// answers.
struct PairLosses {
  std::string loss = "sigmoid";
  double weight = 1, sft = 0;
  std::string refused;  // why it is not trained here
};
PairLosses LossesOf(const ForeignSetting* types, const ForeignSetting* weights) {
  PairLosses found;
  if (types == nullptr) return found;
  const OrderedJson list = types->value.is_array() ? types->value : OrderedJson::array({types->value});
  int of_pairs = 0;
  for (size_t k = 0; k < list.size(); ++k) {
    const std::string name = list[k].is_string() ? list[k].get<std::string>() : DumpJson(list[k]);
    double weight = 1;
    if (weights != nullptr && weights->value.is_array() && k < weights->value.size() && weights->value[k].is_number()) {
      weight = weights->value[k].get<double>();
    }
    if (name == "sft") {
      found.sft += weight;
      continue;
    }
    if (!IsListed(kPairLosses, name)) found.refused = fmt::format("the loss {} is not trained here", name);
    if (++of_pairs > 1) found.refused = "a sum of several losses of pairs is not trained here";
    found.loss = name;
    found.weight = weight;
  }
  if (of_pairs == 0) found.refused = "it has no loss of pairs";
  if (found.weight != 1 && found.refused.empty()) {
    found.refused = "the loss of pairs has the weight 1 here: divide the others, and learning_rate with them";
  }
  return found;
}

ForeignTask LlamaFactoryTask(const ForeignFile& file) {
  const ForeignSetting* const stage = Given(file, "stage");
  if (stage == nullptr) return {};
  const std::string value = stage->Text();
  if (value == "kto") return {&Kto(), "stage"};
  if (value == "rm") return {&Reward(), "stage"};
  if (value != "dpo") return {};
  const std::string loss = TextOf(file, "pref_loss", "sigmoid");
  if (loss == "simpo") return {&Simpo(), "stage"};
  if (loss == "orpo") return {&Orpo(), "stage"};
  if (IsListed("sigmoid hinge ipo", loss)) return {&Dpo(), "stage"};
  return RefuseLoss(*Given(file, "pref_loss"), "this loss is not trained here");
}

ForeignTask AxolotlTask(const ForeignFile& file) {
  if (const ForeignSetting* const reward = Given(file, "reward_model"); reward != nullptr && reward->value == true) {
    return {&Reward(), "reward_model"};
  }
  const ForeignSetting* const rl = Given(file, "rl");
  if (rl == nullptr) return {};
  const std::string value = rl->Text();
  const ObjectiveRule* const rule = value == "ipo" ? &Dpo() : RuleNamed(value);
  if (rule == nullptr || rule == &Reward()) return {};
  const ForeignSetting* const types = Given(file, "dpo_loss_type");
  if (value == "dpo" && types != nullptr) {
    const PairLosses losses = LossesOf(types, Given(file, "dpo_loss_weights"));
    if (!losses.refused.empty()) return RefuseLoss(*types, losses.refused);
  }
  return {rule, "rl"};
}

ForeignTask TrlTask(const ForeignFile& file, const ObjectiveRule* asked) {
  ForeignTask task{.rule = asked == nullptr ? nullptr : RuleNamed(asked->name), .from = "--as"};
  std::string place = task.from;  // for an error
  if (const ForeignWord& word = file.program.word; task.rule == nullptr && !word.text.empty()) {
    task = {RuleOfCommand(word.text), word.text};
    place = fmt::format("line {}: {}", word.line, word.text);
  }
  const ForeignSetting* const type = Given(file, "loss_type");
  if (task.rule == nullptr) {
    for (const auto& [name, rule] : {std::pair{"desirable_weight", &Kto()},
                                     {"undesirable_weight", &Kto()},
                                     {"center_rewards_coefficient", &Reward()}}) {
      if (task.rule == nullptr && Given(file, name) != nullptr) task = {rule, name};
    }
  }
  if (task.rule == nullptr && type != nullptr) {
    const std::string value = type->Text();
    if (value == "kto") task = {&Kto(), "loss_type"};
    if (value == "simpo") task = {&Simpo(), "loss_type"};
    // Not those that CPO has, too.
    if (type->value.is_array() || value == "robust" || value == "sigmoid_norm") task = {&Dpo(), "loss_type"};
  }
  if (task.rule == &Simpo()) {
    if (type == nullptr) {
      return {.from = task.from,
              .refused = OtherObjective{"", fmt::format("{}: CPO is trained here with loss_type: simpo alone", place)}};
    }
    if (type->Text() != "simpo") return RefuseLoss(*type, "of CPO's losses simpo alone is trained here");
  }
  if (task.rule == &Kto() && type != nullptr && type->Text() != "kto") {
    return RefuseLoss(*type, "of KTO's losses kto alone is trained here");
  }
  if (task.rule == &Dpo()) {
    const PairLosses losses = LossesOf(type, Given(file, "loss_weights"));
    if (!losses.refused.empty()) return RefuseLoss(*type, losses.refused);
  }
  return task;
}

TaskSetting Set(std::string option, OrderedJson value) {
  return {.sets = {{std::move(option), std::move(value)}}};
}
TaskSetting Lost(std::string why) {
  return {.lost = std::move(why)};
}
TaskSetting Needless(std::string why) {
  return {.needless = std::move(why)};
}

// Names of numbers that the task may have: "beta" is the option "dpo.beta" of task dpo.
struct Number {
  ForeignTool tool;
  std::string_view theirs, ours;
};
constexpr ForeignTool kOfLlamaFactory = ForeignTool::kLlamaFactory, kOfAxolotl = ForeignTool::kAxolotl,
                      kOfTrl = ForeignTool::kTrl;
constexpr Number kNumbers[] = {{kOfLlamaFactory, "pref_beta", "beta"},
                               {kOfLlamaFactory, "simpo_gamma", "simpo_gamma"},
                               {kOfLlamaFactory, "kto_chosen_weight", "desirable_weight"},
                               {kOfLlamaFactory, "kto_rejected_weight", "undesirable_weight"},
                               {kOfAxolotl, "rl_beta", "beta"},
                               {kOfAxolotl, "dpo_beta", "beta"},
                               {kOfAxolotl, "orpo_alpha", "beta"},
                               {kOfAxolotl, "simpo_gamma", "simpo_gamma"},
                               {kOfAxolotl, "cpo_alpha", "cpo_alpha"},
                               {kOfAxolotl, "rpo_alpha", "rpo_alpha"},
                               {kOfAxolotl, "kto_desirable_weight", "desirable_weight"},
                               {kOfAxolotl, "kto_undesirable_weight", "undesirable_weight"},
                               {kOfAxolotl, "center_rewards_coefficient", "center_rewards_coefficient"},
                               {kOfTrl, "beta", "beta"},
                               {kOfTrl, "simpo_gamma", "simpo_gamma"},
                               {kOfTrl, "cpo_alpha", "cpo_alpha"},
                               {kOfTrl, "rpo_alpha", "rpo_alpha"},
                               {kOfTrl, "desirable_weight", "desirable_weight"},
                               {kOfTrl, "undesirable_weight", "undesirable_weight"},
                               {kOfTrl, "center_rewards_coefficient", "center_rewards_coefficient"}};

// Which tasks have a number.
constexpr std::pair<std::string_view, std::string_view> kOwners[] = {{"beta", "dpo simpo orpo kto"},
                                                                     {"rpo_alpha", "dpo"},
                                                                     {"simpo_gamma", "simpo"},
                                                                     {"cpo_alpha", "simpo"},
                                                                     {"desirable_weight", "kto"},
                                                                     {"undesirable_weight", "kto"},
                                                                     {"center_rewards_coefficient", "reward"}};

bool Owns(std::string_view task, std::string_view number) {
  return std::any_of(std::begin(kOwners), std::end(kOwners),
                     [&](const auto& owner) { return owner.first == number && IsListed(owner.second, task); });
}

TaskSetting NumberOf(const ForeignTask& task, const Number& number, const ForeignFile& file,
                     const ForeignSetting& setting) {
  const std::string_view name = task.rule->name;
  const bool orpo_alone = number.theirs == "orpo_alpha" && task.rule != &Orpo();
  if (!Owns(name, number.ours) || orpo_alone) {
    return Needless(fmt::format("it has no part in task {}, here and there", name));
  }
  TaskSetting becomes = Set(fmt::format("{}.{}", name, number.ours), setting.value);
  if (number.theirs == "dpo_beta") becomes.changed = "Axolotl reads rl_beta instead of it now; taken as that";
  if (number.theirs == "orpo_alpha" && Given(file, "rl_beta") != nullptr) {
    return Needless("rl_beta counts");
  }
  return becomes;
}

// Axolotl's section of TRL's settings.
TaskSetting SectionOf(const ForeignTask& task, const ForeignSetting& setting) {
  TaskSetting becomes;
  if (!setting.value.is_object()) return Lost("a mapping of settings is expected");
  for (const auto& [key, value] : setting.value.items()) {
    if (value.is_null()) continue;
    if (key == "beta" && Owns(task.rule->name, key)) {
      becomes.sets.emplace_back(fmt::format("{}.beta", task.rule->name), value);
    } else {
      becomes.lost += fmt::format("{}{}: {} has no equivalent", becomes.lost.empty() ? "" : ", ", key, DumpJson(value));
    }
  }
  return becomes;
}

// Of the chosen answers, beside the loss of preferences.
TaskSetting CrossEntropy(const ForeignTask& task, const ForeignSetting& setting) {
  if (setting.value == 0) return {};
  const std::string_view name = task.rule->name;
  const char* const option = name == "dpo" ? "dpo.rpo_alpha" : name == "simpo" ? "simpo.cpo_alpha" : nullptr;
  if (option == nullptr) return Lost(fmt::format("task {} adds no cross-entropy of chosen answers", name));
  TaskSetting becomes = Set(option, setting.value);
  becomes.changed =
      "it weighs the mean over all tokens of a step's chosen answers; there it weighs each answer's own mean, so that "
      "short answers count as much as long ones";
  return becomes;
}

TaskSetting Smoothing(const ForeignTask& task, ForeignTool tool, const ForeignFile& file,
                      const ForeignSetting& setting) {
  if (setting.value == 0) return IsDefault(tool, setting.name, setting.value) ? TaskSetting{} : Needless("0 is none");
  if (task.rule == &Simpo() && tool == kOfTrl) return Set("simpo.label_smoothing", setting.value);
  if (task.rule != &Dpo()) return Needless(fmt::format("it has no part in task {}", task.rule->name));
  if (tool == kOfLlamaFactory) {
    const bool counts = TextOf(file, "pref_loss", "sigmoid") == "sigmoid";
    return counts ? Lost("this loss (cDPO) is not supported; dpo.loss_type: robust is another with smoothing")
                  : Needless("it counts with pref_loss: sigmoid alone");
  }
  const PairLosses losses = LossesOf(Given(file, tool == kOfAxolotl ? "dpo_loss_type" : "loss_type"), nullptr);
  if (losses.loss == "robust") return Set("dpo.label_smoothing", setting.value);
  return Needless("it counts with the loss robust alone, here and in TRL 1.16");
}

// The length of a prompt with one answer; a row has room for both.
TaskSetting Length(const ForeignTask& task, const ForeignSetting& setting) {
  if (!task.rule->parts.empty() && setting.value.is_number_integer()) {
    TaskSetting becomes = Set("max_seq_len", setting.value.get<int64_t>() * 2);
    becomes.changed = "it is the length of a prompt with one answer; max_seq_len holds both answers of a pair";
    return becomes;
  }
  return Set("max_seq_len", setting.value);
}

struct TaskReason {
  ForeignTool tool;
  const char* names;  // separated by spaces
  const char* why;
  bool needless = false;
};
constexpr bool kNothingLost = true;
constexpr TaskReason kTaskReasons[] = {
    {kOfTrl, "precompute_ref_log_probs precompute_ref_batch_size",
     "the model of before scores all data once, before the first step", kNothingLost},
    {kOfAxolotl, "precompute_ref_log_probs", "the model of before scores all data once, before the first step",
     kNothingLost},
    {kOfTrl, "sync_ref_model ref_model_mixup_alpha ref_model_sync_steps",
     "the model that is compared with stays as it is"},
    {kOfTrl, "use_weighting ld_alpha f_divergence_type f_alpha_divergence_coef discopop_tau alpha",
     "this form of the loss is not supported"},
    {kOfAxolotl, "dpo_use_weighting", "this form of the loss is not supported"},
    {kOfLlamaFactory, "ld_alpha pref_bco_weight", "this form of the loss is not supported"},
    {kOfLlamaFactory, "ref_model_adapters ref_model_quantization_bit",
     "the model that is compared with is one without adapters, in the type of the run"},
    {kOfTrl, "max_prompt_length max_completion_length", "a prompt with its answer is cut at the end, as a whole"},
    {kOfAxolotl, "max_prompt_len", "a prompt with its answer is cut at the end, as a whole"},
    {kOfTrl, "generate_during_eval", "nothing is generated while training"},
    {kOfAxolotl, "dpo_generate_during_eval", "nothing is generated while training"},
    {kOfTrl, "is_encoder_decoder padding_value pad_token", "models are decoders, and padding is never read",
     kNothingLost},
    {kOfAxolotl, "dpo_use_liger_kernel dpo_padding_free dpo_use_logits_to_keep",
     "kernels are chosen for the processor, and rows hold several samples", kNothingLost},
    {kOfAxolotl, "dpo_norm_loss", "Axolotl has removed it"},
};

// Of settings that TRL's SFT has not, where they are not "off".
constexpr std::pair<std::string_view, std::string_view> kDefaultsOfTrl[] = {
    {"f_alpha_divergence_coef", "0.5"}, {"discopop_tau", "0.05"}, {"ref_model_mixup_alpha", "0.6"},
    {"ref_model_sync_steps", "512"},    {"alpha", "0"},           {"f_divergence_type", "reverse_kl"}};

// Whether the tool does the same without the setting.
bool IsTaskDefault(ForeignTool tool, const ForeignSetting& setting) {
  if (tool != kOfTrl) return IsDefault(tool, setting.name, setting.value);
  for (const auto& [name, value] : kDefaultsOfTrl) {
    if (setting.name == name) return setting.Text() == value || (value == "0" && setting.value == 0);
  }
  return setting.value == false && !setting.value.is_number();
}

}  // namespace

ForeignTask TaskOf(const ForeignFile& file, ForeignTool tool, const ObjectiveRule* asked) {
  switch (tool) {
    case ForeignTool::kLlamaFactory:
      return LlamaFactoryTask(file);
    case ForeignTool::kAxolotl:
      return AxolotlTask(file);
    case ForeignTool::kTrl:
      return TrlTask(file, asked);
    case ForeignTool::kAny:
      break;
  }
  return {};
}

std::optional<TaskSetting> TaskSettingOf(const ForeignTask& task, ForeignTool tool, const ForeignFile& file,
                                         const ForeignSetting& setting) {
  const std::string_view name = setting.name;
  const bool says_nothing = IsDefault(tool, name, setting.value);
  if (name == task.from && IsListed("stage rl reward_model", name)) {
    TaskSetting becomes = Set("task", std::string(task.rule->name));
    if (setting.Text() == "ipo") becomes.sets.emplace_back("dpo.loss_type", "ipo");
    return becomes;
  }
  for (const Number& number : kNumbers) {
    if (number.tool == tool && number.theirs == name) return NumberOf(task, number, file, setting);
  }
  const bool pairs = task.rule == &Dpo();
  if (tool == kOfLlamaFactory) {
    if (name == "cutoff_len") return Length(task, setting);
    if (name == "pref_ftx") return CrossEntropy(task, setting);
    if (name == "dpo_label_smoothing") return Smoothing(task, tool, file, setting);
    if (name == "pref_loss") {
      if (pairs) return Set("dpo.loss_type", setting.value);
      return says_nothing || task.rule == &Simpo() || task.rule == &Orpo()
                 ? Needless(fmt::format("task: {}", task.rule->name))
                 : Needless(fmt::format("it has no part in task {}", task.rule->name));
    }
    if (name == "ref_model") {
      if (task.rule->has(ProgramKind::kReference)) return Set("reference", setting.value);
      return Needless(fmt::format("task {} compares with no other model", task.rule->name));
    }
  }
  if (tool == kOfAxolotl) {
    if (name == "sequence_len") return Length(task, setting);
    if (name == "trl") return SectionOf(task, setting);
    if (name == "dpo_label_smoothing") return Smoothing(task, tool, file, setting);
    if (name == "num_labels" && task.rule == &Reward()) {
      return setting.value == 1 ? Needless("a reward is one number") : Lost("a reward is one number");
    }
    if (name == "dpo_loss_type" || name == "dpo_loss_weights") {
      if (!pairs) return Needless(fmt::format("it has no part in task {}", task.rule->name));
    }
  }
  if (tool == kOfTrl) {
    if (name == "max_length") return Length(task, setting);
    if (name == "label_smoothing") return Smoothing(task, tool, file, setting);
    if (name == "disable_dropout") {
      if (setting.value != false) return Set("lora.dropout", 0);
      return Needless("lora_dropout counts");
    }
    if (name == "lora_dropout" && TextOf(file, "disable_dropout", "true") != "false") {
      return setting.value == 0
                 ? Set("lora.dropout", 0)
                 : Lost("TRL's trainers of preferences and rewards switch dropout off (disable_dropout)");
    }
    if (name == "train_sampling_strategy" && task.rule == &Kto()) {
      if (setting.Text() == "sequential") return TaskSetting{};  // TaskChanges says it
      return setting.Text() == "random" ? Needless("rows are always shuffled, each epoch anew")
                                        : Lost("rows are always shuffled, each epoch anew");
    }
    if (name == "loss_type" && !pairs) return Needless(fmt::format("task: {}", task.rule->name));
  }
  const bool types = name == "loss_type" || name == "dpo_loss_type";
  if (pairs && (types || name == "loss_weights" || name == "dpo_loss_weights")) {
    const char* const prefix = tool == kOfAxolotl ? "dpo_" : "";
    const PairLosses losses =
        LossesOf(Given(file, fmt::format("{}loss_type", prefix)), Given(file, fmt::format("{}loss_weights", prefix)));
    if (!types && losses.sft > 0) return Set("dpo.rpo_alpha", losses.sft);
    if (!types) return Needless("the loss of pairs has the weight 1");
    TaskSetting becomes = Set("dpo.loss_type", losses.loss);
    if (losses.sft > 0) becomes.sets.emplace_back("dpo.rpo_alpha", losses.sft);
    return becomes;
  }
  for (const TaskReason& reason : kTaskReasons) {
    if (reason.tool != tool || !IsListed(reason.names, name)) continue;
    if (IsTaskDefault(tool, setting)) return TaskSetting{};
    return reason.needless ? Needless(reason.why) : Lost(reason.why);
  }
  if (IsListed("train_on_inputs train_on_prompt completion_only_loss train_on_completions assistant_only_loss", name)) {
    return Needless("answers count alone, whole");
  }
  if (tool == kOfTrl && IsListed(SettingsOfTrlsOtherTrainers(), name)) {
    return Lost(fmt::format("task {} has no such setting here", task.rule->name));
  }
  return std::nullopt;
}

std::vector<ToolDefault> TaskDefaults(const ForeignTask& task, ForeignTool tool, const ForeignFile& file) {
  std::vector<ToolDefault> defaults;
  const bool pairs = !task.rule->parts.empty();
  const std::string_view length = tool == kOfLlamaFactory ? (pairs ? "4096" : "2048")
                                  : tool == kOfAxolotl    ? (pairs ? "1024" : "512")
                                                          : (pairs ? "2048" : "1024");
  defaults.push_back({"max_seq_len", length});
  if (tool == kOfTrl) {
    defaults.push_back({"learning_rate", task.rule == &Reward() ? "1e-4" : "1e-6"});
    if (TextOf(file, "disable_dropout", "true") != "false") defaults.push_back({"lora.dropout", "0"});
  }
  // Of TRL's CPOConfig; LLaMA-Factory has its own SimPO.
  if (task.rule == &Simpo() && tool != kOfLlamaFactory) defaults.push_back({"simpo.cpo_alpha", "1"});
  return defaults;
}

std::vector<std::string> TaskChanges(const ForeignTask& task, ForeignTool tool, const ForeignFile& file) {
  std::vector<std::string> changes;
  if (tool == kOfLlamaFactory && task.rule == &Orpo()) {
    changes.emplace_back(
        "the cross-entropy of orpo is the mean over all tokens of a step's prompts and chosen answers, as in TRL and "
        "the "
        "paper; LLaMA-Factory takes each chosen answer's own mean, without its prompt");
  }
  if (tool == kOfLlamaFactory && task.rule == &Reward()) {
    changes.emplace_back(
        "the reward model is one of AutoModelForSequenceClassification, with a head of one row; LLaMA-Factory puts a "
        "value head beside the model's own");
  }
  const bool continues = Given(file, "adapter_name_or_path") != nullptr;
  if (tool == kOfLlamaFactory && continues && task.rule->has(ProgramKind::kReference) &&
      Given(file, "ref_model") == nullptr) {
    changes.push_back(fmt::format(
        "adapter_name_or_path is compared with itself, as it was before the run; LLaMA-Factory compares with the model "
        "without it (reference: {})",
        TextOf(file, "model_name_or_path", "MODEL")));
  }
  if (tool == kOfTrl && task.rule == &Kto() && TextOf(file, "train_sampling_strategy", "sequential") == "sequential") {
    changes.emplace_back("rows are shuffled, each epoch anew; TRL's KTO takes them in their order");
  }
  return changes;
}

}  // namespace temper
