#include "format/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "format/quoted.h"

namespace temper {
namespace {

constexpr int64_t kLengthBytes = 8;

// What a file that is not safetensors is, going by its first bytes; OK where it could be safetensors after all.
Status RecogniseOtherKinds(std::string_view head, const std::string& path) {
  // A zip (torch.save since 1.6), a pickle of protocol 2 to 5.
  const bool pickle = head.size() >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
  if (pickle || head.starts_with("PK\x03\x04")) {
    return Unsupported(fmt::format("{} is a {}, where safetensors must be", path, pickle ? "pickle" : "zip archive"));
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
    : TensorFile(std::move(file), data_begin, std::move(header)) {}

}  // namespace temper
