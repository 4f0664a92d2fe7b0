// The byte-level alphabet of GPT-2: each of the 256 bytes is written as one printable character ('Ġ' is a space).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace temper {

// The UTF-8 of the character that stands for a byte.
const std::array<std::string, 256>& ByteLevelCharacters();
// `bytes` in the alphabet.
std::string SpelledOut(std::string_view bytes);
// The byte that a character stands for.
std::optional<unsigned char> ByteOfCharacter(char32_t c);
// The bytes that `token` spells; nullopt if it holds a character that stands for none. REQUIRES: valid UTF-8.
std::optional<std::string> BytesOfToken(std::string_view token);

}  // namespace temper
