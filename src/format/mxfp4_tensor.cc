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

Result<std::unique_ptr<QuantisedTensor>> Mxfp4Tensor::Open(const Part& part, const FindPart& find) {
  constexpr std::string_view kBlocks = "_blocks", kScales = "_scales";
  if (!part.tensor->name.ends_with(kBlocks) || !IsU8(*part.tensor)) return std::unique_ptr<QuantisedTensor>();
  const std::string name = part.tensor->name.substr(0, part.tensor->name.size() - kBlocks.size());
  const Part &blocks = part, scales = find(name + std::string(kScales));
  if (scales.tensor == nullptr) return std::unique_ptr<QuantisedTensor>();
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
  std::unique_ptr<Mxfp4Tensor> t(new Mxfp4Tensor);
  t->whole_ = {.name = name, .dtype = FindStoredDType("BF16"), .dims = {b[0], b[2] * kMxfp4Block, b[1]}};
  t->whole_.end = t->whole_.elements() * SizeOf(DType::kBF16);
  t->parts_ = {blocks, scales};
  return std::unique_ptr<QuantisedTensor>(std::move(t));
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
        blocks().file->ReadRange(blocks().tensor->name, byte, part(pairs, (begin + n + 1) / 2 - byte)));
    TEMPER_RETURN_IF_ERROR(scales().file->ReadRange(scales().tensor->name, block,
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

class Mxfp4Tensor::Reader : public QuantisedTensor::Rows {
 public:
  explicit Reader(const Mxfp4Tensor& tensor) : t_(tensor) {}

  Status Read(int64_t first, int64_t count, int64_t begin, int64_t columns, std::byte* out) override {
    constexpr int64_t kWindow = 1 << 20;                                                   // bytes
    const int64_t scales = t_.blocks().tensor->dims[2], pairs = scales * kMxfp4Block / 2;  // of a row
    const int64_t at_once = std::max<int64_t>(1, kWindow / pairs);
    const auto of_rows = [](std::vector<std::byte>& memory, int64_t size) {
      memory.resize(std::max(memory.size(), static_cast<size_t>(size)));
      return std::span(memory).first(static_cast<size_t>(size));
    };
    for (int64_t row = first; row < first + count; row += at_once) {
      const int64_t n = std::min(at_once, first + count - row);
      const auto read_pairs = of_rows(pairs_, n * pairs), read_scales = of_rows(scales_, n * scales);
      TEMPER_RETURN_IF_ERROR(t_.blocks().file->ReadRange(t_.blocks().tensor->name, row * pairs, read_pairs));
      TEMPER_RETURN_IF_ERROR(t_.scales().file->ReadRange(t_.scales().tensor->name, row * scales, read_scales));
      for (int64_t r = 0; r < n; ++r, out += Mxfp4RowBytes(columns)) {
        WriteMxfp4Row(read_pairs.subspan(static_cast<size_t>(r * pairs), static_cast<size_t>(pairs)),
                      read_scales.subspan(static_cast<size_t>(r * scales), static_cast<size_t>(scales)), begin, columns,
                      out);
      }
    }
    return OkStatus();
  }

 private:
  const Mxfp4Tensor& t_;
  std::vector<std::byte> pairs_, scales_;
};

std::unique_ptr<QuantisedTensor::Rows> Mxfp4Tensor::OpenRows() const {
  return std::make_unique<Reader>(*this);
}

Status Mxfp4Tensor::ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const {
  const std::vector<int64_t>& dims = blocks().tensor->dims;
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
