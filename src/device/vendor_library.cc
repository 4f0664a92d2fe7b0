#include "device/vendor_library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <sstream>

namespace temper {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool Exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

// The folder above that of the first python3 of PATH: "/opt/torch/.venv". Not where a link leads: an environment's
// python3 is one.
std::string PrefixOfPython() {
  std::istringstream path(Variable("PATH"));
  for (std::string bin; std::getline(path, bin, ':');) {
    if (Exists(bin + "/python3")) return bin.substr(0, bin.rfind('/'));
  }
  return "";
}

}  // namespace

std::vector<std::string> VendorLibraryFolders() {
  std::vector<std::string> patterns;
  const auto below = [&](const std::string& root, std::initializer_list<const char*> folders) {
    if (root.empty()) return;
    for (const char* folder : folders) patterns.push_back(root + folder);
  };
  for (const char* toolkit : {"CUDA_HOME", "CUDA_PATH", "ROCM_PATH"}) below(Variable(toolkit), {"/lib64", "/lib"});
  below("/usr/local/cuda", {"/lib64"});
  below("/opt/rocm", {"/lib"});
  for (const std::string& prefix : {Variable("VIRTUAL_ENV"), Variable("CONDA_PREFIX"), PrefixOfPython()}) {
    below(prefix, {"/lib/python3*/site-packages/nvidia/*/lib", "/lib/python3*/dist-packages/nvidia/*/lib",
                   "/local/lib/python3*/dist-packages/nvidia/*/lib"});
  }
  std::vector<std::string> folders;
  for (const std::string& pattern : patterns) {
    glob_t found = {};
    if (glob(pattern.c_str(), GLOB_ONLYDIR, nullptr, &found) == 0) {
      for (size_t i = 0; i < found.gl_pathc; ++i) {
        const std::string folder = found.gl_pathv[i];
        if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
      }
    }
    globfree(&found);
  }
  return folders;
}

Result<void*> LoadVendorLibrary(const std::string& name) {
  if (void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  std::string why = dlerror();
  const std::vector<std::string> folders = VendorLibraryFolders();
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + name;
    if (!Exists(path)) continue;
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    why = dlerror();
  }
  std::string also;
  for (const std::string& folder : folders) also += (also.empty() ? "; nor is it in " : ", ") + folder;
  return NotFound(why + also);
}

}  // namespace temper
