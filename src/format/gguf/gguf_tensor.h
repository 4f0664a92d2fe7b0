// GgufTensor: what a tensor of a GGUF file holds: rows of a model's weights, or a few numbers of its own. Pure data: a
// family's description of itself (model/gguf.h) is made of these, an export (checkpoint/gguf_export.h) reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/gguf/gguf_writer.h"
#include "format/weight_source.h"

namespace temper {

// The order of the rows of q and k. A rotary embedding turns pairs of a head's first `rotary` elements: in the model's
// files element i and i + rotary / 2 are a pair, in the GGUF file neighbours. head 0: rows stay.
struct RowOrder {
  int64_t head = 0, rotary = 0;
};

struct GgufTensor {
  std::string name;                 // "blk.0.attn_q.weight"
  std::vector<StoredWeight> parts;  // whose rows follow each other
  std::vector<float> numbers;       // in the place of parts
  RowOrder order;
  float added = 0;  // to each element: 1 for a norm that scales by 1 + w

  // The outermost first.
  std::vector<int64_t> dims() const {
    if (parts.empty()) return {static_cast<int64_t>(numbers.size())};
    std::vector<int64_t> dims;
    for (int d = 0; d < parts.front().shape.rank(); ++d) dims.push_back(parts.front().shape[d]);
    for (size_t i = 1; i < parts.size(); ++i) dims[0] += parts[i].shape[0];
    return dims;
  }
};

// A key whose values are numbers of the model's files, one of each block.
struct GgufNumbers {
  std::string key;
  std::vector<StoredWeight> parts;
};

// A model as llama.cpp has it.
struct GgufModel {
  std::string architecture;  // llama.cpp's name: "llama"
  GgufMetadata metadata;     // its sizes and constants
  std::vector<GgufTensor> tensors;
  std::vector<GgufNumbers> numbers;
  int64_t blocks = 0, heads = 0, kv_heads = 0, experts = 0;
  std::string head;                  // the tensor of the output head that llama.cpp reads; "": always the embedding
  std::vector<std::string> notices;  // what llama.cpp computes otherwise, for the user
};

}  // namespace temper
