#include "format/mxfp4_tensor.h"

#include <fmt/core.h>

#include <algorithm>

#include "format/conversion.h"
#include "format/quoted.h"
#include "format/transpose.h"
#include "tensor/mxfp4_rows.h"

namespace temper {
namespace {

bool IsU8(const StoredTensor& tensor) {
  return tensor.dtype == FindStoredDType("U8");
}

}  // namespace

Result<StoredTensor> Mxfp4Tensor::WholeOf(const std::string& name, const Stored& blocks, const Stored& scales) {
  const std::vector<int64_t>&b = blocks.tensor->dims, &s = scales.tensor->dims;
  const bool fit = IsU8(*blocks.tensor) && IsU8(*scales.tensor) && b.size() == 4 && s.size() == 3 &&
                   std::equal(s.begin(), s.end(), b.begin()) && b[3] == kMxfp4Block / 2 &&
                   blocks.tensor->elements() > 0;
  if (!fit) {
    return Corrupt(
        fmt::format("{}: tensors {} {} and {} {} should be blocks U8 [matrices, out, in / 32, 16] and scales U8 "
                    "[matrices, out, in / 32] of MXFP4: get the model again",
                    blocks.file->path(), Quoted(blocks.tensor->name), blocks.tensor->ToString(),
                    Quoted(scales.tensor->name), scales.tensor->ToString()));
  }
  StoredTensor whole{.name = name, .dtype = FindStoredDType("BF16"), .dims = {b[0], b[2] * kMxfp4Block, b[1]}};
  whole.end = whole.elements() * SizeOf(DType::kBF16);
  return whole;
}

bool Mxfp4Tensor::AreBlocks(const StoredTensor& whole, const StoredTensor& blocks) {
  return IsU8(blocks) && !IsU8(whole);
}

Status Mxfp4Tensor::ReadTransposedAs(int64_t first, DType target, std::span<std::byte> out) const {
  constexpr int64_t kAtOnce = 128 * kMxfp4Block;
  const auto& all = Mxfp4NumbersOfScales();
  const int64_t end = first + std::ssize(out) / SizeOf(target);
  std::byte pairs[kAtOnce / 2 + 1], exponents[kAtOnce / kMxfp4Block + 1];
  bf16 numbers[kAtOnce];
  for (int64_t begin = first; begin < end; begin += kAtOnce) {
    const int64_t n = std::min(kAtOnce, end - begin), byte = begin / 2, block = begin / kMxfp4Block;
    const auto part = [](auto& memory, int64_t size) { return std::span(memory).first(static_cast<size_t>(size)); };
    TEMPER_RETURN_IF_ERROR(
        blocks_.file->ReadRange(blocks_.tensor->name, byte, part(pairs, (begin + n + 1) / 2 - byte)));
    TEMPER_RETURN_IF_ERROR(scales_.file->ReadRange(scales_.tensor->name, block,
                                                   part(exponents, (begin + n - 1) / kMxfp4Block - block + 1)));
    for (int64_t i = begin; i < begin + n;) {
      const auto& of_block = all[static_cast<size_t>(exponents[i / kMxfp4Block - block])];
      for (const int64_t next = std::min(begin + n, (i / kMxfp4Block + 1) * kMxfp4Block); i < next; ++i) {
        const auto pair = static_cast<size_t>(pairs[i / 2 - byte]);
        numbers[i - begin] = of_block[i % 2 == 0 ? pair & 15 : pair >> 4];
      }
    }
    Convert(DType::kBF16, reinterpret_cast<const std::byte*>(numbers), target,
            out.data() + (begin - first) * SizeOf(target), n);
  }
  return OkStatus();
}

Status Mxfp4Tensor::ReadRows(int64_t first, std::span<std::byte> pairs, std::span<std::byte> scales) const {
  const int64_t of_row = blocks_.tensor->dims[2];
  TEMPER_RETURN_IF_ERROR(blocks_.file->ReadRange(blocks_.tensor->name, first * of_row * kMxfp4Block / 2, pairs));
  return scales_.file->ReadRange(scales_.tensor->name, first * of_row, scales);
}

Status Mxfp4Tensor::ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const {
  const std::vector<int64_t>& dims = blocks_.tensor->dims;
  const int64_t outs = dims[1], ins = dims[2] * kMxfp4Block, matrix = outs * ins;
  const int64_t size = SizeOf(target), end = first + std::ssize(out) / size;
  std::vector<std::byte> stored(static_cast<size_t>(matrix * size)), turned(stored.size());
  for (int64_t i = first / matrix; i * matrix < end; ++i) {
    TEMPER_RETURN_IF_ERROR(ReadTransposedAs(i * matrix, target, stored));
    Transpose(stored.data(), outs, ins, ins, turned.data(), outs, size);
    const int64_t from = std::max(first, i * matrix), to = std::min(end, (i + 1) * matrix);
    std::copy_n(turned.data() + (from - i * matrix) * size, (to - from) * size, out.data() + (from - first) * size);
  }
  return OkStatus();
}

}  // namespace temper
