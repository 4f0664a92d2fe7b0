// tensor/int4_rows.h: bf16(scale * (element - zero)). The 16 numbers of a group become bf16 once.
#pragma once

namespace temper {
namespace {

void ReadInt4(const FormatRun& run, uint16_t* out) {
  alignas(64) float numbers[16];
  for (int k = 0; k < 16; ++k) numbers[k] = static_cast<float>(k - run.zero);
  LookUpPairs<false>(run.elements, RoundedTimes(numbers, run.scale), run.count, out);
}
constexpr auto ReadInt4G32 = ReadInt4, ReadInt4G64 = ReadInt4, ReadInt4G128 = ReadInt4;

}  // namespace
}  // namespace temper
