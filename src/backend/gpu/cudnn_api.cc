#include "backend/gpu/cudnn_api.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <type_traits>

namespace temper::gpu {
namespace {

constexpr char kLibrary[] = "libcudnn.so.9";
constexpr size_t kOldest = 91800;

Result<CudnnApi> Load(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // never closed: the process keeps it
  if (library == nullptr) {
    return Unsupported(fmt::format(
        "{} could not be loaded ({}): install cuDNN 9.18 or newer (package cudnn9-cuda-13), or name its folder in "
        "LD_LIBRARY_PATH",
        name, dlerror()));
  }
  CudnnApi api = {};
  api.file = name;
  std::string missing;
  const auto find = [&](const char* function_name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, function_name));
    if (*function == nullptr && missing.empty()) missing = function_name;
  };
  find("cudnnGetVersion", &api.get_version);
  find("cudnnGetLastErrorString", &api.last_error);
  find("cudnnCreate", &api.create);
  find("cudnnDestroy", &api.destroy);
  find("cudnnSetStream", &api.set_stream);
  find("cudnnBackendCreateDescriptor", &api.make);
  find("cudnnBackendDestroyDescriptor", &api.drop);
  find("cudnnBackendSetAttribute", &api.set);
  find("cudnnBackendGetAttribute", &api.get);
  find("cudnnBackendFinalize", &api.finalize);
  find("cudnnBackendExecute", &api.execute);
  if (!missing.empty()) return Unsupported(fmt::format("{} has no {}: it is of another version", name, missing));
  api.number = api.get_version();
  api.version = fmt::format("cuDNN {}.{}.{}", api.number / 10000, api.number / 100 % 100, api.number % 100);
  if (api.number < kOldest) {
    return Unsupported(fmt::format("{} is {}: 9.18 or newer is needed for attention", name, api.version));
  }
  return api;
}

}  // namespace

Result<const CudnnApi*> LoadCudnn(const std::string& library) {
  static std::mutex mutex;
  static std::map<std::string, Result<CudnnApi>> loaded;
  const std::string name = library.empty() ? kLibrary : library;
  const std::lock_guard lock(mutex);
  auto it = loaded.find(name);
  if (it == loaded.end()) it = loaded.emplace(name, Load(name)).first;
  if (!it->second.ok()) return it->second.status();
  return &*it->second;
}

Status CudnnApi::StatusOf(int result, const std::string& what) const {
  if (result == 0) return OkStatus();
  char text[1024] = {};
  last_error(text, sizeof(text));
  const char* const why = text + std::strspn(text, "\n");  // of its lines, the first
  const size_t length = std::strcspn(why, "\n");
  std::string message = fmt::format("{}, {}: status {}{}{}", version, what, result, length == 0 ? "" : ", ",
                                    std::string_view(why, length));
  constexpr int kNotSupported = 3000;  // to 3999: one per reason
  return result / 1000 * 1000 == kNotSupported ? Unsupported(std::move(message)) : InvalidArgument(std::move(message));
}

}  // namespace temper::gpu
