// NoTokenizer: stands for the tokenizer of a model that has none. Rows of ready-made tokens need nothing of it; for
// everything else its errors say what is missing.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace temper {

class NoTokenizer : public Tokenizer {
 public:
  explicit NoTokenizer(Status why) : why_(std::move(why)) {}

  Result<std::vector<int32_t>> Encode(std::string_view /*text*/, EncodeOptions /*options*/ = {}) const override {
    return why_;
  }
  std::string Decode(std::span<const int32_t> ids, bool /*skip_special*/ = true) const override {
    std::string text;
    for (const int32_t id : ids) text += IdToToken(id);
    return text;
  }
  int64_t vocab_size() const override { return 0; }
  std::optional<int32_t> TokenToId(std::string_view /*token*/) const override { return std::nullopt; }
  std::string IdToToken(int32_t id) const override { return "<" + std::to_string(id) + ">"; }
  bool IsSpecial(int32_t /*id*/) const override { return false; }

 private:
  const Status why_;
};

}  // namespace temper
