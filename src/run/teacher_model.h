// The model that a run learns from (task distill): another folder, with the same words.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "run/opened_model.h"
#include "settings/run_config.h"

namespace temper {

struct TeacherChoice {
  std::string teacher;                         // as ModelChoice::model
  BaseType base_dtype = BaseType::kAuto;       // how its weights are kept
  ComputeType dtype = ComputeType::kF32;       // in which it is computed; resolved
  int64_t max_seq_len = 0;                     // tokens of a row
  bool needs_weights = true, by_name = false;  // as in ModelChoice
};

// Opens it and gives it to `own`, which has the name `own_name`. Errors: an adapter, another vocabulary or head, fewer
// learned positions than a row has. Warns of rows longer than it was trained on.
Status OpenTeacher(Env& env, const TeacherChoice& choice, const std::string& own_name, OpenedModel* own);

// "models/large (LlamaForCausalLM), 1235.81 M parameters"; empty where `own` has no teacher. `path`: as it was given.
std::string TeacherText(const OpenedModel& own, const std::string& path);

}  // namespace temper
