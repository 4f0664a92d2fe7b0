// BlockFile: a file that is read and written in whole blocks at any offset, around the page cache where the file system
// can do that (O_DIRECT). Data that is larger than memory and is used once per step would push everything else out of
// the cache, and its pages count against the limit of a memory cgroup. Without O_DIRECT each call gives back the pages
// it used.
//
// Thread rule: any threads at once; concurrent reads and writes of the same bytes have no defined result. A call that
// succeeds allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/units.h"

struct stat;

namespace temper {

// Identifies a file and its state: another file of the same name differs, and so does this one after a write.
struct FileVersion {
  uint64_t device = 0, inode = 0;
  int64_t size = 0;         // bytes
  int64_t modified_ns = 0;  // since 1970
  friend bool operator==(const FileVersion&, const FileVersion&) = default;
};

FileVersion VersionOf(const struct ::stat& st);

class BlockFile {
 public:
  // Offsets and lengths are multiples of it. At least the sector of any disk and the page of an x86-64.
  static constexpr int64_t kBlock = 4096;

  virtual ~BlockFile() = default;

  // Fills `out` from `offset` on, up to the size the file had when it was opened; kCorrupt, naming the file, if it ends
  // before that now. REQUIRES: offset and out.size() are multiples of kBlock, the address of memory_alignment().
  virtual Status ReadAt(int64_t offset, std::span<std::byte> out) = 0;
  // REQUIRES: as ReadAt; the file comes from CreateUnlinked and contains this range.
  virtual Status WriteAt(int64_t offset, std::span<const std::byte> data) = 0;

  // The version now: some 100 ns on a local disk.
  virtual Result<FileVersion> Version() const = 0;

  virtual int64_t memory_alignment() const = 0;  // at most kBlock
  virtual Bytes size() const = 0;                // at the time of opening
  virtual const std::string& path() const = 0;   // for an unlinked file: its folder
};

// PosixEnv's. With `direct` false it goes through the page cache even where the file system could bypass it; Env passes
// true. For OpenBlocks and CreateUnlinked see base/env.h.
Result<std::unique_ptr<BlockFile>> OpenPosixBlocks(const std::string& path, bool direct);
Result<std::unique_ptr<BlockFile>> CreatePosixUnlinked(const std::string& folder, Bytes size, bool direct);

}  // namespace temper
