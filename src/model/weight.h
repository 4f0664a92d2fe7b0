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
  // A matrix by depth: normal, divided by sqrt(2 blocks), so that what blocks add up to does not grow with their
  // number.
  enum class Init : uint8_t { kNormal, kNormalByDepth, kZero, kOne };
  std::string name;  // of its value
  Shape shape;
  DimLabels labels;
  Init init = Init::kNormal;  // for training from scratch
  bool decays = true;         // weight decay applies to it
  WeightSource source;
};

// How the files store the weight of a module: a fused projection's rows may be dealt in groups (one for each head: a
// part of every value's rows, in their order), and its matrix transposed (in x out, transformers' Conv1D).
struct ModuleLayout {
  int64_t groups = 1;
  bool transposed = false;
};

// A module that computes y = x W^T, as PEFT names it. Its weight may be several values, whose rows follow each other in
// the module's (or in each group of its rows): a fused projection.
struct LinearModule {
  std::string path;                  // "model.layers.0.self_attn.q_proj", "lm_head"
  std::vector<std::string> tensors;  // names of its weight in files, the one it is written under first
  std::vector<std::string> weights;  // values of the graph, in the order of their rows
  std::vector<int64_t> rows;         // of each
  int64_t in = 0;
  ModuleLayout layout = {};
  bool is_head = false;  // the output head, which PEFT's "all-linear" leaves out

  int64_t out() const {
    int64_t sum = 0;
    for (const int64_t n : rows) sum += n;
    return sum;
  }
};

}  // namespace temper
