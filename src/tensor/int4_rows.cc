#include "tensor/int4_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/format_rule.h"

namespace temper {
namespace {

constexpr auto kScaleBytes = static_cast<int64_t>(sizeof(float));

template <int64_t kGroup>
struct Int4Rows {
  // The most groups that so many columns touch.
  static constexpr int64_t Groups(int64_t columns) { return (columns + 2 * (kGroup - 1)) / kGroup; }
  static constexpr int64_t PairBytes(int64_t columns) { return (columns + 1) / 2; }
  static int64_t RowBytes(int64_t columns) {
    constexpr int64_t kAlignment = 16;
    const int64_t bytes = PairBytes(columns) + Groups(columns) * (kScaleBytes + 1) + 1;
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Of any `begin`: of an odd one the first element is the upper half.
  static FormatRun Run(const std::byte* row, int64_t columns, int64_t begin, int64_t end) {
    const int64_t place = static_cast<int64_t>(row[RowBytes(columns) - 1]) + begin, group = place / kGroup;
    const std::byte* const scales = row + PairBytes(columns);
    FormatRun run = {.elements = row + begin / 2, .count = std::min(end - begin, kGroup - place % kGroup)};
    std::memcpy(&run.scale, scales + group * kScaleBytes, sizeof run.scale);
    run.zero = static_cast<int>(scales[Groups(columns) * kScaleBytes + group]);
    return run;
  }

  static void Numbers(const std::byte* row, int64_t columns, int64_t begin, int64_t end, bf16* out) {
    while (begin < end) {
      const FormatRun run = Run(row, columns, begin, end);
      for (const int64_t last = begin + run.count; begin < last; ++begin) {
        const int pair = static_cast<int>(row[begin / 2]);
        *out++ = ToBF16(run.scale * static_cast<float>((begin % 2 == 0 ? pair & 15 : pair >> 4) - run.zero));
      }
    }
  }

  static bool Write(std::span<const std::byte> pairs, std::span<const float> scales, std::span<const uint8_t> zeros,
                    int64_t begin, int64_t columns, std::byte* out) {
    const int64_t bytes = RowBytes(columns);
    std::memset(out, 0, static_cast<size_t>(bytes));
    if (columns == 0) return true;
    if (begin % 2 == 0) {
      std::memcpy(out, pairs.data() + begin / 2, static_cast<size_t>(PairBytes(columns)));
      if (columns % 2 != 0) out[columns / 2] &= std::byte{15};
    } else {
      for (int64_t i = 0; i < columns; ++i) {
        const std::byte pair = pairs[static_cast<size_t>((begin + i) / 2)];
        const std::byte element = i % 2 == 0 ? pair >> 4 : pair & std::byte{15};
        out[i / 2] |= i % 2 == 0 ? element : element << 4;
      }
    }
    const int64_t first = begin / kGroup, count = (begin + columns - 1) / kGroup - first + 1;
    const auto used = scales.subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    std::byte* const to = out + PairBytes(columns);
    std::memcpy(to, used.data(), used.size_bytes());
    std::memcpy(to + Groups(columns) * kScaleBytes, zeros.data() + first, static_cast<size_t>(count));
    out[bytes - 1] = static_cast<std::byte>(begin % kGroup);
    return std::all_of(used.begin(), used.end(), [](float scale) { return std::isfinite(scale); });
  }

  // format/group_tensor.h reads it; which methods write it: model/group_quantisation.cc.
  static constexpr FormatRule Rule(std::string_view name, std::string_view title) {
    return {.name = name, .title = title, .row_bytes = RowBytes, .elements_in_byte = 2, .run = Run, .numbers = Numbers};
  }
};

}  // namespace

extern const FormatRule kInt4G32Format = Int4Rows<32>::Rule("int4_g32", "int4 in groups of 32");
extern const FormatRule kInt4G64Format = Int4Rows<64>::Rule("int4_g64", "int4 in groups of 64");
extern const FormatRule kInt4G128Format = Int4Rows<128>::Rule("int4_g128", "int4 in groups of 128");

bool HasInt4Groups(int64_t group) {
  return group == 32 || group == 64 || group == 128;
}

ElementFormat Int4Groups(int64_t group) {
  TEMPER_CHECK(HasInt4Groups(group)) << group;
  return FormatWith(group == 32 ? kInt4G32Format : group == 64 ? kInt4G64Format : kInt4G128Format);
}

bool WriteInt4Row(int64_t group, std::span<const std::byte> pairs, std::span<const float> scales,
                  std::span<const uint8_t> zeros, int64_t begin, int64_t columns, std::byte* out) {
  const auto write = group == 32 ? Int4Rows<32>::Write : group == 64 ? Int4Rows<64>::Write : Int4Rows<128>::Write;
  return write(pairs, scales, zeros, begin, columns, out);
}

}  // namespace temper
