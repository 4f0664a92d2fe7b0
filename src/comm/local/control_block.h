// ControlBlock: what the ranks of one host share besides their arenas: doorbells, the data that each shows the others,
// and why the run was stopped. It lies in memory that all of them map (or in that of one process, if ranks are
// threads). Zeroed memory is a valid one, so no rank has to be first.
//
// Any process of the user can write what peers show here. A rank checks lengths, numbers of ranks and addresses before
// it uses them: garbage is an error or a wrong result, not a crash.
//
// Thread rule: any thread of any process. Ranks are numbered within the host; messages name `global_rank`.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "device/communicator.h"

namespace temper {

// What a rank meets others for. Published with every call, so that ranks that run different things find out instead of
// misreading each other's memory.
enum class Meeting : uint32_t {
  kNone,
  kBarrier,
  kSum,
  kMax,
  kBroadcastBytes,
  kExchange,
  kMakeKernel,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kShift,
};
const char* ToString(Meeting meeting);

// Tensors that one meeting can carry; a node with more meets several times.
inline constexpr int kTensorsPerMeeting = 512;
inline constexpr Bytes kMailboxBytes = KiB(32);
inline constexpr int kMaxExtents = 32;
inline constexpr int kMaxHostRanks = 512;

// Memory of a rank that peers may map: a range of the shared file.
struct Extent {
  uint64_t offset, size;
};

// A rank's activities side by side, each on one thread at a time: collectives whose result is needed at once, those
// beside the kernels, those of them that are needed soon, and transfers. Ranks meet in the first three lanes. Each has
// signals and a place to publish of its own, so a group can meet in one lane while one of its ranks still waits in
// another.
enum class Lane : uint32_t { kInline, kBackground, kSoon, kSends, kReceives };
inline constexpr int kNumLanes = 5, kMeetingLanes = 3;
constexpr bool IsMeetingLane(Lane lane) {
  return static_cast<int>(lane) < kMeetingLanes;
}
// The lane in which the awaited rank acts, for a rank that waits in `lane`.
constexpr Lane OtherEnd(Lane lane) {
  if (IsMeetingLane(lane)) return lane;
  return lane == Lane::kSends ? Lane::kReceives : Lane::kSends;
}

// A sleeper waits on `doorbell` (a futex). The thread that signals it rings if `sleeping` is set.
struct Sleeper {
  std::atomic<uint32_t> doorbell;
  std::atomic<uint32_t> sleeping;
  std::atomic<int32_t> waiting_for;  // rank + 1 while it sleeps, or kElsewhere
  std::atomic<int32_t> tid;          // the thread that waits; written before waiting_for
};
inline constexpr int32_t kElsewhere = -1;  // for a rank of another host

// One direction of a pair of ranks: `posted` sends, of which `taken` have been copied. The sender writes the other two
// fields only while no posted send is untaken.
struct alignas(64) TransferSlot {
  std::atomic<uint32_t> posted, taken;
  uint64_t address, fingerprint;
};

// What a rank shows those it meets; the rank writes it while no peer reads it (Rendezvous::Publish).
struct Published {
  alignas(64) Meeting meeting;
  uint32_t size;         // bytes in the mailbox
  uint64_t fingerprint;  // of the data of the call: peers must show the same
  uint64_t addresses[2 * kTensorsPerMeeting];
  alignas(64) std::byte mailbox[kMailboxBytes.v];
};

struct alignas(64) RankBlock {
  Sleeper sleepers[kNumLanes];
  // Lane + 1 of the background kernel that the kernel thread has issued and waits for; 0: none.
  std::atomic<uint32_t> awaited;
  // The process; 0: has not joined yet.
  std::atomic<int32_t> pid, tid;
  std::atomic<int32_t> global_rank;
  std::atomic<uint32_t> left;
  std::atomic<uint32_t> num_extents;
  Extent extents[kMaxExtents];

  Published published[kMeetingLanes];
};

class ControlBlock {
 public:
  static Bytes SizeFor(int ranks);
  // `memory`: SizeFor(ranks) bytes, page-aligned, that were zero before the first rank attached to them.
  ControlBlock(void* memory, int ranks);

  // Says by whose layout the block is read and for how many ranks; programs that share it check that.
  void Stamp() const;
  bool IsStamped() const;

  int ranks() const { return ranks_; }
  RankBlock& rank(int i) const { return blocks_[i]; }
  // How often `from` has signalled `to` in a lane of meetings. Only `from` writes it.
  std::atomic<uint32_t>& signals(Lane lane, int to, int from) const {
    return counters_[(static_cast<int>(lane) * ranks_ + to) * ranks_ + from];
  }
  // Only `from` and `to` write it.
  TransferSlot& transfer(int from, int to) const { return transfers_[from * ranks_ + to]; }
  // REQUIRES: IsMeetingLane(lane).
  Published& published(int i, Lane lane) const { return rank(i).published[static_cast<size_t>(lane)]; }
  Sleeper& sleeper(int i, Lane lane) const { return rank(i).sleepers[static_cast<size_t>(lane)]; }
  // "rank 3 (process 4711)".
  std::string NameOf(int i) const;

  // Ends the run for all ranks, unless it has ended already: every wait returns `cause`. `reporter`: the rank that
  // tells the user, or -1 (a launcher). True if this call was the first. In both cases the run has stopped on return.
  bool Stop(const Status& cause, int reporter) const;
  bool stopped() const;
  // The cause. OK while the run continues.
  Status Cause() const;
  int reporter() const;
  // True for the first caller, which tells other hosts of the stop.
  bool ClaimForwarding() const;

  // For all ranks of this host; the default until it is set.
  void SetPatience(const Patience& patience) const;
  Patience patience() const;

  // A launcher watches the ranks: it knows best how one of them died.
  void SetLaunched() const;
  bool launched() const;
  // Processors that any of the ranks may run on, as far as the quota of their cgroup reaches; each rank adds its own
  // when it joins.
  void AddProcessors() const;
  int processors() const;
  int processors_per_rank() const { return processors() > ranks_ ? processors() / ranks_ : 1; }

 private:
  struct Header;
  Header* header_;
  RankBlock* blocks_;
  TransferSlot* transfers_;
  std::atomic<uint32_t>* counters_;
  int ranks_;
};

// The code of an error that another process has told; kIo for a number that is none of an error.
StatusCode ErrorCodeOf(int32_t code);

// Wakes the sleeper there.
void RingDoorbell(Sleeper& sleeper);

}  // namespace temper
