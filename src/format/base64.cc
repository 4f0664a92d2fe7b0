#include "format/base64.h"

#include <array>
#include <cstdint>

namespace temper {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNone = 255;

constexpr auto kValues = [] {
  std::array<uint8_t, 256> values{};
  for (uint8_t& value : values) value = kNone;
  for (size_t i = 0; i < kAlphabet.size(); ++i) values[static_cast<unsigned char>(kAlphabet[i])] = i & 63;
  return values;
}();

}  // namespace

std::optional<std::string> DecodeBase64(std::string_view text) {
  const size_t padded = text.size();
  while (!text.empty() && text.back() == '=' && padded - text.size() < 2) text.remove_suffix(1);
  const bool whole = padded == text.size() || padded % 4 == 0;
  if (text.size() % 4 == 1 || !whole) return std::nullopt;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int held = 0;  // bits that wait
  for (const char c : text) {
    const uint8_t value = kValues[static_cast<unsigned char>(c)];
    if (value == kNone) return std::nullopt;
    bits = bits << 6 | value;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 0xFF);
  }
  return bytes;
}

}  // namespace temper
