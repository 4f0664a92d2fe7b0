// The model of a run with new tokens (add_tokens): its base with rows and a tokenizer for them (run/base_beside.h).
#pragma once

#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"

namespace temper {

struct GrownModelRequest {
  std::string model;       // as ModelChoice::model
  std::string tokens;      // add_tokens
  std::string output_dir;  // of the run
  bool makes = true;       // else it is only found
};

struct GrownModel {
  std::string folder;  // empty: not made yet, and not to be
  std::string rows;    // of the new tokens: a value of lora.trainable_token_indices; empty: no token is new
  std::vector<std::string> tables;  // TablesOfWords
};

// Writes it, unless an earlier start of the run has written it from the same model and tokens. Tokens that the
// model has are left out, and named. Errors: as AddNewWords; the folder holds something else.
Result<GrownModel> GrowModel(Env& env, const GrownModelRequest& request);

}  // namespace temper
