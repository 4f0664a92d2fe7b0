#include "comm/local/local_communicator.h"

#include <fmt/core.h>
#include <unistd.h>

#include "base/check.h"
#include "comm/local/transfer_kernel.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

// Ranks are numbered as on the host.
HostGroup GroupOf(const Mesh& mesh, AxisSet axes, int rank) {
  return {.members = mesh.Group(axes, rank), .index = mesh.IndexIn(axes, rank)};
}

class HostCollectives final : public KernelTable {
 public:
  HostCollectives(HostRank& host, const Mesh& mesh, Traffic& traffic) : host_(host), mesh_(mesh), traffic_(traffic) {}
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    if (spec.op == TrafficOp::kBroadcast) return MakeBroadcast(spec);
    TEMPER_CHECK(IsCollective(spec.op)) << ToString(spec.op);
    TEMPER_ASSIGN_OR_RETURN(const AxisSet axes, AxisSet::Parse(spec.attributes.String("axes")));
    const HostGroup group = GroupOf(mesh_, axes, host_.self());
    if (IsTransfer(spec.op)) {
      const int64_t peer = spec.attributes.Int("peer");
      if (peer >= group.size() || peer == group.index) {
        return InvalidArgument(fmt::format("{} with rank {} along {}: mesh {} has no such peer", ToString(spec.op),
                                           peer, axes.ToString(), mesh_.ToString()));
      }
      return MakeHostTransfer(host_, group.members[static_cast<size_t>(peer)], spec, traffic_);
    }
    if (group.size() != spec.attributes.Int("ranks")) {
      return InvalidArgument(fmt::format("{} over {} needs {} ranks; mesh {} has {}", ToString(spec.op),
                                         axes.ToString(), spec.attributes.Int("ranks"), mesh_.ToString(),
                                         group.size()));
    }
    return MakeHostCollective(host_, group, spec, traffic_);
  }

 private:
  HostRank& host_;
  const Mesh mesh_;
  Traffic& traffic_;
  const std::string name_ = "shared memory";
};

class HostExchange final : public Exchange {
 public:
  HostExchange(HostRank& host, HostGroup group, Traffic& traffic)
      : host_(host), group_(std::move(group)), traffic_(traffic) {}
  int index() const override { return group_.index; }
  int size() const override { return group_.size(); }
  Status AllGather(std::span<const float> mine, std::span<float> all) override {
    traffic_.CountExchange(mine.size_bytes(), group_.size());
    return host_.AllGather(group_, Meeting::kExchange, std::as_bytes(mine), std::as_writable_bytes(all));
  }

 private:
  HostRank& host_;
  const HostGroup group_;
  Traffic& traffic_;
};

}  // namespace

std::unique_ptr<KernelTable> LocalCommunicator::Collectives(const Mesh& mesh) {
  TEMPER_CHECK(mesh.ranks() == size()) << "mesh " << mesh.ToString() << " for " << size() << " ranks";
  return std::make_unique<HostCollectives>(*host_, mesh, traffic_);
}

Result<std::unique_ptr<Exchange>> LocalCommunicator::MakeExchange(const Mesh& mesh, AxisSet axes) {
  TEMPER_CHECK(mesh.ranks() == size()) << "mesh " << mesh.ToString() << " for " << size() << " ranks";
  return MakeHostExchange(*host_, GroupOf(mesh, axes, rank()), traffic_);
}

void LocalCommunicator::Abort(const Status& cause) {
  TEMPER_CHECK(!cause.ok()) << "an abort without a cause";
  host_->control().Stop(cause.WithContext(host_->control().NameOf(host_->self())), rank());
}

std::unique_ptr<Exchange> MakeHostExchange(HostRank& host, HostGroup group, Traffic& traffic) {
  return std::make_unique<HostExchange>(host, std::move(group), traffic);
}

ThreadWorld::ThreadWorld(int ranks, const Patience& patience)
    : memory_([ranks] {
        auto memory = HostMemory::Private(ranks);
        TEMPER_CHECK(memory.ok()) << memory.status().message();
        return *memory;
      }()) {
  memory_->control().SetPatience(patience);
}

std::unique_ptr<LocalCommunicator> ThreadWorld::Join(int rank) {
  return std::make_unique<LocalCommunicator>(std::make_unique<HostRank>(memory_, rank, rank));
}

Result<std::unique_ptr<LocalCommunicator>> JoinLaunched(const LaunchedRank& launched) {
  auto memory = HostMemory::OpenShared(launched.file, launched.size);
  if (memory.ok() && (launched.rank < 0 || launched.rank >= launched.size)) {
    memory = InvalidArgument(fmt::format("there is no rank {} among {}", launched.rank, launched.size));
  }
  // The variable says otherwise than the launcher of this process. Other errors are the machine's.
  if (memory.status().code() == StatusCode::kInvalidArgument) {
    return memory.status().WithContext("TEMPER_LAUNCHED_RANK, which only temper sets: unset it");
  }
  if (!memory.ok()) return memory.status();
  close(launched.file);
  return std::make_unique<LocalCommunicator>(
      std::make_unique<HostRank>(*std::move(memory), launched.rank, launched.rank));
}

}  // namespace temper
