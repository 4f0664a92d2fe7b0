// Sample: tokens that are trained on together, and for each whether predicting it is part of the loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/template/token_weight.h"
#include "data/token_file.h"

namespace temper {

struct Sample {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> supervised;  // as many; [0] is always 0
  // How much each supervised token counts, never 0; as many, or empty if all count 1.
  std::vector<TokenWeight> weights;
  // Where its parts begin, but for the first: answers that are dealt together, each a document. Ascending; supervised
  // is 0 there.
  std::vector<size_t> parts;
  SampleValues values = {};
  // The text of each of the tokenizer's unknown tokens, in order; further ones, or none if that was not known.
  std::vector<std::string> unknown;

  void Resize(size_t n);  // added tokens are not supervised
};

}  // namespace temper
