// BlockFile: a file that is read and written in whole blocks at any place, around the page cache where the file system
// can do that (O_DIRECT): data that is larger than memory and comes by once per step would push everything else out of
// the cache, and its pages count against the limit of a memory cgroup. Where it cannot, each call gives back the pages
// it used.
//
// Thread rule: any threads at once; what concurrent calls read and write of the same bytes is undefined. A call that
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

// Which file it is, and which state of it: another one of the same name differs, and so does this one after a write.
struct FileVersion {
  uint64_t device = 0, inode = 0;
  int64_t size = 0;         // bytes
  int64_t modified_ns = 0;  // since 1970
  friend bool operator==(const FileVersion&, const FileVersion&) = default;
};

FileVersion VersionOf(const struct ::stat& st);

class BlockFile {
 public:
  // Of offsets and lengths. At least the sector of any disk and the page of an x86-64.
  static constexpr int64_t kBlock = 4096;

  virtual ~BlockFile() = default;

  // Fills `out` from `offset` on, as far as the file went when it was opened; kCorrupt, naming the file, where it ends
  // before that now. REQUIRES: offset and out.size() are multiples of kBlock, the address of memory_alignment().
  virtual Status ReadAt(int64_t offset, std::span<std::byte> out) = 0;
  // REQUIRES: as ReadAt; the file is of CreateUnlinked, and this lies in it.
  virtual Status WriteAt(int64_t offset, std::span<const std::byte> data) = 0;

  // Of now: some 100 ns on a local disk.
  virtual Result<FileVersion> Version() const = 0;

  virtual int64_t memory_alignment() const = 0;  // at most kBlock
  virtual Bytes size() const = 0;                // at the time of opening
  virtual const std::string& path() const = 0;   // of an unlinked file: its folder
};

// PosixEnv's. `direct`: false goes through the page cache though the file system might do without; what Env gives tries
// true. For OpenBlocks and CreateUnlinked see base/env.h.
Result<std::unique_ptr<BlockFile>> OpenPosixBlocks(const std::string& path, bool direct);
Result<std::unique_ptr<BlockFile>> CreatePosixUnlinked(const std::string& folder, Bytes size, bool direct);

}  // namespace temper
