// tensor/mxfp4_rows.h: one of the 16 numbers that a block's elements can be.
#pragma once

namespace temper {
namespace {

void ReadMxfp4(const FormatRun& run, uint16_t* out) {
  LookUpPairs<false>(run.elements, LoadNumbers(run.numbers), run.count, out);
}

}  // namespace
}  // namespace temper
