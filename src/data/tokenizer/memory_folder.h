// MemoryFolder: a folder of files that exist only in memory, to test and fuzz readers of model folders.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"

namespace temper {

// Holds the files "<folder>/<name>". Read-only; safe from any thread while `files` does not change.
class MemoryFolder final : public Env {
 public:
  static constexpr const char* kPath = "/memory";
  std::map<std::string, std::string> files;  // by name

  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override {
    const auto it = files.find(NameOf(path));
    if (it == files.end()) return NotFound(path + ": no such file");
    return std::unique_ptr<RandomAccessFile>(std::make_unique<File>(path, it->second));
  }
  bool IsFile(const std::string& path) override { return files.contains(NameOf(path)); }
  bool IsFolder(const std::string& path) override { return path == kPath; }
  Result<std::vector<std::string>> List(const std::string&) override {
    std::vector<std::string> names;
    for (const auto& file : files) names.push_back(file.first);
    return names;
  }

  Result<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path, WriteMode) override {
    return ReadOnly(path);
  }
  Status Rename(const std::string& from, const std::string&) override { return ReadOnly(from); }
  Status RemoveFile(const std::string& path) override { return ReadOnly(path); }
  Status RemoveTree(const std::string& path) override { return ReadOnly(path); }
  Status CreateFolders(const std::string& path) override { return ReadOnly(path); }
  Status SyncFolder(const std::string& path) override { return ReadOnly(path); }
  Status Truncate(const std::string& path, int64_t) override { return ReadOnly(path); }
  Result<Bytes> FreeSpace(const std::string& path) override { return ReadOnly(path); }

 private:
  class File final : public RandomAccessFile {
   public:
    File(std::string path, const std::string& content) : path_(std::move(path)), content_(content) {}
    Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
      if (offset < 0 || static_cast<size_t>(offset) + out.size() > content_.size())
        return Corrupt(path_ + ": too short");
      std::memcpy(out.data(), content_.data() + offset, out.size());
      return OkStatus();
    }
    Bytes size() const override { return {static_cast<int64_t>(content_.size())}; }
    const std::string& path() const override { return path_; }

   private:
    std::string path_;
    const std::string& content_;
  };

  static Status ReadOnly(const std::string& path) { return IoError(path + ": a memory folder is read only"); }
  static std::string NameOf(const std::string& path) {
    const std::string prefix = std::string(kPath) + "/";
    return path.starts_with(prefix) ? path.substr(prefix.size()) : path;
  }
};

}  // namespace temper
