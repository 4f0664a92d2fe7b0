// Decisions: which of two ways to the same result the compiler chose, and the cost of both. It chooses by cost, unless
// an option or the checkpoint of a resumed run decides. Decisions depend only on numbers that all ranks share, so that
// all decide alike; `temper plan` prints them, a checkpoint keeps them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "settings/mesh.h"
#include "tensor/mesh.h"

namespace temper {

// The choices of an earlier run, by `Decision::what`.
using KeptDecisions = std::map<std::string, std::string>;

struct DecisionOptions {
  GradSync grad_sync = GradSync::kAuto;
  EmbeddingMove embedding = EmbeddingMove::kAuto;
  MlpMove mlp = MlpMove::kAuto;
  KeptDecisions kept;  // apply if an option is kAuto
};

struct Decision {
  std::string what;              // "grad_sync", "mlp", "embedding model.embed_tokens.weight"
  std::string chosen, rejected;  // "step", "micro_batch": values of the option that overrides it
  Bytes sent, sent_otherwise;    // by a rank, per step
  Seconds time, time_otherwise;  // to send these bytes, at the rates below
  std::string reason;
};

// "decision    grad_sync: step, not micro_batch: ...": one line each; "" if there are none.
std::string DescribeDecisions(const std::vector<Decision>& decisions);

// Bytes per second that a rank sends and receives along these axes. Tensor parallelism is assumed to stay within a host
// (50 GB/s, sustained by a link of a current accelerator), other axes to cross a network of 100 Gbit/s.
double LinkRate(AxisSet axes);
Seconds LinkTime(Bytes sent, AxisSet axes);

}  // namespace temper
