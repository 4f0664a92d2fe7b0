// Decisions: where a step has two ways to one result, which the compiler took, and what both cost. By cost, unless an
// option or the checkpoint that a run goes on from says. They are made of numbers that all ranks share, so that all
// decide alike; `temper plan` prints them, a checkpoint keeps them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "tensor/mesh.h"

namespace temper {

// When gradients of gathered weights are reduced between ranks.
enum class GradSync : uint8_t {
  kAuto,
  kMicroBatch,  // after every micro-batch: a rank keeps its parts only
  kStep,        // once, by the last micro-batch: a rank keeps the gradients of whole weights, in f32, until then
};

// What ranks that have rows of their own exchange for an embedding whose table is split among them.
enum class EmbeddingMove : uint8_t {
  kAuto,
  kTable,  // the table is gathered
  kRows,   // every rank looks all tokens up in its part, and the results are added up
};

// What tensor ranks that share the tokens of the residual stream exchange for the feed-forward part of a block.
enum class MlpMove : uint8_t {
  kAuto,
  kActivations,  // all tokens are gathered, their results added up: each rank computes some columns for all
  kWeights,      // the weights are gathered: each rank computes all columns for its tokens
};

// Of an earlier run: what was chosen, by `Decision::what`.
using KeptDecisions = std::map<std::string, std::string>;

struct DecisionOptions {
  GradSync grad_sync = GradSync::kAuto;
  EmbeddingMove embedding = EmbeddingMove::kAuto;
  MlpMove mlp = MlpMove::kAuto;
  KeptDecisions kept;  // where an option is kAuto
};

struct Decision {
  std::string what;              // "grad_sync", "mlp", "embedding model.embed_tokens.weight"
  std::string chosen, rejected;  // "step", "micro_batch": values of the option that overrides it
  Bytes sent, sent_otherwise;    // by a rank, per step
  Seconds time, time_otherwise;  // of that, at the rates below
  std::string reason;
};

// "decisions   grad_sync: step, not micro_batch (...)": a line each; "" where there are none.
std::string DescribeDecisions(const std::vector<Decision>& decisions);

// What a rank sends and gets per second along these axes, in bytes: those of tensor parallelism are taken to stay
// within a host (50 GB/s, what a link of a current accelerator sustains), the others to cross a network of 100 Gbit/s.
double LinkRate(AxisSet axes);
Seconds LinkTime(Bytes sent, AxisSet axes);

}  // namespace temper
