#include "format/tensor_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "format/conversion.h"
#include "format/quoted.h"

namespace temper {

TensorFile::TensorFile(std::unique_ptr<RandomAccessFile> file, int64_t data_begin, SafetensorsHeader header)
    : file_(std::move(file)), data_begin_(data_begin), header_(std::move(header)), by_name_(header_.tensors.size()) {
  std::iota(by_name_.begin(), by_name_.end(), 0);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](int32_t a, int32_t b) { return header_.tensors[a].name < header_.tensors[b].name; });
}

const StoredTensor* TensorFile::Find(std::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](int32_t i, std::string_view n) { return header_.tensors[i].name < n; });
  if (it == by_name_.end() || header_.tensors[*it].name != name) return nullptr;
  return &header_.tensors[*it];
}

Result<const StoredTensor*> TensorFile::Require(std::string_view name) const {
  if (const StoredTensor* t = Find(name)) return t;
  return NotFound(fmt::format("{} has no tensor {} among its {}", path(), Quoted(name), tensors().size()));
}

std::optional<int64_t> TensorFile::PlaceOf(std::string_view name) const {
  const StoredTensor* t = Find(name);
  if (t == nullptr || !IsInPlace(*t)) return std::nullopt;
  return data_begin_ + t->begin;
}

Status TensorFile::ReadBytes(const StoredTensor& t, int64_t begin, std::span<std::byte> out) const {
  return file_->ReadAt(data_begin_ + t.begin + begin, out);
}

Status TensorFile::ReadTensor(std::string_view name, std::span<std::byte> out) const {
  TEMPER_ASSIGN_OR_RETURN(const StoredTensor* t, Require(name));
  if (static_cast<int64_t>(out.size()) != t->bytes().v) {
    return Corrupt(fmt::format("{}: tensor {} is {} of {} bytes, but {} bytes were expected", path(), Quoted(name),
                               t->ToString(), t->bytes().v, out.size()));
  }
  return ReadBytes(*t, 0, out);
}

Status TensorFile::ReadRange(std::string_view name, int64_t begin, std::span<std::byte> out) const {
  TEMPER_ASSIGN_OR_RETURN(const StoredTensor* t, Require(name));
  const int64_t size = t->bytes().v;
  if (begin < 0 || begin > size || static_cast<int64_t>(out.size()) > size - begin) {
    return Corrupt(fmt::format("{}: tensor {} is {} of {} bytes, but {} bytes from byte {} on were expected", path(),
                               Quoted(name), t->ToString(), size, out.size(), begin));
  }
  return ReadBytes(*t, begin, out);
}

Status TensorFile::ReadAs(std::string_view name, DType target, std::span<std::byte> out,
                          std::span<std::byte> staging) const {
  TEMPER_ASSIGN_OR_RETURN(const StoredTensor* t, Require(name));
  if (static_cast<int64_t>(out.size()) / SizeOf(target) != t->elements()) {
    return Corrupt(fmt::format("{}: tensor {} is {} of {} elements, but {} were expected", path(), Quoted(name),
                               t->ToString(), t->elements(), static_cast<int64_t>(out.size()) / SizeOf(target)));
  }
  return ReadElementsAs(name, 0, target, out, staging);
}

Status TensorFile::ReadElementsAs(std::string_view name, int64_t first, DType target, std::span<std::byte> out,
                                  std::span<std::byte> staging) const {
  TEMPER_ASSIGN_OR_RETURN(const StoredTensor* t, Require(name));
  TEMPER_CHECK(static_cast<int64_t>(out.size()) % SizeOf(target) == 0)
      << out.size() << " bytes of " << ToString(target);
  const int64_t wanted = static_cast<int64_t>(out.size()) / SizeOf(target);
  if (first < 0 || first > t->elements() || wanted > t->elements() - first) {
    return Corrupt(fmt::format("{}: tensor {} is {}, but {} elements from element {} on were expected", path(),
                               Quoted(name), t->ToString(), wanted, first));
  }
  const int64_t stored_size = t->dtype->bits / 8;
  const int64_t begin = first * stored_size;
  if (t->dtype->dtype == target) return ReadBytes(*t, begin, out);
  if (!t->dtype->dtype || !IsFloating(*t->dtype->dtype) || !IsFloating(target)) {
    return Unsupported(
        fmt::format("{}: tensor {} is stored as {}, which cannot be read as {}; convert the model to "
                    "BF16, F16 or F32",
                    path(), Quoted(name), t->dtype->name, temper::ToString(target)));
  }
  std::unique_ptr<std::byte[]> own;
  if (staging.empty()) {
    own = std::make_unique_for_overwrite<std::byte[]>(kStagingBytes);
    staging = {own.get(), static_cast<size_t>(kStagingBytes)};
  }
  TEMPER_CHECK(staging.size() >= 64 && reinterpret_cast<uintptr_t>(staging.data()) % 8 == 0)
      << "staging of " << staging.size() << " bytes";
  // A multiple of 64 bytes per piece keeps the vector kernels' remainders to the last piece.
  const int64_t piece = static_cast<int64_t>(staging.size()) / 64 * 64 / stored_size;
  for (int64_t done = 0; done < wanted; done += piece) {
    const int64_t n = std::min(piece, wanted - done);
    TEMPER_RETURN_IF_ERROR(ReadBytes(*t, begin + done * stored_size, staging.first(n * stored_size)));
    Convert(*t->dtype->dtype, staging.data(), target, out.data() + done * SizeOf(target), n);
  }
  return OkStatus();
}

}  // namespace temper
