// UnknownTokens: the tokens of a data set that stand for text without a token of its own, and the characters of that
// text. A model learns nothing of it and cannot say it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace temper {

struct UnknownTokens {
  std::string token;  // "<unk>"
  int64_t count = 0;  // in the samples
  // How often each is in the text, that of rows cut or dropped included; one token may stand for several. The key is
  // what a line can show: the character, "\n", "\t", "U+00A0" for white space, "\xe2" for a byte.
  std::map<std::string, int64_t> characters;

  void AddTexts(std::span<const std::string> unknown);  // of each token
  void Add(const UnknownTokens& other);
  // The few that a line can show, most frequent first.
  std::vector<std::pair<std::string, int64_t>> MostFrequent() const;
};

}  // namespace temper
