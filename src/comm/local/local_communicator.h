// Communicators of ranks that share a host: as threads of one process (ThreadWorld, for tests), or as processes that
// share memory (JoinLaunched; launch.h starts them).
#pragma once

#include <memory>

#include "base/host_name.h"
#include "comm/local/collective_kernels.h"
#include "comm/local/host_rank.h"
#include "comm/local/launch.h"
#include "device/communicator.h"

namespace temper {

class LocalCommunicator final : public Communicator {
 public:
  explicit LocalCommunicator(std::unique_ptr<HostRank> host) : host_(std::move(host)) {}

  int rank() const override { return host_->self(); }
  int size() const override { return host_->control().ranks(); }
  int host_ranks() const override { return size(); }
  int host_rank() const override { return rank(); }
  int processors() const override { return host_->control().processors_per_rank(); }
  std::string host_of(int) const override { return HostName(); }
  std::unique_ptr<KernelTable> Collectives(const Mesh& mesh) override;
  Result<std::unique_ptr<Exchange>> MakeExchange(const Mesh& mesh, AxisSet axes) override;
  Result<std::span<std::byte>> AllocateArena(Bytes size) override { return host_->arenas().Allocate(size); }
  Status Barrier() override { return host_->AllGather(host_->everybody(), Meeting::kBarrier, {}, {}); }
  Status AllReduceSum(std::span<double> values) override {
    return host_->AllReduce(host_->everybody(), Meeting::kSum, values);
  }
  Status AllReduceMax(std::span<double> values) override {
    return host_->AllReduce(host_->everybody(), Meeting::kMax, values);
  }
  Status Broadcast(std::span<std::byte> bytes, int root) override {
    return host_->Broadcast(host_->everybody(), bytes, root);
  }
  void SetPatience(const Patience& patience) override { host_->control().SetPatience(patience); }
  Status Check() override { return host_->Check(); }
  void Abort(const Status& cause) override;
  bool ReportsFailure() const override { return host_->control().reporter() == rank(); }
  Bytes bytes_sent() const override { return {traffic_.sent.load(std::memory_order_relaxed)}; }
  // Bytes actually read from the memory of other ranks.
  Bytes bytes_moved() const { return {traffic_.moved.load(std::memory_order_relaxed)}; }

 private:
  const std::unique_ptr<HostRank> host_;
  Traffic traffic_;
};

// Exchanges between members of a group on one host. `host` and `traffic` must outlive it.
std::unique_ptr<Exchange> MakeHostExchange(HostRank& host, HostGroup group, Traffic& traffic);

// Ranks that are threads of this process.
class ThreadWorld {
 public:
  explicit ThreadWorld(int ranks, const Patience& patience = {});
  // The communicator of one rank. Call it once for each, on the thread that is the rank.
  std::unique_ptr<LocalCommunicator> Join(int rank);

 private:
  const std::shared_ptr<HostMemory> memory_;
};

// The communicator of a rank that Launch has started.
Result<std::unique_ptr<LocalCommunicator>> JoinLaunched(const LaunchedRank& launched);

}  // namespace temper
