// A weight's declaration: the forward pass states it once, on first
// use. Loading, sharding, LoRA, saving and export follow from it.
#pragma once

#include <string>
#include <vector>

#include "format/weight_source.h"
#include "tensor/dim_label.h"
#include "tensor/shape.h"

namespace temper {

struct WeightDeclaration {
  // kNormalByDepth: divided by sqrt(2 blocks), so that the sum of what blocks add does not grow with their number.
  // kLogUniform: the logarithm of what is uniform from 0.01 to 16, as rates of recurrent states begin.
  // kValue: `value`.
  // kOneDecays: of no norm and no bias, so that weight decay applies to it (the D of Mamba-2).
  enum class Init : uint8_t { kNormal, kNormalByDepth, kZero, kOne, kLogUniform, kOneDecays, kValue };
  std::string name;  // of its value in the graph
  Shape shape;
  DimLabels labels;
  Init init = Init::kNormal;  // for training from scratch
  double value = 0;
  bool decays = true;  // weight decay applies to it
  bool fixed = false;  // a number of the files that no method trains
  WeightSource source;
};

// How files store the weight of a module. `groups`: the rows of a fused projection are interleaved in so many groups
// (one per head), each with a part of every value's rows in their order. `transposed`: [in, out], as in transformers'
// Conv1D; of a stack in one tensor each matrix.
struct ModuleLayout {
  int64_t groups = 1;
  bool transposed = false;
  bool stacked = false;  // one tensor has all matrices of a stack
};

// A module that computes y = x W^T, with PEFT's name. In a fused projection its weight consists of several values,
// whose rows follow each other, or alternate in groups.
struct LinearModule {
  std::string path;                           // "model.layers.0.self_attn.q_proj", "lm_head"; of a parameter its name
  std::vector<std::string> older_paths = {};  // of earlier versions of the class, as adapters made with them have them
  std::vector<std::string> tensors;           // names of its weight in files, the one it is written under first
  std::vector<std::string> weights;           // values of the graph, in the order of their rows
  std::vector<int64_t> rows;                  // of each
  int64_t in = 0;
  ModuleLayout layout = {};
  bool is_head = false;  // the output head; PEFT's "all-linear" excludes it
  // A parameter of a module that is not torch's Linear, for which PEFT has target_parameters. `matrices`: it stacks so
  // many, [matrices, out, in], of which `tensors` has each value's, one value after the other (or one tensor, which has
  // them all), and a token passes `active`; 0: it is one.
  // `module_names`: the modules that it has become in transformers 5, as target_modules of older adapters name them.
  bool is_parameter = false;
  int64_t matrices = 0, active = 0;
  std::vector<std::string> module_names = {};

  int64_t out() const {
    int64_t sum = 0;
    for (const int64_t n : rows) sum += n;
    return sum;
  }
};

}  // namespace temper
