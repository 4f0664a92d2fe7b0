// LoraModule: one linear module with its adapter, y = W x + scale * B (A x), and what PEFT calls the adapter's tensors.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/weight_source.h"

namespace temper {

struct LoraModule {
  std::string path;                           // as transformers names it today: "model.layers.0.self_attn.q_proj"
  std::vector<std::string> older_paths = {};  // as earlier versions did; an adapter's file may have them
  std::string stored = {};                    // the module that an adapter's file has it under; "": path
  int64_t in = 0, out = 0, r = 0;
  int64_t matrices = 0;  // of a stack [matrices, out, in], each with A and B of its own; 0: W is a matrix
  double scale = 0;
  bool is_head = false;         // the output head: PEFT stores its frozen weight beside the adapter
  bool transposed = false;      // the model's files store W in x out, of which the adapter knows nothing
  bool stacked = false;         // the model's files have all matrices of a stack in one tensor
  bool has_magnitudes = false;  // DoRA: rows of W + scale * B A are normed, and scaled by magnitudes
  int64_t groups = 1;           // in which the rows of the parts are dealt: a part of each one's, in their order
  // The values of a graph that make up W, in the order of their rows (of a group's), each with its own rows of B: one,
  // or the segments of a fused projection, which share A.
  struct Part {
    std::string weight, b;
    int64_t rows = 0;
    std::string magnitude = {}, squares = {};  // of each row; "": the module has no magnitudes
  };
  std::vector<Part> parts = {};

  // Rows of A, columns of B: of all matrices.
  int64_t ranks() const { return r * (matrices > 0 ? matrices : 1); }
  const std::string& stored_path() const { return stored.empty() ? path : stored; }
};

// Names of a module's two tensors in a file, by the path that it is stored under: A [ranks, in], B [out, ranks]. Of a
// stack A has the rows of one matrix after the other, and column k * matrices + i of B is column k of matrix i's. In a
// graph A's value has the name by the module's path, and so has B's if the module has one part.
std::string LoraAName(const std::string& path);
std::string LoraBName(const std::string& path);
// DoRA's magnitudes [out], where PEFT stores them.
std::string LoraMagnitudeName(const std::string& path);
// The sums of squares of the frozen weight's rows (in decoding, of the sum's), of which the magnitudes' norms are made.
// Of no file: they are computed when weights are loaded (checkpoint/row_norms.h).
std::string LoraSquaresName(const std::string& path);
// What is frozen of the module, where PEFT stores it: its weight, and its bias if it has one.
std::array<std::string, 2> LoraBaseNames(const std::string& path);

// Where the adapters' values are stored in an adapter's file.
std::vector<StoredWeight> LoraWeights(std::span<const LoraModule> modules);

}  // namespace temper
