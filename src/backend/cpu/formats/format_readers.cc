#include "backend/cpu/formats/format_readers.h"

#include "tensor/format_rule.h"

namespace temper {

void ReadNumbers(const FormatReaders& readers, ElementFormat format, const std::byte* row, int64_t columns,
                 int64_t begin, int64_t end, uint16_t* out) {
  const FormatRule& rule = RuleOf(format);
  const ReadRunFn read = readers.by_format[FormatIndex(format)];
  while (begin < end) {
    if (begin % rule.elements_in_byte != 0) {  // a run begins with a byte
      *out++ = format.Number(row, columns, begin++).bits;
      continue;
    }
    const FormatRun run = rule.run(row, columns, begin, end);
    read(run, out);
    out += run.count;
    begin += run.count;
  }
}

}  // namespace temper
