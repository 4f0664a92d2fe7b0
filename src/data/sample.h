// Sample: tokens that are trained on together, and for each whether predicting it is part of the loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/token_weight.h"

namespace temper {

struct Sample {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> supervised;  // as many; [0] is always 0
  // How much each supervised token counts, never 0; as many, or empty if all count 1.
  std::vector<TokenWeight> weights;

  void Resize(size_t n);  // added tokens are not supervised
};

}  // namespace temper
