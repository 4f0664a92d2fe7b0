#include "base/faulty_env.h"

namespace temper {
namespace {

class FaultyRandomAccessFile final : public RandomAccessFile {
 public:
  FaultyRandomAccessFile(std::unique_ptr<RandomAccessFile> base, const FaultyEnv::Hook& hook)
      : base_(std::move(base)), hook_(hook) {}
  Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
    TEMPER_RETURN_IF_ERROR(hook_("read", base_->path()));
    return base_->ReadAt(offset, out);
  }
  Bytes size() const override { return base_->size(); }
  const std::string& path() const override { return base_->path(); }
  FileVersion version() const override { return base_->version(); }

 private:
  const std::unique_ptr<RandomAccessFile> base_;
  const FaultyEnv::Hook& hook_;
};

class FaultyWritableFile final : public WritableFile {
 public:
  FaultyWritableFile(std::unique_ptr<WritableFile> base, std::string path, const FaultyEnv::Hook& hook)
      : base_(std::move(base)), path_(std::move(path)), hook_(hook) {}
  using WritableFile::Append;
  Status Append(std::span<const std::byte> data) override {
    if (Status fault = hook_("append", path_); !fault.ok()) {
      TEMPER_RETURN_IF_ERROR(base_->Append(data.first(data.size() / 2)));
      return fault;
    }
    return base_->Append(data);
  }
  Status Sync() override {
    TEMPER_RETURN_IF_ERROR(hook_("sync", path_));
    return base_->Sync();
  }
  void Hurry() override { base_->Hurry(); }
  Status Close() override {
    TEMPER_RETURN_IF_ERROR(hook_("close", path_));
    return base_->Close();
  }

 private:
  const std::unique_ptr<WritableFile> base_;
  const std::string path_;
  const FaultyEnv::Hook& hook_;
};

class FaultyBlockFile final : public BlockFile {
 public:
  FaultyBlockFile(std::unique_ptr<BlockFile> base, const FaultyEnv::Hook& hook) : base_(std::move(base)), hook_(hook) {}
  Status ReadAt(int64_t offset, std::span<std::byte> out) override {
    TEMPER_RETURN_IF_ERROR(hook_("read", base_->path()));
    return base_->ReadAt(offset, out);
  }
  Status WriteAt(int64_t offset, std::span<const std::byte> data) override {
    TEMPER_RETURN_IF_ERROR(hook_("write", base_->path()));
    return base_->WriteAt(offset, data);
  }
  Result<FileVersion> Version() const override { return base_->Version(); }
  int64_t memory_alignment() const override { return base_->memory_alignment(); }
  Bytes size() const override { return base_->size(); }
  const std::string& path() const override { return base_->path(); }

 private:
  const std::unique_ptr<BlockFile> base_;
  const FaultyEnv::Hook& hook_;
};

}  // namespace

Result<std::unique_ptr<RandomAccessFile>> FaultyEnv::OpenForRead(const std::string& path) {
  TEMPER_RETURN_IF_ERROR(hook_("open", path));
  TEMPER_ASSIGN_OR_RETURN(auto file, base_.OpenForRead(path));
  return std::unique_ptr<RandomAccessFile>(std::make_unique<FaultyRandomAccessFile>(std::move(file), hook_));
}
Result<std::string> FaultyEnv::ReadGenerated(const std::string& path) {
  TEMPER_RETURN_IF_ERROR(hook_("read", path));
  return base_.ReadGenerated(path);
}
Result<std::unique_ptr<WritableFile>> FaultyEnv::OpenForWrite(const std::string& path, WriteMode mode) {
  TEMPER_RETURN_IF_ERROR(hook_("create", path));
  TEMPER_ASSIGN_OR_RETURN(auto file, base_.OpenForWrite(path, mode));
  return std::unique_ptr<WritableFile>(std::make_unique<FaultyWritableFile>(std::move(file), path, hook_));
}
Result<std::unique_ptr<BlockFile>> FaultyEnv::OpenBlocks(const std::string& path) {
  TEMPER_RETURN_IF_ERROR(hook_("open", path));
  TEMPER_ASSIGN_OR_RETURN(auto file, base_.OpenBlocks(path));
  return std::unique_ptr<BlockFile>(std::make_unique<FaultyBlockFile>(std::move(file), hook_));
}
Result<std::unique_ptr<BlockFile>> FaultyEnv::CreateUnlinked(const std::string& folder, Bytes size) {
  TEMPER_RETURN_IF_ERROR(hook_("reserve", folder));
  TEMPER_ASSIGN_OR_RETURN(auto file, base_.CreateUnlinked(folder, size));
  return std::unique_ptr<BlockFile>(std::make_unique<FaultyBlockFile>(std::move(file), hook_));
}
Status FaultyEnv::Rename(const std::string& from, const std::string& to) {
  TEMPER_RETURN_IF_ERROR(hook_("rename", to));
  return base_.Rename(from, to);
}
Status FaultyEnv::RemoveFile(const std::string& path) {
  TEMPER_RETURN_IF_ERROR(hook_("remove", path));
  return base_.RemoveFile(path);
}
Status FaultyEnv::RemoveTree(const std::string& path) {
  TEMPER_RETURN_IF_ERROR(hook_("remove", path));
  return base_.RemoveTree(path);
}
Status FaultyEnv::CreateFolders(const std::string& path) {
  TEMPER_RETURN_IF_ERROR(hook_("folder", path));
  return base_.CreateFolders(path);
}
Status FaultyEnv::SyncFolder(const std::string& path) {
  TEMPER_RETURN_IF_ERROR(hook_("sync", path));
  return base_.SyncFolder(path);
}
Status FaultyEnv::Truncate(const std::string& path, int64_t size) {
  TEMPER_RETURN_IF_ERROR(hook_("truncate", path));
  return base_.Truncate(path, size);
}
Result<std::vector<std::string>> FaultyEnv::List(const std::string& folder) {
  TEMPER_RETURN_IF_ERROR(hook_("list", folder));
  return base_.List(folder);
}
Result<std::unique_ptr<FileLock>> FaultyEnv::Lock(const std::string& path) {
  const Status status = hook_("lock", path);
  if (status.code() == StatusCode::kUnsupported) return std::unique_ptr<FileLock>();
  TEMPER_RETURN_IF_ERROR(status);
  return base_.Lock(path);
}

}  // namespace temper
