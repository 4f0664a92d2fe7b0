// The layout of a token file: docs/formats/tokens.md. Numbers are little-endian; nothing is aligned to more than 4
// bytes.
#pragma once

#include <array>
#include <cstdint>

namespace temper {

// One token: its id, and whether predicting it is part of the loss.
inline constexpr uint32_t kSupervisedBit = uint32_t{1} << 31;
// Of the first token of each part of a sample but the first: answers that are dealt together, each a document.
inline constexpr uint32_t kPartBit = uint32_t{1} << 30;
inline constexpr uint32_t kTokenMask = kPartBit - 1;

// Samples are stored in chunks of this many (the last may have fewer): their words, then their entries.
inline constexpr int64_t kChunkSamples = 4096;

struct TokenEntry {
  uint64_t begin;  // of the sample's words in the file, in words
  uint32_t length_and_flags;
  uint32_t line;  // at which its row begins

  static constexpr uint32_t kWeighted = uint32_t{1} << 31;  // as many weights follow the words
  static constexpr uint32_t kInParts = uint32_t{1} << 30;   // some words have kPartBit
  int64_t length() const { return length_and_flags & ~(kWeighted | kInParts); }
  bool weighted() const { return (length_and_flags & kWeighted) != 0; }
  bool in_parts() const { return (length_and_flags & kInParts) != 0; }
  int64_t words() const { return weighted() ? 2 * length() : length(); }
};
static_assert(sizeof(TokenEntry) == 16);

inline constexpr std::array<char, 8> kTokenFileMagic = {'T', 'M', 'P', 'R', 'T', 'O', 'K', '1'};

// The file's last bytes. In front of it: for each chunk the offset of its entries in bytes (8 bytes), then `about`.
struct TokenFooter {
  uint64_t samples = 0, tokens = 0, supervised = 0, longest = 0;
  uint64_t weighted = 0;     // 1: some sample has weights
  uint64_t about_bytes = 0;  // of the owner's text
  // XXH3: of all words, of all entries, of what a run trains on (the words and where samples end), and of all from the
  // end of the last chunk up to this number.
  uint64_t words_sum = 0, entries_sum = 0, content_sum = 0, tail_sum = 0;
  std::array<char, 8> magic = kTokenFileMagic;
};
static_assert(sizeof(TokenFooter) == 88);

}  // namespace temper
