#include "comm/nccl/nccl_api.h"

#include <dlfcn.h>
#include <fmt/core.h>

#include <map>
#include <memory>
#include <mutex>
#include <type_traits>

#include "device/vendor_library.h"

namespace temper {
namespace {

constexpr int kOldest = 21000;  // 2.10.0

Result<std::unique_ptr<NcclApi>> Load(const std::string& name) {
  const auto loaded = LoadVendorLibrary(name);
  if (!loaded.ok()) {
    return Unsupported(
        fmt::format("ranks on GPUs need {}, which could not be loaded ({}): install it (package libnccl2, of Python "
                    "nvidia-nccl-cu13; on AMD rccl), or name its folder in LD_LIBRARY_PATH",
                    name, loaded.status().message()));
  }
  void* const library = *loaded;
  auto api = std::make_unique<NcclApi>();
  std::string missing;
  const auto find = [&](const char* function, auto* pointer) {
    *pointer = reinterpret_cast<std::remove_pointer_t<decltype(pointer)>>(dlsym(library, function));
    if (*pointer == nullptr && missing.empty()) missing = function;
  };
  find("ncclGetVersion", &api->get_version);
  find("ncclGetUniqueId", &api->get_unique_id);
  find("ncclCommInitRank", &api->init_rank);
  find("ncclCommDestroy", &api->destroy);
  find("ncclCommAbort", &api->abort);
  find("ncclCommGetAsyncError", &api->get_async_error);
  find("ncclGetErrorString", &api->error_string);
  find("ncclGroupStart", &api->group_start);
  find("ncclGroupEnd", &api->group_end);
  find("ncclAllReduce", &api->all_reduce);
  find("ncclReduce", &api->reduce);
  find("ncclReduceScatter", &api->reduce_scatter);
  find("ncclAllGather", &api->all_gather);
  find("ncclBroadcast", &api->broadcast);
  find("ncclSend", &api->send);
  find("ncclRecv", &api->receive);
  if (!missing.empty()) {
    return Unsupported(fmt::format("{} has no {}: it is too old; 2.10 or newer is needed", name, missing));
  }
  int version = 0;
  TEMPER_RETURN_IF_ERROR(api->StatusOf(api->get_version(&version), "its version"));
  // 2.8 and before were counted in other digits, 2804 for 2.8.4: smaller numbers all the same.
  const std::string text = version < 10000
                               ? fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100)
                               : fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  if (version < kOldest) {
    return Unsupported(fmt::format("{} is version {}: 2.10 or newer is needed, which knows bf16", name, text));
  }
  api->library = name + " " + text;
  return api;
}

}  // namespace

Status NcclApi::StatusOf(NcclResult result, const char* what) const {
  if (result == 0 || result == kNcclInProgress) return OkStatus();
  return IoError(
      fmt::format("between GPUs: {}: {} ({}); NCCL_DEBUG=INFO says more", what, error_string(result), result));
}

Result<const NcclApi*> LoadNccl(const std::string& library) {
  static std::mutex mutex;
  static std::map<std::string, Result<std::unique_ptr<NcclApi>>> loaded;
  const std::lock_guard lock(mutex);
  auto it = loaded.find(library);
  if (it == loaded.end()) it = loaded.emplace(library, Load(library)).first;
  if (!it->second.ok()) return it->second.status();
  return it->second->get();
}

}  // namespace temper
