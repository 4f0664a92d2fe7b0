#include "data/token_cache.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/host_name.h"
#include "base/unique_name.h"
#include "format/checksum.h"

namespace temper {
namespace {

constexpr std::string_view kPrefix = "tokens-", kSuffix = ".bin", kTemporary = ".tmp";

bool IsTokenFile(std::string_view name, std::string_view suffix) {
  return name.starts_with(kPrefix) && name.ends_with(suffix);
}

// A name beside the file that no other process gives, on any host that sees the folder: containers may share host names
// and process ids.
std::string TemporaryName(const std::string& path) {
  return fmt::format("{}.{}-{}-{}{}", path, HostName(), getpid(), UniqueName(), kTemporary);
}

// Whether a process of this host was to write the file, and is gone. For folders without locks: there, containers must
// have different host names.
bool WriterIsGone(std::string_view name) {
  const std::string own = fmt::format("{}.{}-", kSuffix, HostName());
  const size_t at = name.find(own);
  const int pid = at == name.npos ? 0 : std::atoi(name.data() + at + own.size());
  return pid > 0 && kill(pid, 0) != 0 && errno == ESRCH;
}

// Removes files that no process writes any more. Where files cannot be locked, those of other hosts stay.
void RemoveAbandoned(Env& env, const std::string& folder) {
  const auto names = env.List(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(folder, name);
    if (!IsTokenFile(name, kTemporary)) continue;
    const auto lock = env.Lock(path);
    if (lock.ok() && (*lock || WriterIsGone(name))) (void)env.RemoveFile(path);
  }
}

// Paths of the token files in `folder` except `keep`.
std::vector<std::string> Others(Env& env, const std::string& folder, const std::vector<std::string>& keep) {
  std::vector<std::string> others;
  const auto names = env.List(folder);
  if (!names.ok()) return others;
  for (const std::string& name : *names) {
    const std::string path = JoinPath(folder, name);
    const bool kept = std::any_of(keep.begin(), keep.end(), [&](const std::string& k) {
      std::error_code missing;
      return k == path || std::filesystem::equivalent(k, path, missing);
    });
    if (IsTokenFile(name, kSuffix) && !kept) others.push_back(path);
  }
  return others;
}

}  // namespace

TokenCache::TokenCache(Env& env, std::string folder, std::string key)
    : env_(env),
      folder_(std::move(folder)),
      key_(std::move(key)),
      path_(JoinPath(folder_, fmt::format("{}{}{}", kPrefix, ChecksumHex(std::as_bytes(std::span(key_))), kSuffix))) {}

Result<Dataset> TokenCache::Open(TokenStore::Check check, int64_t vocab, const std::vector<std::string>& paths) const {
  TEMPER_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path_));
  return OpenDataset(std::move(file), check, vocab, key_, paths);
}

Status TokenCache::Make(const std::function<Status(std::unique_ptr<WritableFile>)>& write) const {
  std::string temporary;
  std::unique_ptr<FileLock> lock;
  const auto make = [&]() -> Status {
    TEMPER_RETURN_IF_ERROR(env_.CreateFolders(folder_));
    RemoveAbandoned(env_, folder_);
    Result<std::unique_ptr<FileLock>> locked = InUse("");  // also for a moment, by who looks whether this process lives
    while (locked.status().code() == StatusCode::kInUse) {
      temporary = TemporaryName(path_);
      locked = env_.Lock(temporary);
    }
    TEMPER_RETURN_IF_ERROR(locked.status());
    lock = *std::move(locked);
    TEMPER_ASSIGN_OR_RETURN(auto file, env_.OpenForWrite(temporary));
    TEMPER_RETURN_IF_ERROR(write(std::move(file)));
    TEMPER_RETURN_IF_ERROR(env_.Rename(temporary, path_));
    return env_.SyncFolder(folder_);
  };
  const Status made = make();
  if (made.ok()) return made;
  if (!temporary.empty()) (void)env_.RemoveFile(temporary);  // which may not even be there
  const bool of_file = made.message().find(folder_) != std::string::npos;
  if ((made.code() != StatusCode::kIo && made.code() != StatusCode::kNotFound) || !of_file) return made;
  return Status(made.code(), fmt::format("{}; --data_cache FOLDER keeps the data's tokens elsewhere", made.message()));
}

void TokenCache::RemoveOthers(Env& env, const std::string& folder, const std::vector<std::string>& keep) {
  for (const std::string& path : Others(env, folder, keep)) (void)env.RemoveFile(path);
  RemoveAbandoned(env, folder);
}

Bytes TokenCache::SizeOfOthers(Env& env, const std::string& folder, const std::vector<std::string>& keep) {
  Bytes sum{};
  for (const std::string& path : Others(env, folder, keep)) {
    const auto file = env.OpenForRead(path);
    if (file.ok()) sum += (*file)->size();
  }
  return sum;
}

}  // namespace temper
