#include "format/numbers_of_rows.h"

#include <algorithm>

#include "format/conversion.h"
#include "tensor/format_rule.h"

namespace temper {

Status ReadNumbersAs(QuantisedTensor::Rows& rows, ElementFormat format, int64_t columns, int64_t first, DType target,
                     std::span<std::byte> out) {
  constexpr int64_t kAtOnce = 1 << 18;  // elements
  const int64_t size = SizeOf(target), end = first + std::ssize(out) / size, end_row = (end + columns - 1) / columns;
  const int64_t row_bytes = format.RowBytes(columns), most = std::max<int64_t>(1, kAtOnce / columns);
  std::vector<std::byte> some;
  std::vector<bf16> numbers(static_cast<size_t>(columns));
  for (int64_t row = first / columns; row < end_row; row += most) {
    const int64_t n = std::min(most, end_row - row);
    some.resize(static_cast<size_t>(n * row_bytes));
    TEMPER_RETURN_IF_ERROR(rows.Read(row, n, 0, columns, some.data()));
    for (int64_t r = row; r < row + n; ++r) {
      const int64_t from = std::max(first, r * columns), to = std::min(end, (r + 1) * columns);
      const int64_t begin = from - r * columns;
      RuleOf(format).numbers(some.data() + (r - row) * row_bytes, columns, begin, begin + to - from, numbers.data());
      Convert(DType::kBF16, reinterpret_cast<const std::byte*>(numbers.data()), target,
              out.data() + (from - first) * size, to - from);
    }
  }
  return OkStatus();
}

}  // namespace temper
