// Evaluation: mean loss of a model on a data file, over its supervised tokens, over sequences that it judges, or over
// preferences.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/forward_pass.h"
#include "base/named_number.h"
#include "train/trainer.h"

namespace temper {

struct EvaluationSettings : ForwardSettings {
  const ObjectiveRule* task = nullptr;  // null: as the model's head is
  TaskSettings tasks;
  std::string reference, teacher;
  BaseType teacher_base_dtype = BaseType::kAuto;

  std::vector<OptionGroup> Groups();  // bound to this
};

struct Evaluation {
  EvaluationReport report;
  std::vector<NamedNumber> reports;  // what was measured beside the loss
  bool of_words = true;              // the loss is of words: perplexity and tokens mean something
  int64_t samples = 0;
};

// Opens and loads the model, reads the data and measures. `stop` is asked before each batch; true ends with
// kInterrupted. What it says goes to the log of this thread.
Result<Evaluation> RunEvaluation(EvaluationSettings settings, const std::function<bool()>& stop = nullptr);

}  // namespace temper
