// tensor/nf4_rows.h: bf16(number of the index * absmax). The 16 numbers of a block become bf16 once.
#pragma once

#include "tensor/nf4_rows.h"

namespace temper {
namespace {

void ReadNf4(const FormatRun& run, uint16_t* out) {
  LookUpPairs<true>(run.elements, RoundedTimes(kNf4Numbers, run.scale), run.count, out);
}

}  // namespace
}  // namespace temper
