#include "format/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "format/conversion.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr int64_t kLengthBytes = 8;

// What a file that is not safetensors is, going by its first bytes; OK where it could be safetensors after all.
Status RecogniseOtherKinds(std::string_view head, const std::string& path) {
  // A zip (torch.save since 1.6), a bare pickle of protocol 2 to 5, and the legacy torch.save.
  const bool pickle = head.size() >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
  if (pickle || head.starts_with("PK\x03\x04")) {
    return Unsupported(fmt::format(
        "{} is a PyTorch pickle, not safetensors. Unpickling runs whatever code the file holds, so Temper refuses it. "
        "Download the model's .safetensors files instead or, if you trust its origin, convert it with transformers: "
        "AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER, safe_serialization=True)",
        path));
  }
  if (head.starts_with("version https://git-lfs")) {
    return Unsupported(
        fmt::format("{} is a Git LFS pointer, not the file it stands for; run 'git lfs pull' in its "
                    "folder",
                    path));
  }
  if (head.starts_with("GGUF")) {
    return Unsupported(
        fmt::format("{} is a GGUF file; Temper reads safetensors: get the model's original folder", path));
  }
  if (head.starts_with("<!") || head.starts_with("<html")) {
    return Unsupported(
        fmt::format("{} is a web page, most likely an error page from a failed download; fetch it again", path));
  }
  return OkStatus();
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::Open(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForRead(path));
  const int64_t size = file->size().v;
  if (size == 0) return Corrupt(path + " is empty; fetch or copy it again");
  std::string head(static_cast<size_t>(std::min<int64_t>(size, 64)), '\0');
  TEMPER_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(head))));
  uint64_t length = 0;
  std::memcpy(&length, head.data(), std::min<size_t>(head.size(), sizeof(length)));
  // A length can look like another format's magic only where it is absurd itself, so a safe length is believed first.
  if (size < kLengthBytes || length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    TEMPER_RETURN_IF_ERROR(RecogniseOtherKinds(head, path));
    if (size < kLengthBytes) {
      return Corrupt(
          fmt::format("{} has {} bytes, too few for a safetensors file; fetch or copy it again", path, size));
    }
    return Corrupt(
        fmt::format("{} is not safetensors: its first 8 bytes promise a header of {} bytes, more than the {} "
                    "that are allowed",
                    path, length, kMaxSafetensorsHeader));
  }
  if (static_cast<int64_t>(length) > size - kLengthBytes) {
    return Corrupt(
        fmt::format("{} is truncated: it promises a header of {} bytes but has {} bytes in all; fetch or copy "
                    "it again",
                    path, length, size));
  }
  std::string json(length, '\0');
  TEMPER_RETURN_IF_ERROR(file->ReadAt(kLengthBytes, std::as_writable_bytes(std::span(json))));
  const int64_t data_begin = kLengthBytes + static_cast<int64_t>(length);
  TEMPER_ASSIGN_OR_RETURN(auto header, ParseSafetensorsHeader(json, size - data_begin, path));
  return SafetensorsFile(std::move(file), data_begin, std::move(header));
}

SafetensorsFile::SafetensorsFile(std::unique_ptr<RandomAccessFile> file, int64_t data_begin, SafetensorsHeader header)
    : file_(std::move(file)), data_begin_(data_begin), header_(std::move(header)), by_name_(header_.tensors.size()) {
  std::iota(by_name_.begin(), by_name_.end(), 0);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](int32_t a, int32_t b) { return header_.tensors[a].name < header_.tensors[b].name; });
}

const StoredTensor* SafetensorsFile::Find(std::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](int32_t i, std::string_view n) { return header_.tensors[i].name < n; });
  if (it == by_name_.end() || header_.tensors[*it].name != name) return nullptr;
  return &header_.tensors[*it];
}

Result<const StoredTensor*> SafetensorsFile::Require(std::string_view name) const {
  if (const StoredTensor* t = Find(name)) return t;
  return NotFound(fmt::format("{} has no tensor {} among its {}", path(), Quoted(name), tensors().size()));
}

Status SafetensorsFile::ReadTensor(std::string_view name, std::span<std::byte> out) const {
  TEMPER_ASSIGN_OR_RETURN(const StoredTensor* t, Require(name));
  if (static_cast<int64_t>(out.size()) != t->bytes().v) {
    return Corrupt(fmt::format("{}: tensor {} is {} of {} bytes, but {} bytes were expected", path(), Quoted(name),
                               t->ToString(), t->bytes().v, out.size()));
  }
  return file_->ReadAt(data_begin_ + t->begin, out);
}

Status SafetensorsFile::ReadRange(std::string_view name, int64_t begin, std::span<std::byte> out) const {
  TEMPER_ASSIGN_OR_RETURN(const StoredTensor* t, Require(name));
  const int64_t size = t->bytes().v;
  if (begin < 0 || begin > size || static_cast<int64_t>(out.size()) > size - begin) {
    return Corrupt(fmt::format("{}: tensor {} is {} of {} bytes, but {} bytes from byte {} on were expected", path(),
                               Quoted(name), t->ToString(), size, out.size(), begin));
  }
  return file_->ReadAt(data_begin_ + t->begin + begin, out);
}

Status SafetensorsFile::ReadAs(std::string_view name, DType target, std::span<std::byte> out,
                               std::span<std::byte> staging) const {
  TEMPER_ASSIGN_OR_RETURN(const StoredTensor* t, Require(name));
  if (static_cast<int64_t>(out.size()) / SizeOf(target) != t->elements()) {
    return Corrupt(fmt::format("{}: tensor {} is {} of {} elements, but {} were expected", path(), Quoted(name),
                               t->ToString(), t->elements(), static_cast<int64_t>(out.size()) / SizeOf(target)));
  }
  return ReadElementsAs(name, 0, target, out, staging);
}

Status SafetensorsFile::ReadElementsAs(std::string_view name, int64_t first, DType target, std::span<std::byte> out,
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
  const int64_t begin = data_begin_ + t->begin + first * stored_size;
  if (t->dtype->dtype == target) return file_->ReadAt(begin, out);
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
    TEMPER_RETURN_IF_ERROR(file_->ReadAt(begin + done * stored_size, staging.first(n * stored_size)));
    Convert(*t->dtype->dtype, staging.data(), target, out.data() + done * SizeOf(target), n);
  }
  return OkStatus();
}

}  // namespace temper
