#include "comm/mpi/mpi_communicator.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <mpi.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/host_name.h"
#include "base/log.h"
#include "comm/local/local_communicator.h"
#include "comm/local/transfer_kernel.h"
#include "comm/mpi/host_layout.h"
#include "comm/mpi/mpi_collective.h"
#include "comm/mpi/mpi_link.h"
#include "comm/mpi/mpi_transfer.h"
#include "comm/mpi/mpi_watch.h"
#include "comm/mpi/segment_folder.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

// The calls of this file that block are made while all ranks start, which is when mpirun and srun watch them.
Status Check(int code, const char* what) {
  return FromMpi(code, what);
}

constexpr std::chrono::milliseconds kReportTakes{1000};

// Agreement between all ranks goes through rank 0: few bytes, and not in a step.
constexpr int kRoot = 0;

// What comes before the bytes of an agreement, so that ranks that call different things find out.
struct Head {
  uint32_t meeting = 0;
  int32_t root = 0;
  uint64_t size = 0;
  friend bool operator==(const Head&, const Head&) = default;
};

class MpiExchange final : public Exchange {
 public:
  MpiExchange(MpiLink& link, GroupLayout group, Traffic& traffic)
      : gather_(link, std::move(group)), traffic_(traffic) {}
  int index() const override { return gather_.group().index(); }
  int size() const override { return gather_.group().size(); }
  Status AllGather(std::span<const float> mine, std::span<float> all) override {
    traffic_.CountExchange(mine.size_bytes(), size());
    return gather_.Gather(std::as_bytes(mine), std::as_writable_bytes(all));
  }

 private:
  GroupGather gather_;
  Traffic& traffic_;
};

class MpiCollectives final : public KernelTable {
 public:
  MpiCollectives(const MpiContext& context, const Mesh& mesh) : context_(context), mesh_(mesh) {}
  const std::string& name() const override { return name_; }

  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    if (spec.op == TrafficOp::kBroadcast) return MakeBroadcast(spec);
    TEMPER_CHECK(IsCollective(spec.op)) << ToString(spec.op);
    TEMPER_ASSIGN_OR_RETURN(const AxisSet axes, AxisSet::Parse(spec.attributes.String("axes")));
    const int rank = context_.link(Lane::kInline).rank();
    const GroupLayout group(context_.hosts, mesh_.Group(axes, rank), rank);
    if (IsTransfer(spec.op)) return MakeTransfer(spec, group);
    if (group.size() != spec.attributes.Int("ranks")) {
      return InvalidArgument(fmt::format("{} over {} needs {} ranks; mesh {} has {}", ToString(spec.op),
                                         axes.ToString(), spec.attributes.Int("ranks"), mesh_.ToString(),
                                         group.size()));
    }
    if (!group.one_host()) return MakeMpiCollective(context_, group, spec);
    return MakeHostCollective(context_.host, OnThisHost(context_.hosts, group), spec, context_.traffic);
  }

  // REQUIRES: group.one_host().
  static HostGroup OnThisHost(const HostLayout& hosts, const GroupLayout& group) {
    HostGroup here{.index = group.index()};
    for (const int rank : group.ranks()) here.members.push_back(hosts.place(rank));
    return here;
  }

 private:
  Result<std::unique_ptr<Kernel>> MakeTransfer(const KernelSpec& spec, const GroupLayout& group) const {
    const int64_t index = spec.attributes.Int("peer");
    if (index >= group.size() || index == group.index()) {
      return InvalidArgument(fmt::format("{} with rank {} along {}: mesh {} has no such peer", ToString(spec.op), index,
                                         spec.attributes.String("axes"), mesh_.ToString()));
    }
    const int peer = group.ranks()[static_cast<size_t>(index)];
    if (group.host_of(static_cast<int>(index)) == group.own_host()) {
      return MakeHostTransfer(context_.host, context_.hosts.place(peer), spec, context_.traffic);
    }
    return MakeMpiTransfer(context_, peer, spec);
  }

  const MpiContext context_;
  const Mesh mesh_;
  const std::string name_ = "MPI";
};

// What was found out about the world before there is a communicator.
struct World {
  int rank = 0, size = 1;
  MPI_Comm messages = MPI_COMM_NULL, letters = MPI_COMM_NULL;
  HostLayout hosts;
  std::vector<std::string> host_names, names;  // of ranks: "node7", "rank 3 on node7"
  std::shared_ptr<HostMemory> memory;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(World world, std::unique_ptr<SegmentFolder> segments)
      : segments_(std::move(segments)),
        world_(std::move(world)),
        control_(world_.memory->control()),
        host_(std::make_unique<HostRank>(world_.memory, world_.hosts.place(world_.rank), world_.rank)),
        links_{MakeLink(Lane::kInline), MakeLink(Lane::kBackground), MakeLink(Lane::kSoon), MakeLink(Lane::kSends),
               MakeLink(Lane::kReceives)},
        link_(links_[0]),
        watch_(std::make_unique<MpiWatch>(world_.letters, lock_, control_, world_.hosts, world_.names, links_)) {
    for (int lane = 0; lane < kNumLanes; ++lane) {
      links_[static_cast<size_t>(lane)].set_judge(
          [this, lane](int peer, Seconds waited) { return watch_->Judge(static_cast<Lane>(lane), peer, waited); });
    }
  }

  // All ranks end MPI together, or, where one has failed, none does: it would wait for those that cannot come.
  ~MpiCommunicator() override {
    watch_->SetLeft();
    control_.rank(world_.hosts.place(world_.rank)).left.store(1);
    Messages farewell(Matter::kFarewell);
    const bool together = CheckHeads({}, &farewell).ok();
    // mpirun ends the whole job when the first rank has failed: let that be the one that has told why.
    if (!together) {
      const bool reports = ReportsFailure();
      if (!reports) std::this_thread::sleep_for(kReportTakes);
      watch_->EndTheSilent(reports);
    }
    watch_.reset();
    // Messages that have failed may still be written to arenas while MPI is called: no more from here on.
    host_.reset();
    if (!together) return;
    segments_->Show();
    MPI_Finalize();
  }

  int rank() const override { return world_.rank; }
  int size() const override { return world_.size; }
  int host_ranks() const override { return control_.ranks(); }
  int host_rank() const override { return world_.hosts.place(world_.rank); }
  int processors() const override { return control_.processors_per_rank(); }

  std::string host_of(int rank) const override { return world_.host_names[static_cast<size_t>(rank)]; }

  std::unique_ptr<KernelTable> Collectives(const Mesh& mesh) override {
    TEMPER_CHECK(mesh.ranks() == size()) << "mesh " << mesh.ToString() << " for " << size() << " ranks";
    return std::make_unique<MpiCollectives>(MpiContext{links_, stagings_, *host_, world_.hosts, traffic_}, mesh);
  }

  Result<std::unique_ptr<Exchange>> MakeExchange(const Mesh& mesh, AxisSet axes) override {
    TEMPER_CHECK(mesh.ranks() == size()) << "mesh " << mesh.ToString() << " for " << size() << " ranks";
    GroupLayout group(world_.hosts, mesh.Group(axes, rank()), rank());
    if (group.one_host()) return MakeHostExchange(*host_, MpiCollectives::OnThisHost(world_.hosts, group), traffic_);
    return std::unique_ptr<Exchange>(new MpiExchange(link_, std::move(group), traffic_));
  }

  Result<std::span<std::byte>> AllocateArena(Bytes size) override { return host_->arenas().Allocate(size); }

  Status Barrier() override { return Agree(Meeting::kBarrier, {}); }
  Status AllReduceSum(std::span<double> values) override { return Agree(Meeting::kSum, values); }
  Status AllReduceMax(std::span<double> values) override { return Agree(Meeting::kMax, values); }

  Status Broadcast(std::span<std::byte> bytes, int root) override {
    TEMPER_CHECK(root >= 0 && root < size()) << root;
    const Head head{static_cast<uint32_t>(Meeting::kBroadcastBytes), root, bytes.size()};
    TEMPER_RETURN_IF_ERROR(CheckHeads(head, &pending_));
    for (size_t at = 0; at < bytes.size(); at += kMostPerMessage) {
      const size_t n = std::min(bytes.size() - at, kMostPerMessage);
      for (int r = 0; r < size() && rank() == root; ++r) {
        if (r != root) TEMPER_RETURN_IF_ERROR(link_.Send(bytes.data() + at, n, r, &pending_));
      }
      if (rank() != root) TEMPER_RETURN_IF_ERROR(link_.Receive(bytes.data() + at, n, root, &pending_));
      TEMPER_RETURN_IF_ERROR(link_.Wait(&pending_));
    }
    return OkStatus();
  }

  void SetPatience(const Patience& patience) override { control_.SetPatience(patience); }

  // Of other hosts the watch hears by itself.
  Status Check() override { return host_->Check(); }
  void Abort(const Status& cause) override {
    TEMPER_CHECK(!cause.ok()) << "an abort without a cause";
    control_.Stop(cause.WithContext(fmt::format("rank {}", rank())), rank());
    watch_->Hurry();
  }
  bool ReportsFailure() const override { return watch_->Reports(); }
  Bytes bytes_sent() const override { return {traffic_.sent.load(std::memory_order_relaxed)}; }

 private:
  static constexpr size_t kMostPerMessage = size_t{64} << 20;

  MpiLink MakeLink(Lane lane) {
    // A wait for another stage leaves the processor to the thread that computes.
    const bool crowded = !IsMeetingLane(lane) || control_.processors() < control_.ranks();
    return MpiLink(world_.messages, lock_, control_, control_.sleeper(world_.hosts.place(world_.rank), lane),
                   world_.rank, world_.size, crowded);
  }

  // Rank 0 sees what everybody has come for before anything is exchanged.
  Status CheckHeads(const Head& head, Messages* messages) {
    TEMPER_RETURN_IF_ERROR(control_.stopped() ? control_.Cause() : OkStatus());
    if (rank() != kRoot) {
      Head go;
      TEMPER_RETURN_IF_ERROR(link_.Send(&head, sizeof head, kRoot, messages));
      TEMPER_RETURN_IF_ERROR(link_.Receive(&go, sizeof go, kRoot, messages));
      return link_.Wait(messages);
    }
    std::vector<Head> heads(static_cast<size_t>(size()), head);
    for (int r = 1; r < size(); ++r) {
      TEMPER_RETURN_IF_ERROR(link_.Receive(&heads[static_cast<size_t>(r)], sizeof head, r, messages));
    }
    TEMPER_RETURN_IF_ERROR(link_.Wait(messages));
    for (int r = 1; r < size(); ++r) {
      const Head& theirs = heads[static_cast<size_t>(r)];
      if (theirs == head) continue;
      return link_.Stop(InvalidArgument(fmt::format(
          "rank 0 is in {} of {}, rank {} in {} of {}: ranks must run the same program",
          ToString(static_cast<Meeting>(head.meeting)), head.size, r,
          theirs.meeting <= static_cast<uint32_t>(Meeting::kShift) ? ToString(static_cast<Meeting>(theirs.meeting))
                                                                   : "something else",
          theirs.size)));
    }
    for (int r = 1; r < size(); ++r) TEMPER_RETURN_IF_ERROR(link_.Send(&head, sizeof head, r, messages));
    return link_.Wait(messages);
  }

  // Elementwise over ranks, in their order, by rank 0.
  Status Agree(Meeting meeting, std::span<double> values) {
    TEMPER_RETURN_IF_ERROR(CheckHeads({static_cast<uint32_t>(meeting), kRoot, values.size()}, &pending_));
    if (values.empty()) return OkStatus();
    const size_t bytes = values.size_bytes();
    if (rank() != kRoot) {
      TEMPER_RETURN_IF_ERROR(link_.Send(values.data(), bytes, kRoot, &pending_));
      TEMPER_RETURN_IF_ERROR(link_.Wait(&pending_));
      TEMPER_RETURN_IF_ERROR(link_.Receive(values.data(), bytes, kRoot, &pending_));
      return link_.Wait(&pending_);
    }
    std::vector<double> theirs(values.size());
    for (int r = 1; r < size(); ++r) {
      TEMPER_RETURN_IF_ERROR(link_.Receive(theirs.data(), bytes, r, &pending_));
      TEMPER_RETURN_IF_ERROR(link_.Wait(&pending_));
      for (size_t i = 0; i < values.size(); ++i) {
        const bool larger = theirs[i] > values[i] || std::isnan(theirs[i]);
        values[i] = meeting == Meeting::kSum ? values[i] + theirs[i] : (larger ? theirs[i] : values[i]);
      }
    }
    for (int r = 1; r < size(); ++r) TEMPER_RETURN_IF_ERROR(link_.Send(values.data(), bytes, r, &pending_));
    return link_.Wait(&pending_);
  }

  const std::unique_ptr<SegmentFolder> segments_;
  const World world_;
  const ControlBlock control_;
  std::mutex lock_;  // of all calls of MPI
  std::unique_ptr<HostRank> host_;
  MpiLinks links_;
  MpiLink& link_;  // of agreements, inline
  std::unique_ptr<MpiWatch> watch_;
  Messages pending_{Matter::kAgreement};
  std::array<Staging, kMeetingLanes> stagings_;
  Traffic traffic_;
};

// The memory of this host's ranks. Those that cannot open what their leader has made (a container of its own) share
// with nobody: `shared` says which it is, alike for all of `local`.
Result<std::shared_ptr<HostMemory>> ShareMemory(MPI_Comm local, bool* shared) {
  int place = 0, ranks = 1;
  TEMPER_RETURN_IF_ERROR(Check(MPI_Comm_rank(local, &place), "MPI_Comm_rank"));
  TEMPER_RETURN_IF_ERROR(Check(MPI_Comm_size(local, &ranks), "MPI_Comm_size"));
  *shared = false;
  if (ranks == 1) return HostMemory::Private(1);
  // Where the leader's file is found, and by what it is known again.
  struct Offer {
    int64_t pid, file, device, inode;
  } offer = {};
  Result<std::shared_ptr<HostMemory>> memory = HostMemory::Private(1);
  struct stat info;
  if (place == 0) {
    memory = HostMemory::CreateShared(ranks);
    if (memory.ok() && fstat((*memory)->file(), &info) == 0) {
      offer = {getpid(), (*memory)->file(), static_cast<int64_t>(info.st_dev), static_cast<int64_t>(info.st_ino)};
    }
  }
  TEMPER_RETURN_IF_ERROR(Check(MPI_Bcast(&offer, sizeof offer, MPI_BYTE, 0, local), "MPI_Bcast"));
  int good = offer.pid != 0;
  if (good && place != 0) {
    const std::string path = fmt::format("/proc/{}/fd/{}", offer.pid, offer.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    good = file >= 0 && fstat(file, &info) == 0 && static_cast<int64_t>(info.st_dev) == offer.device &&
           static_cast<int64_t>(info.st_ino) == offer.inode;
    if (good) {
      memory = HostMemory::OpenShared(file, ranks);
      good = memory.ok();
    }
    if (file >= 0) close(file);
  }
  // The leader keeps the file open until all have it.
  TEMPER_RETURN_IF_ERROR(Check(MPI_Allreduce(MPI_IN_PLACE, &good, 1, MPI_INT, MPI_MIN, local), "MPI_Allreduce"));
  if (!good) {
    if (place == 0) LogWarning("the ranks of this host cannot share memory and will send messages, which is slower");
    return HostMemory::Private(1);
  }
  *shared = true;
  return memory;
}

Result<World> MakeWorld(const MpiOptions& options) {
  World world;
  for (MPI_Comm* const comm : {&world.messages, &world.letters}) {
    TEMPER_RETURN_IF_ERROR(Check(MPI_Comm_dup(MPI_COMM_WORLD, comm), "MPI_Comm_dup"));
    TEMPER_RETURN_IF_ERROR(Check(MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  }
  MPI_Comm_rank(world.messages, &world.rank);
  MPI_Comm_size(world.messages, &world.size);

  MPI_Comm local = MPI_COMM_NULL;
  TEMPER_RETURN_IF_ERROR(
      Check(MPI_Comm_split_type(world.messages, MPI_COMM_TYPE_SHARED, world.rank, MPI_INFO_NULL, &local),
            "MPI_Comm_split_type"));
  if (options.ranks_per_host > 0) {
    MPI_Comm whole = local;
    int place = 0;
    MPI_Comm_rank(whole, &place);
    TEMPER_RETURN_IF_ERROR(
        Check(MPI_Comm_split(whole, place / options.ranks_per_host, place, &local), "MPI_Comm_split"));
    MPI_Comm_free(&whole);
  }
  bool shared = false;
  TEMPER_ASSIGN_OR_RETURN(world.memory, ShareMemory(local, &shared));
  int leader = world.rank;
  if (shared) TEMPER_RETURN_IF_ERROR(Check(MPI_Bcast(&leader, 1, MPI_INT, 0, local), "MPI_Bcast"));
  MPI_Comm_free(&local);

  std::vector<int> leaders(static_cast<size_t>(world.size));
  TEMPER_RETURN_IF_ERROR(
      Check(MPI_Allgather(&leader, 1, MPI_INT, leaders.data(), 1, MPI_INT, world.messages), "MPI_Allgather"));
  world.hosts = HostLayout::FromLeaders(leaders);

  constexpr int kNameBytes = 64;
  char name[kNameBytes] = {};
  (void)HostName().copy(name, sizeof name - 1);
  std::vector<char> names(static_cast<size_t>(world.size) * kNameBytes);
  TEMPER_RETURN_IF_ERROR(Check(
      MPI_Allgather(name, kNameBytes, MPI_CHAR, names.data(), kNameBytes, MPI_CHAR, world.messages), "MPI_Allgather"));
  for (int r = 0; r < world.size; ++r) {
    world.host_names.emplace_back(names.data() + static_cast<size_t>(r) * kNameBytes);
    world.names.push_back(fmt::format("rank {} on {}", r, world.host_names.back()));
  }
  return world;
}

}  // namespace

bool HasMpi() {
  return true;
}

Result<std::unique_ptr<Communicator>> JoinMpi(const MpiOptions& options) {
  // Suppresses Open MPI's page of text about a lost peer: we say in one line which rank died, and why.
  setenv("OMPI_MCA_btl_base_warn_peer_error", "0", /*overwrite=*/0);
  auto segments = std::make_unique<SegmentFolder>();
  int provided = 0;
  TEMPER_RETURN_IF_ERROR(Check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread"));
  if (provided < MPI_THREAD_SERIALIZED) {
    return Unsupported("this MPI can be called by one thread only; temper needs MPI_THREAD_SERIALIZED");
  }
  TEMPER_ASSIGN_OR_RETURN(World world, MakeWorld(options));
  // All ranks have called it, so all have left MPI_Init.
  segments->Hide();
  auto communicator = std::make_unique<MpiCommunicator>(std::move(world), std::move(segments));
  // From here on the others notice a rank that dies.
  TEMPER_RETURN_IF_ERROR(communicator->Barrier());
  return std::unique_ptr<Communicator>(std::move(communicator));
}

}  // namespace temper
