// ScratchFolder: an empty folder of its own in the machine's file system, gone with all that is in it when its owner
// is. For tests.
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
