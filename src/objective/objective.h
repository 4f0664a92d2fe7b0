// ObjectiveRule: what the rest of Temper must know of a method of training, one file a method. A forward graph ends
// where the rule's `tail` turns hidden states into roots: a loss, and what is reported beside it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "graph/builder.h"
#include "tensor/column.h"

namespace temper {

// Settings that all objectives see; each uses what it knows.
struct ObjectiveSettings {
  bool weighted = false;       // rows have weights for the loss of every token
  double label_smoothing = 0;  // the part of a loss that counts all words alike
};

struct ObjectiveRule;

// The end of a forward pass over T tokens.
struct Tail {
  const ObjectiveRule& rule;
  GraphBuilder& f;
  int64_t tokens;      // T
  ValueId x_TD, w_VD;  // hidden states after the last norm, and the head's weight
  double softcap = 0;  // of the logits; 0: none
  ObjectiveSettings settings;

  // Declares an input that is made from data. REQUIRES: rule.columns has it.
  ValueId Column(const ColumnSpec& column) const;
};

struct ObjectiveRule {
  std::string_view name;
  // Columns that the tail may declare, beside those that models read.
  std::span<const ColumnSpec> columns;
  void (*tail)(const Tail& tail);
  // Its output f32[T]: the loss of each token, whose gradient trains. A run shows its mean, by the tokens' weights.
  const char* loss;
};

// Supervised fine-tuning: the cross-entropy of every supervised token, given those before it.
const ObjectiveRule& Sft();

}  // namespace temper
