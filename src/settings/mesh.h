// How ranks share the work of a step: what users choose of it. compile/mesh and compile/pipeline apply it.
#pragma once

#include <cstdint>
#include <string_view>

namespace temper {

// When gradients of gathered weights are reduced between ranks.
enum class GradSync : uint8_t {
  kAuto,
  kMicroBatch,  // after every micro-batch: a rank keeps only its parts
  kStep,        // once, by the last micro-batch: a rank keeps the gradients of whole weights, in f32, until then
};

// What ranks with different rows exchange for an embedding whose table is split among them.
enum class EmbeddingMove : uint8_t {
  kAuto,
  kTable,  // gather the table
  kRows,   // every rank looks up all tokens in its part of the table, and the results are summed
};

// What tensor ranks exchange for the feed-forward part of a block if they split the tokens of the residual stream.
enum class MlpMove : uint8_t {
  kAuto,
  kActivations,  // gather all tokens, sum the results: each rank computes some columns for all tokens
  kWeights,      // gather the weights: each rank computes all columns for its tokens
};

// The order in which the stages of a pipeline work on micro-batches.
enum class PipelineKind : uint8_t {
  kOneForwardOneBackward,  // each backward as early as possible: at most stages - stage micro-batches are in flight
  kInterleaved,            // the same with several chunks per stage: a shorter bubble for more transfers
  kZeroBubble,             // gradients of weights, which no stage waits for, fill the bubble
  kGpipe,                  // all forwards, then all backwards: every micro-batch is in flight
};
std::string_view ToString(PipelineKind kind);  // "1f1b"

}  // namespace temper
