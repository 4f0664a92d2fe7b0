#include "base/scratch_folder.h"

#include <stdlib.h>

#include <filesystem>

namespace temper {

ScratchFolder::ScratchFolder() : ScratchFolder(std::filesystem::temp_directory_path().string()) {}

ScratchFolder::ScratchFolder(const std::string& parent) : path_(JoinPath(parent, "temper_XXXXXX")) {
  TEMPER_CHECK(mkdtemp(path_.data()) != nullptr) << "cannot make a folder in " << parent;
}

}  // namespace temper
