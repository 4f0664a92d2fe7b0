// FormatRun: elements of a row in a quantised format that share what makes them numbers, as fast readers take them
// (backend/cpu/formats). Nothing but data: files of instruction sets include it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace temper {

struct FormatRun {
  const std::byte* elements = nullptr;  // the byte of the first one, which begins it
  int64_t count = 0;
  float scale = 0;
  const bf16* numbers = nullptr;  // what an element can be, by its bits, in formats that look it up
  int64_t first = 0;              // in formats of blocks: `elements` is a block, and the run begins so far in it
  int zero = 0;                   // the element that means 0, in formats that say it
};

}  // namespace temper
