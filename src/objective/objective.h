// ObjectiveRule: what the rest of Temper must know of a method of training, one file a method. A forward graph ends
// where the tail of one of the rule's graphs turns hidden states into roots: a loss, and what is reported beside it.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/builder.h"
#include "graph/ops/preference_kind.h"
#include "objective/row_use.h"
#include "program/program_names.h"
#include "tensor/column.h"

namespace temper {

// What a pair of answers costs, as in TRL's DPOConfig.
struct PreferenceSettings {
  PreferenceKind loss = PreferenceKind::kSigmoid;  // of dpo
  double beta = 0.1;
  double label_smoothing = 0;  // kRobust, simpo: the part of pairs whose answers are taken to be in the wrong order
  double gamma = 0;            // simpo: by how much the reward of the chosen answer is to be greater
  double nll_weight = 0;       // of the cross-entropy of chosen answers; dpo: rpo_alpha, simpo: cpo_alpha, orpo: 1
  friend bool operator==(const PreferenceSettings&, const PreferenceSettings&) = default;
};

// What a rated answer costs, as in TRL's KTOConfig.
struct UnpairedSettings {
  double beta = 0.1;
  double desirable_weight = 1, undesirable_weight = 1;
  friend bool operator==(const UnpairedSettings&, const UnpairedSettings&) = default;
};

// How a reward model learns, as in TRL's RewardConfig.
struct RewardSettings {
  double center_rewards_coefficient = 0;  // how strongly the sum of a pair's rewards is held to 0
  friend bool operator==(const RewardSettings&, const RewardSettings&) = default;
};

// How a model learns from a teacher, as in TRL's GKDConfig.
struct DistillSettings {
  double beta = 0.5;  // of the generalised Jensen-Shannon divergence: 0 is KL(teacher | model), 1 KL(model | teacher)
  double temperature = 1;  // that both models' logits are divided by
  friend bool operator==(const DistillSettings&, const DistillSettings&) = default;
};

// What belongs to one method alone. Options have the same names: "dpo.beta" is that of task dpo.
struct TaskSettings {
  PreferenceSettings dpo, simpo = {.gamma = 0.5}, orpo = {.nll_weight = 1};
  UnpairedSettings kto;
  RewardSettings reward;
  DistillSettings distill;
};

// The head of the model that another learns from (model/teacher.h): columns of its hidden states, whether its logits
// have a bias, and their cap (0: none).
struct TeacherHead {
  int64_t width = 0;
  bool bias = false;
  double softcap = 0;
};

// Settings that all objectives see; each uses what it knows.
struct ObjectiveSettings {
  bool weighted = false;       // rows have weights for the loss of every token
  double label_smoothing = 0;  // the part of a loss that counts all words alike
  TaskSettings tasks = {};
  TeacherHead teacher = {};  // of methods that have one
};

// Sources of a graph that learns from a teacher, which stand for values of the teacher's graph (model/teacher.h):
// hidden states after the last norm, the head's weight and its bias.
inline constexpr char kTeacherHidden[] = "teacher_hidden";
inline constexpr char kTeacherHeadWeight[] = "teacher_head";
inline constexpr char kTeacherHeadBias[] = "teacher_head_bias";

struct ObjectiveRule;

// The end of a forward pass over T tokens.
struct Tail {
  const ObjectiveRule& rule;
  GraphBuilder& f;
  int64_t tokens;             // T
  ValueId x_TD, w_VD;         // hidden states after the last norm, and the head's weight
  ValueId bias_V = kNoValue;  // of the logits
  double softcap = 0;         // of the logits; 0: none
  ObjectiveSettings settings;

  // Declares an input that is made from data, or takes the one that the model has declared. REQUIRES: rule.columns has
  // it.
  ValueId Column(const ColumnSpec& column) const;
  // The operands and attributes that all ops on the head's logits begin with.
  struct HeadCall {
    std::vector<ValueId> inputs;
    Attributes attributes;
  };
  HeadCall Head(const ColumnSpec& target = kTargetColumn) const;
  // Those of each token, f32[T, V], of that name; `role`: an output of the Program, or none.
  ValueId Logits(Role role) const;
  // The log-probability of each token's target, of the name `output`, and as an output of the Program if `stored`.
  ValueId Logprob(const char* output, bool stored, const ColumnSpec& target = kTargetColumn) const;
};

// The module of a head of classes, in all families of transformers.
inline constexpr char kClassHeadModule[] = "score";

// The output of a reference's Program: f32[T], the log-probability of each token's target.
inline constexpr char kLogprobOutput[] = "logprob";

// f32[T, V]: the logits of every token.
inline constexpr char kClassLogitsOutput[] = "logits";
// f32[T], with a head of classes: at the last token of each sequence the class of the greatest logit, -1 elsewhere.
inline constexpr char kPredictionOutput[] = "prediction";

// One of the graphs of a run; its Program has the name of its kind.
struct ObjectiveGraph {
  ProgramKind kind;
  void (*tail)(const Tail& tail);
};

// What a run shows of a step, by its mean.
struct ReportSpec {
  std::string_view name;  // in metrics.jsonl; in an evaluation "eval_" stands before it
  const char* output;     // of the Program, f32[T]
  // Of two evaluations the one with more of it is better, unless the user says otherwise.
  bool greater_is_better = true;
};

// What an evaluation computes from predicted classes (train/class_counts.h).
inline constexpr std::string_view kMacroF1 = "f1_macro", kBinaryF1 = "f1_binary";
inline constexpr size_t kMostReports = 12;
using ReportValues = std::array<double, kMostReports>;

struct ObjectiveRule {
  std::string_view name;
  std::string_view help;
  // What the model ends in: a row for each word, for each class, or one row.
  enum class Head : uint8_t { kVocabulary, kClasses, kReward } head = Head::kVocabulary;
  RowUse rows = RowUse::kAnswers;
  // What an epoch's samples consist of: answers that are dealt together, each a document. Empty: one of them.
  std::span<const std::string_view> parts;
  // Columns that tails may declare, beside those that models read.
  std::span<const ColumnSpec> columns;
  std::span<const ObjectiveGraph> graphs;     // of a run; the first one trains: its first root is a loss
  void (*score)(const Tail& tail) = nullptr;  // the graph that judges data by a trained model; null: there is none
  // What counts in the mean over a batch: predicted tokens by their weights, or samples.
  enum class Mean : uint8_t { kTokens, kSamples } mean = Mean::kTokens;
  // The loss has a mean over tokens of the samples' first parts beside it (kNllScaleColumn): none, of those that are
  // supervised, or of all.
  enum class Nll : uint8_t { kNone, kAnswer, kWhole } nll = Nll::kNone;
  const ObjectiveRule* with_nll = nullptr;  // this method where a setting adds such a mean; null: none does
  // This method where it also reports how many tokens have the largest logit; null: it has no such report.
  const ObjectiveRule* with_accuracy = nullptr;
  PreferenceSettings TaskSettings::*pair_settings = nullptr;  // its own, if it has these
  // It learns from a teacher, whose forward pass is part of its graphs (model/teacher.h).
  bool distills = false;
  bool prefers = false;  // learns which answers are preferred: needs low rates
  // Samples are answers that are rated (data/rating.h), and a step needs to know what the model has learned of answers
  // to other prompts (kKlColumn).
  bool rated = false;
  std::span<const ReportSpec> reports;                        // the first is the loss
  std::span<const std::string_view> evaluation_reports = {};  // beside these, of an evaluation alone

  // REQUIRES: there is one.
  ObjectiveGraph graph(ProgramKind kind) const;
  bool has(ProgramKind kind) const;
};

// Supervised fine-tuning: the cross-entropy of every supervised token, given those before it.
const ObjectiveRule& Sft();
// Preferences between two answers, against the model as it was before (Rafailov 2023, DPO, and relatives).
const ObjectiveRule& Dpo();
// Preferences without such a model, by mean likelihoods (Meng 2024), and by odds beside the answer (Hong 2024).
const ObjectiveRule& Simpo();
const ObjectiveRule& Orpo();
// Answers that are rated, each alone (Ethayarajh 2024).
const ObjectiveRule& Kto();

// The class of a sequence, from its last token.
const ObjectiveRule& Classify();

// A number that says how good an answer is, from pairs of answers (Ouyang 2022).
const ObjectiveRule& Reward();

// The distribution that a larger model gives each word of the answers (Agarwal 2023, GKD).
const ObjectiveRule& Distill();

// All of objective_list.inc, the default first. Those above are asked for by name elsewhere.
std::span<const ObjectiveRule* const> Objectives();

// The names of the tasks that read rows for any of `uses`, with `last` before the last one: "dpo, simpo or reward".
// REQUIRES: there is one.
std::string TasksThatRead(std::initializer_list<RowUse> uses, std::string_view last = "or");

}  // namespace temper
