#include "format/f16_range.h"

#include <fmt/core.h>

#include <cstring>

#include "format/quoted.h"

namespace temper {

void F16Range::Note(const std::string& tensor, DType written, std::span<const std::byte> numbers) {
  if (written != DType::kF16) return;
  int64_t infinite = 0;
  for (size_t i = 0; i + 2 <= numbers.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, &numbers[i], sizeof(bits));
    infinite += (bits & 0x7fffU) == 0x7c00U ? 1 : 0;
  }
  if (infinite > 0 && infinite_ == 0) first_ = tensor;
  infinite_ += infinite;
}

std::string F16Range::Warning(const std::string& path) const {
  if (infinite_ == 0) return "";
  return fmt::format(
      "{}: {} numbers are infinite, the first of them in {}: they are above 65,504, the largest of float16, which "
      "config.json or --dtype asks for. An export of the checkpoint with --dtype bf16 keeps them",
      path, infinite_, Quoted(first_));
}

}  // namespace temper
