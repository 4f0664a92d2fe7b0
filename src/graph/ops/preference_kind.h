// PreferenceKind: what a pair of answers may cost (graph/ops/preference.cc has the formulas), and the table of what the
// kinds differ by. Attributes of the op, options and kernels take names and facts from here.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace temper {

enum class PreferenceKind : uint8_t { kSigmoid, kHinge, kIpo, kRobust, kSigmoidNorm, kSimpo, kOrpo };

struct PreferenceFacts {
  PreferenceKind kind;
  std::string_view name;       // the attribute `kind` of the op; in options as in TRL's DPOConfig
  bool of_dpo = false;         // a choice of task dpo, against a reference
  bool of_means = false;       // answers are compared by means over their tokens, not by sums
  bool rewards_means = false;  // their rewards are means, too
  bool of_odds = false;        // answers are compared by their odds, which are reported
};

// By PreferenceKind; those of dpo come first.
inline constexpr std::array kPreferenceKinds = {
    PreferenceFacts{.kind = PreferenceKind::kSigmoid, .name = "sigmoid", .of_dpo = true},
    PreferenceFacts{.kind = PreferenceKind::kHinge, .name = "hinge", .of_dpo = true},
    PreferenceFacts{.kind = PreferenceKind::kIpo, .name = "ipo", .of_dpo = true, .of_means = true},
    PreferenceFacts{.kind = PreferenceKind::kRobust, .name = "robust", .of_dpo = true},
    PreferenceFacts{.kind = PreferenceKind::kSigmoidNorm, .name = "sigmoid_norm", .of_dpo = true, .of_means = true},
    PreferenceFacts{.kind = PreferenceKind::kSimpo, .name = "simpo", .of_means = true, .rewards_means = true},
    PreferenceFacts{
        .kind = PreferenceKind::kOrpo, .name = "orpo", .of_means = true, .rewards_means = true, .of_odds = true},
};

constexpr const PreferenceFacts& FactsOf(PreferenceKind kind) {
  return kPreferenceKinds[static_cast<size_t>(kind)];
}

// nullptr: there is none of that name.
constexpr const PreferenceFacts* FindPreference(std::string_view name) {
  for (const PreferenceFacts& facts : kPreferenceKinds) {
    if (facts.name == name) return &facts;
  }
  return nullptr;
}

}  // namespace temper
