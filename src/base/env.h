// Env: every file Temper touches goes through one interface, so that tests can make any call fail.
// PosixEnv() is the real one; FaultyEnv (base/faulty_env.h) wraps it and fails the n-th call.
//
// Thread rule: an Env and a RandomAccessFile may be used from any thread at once; a WritableFile by one thread at a
// time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/block_file.h"
#include "base/status.h"
#include "base/units.h"

namespace temper {

class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  // Fills `out` from `offset`; a file that ends earlier is an error (kCorrupt) naming the file and both sizes.
  virtual Status ReadAt(int64_t offset, std::span<std::byte> out) const = 0;
  virtual Bytes size() const = 0;  // at the time of opening
  virtual const std::string& path() const = 0;
  // At the time of opening. Files that are not on a disk all have the same version.
  virtual FileVersion version() const { return {.size = size().v}; }
};

class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Status Append(std::span<const std::byte> data) = 0;
  virtual Status Sync() = 0;   // data is on the disk when this returns OK
  virtual Status Close() = 0;  // must be called; the destructor closes without reporting
  // With kDirect: from now on the caller waits for Append to return.
  virtual void Hurry() {}
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
};

// Writes around the page cache use blocks of this size, no smaller than any disk's.
inline constexpr int64_t kDirectBlock = 4096;

// What OpenForWrite does with an existing file.
enum class WriteMode {
  kReplace,
  kAppend,
  // Replaces it, for data that is not read soon and should hardly disturb other work: goes
  // around the page cache where the file system can do that, at the disk's pace until Hurry is
  // called. Pieces of 512 KiB and more cost the processor almost nothing if their addresses
  // and their offsets in the file are multiples of kDirectBlock; other data costs a copy.
  kDirect,
};

// A lock that this process holds until the object is destroyed; the kernel drops it if the process dies.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class Env {
 public:
  virtual ~Env() = default;
  virtual Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) = 0;
  // Reads all of a file that the kernel generates, whose size is reported as 0 (/proc, /sys).
  virtual Result<std::string> ReadGenerated(const std::string& path);
  // Creates the file if it is missing.
  virtual Result<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path,
                                                             WriteMode mode = WriteMode::kReplace) = 0;
  // For reading, in blocks.
  virtual Result<std::unique_ptr<BlockFile>> OpenBlocks(const std::string& path);
  // A file of `size`, rounded up to whole blocks, on the file system of `folder`, for reading and writing. No other
  // process sees it, and it is gone when it is closed or its process dies in whatever way. Its space is reserved now:
  // kIo, with what is free, if that is too little.
  virtual Result<std::unique_ptr<BlockFile>> CreateUnlinked(const std::string& folder, Bytes size);
  virtual Status Rename(const std::string& from, const std::string& to) = 0;  // atomic within a file system
  virtual Status RemoveFile(const std::string& path) = 0;
  virtual Status RemoveTree(const std::string& path) = 0;     // missing is OK
  virtual Status CreateFolders(const std::string& path) = 0;  // with parents, durably; existing is OK
  virtual Status SyncFolder(const std::string& path) = 0;     // makes renames inside durable
  virtual Status Truncate(const std::string& path, int64_t size) = 0;
  virtual Result<std::vector<std::string>> List(const std::string& folder) = 0;  // sorted names, no "." or ".."
  virtual bool IsFile(const std::string& path) = 0;
  virtual bool IsFolder(const std::string& path) = 0;
  virtual Result<Bytes> FreeSpace(const std::string& folder) = 0;  // for this user
  // Locks the file `path`, created if missing, against other processes that do the same. kInUse if another holds
  // it, which may remove the file before it lets go. Null where files cannot be locked (some network file systems; an
  // Env that no other process sees).
  virtual Result<std::unique_ptr<FileLock>> Lock(const std::string&) { return std::unique_ptr<FileLock>(); }
};

// The machine's file system. Lives for the whole process.
Env& PosixEnv();

// Whole-file conveniences. `limit` guards against a wrong path (a 100 GB "config.json").
Result<std::string> ReadTextFile(Env& env, const std::string& path, Bytes limit = MiB(1024));
// Written beside the target, synced, renamed: a reader sees the old text or the new one, never a part.
Status WriteTextFileAtomically(Env& env, const std::string& path, std::string_view text);

// "a" + "b" -> "a/b"; an absolute `name` wins. Folder and last component of a path, as dirname and basename.
std::string JoinPath(std::string_view folder, std::string_view name);
std::string FolderOf(std::string_view path);
// The absolute path without "." and "..", by text alone: links are not followed, nothing need be there. No '/' at its
// end but the root's.
std::string AbsolutePath(const std::string& path);
std::string BaseName(std::string_view path);

}  // namespace temper
