// TrainedCopy: a weight that is trained in full beside an adapter, where the model's own stays as it is: a weight of
// PEFT's modules_to_save. In a graph it is a value of its own, with the name that an adapter's file has for it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/weight_source.h"

namespace temper {

// What names of all tensors in an adapter's file begin with.
inline constexpr std::string_view kAdapterPrefix = "base_model.model.";

struct TrainedCopy {
  // Which readers of the model's weight read the copy instead. A head that is tied to the embedding table reads it,
  // too: there are then two modules to copy, unless they stay tied.
  enum class Readers : uint8_t { kAll, kEmbedding, kHead };

  std::string weight;  // the model's value: "lm_head.weight"
  std::string name;    // its own: "base_model.model.lm_head.weight"
  Shape shape;
  Readers readers = Readers::kAll;
  bool in_product = false;  // a matrix that activations are multiplied by
  // Where an adapter's file has it. An alias is the name of its twin, which the file has as well: that of a tied head.
  WeightSource source = {};
  std::string tensor = {};  // of the model's files that holds the weight
};

std::vector<StoredWeight> StoredCopies(std::span<const TrainedCopy> copies);

}  // namespace temper
