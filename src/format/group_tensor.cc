#include "format/group_tensor.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <memory>
#include <utility>

#include "format/conversion.h"
#include "format/quoted.h"
#include "format/transpose.h"
#include "tensor/format_rule.h"
#include "tensor/int4_rows.h"

namespace temper {
namespace {

constexpr int64_t kPerWord = 8;  // elements
constexpr int64_t kMostGroupedColumns = 1 << 24, kMostGroupedRows = 1 << 24;
constexpr int kAwqOrder[kPerWord] = {0, 2, 4, 6, 1, 3, 5, 7};  // output of each element of a word

int64_t RoundedUp(int64_t a, int64_t b) {  // rounded up
  return (a + b - 1) / b;
}

bool IsMatrix(const StoredTensor& t, std::string_view type, int64_t rows, int64_t columns) {
  return t.dtype->name == type && t.dims == std::vector<int64_t>{rows, columns};
}

uint8_t ElementOf(uint32_t word, int64_t i) {
  return static_cast<uint8_t>(word >> 4 * i & 15);
}

Status ReadWords(const QuantisedTensor::Part& part, int64_t first, std::span<uint32_t> out) {
  return part.file->ReadRange(part.tensor->name, first * static_cast<int64_t>(sizeof(uint32_t)),
                              std::as_writable_bytes(out));
}

}  // namespace

GroupTensor::GroupTensor(ElementFormat format, Packing packing, int64_t stored_group, int64_t group)
    : QuantisedTensor(format), packing_(packing), stored_group_(stored_group), group_(group) {
  static std::atomic<uint64_t> tensors = 0;
  id_ = ++tensors;
}

Result<std::unique_ptr<QuantisedTensor>> GroupTensor::Open(const Part& part, const FindPart& find) {
  const std::string& name = part.tensor->name;
  for (const auto& [ending, elements] :
       {std::pair<std::string_view, const char*>{".weight_scale", ".weight_packed"}, {".scales", ".qweight"}}) {
    if (!name.ends_with(ending)) continue;
    const std::string module = name.substr(0, name.size() - ending.size());
    const Part words = find(module + elements);
    if (words.tensor == nullptr) continue;
    if (words.tensor->dims.size() != 2 || part.tensor->dims.size() != 2) {
      return Corrupt(fmt::format("{}: tensors {} {} and {} {} should be matrices: get the model again",
                                 part.file->path(), Quoted(words.tensor->name), words.tensor->ToString(), Quoted(name),
                                 part.tensor->ToString()));
    }
    const bool compressed = ending == ".weight_scale", same = words.tensor->dims[1] == part.tensor->dims[1];
    return OpenPacked(module,
                      compressed ? Packing::kCompressed
                      : same     ? Packing::kGptq
                                 : Packing::kAwq,
                      words, part, find);
  }
  return std::unique_ptr<QuantisedTensor>();
}

Result<std::unique_ptr<QuantisedTensor>> GroupTensor::OpenPacked(const std::string& module, Packing packing,
                                                                 const Part& words, const Part& scales,
                                                                 const FindPart& find) {
  const std::vector<int64_t>&w = words.tensor->dims, &s = scales.tensor->dims;
  const auto damaged = [&](const Part& at, const std::string& what) {
    return Corrupt(fmt::format("{}: tensor {} is {}, {}: get the model again", at.file->path(), Quoted(at.tensor->name),
                               at.tensor->ToString(), what));
  };
  const bool compressed = packing == Packing::kCompressed;
  const int64_t out = compressed ? w[0] : s[1], groups = compressed ? s[1] : s[0];
  int64_t in = packing == Packing::kGptq ? w[0] * kPerWord : w[0];
  const Part shape = find(module + ".weight_shape");
  if (compressed) {
    int64_t dims[2] = {};
    if (shape.tensor == nullptr || shape.tensor->dtype->name != "I64" || shape.tensor->elements() != 2) {
      return damaged(words, "and no weight_shape of two numbers is beside it");
    }
    TEMPER_RETURN_IF_ERROR(shape.file->ReadTensor(shape.tensor->name, std::as_writable_bytes(std::span(dims))));
    if (dims[0] != out) return damaged(words, fmt::format("and weight_shape gives {} rows", dims[0]));
    in = dims[1];
  }
  if (w[0] > kMostGroupedColumns || out < 1 || in < 1 || groups < 1 || out > kMostGroupedRows ||
      in > kMostGroupedColumns || groups > in) {
    return damaged(scales, fmt::format("of a matrix of {} x {}", out, in));
  }
  const bool fits = compressed                  ? IsMatrix(*words.tensor, "I32", out, RoundedUp(in, kPerWord))
                    : packing == Packing::kGptq ? IsMatrix(*words.tensor, "I32", in / kPerWord, out)
                                                : IsMatrix(*words.tensor, "I32", in, out / kPerWord) && out % 8 == 0;
  if (!fits) return damaged(words, fmt::format("not {} x {} elements of 4 bits, eight in an I32", out, in));
  const auto& type = scales.tensor->dtype->dtype;
  if (!(compressed ? s[0] == out : s[1] == out) || !type || !IsFloating(*type)) {
    return damaged(scales, fmt::format("not a scale for each of {} groups of {} rows", groups, out));
  }
  if (in % groups != 0) {
    return Unsupported(fmt::format("{}: tensor {} has {} groups for {} columns: groups of the same size are read",
                                   scales.file->path(), Quoted(scales.tensor->name), groups, in));
  }
  const int64_t stored_group = in / groups;
  const int64_t group = HasInt4Groups(stored_group) ? stored_group : groups == 1 || stored_group % 128 == 0 ? 128 : 0;
  if (group == 0) {
    return Unsupported(fmt::format("{}: tensor {} has a scale for {} columns; 32, 64, 128 and its multiples are read",
                                   scales.file->path(), Quoted(scales.tensor->name), stored_group));
  }
  std::unique_ptr<GroupTensor> t(new GroupTensor(Int4Groups(group), packing, stored_group, group));
  t->groups_ = groups;
  t->whole_ = {.name = module + ".weight", .dtype = scales.tensor->dtype, .dims = {out, in}};
  t->whole_.end = out * in * t->whole_.dtype->bits / 8;
  t->parts_ = {words, scales};
  if (shape.tensor != nullptr) t->parts_.push_back(shape);
  t->zeros_ = find(module + (compressed ? ".weight_zero_point" : ".qzeros"));
  if (t->zeros_.tensor != nullptr) {
    const bool of_rows = compressed ? IsMatrix(*t->zeros_.tensor, "I32", RoundedUp(out, kPerWord), groups)
                                    : IsMatrix(*t->zeros_.tensor, "I32", groups, out / kPerWord) && out % 8 == 0;
    if (!of_rows) return damaged(t->zeros_, fmt::format("not a zero for each of {} groups of {} rows", groups, out));
    t->parts_.push_back(t->zeros_);
  } else if (!compressed) {
    return damaged(words, "and no qzeros are beside it");
  }
  t->columns_ = find(module + (compressed ? ".weight_g_idx" : ".g_idx"));
  if (t->columns_.tensor != nullptr) {
    const StoredTensor& g = *t->columns_.tensor;
    if (g.dtype->name != "I32" || g.dims != std::vector<int64_t>{in}) {
      return damaged(t->columns_, fmt::format("not the group of each of {} columns", in));
    }
    t->parts_.push_back(t->columns_);
  }
  return std::unique_ptr<QuantisedTensor>(std::move(t));
}

Bytes GroupTensor::bytes() const {
  Bytes sum{};
  for (const Part& part : parts_) sum += part.tensor->bytes();
  return sum;
}

// Reads scales and zeros of the whole matrix once, 5 bytes for each group; of elements some rows at a time.
class GroupTensor::Reader : public QuantisedTensor::Rows {
 public:
  explicit Reader(const GroupTensor& tensor)
      : t_(tensor), out_(tensor.whole_.dims[0]), in_(tensor.whole_.dims[1]), row_words_(RoundedUp(in_, kPerWord)) {}

  Status Read(int64_t first, int64_t count, int64_t begin, int64_t columns, std::byte* out) override {
    TEMPER_RETURN_IF_ERROR(LoadGroups());
    if (!in_order_) {
      return Unsupported(fmt::format(
          "{}: columns of a group of {} are no neighbours, so it is not kept in 4 bits: write \"desc_act\": true into "
          "quantization_config of config.json, or set base_dtype: nf4 or int8",
          t_.columns_.file->path(), Quoted(t_.whole_.name)));
    }
    const int64_t groups = RoundedUp(in_, t_.group_);
    std::vector<float> scales(static_cast<size_t>(groups));
    std::vector<uint8_t> zeros(scales.size());
    return ForRows(first, count, [&](int64_t row, std::span<const std::byte> pairs) {
      for (int64_t g = 0; g < groups; ++g) {
        const auto from = static_cast<size_t>(row * t_.groups_ + g * t_.group_ / t_.stored_group_);
        scales[static_cast<size_t>(g)] = scales_[from];
        zeros[static_cast<size_t>(g)] = zeros_[from];
      }
      if (!WriteInt4Row(t_.group_, pairs, scales, zeros, begin, columns, out)) return NoNumber(row);
      out += t_.format_.RowBytes(columns);
      return OkStatus();
    });
  }

  // Frees what is large.
  void LetGoOfWords() {
    words_ = {};
    stored_ = {};
  }

  // Calls take(row, numbers) for rows [first, first + count).
  template <class Take>
  Status ForNumbers(int64_t first, int64_t count, const Take& take) {
    TEMPER_RETURN_IF_ERROR(LoadGroups());
    std::vector<float> x(static_cast<size_t>(in_));
    return ForRows(first, count, [&](int64_t row, std::span<const std::byte> pairs) {
      for (int64_t i = 0; i < in_; ++i) {
        const auto pair = static_cast<int>(pairs[static_cast<size_t>(i / 2)]);
        const int64_t group = in_order_ ? i / t_.stored_group_ : group_of_[static_cast<size_t>(i)];
        const auto at = static_cast<size_t>(row * t_.groups_ + group);
        x[static_cast<size_t>(i)] =
            scales_[at] * static_cast<float>((i % 2 == 0 ? pair & 15 : pair >> 4) - static_cast<int>(zeros_[at]));
      }
      take(row, std::span<const float>(x));
      return OkStatus();
    });
  }

 private:
  Status NoNumber(int64_t row) const {
    const Part& scales = t_.parts_[1];
    return Corrupt(fmt::format("{}: tensor {} has a scale that is no number, of row {}: get the model again",
                               scales.file->path(), Quoted(scales.tensor->name), row));
  }

  // Scales and zeros as [out, groups].
  Status LoadGroups() {
    if (!scales_.empty()) return OkStatus();
    const int64_t groups = t_.groups_;
    const bool compressed = t_.packing_ == Packing::kCompressed;
    std::vector<float> scales(static_cast<size_t>(out_ * groups));
    const Part& stored = t_.parts_[1];
    TEMPER_RETURN_IF_ERROR(
        stored.file->ReadAs(stored.tensor->name, DType::kF32, std::as_writable_bytes(std::span(scales))));
    for (size_t i = 0; i < scales.size(); ++i) {
      if (!std::isfinite(scales[i])) return NoNumber(static_cast<int64_t>(i) / (compressed ? groups : 1) % out_);
    }
    zeros_.assign(scales.size(), 8);
    if (t_.zeros_.tensor != nullptr) {
      std::vector<uint32_t> words(static_cast<size_t>(t_.zeros_.tensor->elements()));
      TEMPER_RETURN_IF_ERROR(ReadWords(t_.zeros_, 0, words));
      // Files have each word less 0x11111111: a zero of 0 has borrowed from its neighbour, as gptqmodel packs it.
      if (t_.packing_ == Packing::kGptq) {
        for (uint32_t& word : words) word += 0x11111111;
      }
      for (int64_t row = 0; row < out_; ++row) {
        for (int64_t g = 0; g < groups; ++g) {
          const int64_t word = row / kPerWord, i = row % kPerWord;
          uint8_t& zero = zeros_[static_cast<size_t>(row * groups + g)];
          zero = compressed ? ElementOf(words[static_cast<size_t>(word * groups + g)], i)
                            : ElementOf(words[static_cast<size_t>(g * (out_ / kPerWord) + word)], PlaceOf(i));
        }
      }
    }
    if (t_.columns_.tensor != nullptr) {
      group_of_.resize(static_cast<size_t>(in_));
      TEMPER_RETURN_IF_ERROR(
          t_.columns_.file->ReadTensor(t_.columns_.tensor->name, std::as_writable_bytes(std::span(group_of_))));
      for (int64_t i = 0; i < in_; ++i) {
        const int64_t group = group_of_[static_cast<size_t>(i)];
        if (group < 0 || group >= groups) {
          return Corrupt(fmt::format("{}: tensor {} puts column {} into group {} of {}: get the model again",
                                     t_.columns_.file->path(), Quoted(t_.columns_.tensor->name), i, group, groups));
        }
        in_order_ = in_order_ && group == i / t_.stored_group_;
      }
    }
    if (!compressed) {
      scales_.resize(scales.size());
      Transpose(reinterpret_cast<const std::byte*>(scales.data()), groups, out_, out_,
                reinterpret_cast<std::byte*>(scales_.data()), groups, sizeof(float));
    } else {
      scales_ = std::move(scales);
    }
    return OkStatus();
  }

  // Which element of a word of AWQ has output i; of others i.
  int64_t PlaceOf(int64_t i) const {
    if (t_.packing_ != Packing::kAwq) return i;
    return std::find(std::begin(kAwqOrder), std::end(kAwqOrder), static_cast<int>(i)) - std::begin(kAwqOrder);
  }

  // Calls row(index, its elements, two a byte).
  template <class Row>
  Status ForRows(int64_t first, int64_t count, const Row& row) {
    constexpr int64_t kWindow = 8 << 20;  // words
    const int64_t at_once = std::max<int64_t>(kPerWord, kWindow / row_words_ / kPerWord * kPerWord);
    for (int64_t begin = first, end = first + count; begin < end;) {
      const int64_t next = std::min(end, (begin / kPerWord * kPerWord) + at_once);
      TEMPER_RETURN_IF_ERROR(LoadWords(begin, next - begin));
      for (int64_t r = begin; r < next; ++r) {
        const auto words =
            std::span(words_).subspan(static_cast<size_t>((r - begin) * row_words_), static_cast<size_t>(row_words_));
        TEMPER_RETURN_IF_ERROR(row(r, std::as_bytes(words)));
      }
      begin = next;
    }
    return OkStatus();
  }

  // Rows as [rows, in / 8], the first element of a word lowest.
  Status LoadWords(int64_t first, int64_t rows) {
    words_.resize(static_cast<size_t>(rows * row_words_));
    const Part& stored = t_.parts_[0];
    if (t_.packing_ == Packing::kCompressed) return ReadWords(stored, first * row_words_, words_);
    if (t_.packing_ == Packing::kGptq) {
      TEMPER_RETURN_IF_ERROR(LoadColumns(row_words_, out_, first, rows));
      Transpose(reinterpret_cast<const std::byte*>(stored_.data()), row_words_, rows, rows,
                reinterpret_cast<std::byte*>(words_.data()), row_words_, sizeof(uint32_t));
      return OkStatus();
    }
    const int64_t from = first / kPerWord, across = RoundedUp(first + rows, kPerWord) - from;
    TEMPER_RETURN_IF_ERROR(LoadColumns(in_, out_ / kPerWord, from, across));
    std::fill(words_.begin(), words_.end(), 0);
    for (int64_t i = 0; i < in_; ++i) {
      for (int64_t w = 0; w < across; ++w) {
        const uint32_t word = stored_[static_cast<size_t>(i * across + w)];
        for (int64_t k = 0; k < kPerWord; ++k) {
          const int64_t r = (from + w) * kPerWord + kAwqOrder[k] - first;
          if (r < 0 || r >= rows) continue;
          words_[static_cast<size_t>(r * row_words_ + i / kPerWord)] |= uint32_t{ElementOf(word, k)}
                                                                        << 4 * (i % kPerWord);
        }
      }
    }
    return OkStatus();
  }

  // Columns [first, first + columns) of the words [rows, all] into stored_.
  Status LoadColumns(int64_t rows, int64_t all, int64_t first, int64_t columns) {
    stored_.resize(static_cast<size_t>(rows * columns));
    if (columns == all) return ReadWords(t_.parts_[0], 0, stored_);
    for (int64_t r = 0; r < rows; ++r) {
      TEMPER_RETURN_IF_ERROR(
          ReadWords(t_.parts_[0], r * all + first,
                    std::span(stored_).subspan(static_cast<size_t>(r * columns), static_cast<size_t>(columns))));
    }
    return OkStatus();
  }

  const GroupTensor& t_;
  const int64_t out_, in_, row_words_;
  std::vector<float> scales_;      // [out, groups]
  std::vector<uint8_t> zeros_;     // [out, groups]
  std::vector<int32_t> group_of_;  // of each column; empty: they are in order
  bool in_order_ = true;
  std::vector<uint32_t> words_, stored_;
};

std::unique_ptr<QuantisedTensor::Rows> GroupTensor::OpenRows() const {
  return std::make_unique<Reader>(*this);
}

Status GroupTensor::ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const {
  const int64_t in = whole_.dims[1], size = SizeOf(target), end = first + std::ssize(out) / size;
  const DType dtype = *whole_.dtype->dtype;
  std::vector<std::byte> rounded(static_cast<size_t>(in * SizeOf(dtype)));
  // Callers ask for a few rows at a time, and scales and zeros are those of the whole matrix: each thread keeps the
  // reader of the matrix that it has read last.
  thread_local std::pair<uint64_t, std::unique_ptr<Reader>> last;
  if (last.first != id_) last = {id_, std::make_unique<Reader>(*this)};
  Reader& reader = *last.second;
  const int64_t row = first / in, rows = RoundedUp(end, in) - row;
  const Status read = reader.ForNumbers(row, rows, [&](int64_t r, std::span<const float> x) {
    Convert(DType::kF32, reinterpret_cast<const std::byte*>(x.data()), dtype, rounded.data(), in);
    const int64_t from = std::max(first, r * in), to = std::min(end, (r + 1) * in);
    Convert(dtype, rounded.data() + (from - r * in) * SizeOf(dtype), target, out.data() + (from - first) * size,
            to - from);
  });
  reader.LetGoOfWords();
  return read;
}

}  // namespace temper
