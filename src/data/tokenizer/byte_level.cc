#include "data/tokenizer/byte_level.h"

#include "base/utf8.h"

namespace temper {
namespace {

// Printable bytes of Latin-1 stand for themselves, the others for U+0100 onwards, in order.
bool StandsForItself(int b) {
  return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xFF && b != 0xAD);
}

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int16_t, 0x100 + 256> bytes;  // code point -> byte or -1

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const char32_t c = StandsForItself(b) ? static_cast<char32_t>(b) : next++;
      utf8::Append(characters[b], c);
      bytes[c] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

const std::array<std::string, 256>& ByteLevelCharacters() {
  return TheAlphabet().characters;
}

std::string SpelledOut(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += ByteLevelCharacters()[static_cast<unsigned char>(c)];
  return out;
}

std::optional<unsigned char> ByteOfCharacter(char32_t c) {
  const auto& bytes = TheAlphabet().bytes;
  if (c >= bytes.size() || bytes[c] < 0) return std::nullopt;
  return static_cast<unsigned char>(bytes[c]);
}

std::optional<std::string> BytesOfToken(std::string_view token) {
  std::string out;
  out.reserve(token.size());
  for (size_t i = 0; i < token.size(); i += utf8::Length(token[i])) {
    const auto b = ByteOfCharacter(utf8::At(token, i));
    if (!b) return std::nullopt;
    out += static_cast<char>(*b);
  }
  return out;
}

}  // namespace temper
