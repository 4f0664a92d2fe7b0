#include "comm/nccl/nccl_api.h"

#include <fmt/core.h>

#include <map>
#include <memory>
#include <mutex>

#include "device/vendor_library.h"

namespace temper {
namespace {

constexpr int kOldest = 21900;  // 2.19.0

Result<std::unique_ptr<NcclApi>> Load(const std::string& name) {
  auto library = VendorLibrary::Open(name);
  if (!library.ok()) {
    return Unsupported(
        fmt::format("ranks on GPUs need {}, which could not be loaded ({}): install it (package libnccl2, of Python "
                    "nvidia-nccl-cu13; on AMD rccl), or name its folder in LD_LIBRARY_PATH",
                    name, library.status().message()));
  }
  auto api = std::make_unique<NcclApi>();
  library->Find("ncclGetVersion", &api->get_version);
  library->Find("ncclGetUniqueId", &api->get_unique_id);
  library->Find("ncclCommInitRankConfig", &api->init_rank);
  library->Find("ncclCommRegister", &api->add_memory);
  library->Find("ncclCommDeregister", &api->drop_memory);
  library->Find("ncclCommDestroy", &api->destroy);
  library->Find("ncclCommAbort", &api->abort);
  library->Find("ncclCommGetAsyncError", &api->get_async_error);
  library->Find("ncclGetErrorString", &api->error_string);
  library->Find("ncclGroupStart", &api->group_start);
  library->Find("ncclGroupEnd", &api->group_end);
  library->Find("ncclAllReduce", &api->all_reduce);
  library->Find("ncclReduce", &api->reduce);
  library->Find("ncclReduceScatter", &api->reduce_scatter);
  library->Find("ncclAllGather", &api->all_gather);
  library->Find("ncclBroadcast", &api->broadcast);
  library->Find("ncclSend", &api->send);
  library->Find("ncclRecv", &api->receive);
  if (!library->missing().empty()) {
    return Unsupported(fmt::format("{} has no {}: it is too old; 2.19 or newer is needed", name, library->missing()));
  }
  int version = 0;
  TEMPER_RETURN_IF_ERROR(api->StatusOf(api->get_version(&version), "its version"));
  // 2.8 and before were counted in other digits, 2804 for 2.8.4: smaller numbers all the same.
  const std::string text = version < 10000
                               ? fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100)
                               : fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  if (version < kOldest) {
    return Unsupported(fmt::format("{} is version {}: 2.19 or newer is needed (RCCL: ROCm 6.2)", name, text));
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
