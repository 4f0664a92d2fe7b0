#include "backend/gpu/attention/cudnn_api.h"

#include <fmt/core.h>

#include <cstring>
#include <map>
#include <mutex>
#include <string_view>

#include "device/vendor_library.h"

namespace temper::gpu {
namespace {

constexpr char kCudnn[] = "libcudnn.so.9";
constexpr size_t kOldestCudnn = 91800;

Result<CudnnApi> OpenCudnn(const std::string& name) {
  auto library = VendorLibrary::Open(name);
  if (!library.ok()) {
    return Unsupported(
        fmt::format("{} could not be loaded ({}): install cuDNN 9.18 or newer (package cudnn9-cuda-13 or -12, of "
                    "Python nvidia-cudnn-cu13 or -cu12), or name its folder in LD_LIBRARY_PATH",
                    name, library.status().message()));
  }
  CudnnApi api = {};
  api.file = name;
  library->Find("cudnnGetVersion", &api.get_version);
  library->Find("cudnnGetLastErrorString", &api.last_error);
  library->Find("cudnnCreate", &api.create);
  library->Find("cudnnDestroy", &api.destroy);
  library->Find("cudnnSetStream", &api.set_stream);
  library->Find("cudnnBackendCreateDescriptor", &api.make);
  library->Find("cudnnBackendDestroyDescriptor", &api.drop);
  library->Find("cudnnBackendSetAttribute", &api.set);
  library->Find("cudnnBackendGetAttribute", &api.get);
  library->Find("cudnnBackendFinalize", &api.finalize);
  library->Find("cudnnBackendExecute", &api.execute);
  if (!library->missing().empty()) {
    return Unsupported(fmt::format("{} has no {}: it is of another version", name, library->missing()));
  }
  api.number = api.get_version();
  api.version = fmt::format("cuDNN {}.{}.{}", api.number / 10000, api.number / 100 % 100, api.number % 100);
  if (api.number < kOldestCudnn) {
    return Unsupported(fmt::format("{} is {}: 9.18 or newer is needed for attention", name, api.version));
  }
  return api;
}

}  // namespace

Result<const CudnnApi*> LoadCudnn(const std::string& library) {
  static std::mutex mutex;
  static std::map<std::string, Result<CudnnApi>> loaded;
  const std::string name = library.empty() ? kCudnn : library;
  const std::lock_guard lock(mutex);
  auto it = loaded.find(name);
  if (it == loaded.end()) it = loaded.emplace(name, OpenCudnn(name)).first;
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
  return result / 1000 * 1000 == kNotSupported ? Unsupported(std::move(message)) : IoError(std::move(message));
}

}  // namespace temper::gpu
