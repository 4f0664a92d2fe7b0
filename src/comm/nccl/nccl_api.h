// The part of NCCL that is used, and of RCCL, which has the same functions under the same names. It is declared here,
// because neither is needed to build; the library is loaded when ranks compute on GPUs. Streams are the vendor's.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace temper {

struct NcclUniqueId {
  char bytes[128];
};
using NcclComm = void*;
// ncclConfig_t as version 2.17 has it; newer libraries take it as that version's.
struct NcclConfig {
  static constexpr int kNotSet = -2147483647 - 1;
  size_t size = 40;
  unsigned magic = 0xcafebeef, version = 21700;
  int blocking = kNotSet, cluster = kNotSet;
  int fewest_blocks = kNotSet;
  int most_blocks = kNotSet;  // of a kernel: each has a multiprocessor of its own while it waits for peers
  const char* network = nullptr;
};
static_assert(sizeof(NcclConfig) == 40);
using NcclResult = int;  // 0: fine
inline constexpr NcclResult kNcclInProgress = 7;
enum class NcclType : int { kUint8 = 1, kInt32 = 2, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum class NcclReduction : int { kSum = 0 };

struct NcclApi {
  std::string library;  // "libnccl.so.2 2.28.9"
  NcclResult (*get_version)(int* version);
  NcclResult (*get_unique_id)(NcclUniqueId* id);
  NcclResult (*init_rank)(NcclComm* comm, int ranks, NcclUniqueId id, int rank, NcclConfig* config);
  NcclResult (*destroy)(NcclComm comm);
  NcclResult (*abort)(NcclComm comm);
  // Memory that calls read and write from now on: a library that can move bytes from and to it with no copy between.
  NcclResult (*add_memory)(NcclComm comm, void* memory, size_t bytes, void** handle);
  NcclResult (*drop_memory)(NcclComm comm, void* handle);
  NcclResult (*get_async_error)(NcclComm comm, NcclResult* error);
  const char* (*error_string)(NcclResult result);
  NcclResult (*group_start)();
  NcclResult (*group_end)();
  NcclResult (*all_reduce)(const void* send, void* receive, size_t count, NcclType type, NcclReduction reduction,
                           NcclComm comm, void* stream);
  NcclResult (*reduce)(const void* send, void* receive, size_t count, NcclType type, NcclReduction reduction, int root,
                       NcclComm comm, void* stream);
  NcclResult (*reduce_scatter)(const void* send, void* receive, size_t receive_count, NcclType type,
                               NcclReduction reduction, NcclComm comm, void* stream);
  NcclResult (*all_gather)(const void* send, void* receive, size_t send_count, NcclType type, NcclComm comm,
                           void* stream);
  NcclResult (*broadcast)(const void* send, void* receive, size_t count, NcclType type, int root, NcclComm comm,
                          void* stream);
  NcclResult (*send)(const void* send, size_t count, NcclType type, int peer, NcclComm comm, void* stream);
  NcclResult (*receive)(void* receive, size_t count, NcclType type, int peer, NcclComm comm, void* stream);

  Status StatusOf(NcclResult result, const char* what) const;
};

// Loads `library` ("libnccl.so.2") once; it stays loaded. Errors, of one line: it is missing, it lacks a function, or
// it is older than 2.19, the first that is told of memory.
Result<const NcclApi*> LoadNccl(const std::string& library);

}  // namespace temper
