// Fast readers of quantised formats: what a product packs of a weight that is kept so are the panels of its numbers in
// bf16. One table per instruction set; a reader is a file, NAME-inl.h, that is compiled for each.
#pragma once

#include "tensor/element_format.h"
#include "tensor/format_run.h"

namespace temper {

// out[i] = the bits of the number of element i, i < run.count (FormatRule::numbers).
using ReadRunFn = void (*)(const FormatRun& run, uint16_t* out);

struct FormatReaders {
  ReadRunFn const* by_format;  // by ElementFormat::index()
};

extern const FormatReaders kFormatReadersAvx2, kFormatReadersAvx512;

// The numbers of [begin, end) of a row. REQUIRES: `format` is quantised.
void ReadNumbers(const FormatReaders& readers, ElementFormat format, const std::byte* row, int64_t columns,
                 int64_t begin, int64_t end, uint16_t* out);

}  // namespace temper
