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

// Rows (or columns) that follow each other in the model's files, and what multiplies them.
struct GgufRun {
  int64_t first = 0, count = 0;
  double scale = 1;
};

// What is made of each number.
enum class GgufChange : uint8_t { kNone, kMinusExp };

// Applied in the order of the fields.
struct GgufTensor {
  std::string name;                 // "blk.0.attn_q.weight"
  std::vector<StoredWeight> parts;  // whose rows follow each other
  std::vector<float> numbers;       // in the place of parts
  std::vector<GgufRun> rows;        // of the parts, one after another; empty: all as they are
  RowOrder order;
  std::vector<GgufRun> columns;  // without scales; empty: all as they are
  GgufChange change = GgufChange::kNone;
  float added = 0;   // to each element: 1 for a norm that scales by 1 + w
  double scale = 1;  // of each element
  // Not 0: each matrix of so many rows becomes its transpose.
  int64_t turned = 0;
  // The outermost first, with as many elements; empty: the parts'.
  std::vector<int64_t> shape = {};

  std::vector<int64_t> dims() const {
    if (!shape.empty()) return shape;
    if (parts.empty()) return {static_cast<int64_t>(numbers.size())};
    std::vector<int64_t> dims;
    for (int d = 0; d < parts.front().shape.rank(); ++d) dims.push_back(parts.front().shape[d]);
    for (size_t i = 1; i < parts.size(); ++i) dims[0] += parts[i].shape[0];
    if (rows.empty()) return dims;
    dims[0] = 0;
    for (const GgufRun& run : rows) dims[0] += run.count;
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
  double head_scale = 1;             // of the head's numbers
  std::string head;                  // the tensor of the output head that llama.cpp reads; "": always the embedding
  std::vector<std::string> notices;  // what llama.cpp computes otherwise, for the user
};

}  // namespace temper
