// tensor/int8_rows.h: bf16(scale * integer).
#pragma once

namespace temper {
namespace {

void ReadInt8(const FormatRun& run, uint16_t* out) {
  bf16* const to = reinterpret_cast<bf16*>(out);
  const Floats scale = Set(run.scale);
  ForLanes(run.count, [&](int64_t i, auto lanes) {
    // Exact: the instruction that rounds to bf16 takes the smallest numbers for zero.
    StoreExact(to + i, FloatsOfSigned(LoadBytes(run.elements + i, lanes)) * scale, lanes);
  });
}

}  // namespace
}  // namespace temper
