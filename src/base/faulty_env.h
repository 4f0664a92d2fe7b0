// FaultyEnv wraps an Env and fails chosen calls, so that tests can prove that a full disk, a vanished file or a short
// read loses nothing. Not for production code.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"

namespace temper {

class FaultyEnv final : public Env {
 public:
  // Called before each operation with its path: "open", "read", "create", "append", "sync",
  // "close", "rename", "remove", "folder", "truncate", "list", "lock", "reserve"
  // (CreateUnlinked), "write" (WriteAt). A non-OK status is returned instead of the operation's.
  // An "append" that fails has written the first half of its data, as on a full disk. A "lock" that fails with
  // kUnsupported is null.
  using Hook = std::function<Status(const std::string& operation, const std::string& path)>;

  FaultyEnv(Env& base, Hook hook) : base_(base), hook_(std::move(hook)) {}

  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override;
  Result<std::string> ReadGenerated(const std::string& path) override;
  Result<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path, WriteMode mode) override;
  Result<std::unique_ptr<BlockFile>> OpenBlocks(const std::string& path) override;
  Result<std::unique_ptr<BlockFile>> CreateUnlinked(const std::string& folder, Bytes size) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status RemoveFile(const std::string& path) override;
  Status RemoveTree(const std::string& path) override;
  Status CreateFolders(const std::string& path) override;
  Status SyncFolder(const std::string& path) override;
  Status Truncate(const std::string& path, int64_t size) override;
  Result<std::vector<std::string>> List(const std::string& folder) override;
  bool IsFile(const std::string& path) override { return base_.IsFile(path); }
  bool IsFolder(const std::string& path) override { return base_.IsFolder(path); }
  Result<Bytes> FreeSpace(const std::string& folder) override { return base_.FreeSpace(folder); }
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override;

 private:
  Env& base_;
  const Hook hook_;
};

}  // namespace temper
