// LongRows: what becomes of a row of data with more tokens than max_seq_len. What a text file holds is one text, which
// is split in any case.
#pragma once

#include <cstdint>

namespace temper {

enum class LongRows : uint8_t {
  kSplit,         // a text goes on in further rows; any other row is cut at its end
  kCut,           // cut at its end; a text, too
  kProportional,  // as LLaMA-Factory: prompt and answer of a turn are cut in proportion; a text goes on in further rows
  kDrop,          // left out
  kError,
};

}  // namespace temper
