// The folder beside a run's, where a run that trains another base than the model it names keeps that base: one with
// rows for new tokens (run/grown_model.h), or without what adapters begin as (run/residual_model.h). PEFT and
// transformers load the run's adapter on it.
#pragma once

#include <string>

#include "base/env.h"
#include "base/status.h"

namespace temper {

class BaseBeside {
 public:
  // OUTPUT_DIR-base. `option`: what the run needs it for. `record`: from what it is made, as JSON.
  BaseBeside(Env& env, const std::string& output_dir, const char* option, std::string record);

  const std::string& folder() const { return folder_; }
  // Whether an earlier start has made it, of the same. kInvalidArgument where the folder holds something else.
  Result<bool> IsThere() const;
  // Before the folder is written, and after all of it is.
  Status Begin() const;
  Status Finish() const;

 private:
  Env& env_;
  const char* option_;
  const std::string record_;
  std::string folder_, record_path_;
};

}  // namespace temper
