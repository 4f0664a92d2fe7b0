#include "device/vendor_library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <utility>

namespace temper {
namespace {

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool Exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

// The folder above that of a file: "/opt/torch/.venv" of "/opt/torch/.venv/bin/python3".
std::string PrefixOf(const std::string& file) {
  const std::string folder = file.substr(0, file.rfind('/'));
  return folder.substr(0, folder.rfind('/'));
}

// The environment of the first python3 of PATH, and those that it leads to link by link: which of them has packages the
// links do not say, since an environment's own python3 is one to the system's.
std::vector<std::string> PrefixesOfPython() {
  std::istringstream path(Variable("PATH"));
  for (std::string folder; std::getline(path, folder, ':');) {
    std::string file = folder + "/python3";
    // Relative to the current folder, which may be anybody's: no library is loaded from there.
    if (!folder.starts_with('/') || !Exists(file)) continue;
    std::vector<std::string> prefixes = {PrefixOf(file)};
    constexpr int kMostLinks = 8;
    char target[4096];
    for (int link = 0; link < kMostLinks; ++link) {
      const ssize_t length = readlink(file.c_str(), target, sizeof(target));
      if (length <= 0) break;
      const std::string to(target, static_cast<size_t>(length));
      file = to[0] == '/' ? to : file.substr(0, file.rfind('/') + 1) + to;
      prefixes.push_back(PrefixOf(file));
    }
    return prefixes;
  }
  return {};
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
  std::vector<std::string> environments = {Variable("VIRTUAL_ENV"), Variable("CONDA_PREFIX")};
  for (std::string& prefix : PrefixesOfPython()) environments.push_back(std::move(prefix));
  for (const std::string& prefix : environments) {
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

Result<VendorLibrary> VendorLibrary::Open(const std::string& name) {
  if (void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return VendorLibrary(library);
  std::string why = dlerror();
  const std::vector<std::string> folders = VendorLibraryFolders();
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + name;
    if (!Exists(path)) continue;
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return VendorLibrary(library);
    why = dlerror();
  }
  std::string also;
  for (const std::string& folder : folders) also += (also.empty() ? "; nor is it in " : ", ") + folder;
  return NotFound(why + also);
}

void* VendorLibrary::AddressOf(const char* name) {
  void* const address = dlsym(handle_, name);
  if (address == nullptr && missing_.empty()) missing_ = name;
  return address;
}

}  // namespace temper
