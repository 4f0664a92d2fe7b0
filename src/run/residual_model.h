// The base of a run whose adapters begin as a part of their weights (init_lora_weights): W without s B A of the first A
// and B, which the run begins with, so that it begins as the model itself. As PEFT computes them: PiSSA (Meng et al.
// 2024) from the leading singular vectors of W, OLoRA (Buyukakyuz 2024) from its QR decomposition. It lies beside the
// run (run/base_beside.h), the first A and B in a folder within it.
#pragma once

#include <string>

#include "base/env.h"
#include "base/status.h"
#include "format/lora_config.h"

namespace temper {

struct ResidualModelRequest {
  std::string model;              // as ModelChoice::model
  std::string init_lora_weights;  // pissa, pissa_niter_N, olora
  LoraConfig lora;
  std::string output_dir;  // of the run
  int threads = 1;
  bool in_f32 = false;  // the base is written in f32, for a run that computes so; else as it is stored
};

// Whether a value of init_lora_weights is one that needs another base.
bool ChangesBase(const std::string& init_lora_weights);

struct ResidualModel {
  std::string folder;
  std::string adapter;  // of the first A and B
};

// Errors: as ResolveLora; an adapter; modules for which there is no such beginning, by name.
Result<ResidualModel> MakeResidualModel(Env& env, const ResidualModelRequest& request);

}  // namespace temper
