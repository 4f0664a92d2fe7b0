// A weight's declaration: what the forward pass says of it, once, where it is used. Loading, sharding, LoRA, saving and
// export follow from it.
#pragma once

#include <string>
#include <vector>

#include "format/weight_source.h"
#include "tensor/dim_label.h"
#include "tensor/shape.h"

namespace temper {

struct WeightDeclaration {
  enum class Init : uint8_t { kNormal, kZero, kOne };
  std::string name;  // of its value
  Shape shape;
  DimLabels labels;
  Init init = Init::kNormal;  // for training from scratch
  bool decays = true;         // weight decay applies to it
  WeightSource source;
};

// A module that computes y = x W^T, as PEFT names it. Its weight may be several values, whose rows follow each other in
// the module's: a fused projection.
struct LinearModule {
  std::string path;                  // "model.layers.0.self_attn.q_proj", "lm_head"
  std::vector<std::string> tensors;  // names of its weight in files, the one it is written under first
  std::vector<std::string> weights;  // values of the graph, in the order of their rows
  std::vector<int64_t> rows;         // of each
  int64_t in = 0;
  bool is_head = false;  // the output head, which PEFT's "all-linear" leaves out

  int64_t out() const {
    int64_t sum = 0;
    for (const int64_t n : rows) sum += n;
    return sum;
  }
};

}  // namespace temper
