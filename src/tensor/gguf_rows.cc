// A matrix in blocks of a GGUF file (tensor/block_layout.h), as llama.cpp keeps it: the blocks of a row one after
// another, with their bytes in the file. Of whole blocks a row is nothing else; where columns are cut within one
// (tensor parallelism), a row has all blocks that it touches, and its last byte says where in the first it begins. Rows
// are a multiple of 16 bytes long. The number that a kernel computes with is bf16(x), everywhere, of ggml's x in f32.
//
// Rows that begin within a block and whose length is a multiple of a block's have no such byte: BlockTensor (format/
// gguf/block_tensor.h) refuses to make them.
#include <algorithm>

#include "tensor/block_decoders.h"
#include "tensor/block_layout.h"
#include "tensor/format_rule.h"

namespace temper {
namespace {

// kId: ggml's.
template <uint32_t kId, class Block, int64_t kElements>
struct GgufRows {
  static constexpr auto kBytes = static_cast<int64_t>(sizeof(Block));

  static int64_t RowBytes(int64_t columns) {
    constexpr int64_t kAlignment = 16;
    const bool whole = columns % kElements == 0;
    const int64_t bytes =
        whole ? columns / kElements * kBytes : (columns + 2 * (kElements - 1)) / kElements * kBytes + 1;
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  static FormatRun Run(const std::byte* row, int64_t columns, int64_t begin, int64_t end) {
    const int64_t place = columns % kElements == 0 ? 0 : static_cast<int64_t>(row[RowBytes(columns) - 1]);
    return {.elements = row + (place + begin) / kElements * kBytes,
            .count = end - begin,
            .first = (place + begin) % kElements};
  }

  static void Numbers(const std::byte* row, int64_t columns, int64_t begin, int64_t end, bf16* out) {
    static const BlockDecoder& decoder = *FindBlockDecoder(kId);
    FormatRun run = Run(row, columns, begin, end);
    float x[kElements];
    while (run.count > 0) {
      decoder.decode(run.elements, x, kElements);
      const int64_t n = std::min(run.count, kElements - run.first);
      out = std::transform(x + run.first, x + run.first + n, out, [](float one) { return ToBF16(one); });
      run = {.elements = run.elements + kBytes, .count = run.count - n};
    }
  }

  // format/gguf/block_tensor.h reads it. Files of other kinds do not have it: "gguf" is no method of transformers that
  // writes a quantization_config.
  static constexpr StoredFormat kStored = {.method = "gguf", .trains_in_full = true};
  static constexpr FormatRule Rule(std::string_view name, std::string_view title) {
    return {.name = name, .title = title, .row_bytes = RowBytes, .run = Run, .numbers = Numbers, .stored = &kStored};
  }
};

}  // namespace

extern const FormatRule kQ80Format = GgufRows<8, BlockQ8, kSmallBlock>::Rule("q8_0", "GGUF's q8_0");
extern const FormatRule kQ40Format = GgufRows<2, BlockQ40, kSmallBlock>::Rule("q4_0", "GGUF's q4_0");
extern const FormatRule kQ41Format = GgufRows<3, BlockQ41, kSmallBlock>::Rule("q4_1", "GGUF's q4_1");
extern const FormatRule kQ50Format = GgufRows<6, BlockQ50, kSmallBlock>::Rule("q5_0", "GGUF's q5_0");
extern const FormatRule kQ51Format = GgufRows<7, BlockQ51, kSmallBlock>::Rule("q5_1", "GGUF's q5_1");
extern const FormatRule kQ4KFormat = GgufRows<12, BlockQ4K, kSuperBlock>::Rule("q4_k", "GGUF's q4_k");
extern const FormatRule kQ5KFormat = GgufRows<13, BlockQ5K, kSuperBlock>::Rule("q5_k", "GGUF's q5_k");
extern const FormatRule kQ6KFormat = GgufRows<14, BlockQ6K, kSuperBlock>::Rule("q6_k", "GGUF's q6_k");

}  // namespace temper
