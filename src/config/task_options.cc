#include "config/task_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace temper {
namespace {

// A choice among objectives, by name; before them "auto" for none, if none is chosen now.
Choice ChoiceOfObjective(const ObjectiveRule*& rule) {
  std::vector<std::string_view> names;
  const int open = rule == nullptr ? 1 : 0;
  if (open == 1) names.emplace_back("auto");
  for (const ObjectiveRule* known : Objectives()) names.push_back(known->name);
  return {.names = std::move(names),
          .get =
              [&rule, open] {
                if (rule == nullptr) return 0;
                const auto rules = Objectives();
                const auto same = [&rule](const ObjectiveRule* known) { return known->name == rule->name; };
                return open + static_cast<int>(std::find_if(rules.begin(), rules.end(), same) - rules.begin());
              },
          .set = [&rule, open](int i) { rule = i < open ? nullptr : Objectives()[static_cast<size_t>(i - open)]; }};
}

}  // namespace

Option TaskOption(const ObjectiveRule*& rule) {
  std::string help = "what is learned";
  for (const ObjectiveRule* known : Objectives()) help += fmt::format("; {}: {}", known->name, known->help);
  return {"task", ChoiceOfObjective(rule), help};
}

Option ReferenceOption(std::string& reference, const char* use) {
  std::string tasks;
  for (const ObjectiveRule* known : Objectives()) {
    if (!known->has(ProgramKind::kReference)) continue;
    tasks += fmt::format("{}{}", tasks.empty() ? "" : " and ", known->name);
  }
  return {.name = "reference",
          .target = &reference,
          .help = fmt::format("with tasks {}: a model of the same shape to compare with, {}", tasks, use),
          .unsaid = "null"};
}

Option TeacherOption(std::string& teacher) {
  return {.name = "teacher",
          .target = &teacher,
          .help = "with task distill: the model to learn from, of any size and family with the same vocabulary",
          .value_hint = "MODEL",
          .unsaid = "null"};
}

Option TeacherTypeOption(BaseType& type) {
  return {.name = "teacher_base_dtype",
          .target = ChoiceOf(type, {"auto", "int8", "nf4"}),
          .help = "with task distill: how the teacher's linear modules and experts are kept, as base_dtype",
          .default_text = "as computed",
          .unsaid = "auto"};
}

namespace {

std::vector<std::string_view> LossesOfDpo() {
  std::vector<std::string_view> names;
  for (const PreferenceFacts& facts : kPreferenceKinds) {
    if (facts.of_dpo) names.push_back(facts.name);
  }
  return names;
}

std::vector<OptionGroup> GroupsOfPreferencesAndRewards(TaskSettings& tasks) {
  const Range not_negative = {.at_least = 0};
  return {{"Preferences (tasks dpo, simpo, orpo, kto; names and meaning as in TRL)",
           {
               {"dpo.loss_type", ChoiceOf(tasks.dpo.loss, LossesOfDpo()), "what a pair of answers costs"},
               {"dpo.beta",
                &tasks.dpo.beta,
                "how strongly answers are held to the model as it was before the run",
                {.above = 0}},
               {"dpo.label_smoothing",
                &tasks.dpo.label_smoothing,
                "with dpo.loss_type robust: the part of pairs taken to be in the wrong order",
                {.at_least = 0, .below = 0.5}},
               {.name = "dpo.rpo_alpha",
                .target = &tasks.dpo.nll_weight,
                .help = "weight of the cross-entropy of chosen answers beside the loss of pairs",
                .range = not_negative,
                .unsaid = "0"},
               {.name = "simpo.beta",
                .target = &tasks.simpo.beta,
                .help = "factor of an answer's mean log-probability, its reward",
                .range = {.above = 0},
                .unsaid = "0.1"},
               {.name = "simpo.simpo_gamma",
                .target = &tasks.simpo.gamma,
                .help = "by how much the reward of the chosen answer is to be greater",
                .range = not_negative,
                .unsaid = "0.5"},
               {.name = "simpo.cpo_alpha",
                .target = &tasks.simpo.nll_weight,
                .help = "weight of the cross-entropy of chosen answers beside the loss of pairs; 1 in TRL's CPOConfig",
                .range = not_negative,
                .unsaid = "0"},
               {.name = "simpo.label_smoothing",
                .target = &tasks.simpo.label_smoothing,
                .help = "the part of pairs taken to be in the wrong order",
                .range = {.at_least = 0, .below = 0.5},
                .unsaid = "0"},
               {.name = "orpo.beta",
                .target = &tasks.orpo.beta,
                .help = "weight of the odds of answers beside the cross-entropy of the chosen one",
                .range = {.above = 0},
                .unsaid = "0.1"},
               {.name = "kto.beta",
                .target = &tasks.kto.beta,
                .help = "how strongly answers are held to the model as it was before the run",
                .range = {.above = 0},
                .unsaid = "0.1"},
               {.name = "kto.desirable_weight",
                .target = &tasks.kto.desirable_weight,
                .help = "weight of answers that are rated good",
                .range = not_negative,
                .unsaid = "1"},
               {.name = "kto.undesirable_weight",
                .target = &tasks.kto.undesirable_weight,
                .help = "weight of answers that are rated bad",
                .range = not_negative,
                .unsaid = "1"},
           }},
          {"Rewards (task reward; name and meaning as in TRL)",
           {
               {"reward.center_rewards_coefficient", &tasks.reward.center_rewards_coefficient,
                "how strongly the sum of a pair's rewards is held to 0", not_negative},
           }}};
}

OptionGroup GroupOfDistillation(DistillSettings& distill) {
  return {"Distillation (task distill; beta as in TRL)",
          {
              {.name = "distill.beta",
               .target = &distill.beta,
               .help = "0: the divergence KL(teacher | model), 1: KL(model | teacher), else of both from their mixture",
               .range = {.at_least = 0, .at_most = 1},
               .unsaid = "0.5"},
              {.name = "distill.temperature",
               .target = &distill.temperature,
               .help = "what the logits of both models are divided by",
               .range = {.above = 0},
               .unsaid = "1"},
          }};
}

}  // namespace

std::vector<OptionGroup> TaskOptionGroups(TaskSettings& tasks) {
  std::vector<OptionGroup> groups = GroupsOfPreferencesAndRewards(tasks);
  groups.push_back(GroupOfDistillation(tasks.distill));
  return groups;
}

}  // namespace temper
