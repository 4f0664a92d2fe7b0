// PartEncoder: encodes a text of several parts so that the text before each border between two has the tokens that it
// would have if it ended there. Prompts are encoded like this: generation starts from them. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "data/data_statistics.h"
#include "data/sample.h"
#include "data/tokenizer/tokenizer.h"

namespace temper {

class PartEncoder {
 public:
  // A stretch of text, whether it is supervised, and its weight.
  struct Part {
    std::string_view text;
    bool supervised = false;
    TokenWeight weight = kUnitWeight;
  };

  // `tokenizer` must outlive this.
  explicit PartEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Appends the tokens of `parts` to `sample`, and counts borders that a token would have crossed and unknown tokens'
  // text.
  Status Encode(const std::vector<Part>& parts, Sample& sample, DataStatistics& statistics) const;

 private:
  Result<std::vector<int32_t>> EncodeAfter(const std::string& context, std::string_view text,
                                           std::vector<std::string>* unknown) const;

  const Tokenizer& tokenizer_;
};

}  // namespace temper
