// tensor/fp8_rows.cc: bf16(element * scale). The bits of an e4m3 element, but for its sign, are those of an f16 of
// 2^-8 its value, 7 places up: also of the smallest, which have an exponent of 0 in both.
#pragma once

namespace temper {
namespace {

TEMPER_VEC Halves HalvesOfFp8(Halves words) {
  const Halves rest = words & (WordsOf(_mm_set1_epi8(0x7F)));
  return (words ^ rest) << 8 | rest << 7;
}

void ReadFp8(const FormatRun& run, uint16_t* out) {
  bf16* const to = reinterpret_cast<bf16*>(out);
  const Floats scale = Set(run.scale);
  ForLanes(run.count, [&](int64_t i, auto lanes) {
    const Floats elements = FloatsOfHalves(HalvesOfFp8(WordsOf(LoadBytes(run.elements + i, lanes)))) * Set(256);
    StoreExact(to + i, elements * scale, lanes);
  });
}

}  // namespace
}  // namespace temper
