// What the parts of a block, its mixer and its feed-forward, know of the model around them.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "model/forward.h"
#include "model/shared_values.h"

namespace temper {

inline constexpr int kNoRope = -1;

// The tables of one rotary embedding, [T, R] each.
struct RopeTables {
  ValueId q, k;
  bool interleaved = false;
};

struct BlockContext {
  int block = 0;
  std::string path;  // of the block's modules: "model.layers.0."
  int64_t hidden = 0;
  std::span<const RopeTables> ropes;
  bool transposed = false;  // files store weights as [in, out]
  // Initial values of the products whose results join the residual sums: of the mixer, and of the feed-forward.
  ForwardBuilder::Init mixed_init = ForwardBuilder::Init::kNormal, fed_init = ForwardBuilder::Init::kNormal;

  SharedValues* shared = nullptr;  // of the pass so far

  int64_t mixture = 0, mixtures = 0;  // of blocks with experts: the number of this one, and of all

  Dim hidden_dim() const { return {DimLabel::kHidden, hidden}; }
};

}  // namespace temper
