// MemoryEnv: files in a map, for tests and fuzz targets that open bytes which are not on a disk. A folder exists while
// a file lies in it. Not for production code; one thread at a time.
#pragma once

#include <fmt/core.h>

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/env.h"

namespace temper {

class MemoryEnv final : public Env {
 public:
  std::map<std::string, std::string> files;

  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override {
    const auto it = files.find(path);
    if (it == files.end()) return NotFound("cannot open " + path + ": No such file or directory");
    return std::unique_ptr<RandomAccessFile>(std::make_unique<Reader>(path, it->second));
  }
  Result<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path, WriteMode mode) override {
    std::string& text = files[path];
    if (mode != WriteMode::kAppend) text.clear();
    return std::unique_ptr<WritableFile>(std::make_unique<Writer>(text));
  }
  Status Rename(const std::string& from, const std::string& to) override {
    const auto it = files.find(from);
    if (it == files.end()) return NotFound("cannot rename " + from);
    std::string text = std::move(it->second);
    files.erase(it);
    files[to] = std::move(text);
    return OkStatus();
  }
  Status RemoveFile(const std::string& path) override { return files.erase(path) ? OkStatus() : NotFound(path); }
  Status RemoveTree(const std::string& path) override {
    std::erase_if(files, [&](const auto& f) { return f.first == path || f.first.starts_with(path + "/"); });
    return OkStatus();
  }
  Status CreateFolders(const std::string&) override { return OkStatus(); }
  Status SyncFolder(const std::string&) override { return OkStatus(); }
  Status Truncate(const std::string& path, int64_t size) override {
    files[path].resize(static_cast<size_t>(size));
    return OkStatus();
  }
  Result<std::vector<std::string>> List(const std::string& folder) override {
    std::set<std::string> names;
    for (const auto& [path, text] : files) {
      if (path.starts_with(folder + "/"))
        names.insert(path.substr(folder.size() + 1, path.find('/', folder.size() + 1) - folder.size() - 1));
    }
    return std::vector<std::string>(names.begin(), names.end());
  }
  bool IsFile(const std::string& path) override { return files.contains(path); }
  bool IsFolder(const std::string& path) override {
    const auto it = files.lower_bound(path + "/");
    return it != files.end() && it->first.starts_with(path + "/");
  }
  Result<Bytes> FreeSpace(const std::string&) override { return GiB(1); }

 private:
  class Reader final : public RandomAccessFile {
   public:
    Reader(std::string path, const std::string& text) : path_(std::move(path)), text_(text) {}
    Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
      if (offset < 0 || offset > size().v || static_cast<int64_t>(out.size()) > size().v - offset) {
        return Corrupt(fmt::format("{} ends at byte {} but {} bytes from {} on were expected: it is truncated", path_,
                                   text_.size(), out.size(), offset));
      }
      if (!out.empty()) std::memcpy(out.data(), text_.data() + offset, out.size());
      return OkStatus();
    }
    Bytes size() const override { return {static_cast<int64_t>(text_.size())}; }
    const std::string& path() const override { return path_; }

   private:
    const std::string path_;
    const std::string text_;
  };
  class Writer final : public WritableFile {
   public:
    explicit Writer(std::string& text) : text_(text) {}
    using WritableFile::Append;
    Status Append(std::span<const std::byte> data) override {
      text_.append(reinterpret_cast<const char*>(data.data()), data.size());
      return OkStatus();
    }
    Status Sync() override { return OkStatus(); }
    Status Close() override { return OkStatus(); }

   private:
    std::string& text_;
  };
};

}  // namespace temper
