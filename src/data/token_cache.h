// TokenCache: the token file of a data set in a folder, under a name made from its key. It is written beside that name,
// synced and renamed, so the name always stands for a whole file; runs that share a folder may read and write at once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "data/dataset.h"

namespace temper {

class TokenCache {
 public:
  // `key`: all that the tokens depend on. `env` must outlive this.
  TokenCache(Env& env, std::string folder, std::string key);

  const std::string& path() const { return path_; }

  // As OpenDataset. kNotFound also if there is no file.
  Result<Dataset> Open(TokenStore::Check check, int64_t vocab, const std::vector<std::string>& paths) const;

  // `write` fills in the file, syncs and closes it. If it fails, nothing is left. Two that write at once do the work
  // twice, and either file stays.
  Status Make(const std::function<Status(std::unique_ptr<WritableFile>)>& write) const;

  // Removes from `folder` all token files except `keep` (paths), and what killed runs have left of them.
  static void RemoveOthers(Env& env, const std::string& folder, const std::vector<std::string>& keep);
  // What RemoveOthers would free, without what killed runs have left.
  static Bytes SizeOfOthers(Env& env, const std::string& folder, const std::vector<std::string>& keep);

 private:
  Env& env_;
  const std::string folder_, key_, path_;
};

}  // namespace temper
