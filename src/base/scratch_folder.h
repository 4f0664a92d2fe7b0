// ScratchFolder: a new empty folder in the machine's file system, removed with its contents when its owner is
// destroyed. For tests.
#pragma once

#include <string>
#include <string_view>

#include "base/env.h"

namespace temper {

class ScratchFolder {
 public:
  // In the folder that the system keeps for temporary files ($TMPDIR, /tmp).
  ScratchFolder();
  explicit ScratchFolder(const std::string& parent);
  ~ScratchFolder() { (void)PosixEnv().RemoveTree(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

}  // namespace temper
