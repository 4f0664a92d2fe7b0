// A library with NCCL's functions for tests: ranks are threads or processes of one machine,
// which exchange bytes through shared memory; streams are those of tests/apart_device.h.
// Work runs in order on its stream; it is an error if members do not make the same calls in
// the same order. A rank's card has 132 multiprocessors, and each kernel that runs or waits for
// peers holds as many as its communicator has blocks: orders that deadlock for want of them do
// so here, too (TEST_NCCL_SLOTS, TEST_NCCL_PATIENCE in ms). Sums are in the order of ranks, in f32 (f64 for f64), and
// rounded once.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "../../apart_stream.h"
#include "tensor/dtype.h"

namespace {

using temper::bf16;

constexpr int kMostRanks = 16;
constexpr size_t kPiece = 256 << 10;  // bytes exchanged at once
constexpr int kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6;
enum Type { kUint8 = 1, kInt32 = 2, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };

struct Letter {
  std::atomic<uint32_t> full;
  uint32_t bytes;
  std::byte data[kPiece];
};

struct Shared {
  std::atomic<uint32_t> joined;
  std::atomic<uint32_t> arrived, generation;
  uint64_t call[kMostRanks];  // the call that each member makes
  std::byte piece[kMostRanks][kPiece];
  Letter letter[kMostRanks][kMostRanks];  // from, to
};

enum class What { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kReceive };

int NumberOf(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

// The multiprocessors of a rank's card: those that no kernel holds. A rank makes all of its communicators in one
// thread.
struct Card {
  std::atomic<int> free{NumberOf("TEST_NCCL_SLOTS", 132)};
};
const std::shared_ptr<Card>& CardOfThread() {
  thread_local const auto card = std::make_shared<Card>();
  return card;
}

struct Comm {
  Comm(Shared* with, int number, int of, int most_blocks)
      : shared(with), rank(number), ranks(of), blocks(most_blocks), card(CardOfThread()) {}
  Shared* const shared;
  const int rank, ranks, blocks;
  const std::shared_ptr<Card> card;
  std::set<void*> memory;  // that it was told of
  std::atomic<bool> aborted{false};
};

struct Call {
  What what;
  const std::byte* in;
  std::byte* out;
  size_t count;
  Type type;
  int peer;  // or root
  Comm* comm;
  ApartStreamHandle* stream;
  size_t element() const { return type == kUint8 ? 1 : type == kBfloat16 ? 2 : type == kFloat64 ? 8 : 4; }
  size_t bytes() const { return count * element(); }
};

struct Work {
  std::vector<Call> calls;
};

thread_local int group_depth = 0;
thread_local std::vector<Call> group_calls;

class Failure {
 public:
  explicit Failure(const char* text) : text_(text) {}
  const char* text() const { return text_; }

 private:
  const char* text_;
};

// Ranks may wait long for a processor; a hanging test should report it before it is killed.
template <class Reached>
void Until(const Comm& comm, const Reached& reached) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; !reached(); ++i) {
    if (comm.aborted.load()) throw Failure("the communicator was aborted");
    if (i < 100) {
      sched_yield();
      continue;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(NumberOf("TEST_NCCL_PATIENCE", 120'000))) {
      throw Failure("a member of the group did not come, or kernels that wait hold the card");
    }
  }
}

void Barrier(Comm* comm) {
  Shared* const s = comm->shared;
  const uint32_t generation = s->generation.load();
  if (s->arrived.fetch_add(1) + 1 == static_cast<uint32_t>(comm->ranks)) {
    s->arrived.store(0);
    s->generation.fetch_add(1);
    return;
  }
  Until(*comm, [&] { return s->generation.load() != generation; });
}

void CheckSame(const Call& call) {
  Shared* const s = call.comm->shared;
  s->call[call.comm->rank] = static_cast<uint64_t>(call.what) << 60 | static_cast<uint64_t>(call.type) << 52 |
                             static_cast<uint64_t>(call.peer & 0xF) << 48 | call.count;
  Barrier(call.comm);
  for (int r = 0; r < call.comm->ranks; ++r) {
    if (s->call[r] != s->call[call.comm->rank]) throw Failure("members of the group make different calls");
  }
}

template <class T, class Wide, class Load, class Store>
void AddUp(const Comm& comm, std::byte* out, size_t bytes, const Load& load, const Store& store) {
  for (size_t i = 0; i < bytes / sizeof(T); ++i) {
    const auto term = [&](int r) { return load(reinterpret_cast<const T*>(comm.shared->piece[r])[i]); };
    Wide sum = term(0);
    for (int r = 1; r < comm.ranks; ++r) sum += term(r);
    reinterpret_cast<T*>(out)[i] = store(sum);
  }
}

void Sum(const Call& call, std::byte* out, size_t bytes) {
  const auto same = [](auto x) { return x; };
  switch (call.type) {
    case kFloat32:
      return AddUp<float, float>(*call.comm, out, bytes, same, same);
    case kFloat64:
      return AddUp<double, double>(*call.comm, out, bytes, same, same);
    case kBfloat16:
      return AddUp<bf16, float>(
          *call.comm, out, bytes, [](bf16 x) { return temper::ToFloat(x); }, [](float x) { return temper::ToBF16(x); });
    default:
      throw Failure("a sum of another type");
  }
}

// All members publish a piece; then take(at, bytes) is called. `shows`: this member has bytes to publish.
template <class Take>
void Show(const Call& call, const std::byte* in, bool shows, size_t bytes, const Take& take) {
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t n = std::min(kPiece, bytes - at);
    if (shows) std::memcpy(call.comm->shared->piece[call.comm->rank], in + at, n);
    Barrier(call.comm);
    take(at, n);
    Barrier(call.comm);
  }
}

void Collective(const Call& call) {
  CheckSame(call);
  const Comm& comm = *call.comm;
  const size_t bytes = call.bytes();
  const auto piece = [&](int r) { return comm.shared->piece[r]; };
  switch (call.what) {
    case What::kAllReduce:
      Show(call, call.in, true, bytes, [&](size_t at, size_t n) { Sum(call, call.out + at, n); });
      break;
    case What::kReduce:
      Show(call, call.in, true, bytes, [&](size_t at, size_t n) {
        if (comm.rank == call.peer) Sum(call, call.out + at, n);
      });
      break;
    case What::kReduceScatter:
      for (int r = 0; r < comm.ranks; ++r) {
        Show(call, call.in + static_cast<size_t>(r) * bytes, true, bytes, [&](size_t at, size_t n) {
          if (comm.rank == r) Sum(call, call.out + at, n);
        });
      }
      break;
    case What::kAllGather:
      Show(call, call.in, true, bytes, [&](size_t at, size_t n) {
        for (int r = 0; r < comm.ranks; ++r) {
          std::memcpy(call.out + static_cast<size_t>(r) * bytes + at, piece(r), n);
        }
      });
      break;
    case What::kBroadcast:
      Show(call, call.in, comm.rank == call.peer, bytes,
           [&](size_t at, size_t n) { std::memcpy(call.out + at, piece(call.peer), n); });
      break;
    default:
      break;
  }
  Barrier(call.comm);
}

// Sends and receives of a group run concurrently, those of each pair in order.
void Transfers(const std::vector<Call>& calls) {
  std::vector<size_t> done(calls.size(), 0);
  std::vector<bool> over(calls.size(), false);
  const auto step = [&](size_t i) {
    const Call& call = calls[i];
    for (size_t k = 0; k < i; ++k) {  // an earlier one to or from the same member
      if (calls[k].what == call.what && calls[k].peer == call.peer && !over[k]) return false;
    }
    const bool sends = call.what == What::kSend;
    Letter& letter = sends ? call.comm->shared->letter[call.comm->rank][call.peer]
                           : call.comm->shared->letter[call.peer][call.comm->rank];
    if ((letter.full.load() != 0) == sends) return false;
    if (sends) {
      const size_t n = std::min(kPiece, call.bytes() - done[i]);
      std::memcpy(letter.data, call.in + done[i], n);
      letter.bytes = static_cast<uint32_t>(n);
      letter.full.store(1);
      done[i] += n;
    } else {
      if (letter.bytes > call.bytes() - done[i]) throw Failure("the send is longer than the receive");
      std::memcpy(call.out + done[i], letter.data, letter.bytes);
      done[i] += letter.bytes;
      letter.full.store(0);
    }
    over[i] = done[i] == call.bytes();
    return true;
  };
  size_t left = calls.size();
  while (left > 0) {
    Until(*calls[0].comm, [&] {
      bool moved = false;
      for (size_t i = 0; i < calls.size(); ++i) {
        if (over[i] || !step(i)) continue;
        moved = true;
        left -= over[i];
      }
      return moved;
    });
  }
}

// What a kernel holds of its rank's card.
class Hold {
 public:
  explicit Hold(const Comm& comm) : comm_(comm) {
    Until(comm, [&] {
      int free = comm.card->free.load();
      return free >= comm.blocks && comm.card->free.compare_exchange_strong(free, free - comm.blocks);
    });
  }
  ~Hold() { comm_.card->free.fetch_add(comm_.blocks); }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  const Comm& comm_;
};

const char* Run(void* argument) {
  const auto* work = static_cast<const Work*>(argument);
  try {
    const Hold hold(*work->calls[0].comm);
    std::vector<Call> transfers;
    for (const Call& call : work->calls) {
      if (call.what == What::kSend || call.what == What::kReceive) {
        transfers.push_back(call);
      } else {
        Collective(call);
      }
    }
    if (!transfers.empty()) Transfers(transfers);
    return nullptr;
  } catch (const Failure& failure) {
    return failure.text();
  }
}

int Launch(std::vector<Call> calls) {
  if (calls.empty()) return kSuccess;
  // A test may ask that a communicator is told of the arena before it is used.
  if (std::getenv("TEST_NCCL_REGISTERED_ONLY") != nullptr && calls[0].comm->memory.empty()) return kInvalidUsage;
  ApartStreamHandle* const stream = calls[0].stream;
  for (Call& call : calls) {
    if (call.stream != stream || call.comm != calls[0].comm) return kInvalidUsage;
    const auto memory = [&](const std::byte* at) {
      return static_cast<std::byte*>(stream->memory_at(stream->stream, at));
    };
    const bool reads = call.what != What::kReceive && !(call.what == What::kBroadcast && call.comm->rank != call.peer);
    const bool writes = call.what != What::kSend && !(call.what == What::kReduce && call.comm->rank != call.peer);
    if ((reads && memory(call.in) == nullptr) || (writes && memory(call.out) == nullptr)) return kInvalidArgument;
    call.in = reads ? memory(call.in) : nullptr;
    call.out = writes ? memory(call.out) : nullptr;
  }
  stream->enqueue(
      stream->stream, Run, [](void* argument) { delete static_cast<Work*>(argument); }, new Work{std::move(calls)});
  return kSuccess;
}

int Add(What what, const void* in, void* out, size_t count, int type, int peer, void* comm, void* stream) {
  auto* const c = static_cast<Comm*>(comm);
  if (c == nullptr || stream == nullptr || peer < 0 || peer >= c->ranks) return kInvalidArgument;
  group_calls.push_back({what, static_cast<const std::byte*>(in), static_cast<std::byte*>(out), count,
                         static_cast<Type>(type), peer, c, static_cast<ApartStreamHandle*>(stream)});
  if (group_depth > 0) return kSuccess;
  return Launch(std::exchange(group_calls, {}));
}

struct Id {
  char bytes[128];
};

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  const char* const pretended = std::getenv("TEST_NCCL_VERSION");
  *version = pretended != nullptr ? std::atoi(pretended) : 22809;
  return kSuccess;
}

int ncclGetUniqueId(Id* id) {
  static std::atomic<int> number{0};
  std::snprintf(id->bytes, sizeof(id->bytes), "/temper_test_nccl.%d.%d", getpid(), number.fetch_add(1));
  const int file = shm_open(id->bytes, O_CREAT | O_EXCL | O_RDWR, 0600);
  if (file < 0) return kSystemError;
  const bool sized = ftruncate(file, sizeof(Shared)) == 0;
  close(file);
  return sized ? kSuccess : kSystemError;
}

// The fields that applications of version 2.17 set.
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking, cluster, fewest_blocks, most_blocks;
  const char* network;
};

int ncclCommInitRankConfig(void** comm, int ranks, Id id, int rank, const Config* config) {
  constexpr int kNotSet = -2147483647 - 1, kDefaultBlocks = 32;
  if (config == nullptr || config->size != sizeof(Config) || config->magic != 0xcafebeef || config->version != 21700 ||
      config->blocking != kNotSet || config->cluster != kNotSet || config->fewest_blocks != kNotSet ||
      config->network != nullptr || (config->most_blocks != kNotSet && config->most_blocks < 1)) {
    return kInvalidArgument;
  }
  if (ranks < 1 || ranks > kMostRanks || rank < 0 || rank >= ranks) return kInvalidArgument;
  const int file = shm_open(id.bytes, O_RDWR, 0600);
  if (file < 0) return kSystemError;
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return kSystemError;
  auto* const shared = static_cast<Shared*>(memory);
  auto made = std::make_unique<Comm>(shared, rank, ranks,
                                     config->most_blocks == kNotSet ? kDefaultBlocks : config->most_blocks);
  shared->joined.fetch_add(1);
  try {
    Until(*made, [&] { return shared->joined.load() == static_cast<uint32_t>(ranks); });
  } catch (const Failure&) {
    return kSystemError;
  }
  shm_unlink(id.bytes);
  *comm = made.release();
  return kSuccess;
}

int ncclCommRegister(void* comm, void* memory, size_t bytes, void** handle) {
  auto* const c = static_cast<Comm*>(comm);
  if (c == nullptr || memory == nullptr || bytes == 0 || std::getenv("TEST_NCCL_NO_MEMORY") != nullptr) {
    return kInvalidArgument;
  }
  *handle = memory;
  return c->memory.insert(memory).second ? kSuccess : kInvalidUsage;
}
int ncclCommDeregister(void* comm, void* handle) {
  return static_cast<Comm*>(comm)->memory.erase(handle) == 1 ? kSuccess : kInvalidUsage;
}

int ncclCommDestroy(void* comm) {
  auto* const c = static_cast<Comm*>(comm);
  if (!c->memory.empty()) std::abort();  // a buffer that was not given back
  munmap(c->shared, sizeof(Shared));
  delete c;
  return kSuccess;
}

int ncclCommAbort(void* comm) {
  // NCCL's version waits for the device, where kernels of other communicators run: this simulates it.
  if (const char* const together = std::getenv("TEST_NCCL_ABORTS_TOGETHER")) {
    static std::atomic<int> begun{0};
    begun.fetch_add(1);
    for (int i = 0; begun.load() < std::atoi(together) && i < 20000; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // Only for this member: others keep waiting. Work on a stream still uses it, so it is not freed.
  static std::mutex mutex;
  static std::vector<std::unique_ptr<Comm>> aborted;
  const std::lock_guard lock(mutex);
  static_cast<Comm*>(comm)->aborted.store(true);
  aborted.emplace_back(static_cast<Comm*>(comm));
  return kSuccess;
}

int ncclCommGetAsyncError(void* comm, int* error) {
  if (comm == nullptr) return kInvalidArgument;
  *error = std::getenv("TEST_NCCL_ASYNC_ERROR") != nullptr ? kRemoteError : kSuccess;
  return kSuccess;
}

const char* ncclGetErrorString(int result) {
  switch (result) {
    case kSuccess:
      return "no error";
    case kInvalidArgument:
      return "invalid argument";
    case kInvalidUsage:
      return "invalid usage";
    case kRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unhandled system error";
  }
}

int ncclGroupStart() {
  ++group_depth;
  return kSuccess;
}

int ncclGroupEnd() {
  if (group_depth == 0) return kInvalidUsage;
  if (--group_depth > 0) return kSuccess;
  auto calls = std::exchange(group_calls, {});
  return std::getenv("TEST_NCCL_REMOTE_ERROR") != nullptr ? kRemoteError : Launch(std::move(calls));
}

int ncclAllReduce(const void* in, void* out, size_t count, int type, int, void* comm, void* stream) {
  return Add(What::kAllReduce, in, out, count, type, 0, comm, stream);
}
int ncclReduce(const void* in, void* out, size_t count, int type, int, int root, void* comm, void* stream) {
  return Add(What::kReduce, in, out, count, type, root, comm, stream);
}
int ncclReduceScatter(const void* in, void* out, size_t count, int type, int, void* comm, void* stream) {
  return Add(What::kReduceScatter, in, out, count, type, 0, comm, stream);
}
int ncclAllGather(const void* in, void* out, size_t count, int type, void* comm, void* stream) {
  return Add(What::kAllGather, in, out, count, type, 0, comm, stream);
}
int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, void* comm, void* stream) {
  return Add(What::kBroadcast, in, out, count, type, root, comm, stream);
}
int ncclSend(const void* in, size_t count, int type, int peer, void* comm, void* stream) {
  return Add(What::kSend, in, nullptr, count, type, peer, comm, stream);
}
int ncclRecv(void* out, size_t count, int type, int peer, void* comm, void* stream) {
  return Add(What::kReceive, nullptr, out, count, type, peer, comm, stream);
}

}  // extern "C"
