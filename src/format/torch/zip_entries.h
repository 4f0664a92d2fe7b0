// ZipEntries: the files in a zip archive whose bytes stand in it as they are, as torch.save stores them. Only the list
// at its end is read, and of an entry the few bytes that say where its data begins. Zip64 too. The format: PKWARE's
// APPNOTE.TXT, 4.3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"

namespace temper {

class ZipEntries {
 public:
  // Longest list that is read, for 200,000 entries.
  static constexpr int64_t kMostBytes = 16 << 20;

  struct Entry {
    std::string_view name;
    int64_t header = 0;  // of its local header, bytes from the file's start
    int64_t size = 0;
    uint32_t crc = 0;
    bool stored = true;  // not compressed, not encrypted
  };

  // Errors: kCorrupt (truncated, contradictory), kUnsupported (too long a list, an archive in several files). The
  // entries need not be stored; `file` must outlive the result.
  static Result<ZipEntries> Read(const RandomAccessFile& file);

  // Sorted by name. Views stay valid while this object or one that it was moved to lives.
  const std::vector<Entry>& entries() const { return entries_; }
  const Entry* Find(std::string_view name) const;  // nullptr where absent
  // Where the entry's bytes begin in the file; they lie within it, before the list. kUnsupported if it is not stored,
  // kCorrupt if it is not where the list says.
  Result<int64_t> DataBegin(const Entry& entry) const;

 private:
  const RandomAccessFile* file_ = nullptr;
  std::vector<char> list_;
  int64_t list_begin_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace temper
