// A communicator of ranks that compute on one GPU each. The step's data goes from GPU to GPU through NCCL (or RCCL), on
// the device's streams; everything else goes through the communicator that the ranks have on the host.
//
// Collectives are enqueued: background ones on StreamUse::kCollectives, sends and receives on streams of their own, all
// others among the kernels. NCCL adds up in an order of its own, and rounds a bf16 sum more than once: the same program
// on the same machines gives the same bits again, but not those of ranks on CPUs.
//
// A rank that waits on its device cannot check on others; a thread beside it does (NcclWatch).
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/nccl/nccl_groups.h"
#include "comm/nccl/nccl_watch.h"
#include "device/communicator.h"
#include "device/device.h"
#include "device/device_exchange.h"

namespace temper {

class NcclScratch;

class NcclCommunicator final : public Communicator, public DeviceExchanges {
 public:
  // Both outlive it. `give_up`: as in NcclWatch. Errors: as LoadNccl.
  static Result<std::unique_ptr<NcclCommunicator>> Make(Communicator& host, Device& device,
                                                        NcclWatch::GiveUp give_up = nullptr);
  ~NcclCommunicator() override;

  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }
  int host_ranks() const override { return host_.host_ranks(); }
  int host_rank() const override { return host_.host_rank(); }
  int processors() const override { return host_.processors(); }
  std::string host_of(int rank) const override { return host_.host_of(rank); }
  // Tables and kernels must not outlive this. Operands are the device's.
  std::unique_ptr<KernelTable> Collectives(const Mesh& mesh) override;
  Result<std::unique_ptr<Exchange>> MakeExchange(const Mesh& mesh, AxisSet axes) override {
    return host_.MakeExchange(mesh, axes);
  }
  Result<std::unique_ptr<DeviceExchange>> MakeDeviceExchange(const Mesh& mesh, AxisSet axes) override;
  Result<std::span<std::byte>> AllocateArena(Bytes size) override;
  // Memory of the device that operands will lie in, as if it came from AllocateArena: NCCL need not copy them into
  // buffers of its own. It outlives this.
  void Register(std::span<std::byte> arena);
  Status Barrier() override { return host_.Barrier(); }
  Status AllReduceSum(std::span<double> values) override { return host_.AllReduceSum(values); }
  Status AllReduceMax(std::span<double> values) override { return host_.AllReduceMax(values); }
  Status Broadcast(std::span<std::byte> bytes, int root) override { return host_.Broadcast(bytes, root); }
  void SetPatience(const Patience& patience) override { host_.SetPatience(patience); }
  Status Check() override { return host_.Check(); }
  // Tells the others first, because ending work on the device may fail. Then LetGo.
  void Abort(const Status& cause) override;
  // This rank ends because of `cause`: ends all waits on the device for other ranks. Returns an earlier cause if there
  // is one, else `cause`: a device that was told to stop waiting knows no reasons, and NCCL does not know which peer is
  // gone. The thread that enqueues.
  Status LetGo(const Status& cause);
  bool ReportsFailure() const override { return host_.ReportsFailure(); }
  Bytes bytes_sent() const override;

  // "libnccl.so.2 2.28.9"
  const std::string& library() const { return api_.library; }

 private:
  class Table;
  // What kernels of one mesh share.
  struct Meeting {
    std::unique_ptr<NcclGroups> groups;
    Status connected;  // neighbours of a pipeline
  };
  Meeting& MeetingOf(const Mesh& mesh);
  NcclCommunicator(Communicator& host, Device& device, const NcclApi& api, NcclWatch::GiveUp give_up);
  // Whether the run continues, asked by the watch: of the host, and of the work on the device.
  Status LookAround();
  // After a failed call of NCCL: gives the watch the time to find out whether a peer is gone.
  void AwaitTheWatch();
  // Of several causes that end this rank the first counts. Returns it. Any thread.
  Status Remember(const Status& cause);
  // Aborts all waits, in any mesh. False: a call into NCCL does not return. Any thread.
  bool AbortGroups(const Status& cause);

  Communicator& host_;
  Device& device_;
  const NcclApi& api_;
  std::vector<std::span<std::byte>> arenas_;
  std::mutex mutex_;  // guards changes of these two
  std::vector<std::unique_ptr<Meeting>> meetings_;
  Status aborted_;
  std::condition_variable ended_;                                       // aborted_ is set
  std::optional<std::chrono::steady_clock::time_point> failing_since_;  // what is under way; the watch's
  std::unique_ptr<NcclScratch> scratch_;
  std::atomic<int64_t> sent_{0};
  std::unique_ptr<NcclWatch> watch_;  // nullptr with one rank
};

}  // namespace temper
