// Rows [begin, begin + count) of x: a copy of bytes, so it holds for every dtype.
#include <cstring>

#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status SliceRows(const Call& call) {
  const Operand x = call.In(0), y = call.Out(0);
  const int64_t row_bytes = x.columns() * SizeOf(x.type().dtype);
  std::memmove(y.data(), x.data() + call.attributes().Int("begin") * row_bytes, y.type().bytes().v);
  return OkStatus();
}

}  // namespace temper::reference
