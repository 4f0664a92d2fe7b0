// ForwardBuilder: what the files of the models write their forward pass with: the graph's ops, weights by name, and the
// two things that differ between training and decoding: attention (documents of packed rows, or a cache) and the head
// (loss of every supervised token, or logits of the last).
#pragma once

#include <map>
#include <string>

#include "graph/builder.h"

namespace temper {

struct ForwardSpec {
  DType dtype = DType::kF32;  // of weights and activations
  int64_t tokens = 0;         // T: tokens of a micro-batch, rows flattened; S when decoding
  int64_t row = 0;            // tokens of a packed row (T is a multiple); what attention costs are estimated with
  int64_t cache = 0;          // C: > 0 builds a decoding step over a cache of that many tokens
  bool training = false;      // with the dropout that the model's configuration asks for
  bool weighted = false;      // with a weight for the loss of every token
};

// Names of the host-written inputs and the host-read outputs of a forward graph.
inline constexpr char kTokenInput[] = "token";                   // i32[T]
inline constexpr char kTargetInput[] = "target";                 // i32[T], -1: no loss here
inline constexpr char kWeightInput[] = "weight";                 // f32[T], of the loss; where ForwardSpec::weighted
inline constexpr char kPositionInput[] = "position";             // i32[T], restarts with each document
inline constexpr char kDocumentStartInput[] = "document_start";  // i32[T]
inline constexpr char kRngInput[] = "rng";                       // i64[kNumRngWords], where something draws
inline constexpr char kLengthInput[] = "length";                 // i32[1], decoding: tokens in the cache
inline constexpr char kLossOutput[] = "loss";                    // f32[T]
inline constexpr char kLogitsOutput[] = "logits";                // f32[1, V]

class ForwardBuilder : public GraphBuilder {
 public:
  ForwardBuilder(Graph* graph, const ForwardSpec& spec);

  // The source of a weight, made on first use. Biases: kNoValue where `present` is false.
  ValueId Weight(const std::string& name, Shape shape);
  ValueId WeightIf(bool present, const std::string& name, Shape shape) {
    return present ? Weight(name, shape) : kNoValue;
  }

  // A vector all of whose elements are `n`: norms without weights.
  ValueId Constant(int n, Shape shape);

  ValueId token() const { return token_; }
  ValueId position() const { return position_; }

  // y = x W^T [+ b] with weights "<module>.weight" [out, in] and "<module>.bias".
  ValueId LinearModule(ValueId x_TI, const std::string& module, int64_t out, bool bias, const std::string& name);

  struct Heads {
    int64_t heads, kv_heads, head_dim;
    int64_t window = 0;  // tokens a query sees, itself included; 0: all
  };
  // Scores are scaled by 1/sqrt(head_dim). `block` names the cache.
  ValueId Attend(ValueId q, ValueId k, ValueId v, const Heads& heads, int block, const std::string& name);

  // `x` itself unless the pass is for training and p > 0.
  ValueId Dropout(ValueId x, double p, const std::string& name);

  // Final hidden states and the head's weight, to loss or logits.
  void Head(ValueId x_TD, ValueId w_VD);

  const ForwardSpec& spec() const { return spec_; }

 private:
  const ForwardSpec spec_;
  std::map<std::string, ValueId> weights_;
  ValueId token_, position_, document_start_ = kNoValue, length_ = kNoValue, rng_ = kNoValue;
};

}  // namespace temper
