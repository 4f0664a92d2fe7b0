// MutatedText: a printed graph or Program with one to three small changes, different each time, which readers must
// survive.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace temper {

class MutatedText {
 public:
  MutatedText(std::string good, uint64_t seed) : good_(std::move(good)), state_(seed) {}

  std::string Next() {
    constexpr std::string_view kAlphabet = "0123456789%-, ()[]{}\"=.\nabdefginoprstuw";
    std::string text = good_;
    for (uint64_t k = 0; k <= Random() % 3; ++k) {
      const size_t at = Random() % text.size();
      switch (Random() % 4) {
        case 0:
          text[at] = kAlphabet[Random() % kAlphabet.size()];
          break;
        case 1:
          text[at] = static_cast<char>(Random());
          break;
        case 2:
          text.insert(at, 1, kAlphabet[Random() % kAlphabet.size()]);
          break;
        default:
          text.erase(at, 1 + Random() % 3);
      }
    }
    return text;
  }

 private:
  uint64_t Random() { return state_ = state_ * 6364136223846793005u + 1442695040888963407u, state_ >> 33; }

  const std::string good_;
  uint64_t state_;
};

}  // namespace temper
