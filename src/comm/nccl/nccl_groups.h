// NcclGroups: the NCCL communicators of a rank, one per group of ranks and lane, made when the first kernel asks for
// one. Members find each other through the communicator that the ranks already have on the host.
//
// Thread rule: the thread that makes kernels and enqueues them; Abort by any.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "comm/nccl/nccl_api.h"
#include "device/communicator.h"
#include "device/device.h"

namespace temper {

// One NCCL communicator from one member's point of view. Members are numbered as in Mesh::Group.
struct NcclGroup {
  NcclComm comm = nullptr;
  int index = 0, size = 1;
};

// How many communicators ConnectNeighbours makes on each of this many ranks: per neighbour in the ring one per
// direction.
constexpr int NeighbourCommunicators(int ranks) {
  return 2 * std::min(ranks - 1, 2);
}

class NcclGroups {
 public:
  // All outlive it.
  NcclGroups(const NcclApi& api, Communicator& host, const Mesh& mesh) : api_(api), host_(host), mesh_(mesh) {}
  // And Close.
  ~NcclGroups();
  NcclGroups(const NcclGroups&) = delete;
  NcclGroups& operator=(const NcclGroups&) = delete;

  // Collective over the group of `axes` on the first call.
  Result<NcclGroup> Of(AxisSet axes, StreamUse use);
  // Lets neighbours in the group of `axes`, a ring, send to each other. Each pair exchanges a byte, on `stream`: NCCL
  // connects two ranks when they first meet, and both block until then, whatever else they have to enqueue. Collective
  // over the group; once. `byte`: one of the device's.
  Status ConnectNeighbours(AxisSet axes, Stream& stream, std::byte* byte);
  // For two neighbours, the members `from` and `to` of the group, one of which is this rank: for sends of `from`.
  Result<NcclGroup> Between(AxisSet axes, int from, int to) const;
  // One number of each member of the group, in order. Collective; whole numbers below 2^44.
  Result<std::vector<int64_t>> Gather(AxisSet axes, const std::vector<int64_t>& mine);

  // Tells the library of memory that calls read and write, for communicators that there are and that are made later.
  // Where it fails, bytes go through the library's own buffers, as they would without this call. REQUIRES: `memory`
  // is kept until Close.
  void AddMemory(std::span<std::byte> memory);

  // Bytes that this rank's calls of Gather have sent: to make kernels, not to run them.
  Bytes gathered() const { return {gathered_.load(std::memory_order_relaxed)}; }

  // Held while something is enqueued: nothing is aborted meanwhile. Errors: the cause, if it was aborted.
  using Inside = std::unique_lock<std::timed_mutex>;
  Result<Inside> Enter();
  // For the result of a library call. Any thread.
  Status StatusOf(NcclResult result, const char* what);
  // Whether such a call has failed: a lost peer may show there first. Any thread.
  bool failed() const { return failed_.load(); }
  // Errors of the work in progress: a peer's network is gone, and its process lives. OK if a thread is inside a call,
  // which gets the error itself. Any thread.
  Status ErrorUnderWay();
  // Ends all waits in `all`, and lets nothing be enqueued there from now on. False, after some seconds: a thread is
  // inside a call that does not return. Any thread.
  static bool Abort(const std::vector<NcclGroups*>& all, const Status& cause);
  // Releases the communicators when their work is done, unless Abort has ended it. From here on Abort does
  // nothing.
  void Close();

  const NcclApi& api() const { return api_; }
  const Mesh& mesh() const { return mesh_; }
  int rank() const { return host_.rank(); }

 private:
  struct Edge {
    AxisSet axes;
    int from, to;
    auto operator<=>(const Edge&) const = default;
  };
  Result<Exchange*> ExchangeOver(AxisSet axes);
  // `founder` of the group of `axes` makes the id with which the `joining` members meet.
  Result<NcclComm> Meet(AxisSet axes, int founder, bool joining, int size, int index);
  // REQUIRES: inside.
  void Add(NcclComm comm, std::span<std::byte> memory);
  // Keeps the new communicator, unless Abort came first.
  template <class Key>
  Status Keep(std::map<Key, NcclGroup>* among, const Key& key, const NcclGroup& group);

  const NcclApi& api_;
  Communicator& host_;
  const Mesh mesh_;
  std::map<AxisSet, std::unique_ptr<Exchange>> exchanges_;
  std::atomic<int64_t> gathered_{0};
  std::atomic<bool> failed_{false};

  std::timed_mutex mutex_;  // guards changes of the following
  std::map<std::pair<AxisSet, StreamUse>, NcclGroup> groups_;
  std::map<Edge, NcclGroup> edges_;
  std::vector<std::span<std::byte>> memory_;
  std::vector<std::pair<NcclComm, void*>> added_;  // the library's handles
  Status aborted_;
};

}  // namespace temper
