// The closed set of operations: graph/op_list.inc lists them, with their operands and attributes. Each has its rule in
// a file of graph/ops/, which may hold several similar ops, and a kernel per backend.
//
// This header does not read the list: what only carries an Op is not compiled again when an op is added. Sources that
// name one (Op::kLinear) include graph/named_ops.h, or graph/traffic_ops.h if they name moves and collectives alone;
// headers of the layers above include neither (tools/check_rebuilds.py).
#pragma once

#include <optional>
#include <string_view>

namespace temper {

enum class Op : unsigned char;

int NumOps();  // ops are 0 .. NumOps() - 1

// What executes an op: a kernel that a backend makes, the executor itself (moves between tiers), or a communicator.
enum class OpRunner : unsigned char { kKernel, kExecutor, kCommunicator };

OpRunner RunnerOf(Op op);
inline bool IsCollective(Op op) {
  return RunnerOf(op) == OpRunner::kCommunicator;
}
inline bool IsMove(Op op) {
  return RunnerOf(op) == OpRunner::kExecutor;
}
bool IsTransfer(Op op);  // send, recv

std::string_view ToString(Op op);                  // "linear_cross_entropy"
std::optional<Op> ParseOp(std::string_view text);  // the inverse

// Layout of the `scalars` input (f64[kNumScalars]), written by the host before each step. An optimizer's UpdateRule
// fills in its own entries; they are 0 for others.
enum Scalar : int {
  kScalarLearningRate,
  kScalarBiasCorrection1,  // adamw: 1 - beta1^t
  kScalarBiasCorrection2,  // adamw: 1 - beta2^t
  kScalarTokenCount,       // weight of the whole batch: all micro-batches, all ranks; the number of supervised
                           // tokens if the data has no weights
  kNumScalars,
};

// Layout of the `rng` input (i64[kNumRngWords]). Draws are keyed by an element's place in the whole batch, so that they
// do not depend on how the batch is cut into micro-batches or dealt to ranks.
enum RngWord : int {
  kRngSeed,
  kRngStep,        // optimizer steps done
  kRngFirstToken,  // place in the batch of the micro-batch's first token
  kNumRngWords,
};

}  // namespace temper
