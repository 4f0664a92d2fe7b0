// The layout of a token file: docs/formats/tokens.md. Numbers are little-endian; nothing is aligned to more than 4
// bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "objective/row_use.h"

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

// Four bytes for each sample, in a section of its own. A chunk has its sections behind its entries, in this order.
inline constexpr std::array kAllSections = {Section::kLabel, Section::kMargin, Section::kRating};

class SectionSet {
 public:
  constexpr SectionSet() = default;
  constexpr SectionSet(std::initializer_list<Section> sections) {
    for (const Section s : sections) bits_ |= BitOf(s);
  }
  static constexpr SectionSet OfBits(uint64_t bits) {
    SectionSet set;
    set.bits_ = bits;
    return set;
  }
  constexpr bool has(Section s) const { return (bits_ & BitOf(s)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr uint64_t bits() const { return bits_; }
  constexpr uint64_t size() const { return static_cast<uint64_t>(std::popcount(bits_)); }
  // Of the sections in the set before `s`.
  constexpr uint64_t before(Section s) const { return static_cast<uint64_t>(std::popcount(bits_ & (BitOf(s) - 1))); }
  friend constexpr bool operator==(const SectionSet&, const SectionSet&) = default;

 private:
  static constexpr uint64_t BitOf(Section s) { return uint64_t{1} << static_cast<unsigned>(s); }
  uint64_t bits_ = 0;
};

// A sample's values of all sections; those of sections that a file lacks are as here.
struct SampleValues {
  int32_t label = 0;
  float margin = 0;
  int32_t desirable = 1;
};

// The first version of the format has no sections; files without any are of that version.
inline constexpr std::array<char, 8> kTokenFileMagic = {'T', 'M', 'P', 'R', 'T', 'O', 'K', '1'},
                                     kSectionedFileMagic = {'T', 'M', 'P', 'R', 'T', 'O', 'K', '2'};

// The file's last bytes. In front of it: for each chunk the offset of its entries in bytes (8 bytes), then `about`.
struct TokenFooter {
  uint64_t samples = 0, tokens = 0, supervised = 0, longest = 0;
  uint64_t flags = 0;        // kSomeWeighted, and from kFirstSectionBit on the set of sections
  uint64_t about_bytes = 0;  // of the owner's text
  // XXH3: of all words, of all entries with the sections behind them, of what a run trains on (the words, where samples
  // end, the sections), and of all from the end of the last chunk up to this number.
  uint64_t words_sum = 0, entries_sum = 0, content_sum = 0, tail_sum = 0;
  std::array<char, 8> magic = kTokenFileMagic;

  static constexpr uint64_t kSomeWeighted = 1;  // some sample has weights
  static constexpr unsigned kFirstSectionBit = 8;
  static constexpr uint64_t kFlagsOfSamples = (uint64_t{1} << kFirstSectionBit) - 1;
  bool weighted() const { return (flags & kSomeWeighted) != 0; }
  SectionSet sections() const { return SectionSet::OfBits(flags >> kFirstSectionBit); }
};
static_assert(sizeof(TokenFooter) == 88);

}  // namespace temper
