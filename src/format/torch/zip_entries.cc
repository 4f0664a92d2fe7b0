#include "format/torch/zip_entries.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "format/quoted.h"

namespace temper {
namespace {

constexpr int64_t kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kListedBytes = 46, kLocalBytes = 30;
constexpr uint32_t kEndMark = 0x06054b50, kEnd64Mark = 0x06064b50, kLocatorMark = 0x07064b50, kListedMark = 0x02014b50,
                   kLocalMark = 0x04034b50;
constexpr uint32_t kIn64 = 0xffffffff;  // the number stands in a zip64 record
constexpr uint16_t kExtra64 = 1;
constexpr int64_t kMostComment = 65535;

// Little-endian.
template <class T>
T FieldAt(const char* bytes, int64_t at) {
  T value;
  std::memcpy(&value, bytes + at, sizeof(value));
  return value;
}

Status DamagedZip(const std::string& path, const std::string& what) {
  return Corrupt(fmt::format("{}: its zip archive {}; fetch or copy the file again", path, what));
}

std::span<std::byte> BytesOf(std::vector<char>& v) {
  return std::as_writable_bytes(std::span(v));
}

// Of the list of entries: where it is.
struct Place {
  uint64_t begin = 0, bytes = 0, entries = 0;
};

Result<Place> FindList(const RandomAccessFile& file) {
  const int64_t size = file.size().v;
  std::vector<char> tail(static_cast<size_t>(std::min(size, kEndBytes + kMostComment)));
  const int64_t tail_begin = size - std::ssize(tail);
  TEMPER_RETURN_IF_ERROR(file.ReadAt(tail_begin, BytesOf(tail)));
  int64_t at = std::ssize(tail) - kEndBytes;
  const auto is_end = [&] {
    return FieldAt<uint32_t>(tail.data(), at) == kEndMark &&
           at + kEndBytes + FieldAt<uint16_t>(tail.data(), at + 20) == std::ssize(tail);
  };
  while (at >= 0 && !is_end()) --at;
  if (at < 0) return DamagedZip(file.path(), "has no end: it is truncated");
  const char* end = tail.data() + at;
  const auto disk = FieldAt<uint16_t>(end, 4);
  Place place = {FieldAt<uint32_t>(end, 16), FieldAt<uint32_t>(end, 12), FieldAt<uint16_t>(end, 10)};
  if (at >= kLocatorBytes && FieldAt<uint32_t>(end, -kLocatorBytes) == kLocatorMark) {
    const auto end64_at = FieldAt<uint64_t>(end, -kLocatorBytes + 8);
    const int64_t before = tail_begin + at - kLocatorBytes;
    if (before < kEnd64Bytes || end64_at > static_cast<uint64_t>(before - kEnd64Bytes)) {
      return DamagedZip(file.path(), "says that its end lies behind it");
    }
    std::vector<char> end64(static_cast<size_t>(kEnd64Bytes));
    TEMPER_RETURN_IF_ERROR(file.ReadAt(static_cast<int64_t>(end64_at), BytesOf(end64)));
    if (FieldAt<uint32_t>(end64.data(), 0) != kEnd64Mark) return DamagedZip(file.path(), "has no zip64 end");
    place = {FieldAt<uint64_t>(end64.data(), 48), FieldAt<uint64_t>(end64.data(), 40),
             FieldAt<uint64_t>(end64.data(), 32)};
  } else if (disk != 0) {
    return Unsupported(file.path() + " is one of several files of a zip archive");
  }
  const auto end_at = static_cast<uint64_t>(tail_begin + at);
  if (place.bytes > end_at || place.begin > end_at - place.bytes) {
    return DamagedZip(file.path(), "is truncated: its list of entries should be behind its end");
  }
  return place;
}

// The numbers of an entry that did not fit 32 bits, from its zip64 field.
bool TakeFrom64(std::span<const char> extra, uint64_t* size, uint64_t* packed, uint64_t* header) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    const auto id = FieldAt<uint16_t>(extra.data(), static_cast<int64_t>(at));
    const size_t length = FieldAt<uint16_t>(extra.data(), static_cast<int64_t>(at) + 2);
    at += 4;
    if (extra.size() - at < length) return false;
    if (id == kExtra64) {
      std::span<const char> field = extra.subspan(at, length);
      for (uint64_t* number : {size, packed, header}) {
        if (*number != kIn64) continue;
        if (field.size() < sizeof(uint64_t)) return false;
        *number = FieldAt<uint64_t>(field.data(), 0);
        field = field.subspan(sizeof(uint64_t));
      }
      return true;
    }
    at += length;
  }
  return *size != kIn64 && *packed != kIn64 && *header != kIn64;
}

}  // namespace

Result<ZipEntries> ZipEntries::Read(const RandomAccessFile& file) {
  const std::string& path = file.path();
  if (file.size().v < kEndBytes) return DamagedZip(path, "is truncated");
  TEMPER_ASSIGN_OR_RETURN(const Place place, FindList(file));
  if (place.bytes > static_cast<uint64_t>(kMostBytes)) {
    return Unsupported(
        fmt::format("{}: its zip archive lists its entries in {} bytes; {} are read", path, place.bytes, kMostBytes));
  }
  ZipEntries zip;
  zip.file_ = &file;
  zip.list_begin_ = static_cast<int64_t>(place.begin);
  zip.list_.resize(place.bytes);
  TEMPER_RETURN_IF_ERROR(file.ReadAt(zip.list_begin_, BytesOf(zip.list_)));
  for (int64_t at = 0; at < std::ssize(zip.list_);) {
    const char* const fields = zip.list_.data() + at;
    const int64_t left = std::ssize(zip.list_) - at;
    if (left < kListedBytes || FieldAt<uint32_t>(fields, 0) != kListedMark) {
      return DamagedZip(path, "has a damaged list of entries");
    }
    const size_t name = FieldAt<uint16_t>(fields, 28), extra = FieldAt<uint16_t>(fields, 30);
    const int64_t bytes = kListedBytes + static_cast<int64_t>(name + extra) + FieldAt<uint16_t>(fields, 32);
    if (left < bytes) return DamagedZip(path, "has a damaged list of entries");
    uint64_t packed = FieldAt<uint32_t>(fields, 20), size = FieldAt<uint32_t>(fields, 24),
             header = FieldAt<uint32_t>(fields, 42);
    Entry entry;
    entry.name = {fields + kListedBytes, name};
    entry.crc = FieldAt<uint32_t>(fields, 16);
    if (!TakeFrom64({fields + kListedBytes + name, extra}, &size, &packed, &header)) {
      return DamagedZip(path, fmt::format("does not say how large {} is", Quoted(entry.name)));
    }
    const auto most = static_cast<uint64_t>(zip.list_begin_);
    entry.stored = FieldAt<uint16_t>(fields, 10) == 0 && (FieldAt<uint16_t>(fields, 8) & 1) == 0;
    if (entry.stored && (size != packed || size > most)) {
      return DamagedZip(path, fmt::format("has a wrong size for {}", Quoted(entry.name)));
    }
    if (header > most) return DamagedZip(path, fmt::format("has {} behind its end", Quoted(entry.name)));
    entry.header = static_cast<int64_t>(header);
    entry.size = static_cast<int64_t>(std::min<uint64_t>(size, INT64_MAX));
    zip.entries_.push_back(entry);
    at += bytes;
  }
  if (zip.entries_.size() != place.entries) {
    return DamagedZip(path, fmt::format("lists {} entries but counts {}", zip.entries_.size(), place.entries));
  }
  const auto by_name = [](const Entry& a, const Entry& b) { return a.name < b.name; };
  std::sort(zip.entries_.begin(), zip.entries_.end(), by_name);
  const auto twice = std::adjacent_find(zip.entries_.begin(), zip.entries_.end(),
                                        [](const Entry& a, const Entry& b) { return a.name == b.name; });
  if (twice != zip.entries_.end()) return DamagedZip(path, fmt::format("has {} twice", Quoted(twice->name)));
  return zip;
}

const ZipEntries::Entry* ZipEntries::Find(std::string_view name) const {
  const auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                                   [](const Entry& e, std::string_view n) { return e.name < n; });
  return it != entries_.end() && it->name == name ? &*it : nullptr;
}

Result<int64_t> ZipEntries::DataBegin(const Entry& entry) const {
  if (!entry.stored) {
    return Unsupported(
        fmt::format("{}: {} is compressed or encrypted in its zip archive, which torch.save never does: "
                    "save the file again with torch.save",
                    file_->path(), Quoted(entry.name)));
  }
  if (list_begin_ - entry.header < kLocalBytes) {
    return DamagedZip(file_->path(), fmt::format("has {} behind its end", Quoted(entry.name)));
  }
  std::vector<char> local(static_cast<size_t>(kLocalBytes) + entry.name.size());
  TEMPER_RETURN_IF_ERROR(file_->ReadAt(entry.header, BytesOf(local)));
  if (FieldAt<uint32_t>(local.data(), 0) != kLocalMark || FieldAt<uint16_t>(local.data(), 26) != entry.name.size() ||
      std::string_view(local.data() + kLocalBytes, entry.name.size()) != entry.name) {
    return DamagedZip(file_->path(), fmt::format("does not have {} where it says", Quoted(entry.name)));
  }
  const int64_t begin = entry.header + std::ssize(local) + FieldAt<uint16_t>(local.data(), 28);
  if (begin > list_begin_ || entry.size > list_begin_ - begin) {
    return DamagedZip(file_->path(), fmt::format("has {} behind its end", Quoted(entry.name)));
  }
  return begin;
}

}  // namespace temper
