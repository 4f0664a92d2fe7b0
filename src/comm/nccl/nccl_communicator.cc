#include "comm/nccl/nccl_communicator.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "comm/nccl/nccl_collective.h"

namespace temper {

class NcclCommunicator::Table final : public KernelTable {
 public:
  Table(const NcclContext& context, const std::string& name, Status connected)
      : context_(context), name_(name), connected_(std::move(connected)) {}
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    TEMPER_RETURN_IF_ERROR(connected_);
    return MakeNcclKernel(spec, context_);
  }

 private:
  const NcclContext context_;
  const std::string name_;
  const Status connected_;
};

namespace {

// The watch looks around five times a second, and leaves a launcher half a second to tell what a rank has died of.
constexpr std::chrono::seconds kNoticing{2};

class NcclExchange final : public DeviceExchange {
 public:
  NcclExchange(NcclGroups& groups, const NcclGroup& group, Stream& stream, std::atomic<int64_t>& sent)
      : groups_(groups), group_(group), stream_(stream), sent_(sent) {}
  int index() const override { return group_.index; }
  int size() const override { return group_.size; }
  Status AllGather(const std::byte* mine, std::byte* all, Bytes size) override {
    sent_.fetch_add(size.v * (group_.size - 1), std::memory_order_relaxed);
    TEMPER_ASSIGN_OR_RETURN(const NcclGroups::Inside inside, groups_.Enter());
    const NcclApi& api = groups_.api();
    return groups_.StatusOf(
        api.all_gather(mine, all, static_cast<size_t>(size.v), NcclType::kUint8, group_.comm, stream_.handle()),
        "an exchange");
  }

 private:
  NcclGroups& groups_;
  const NcclGroup group_;
  Stream& stream_;
  std::atomic<int64_t>& sent_;
};

}  // namespace

Result<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Make(Communicator& host, Device& device,
                                                                 NcclWatch::GiveUp give_up) {
  TEMPER_ASSIGN_OR_RETURN(const NcclApi* const api, LoadNccl(device.collectives_library()));
  return std::unique_ptr<NcclCommunicator>(new NcclCommunicator(host, device, *api, std::move(give_up)));
}

NcclCommunicator::NcclCommunicator(Communicator& host, Device& device, const NcclApi& api, NcclWatch::GiveUp give_up)
    : host_(host), device_(device), api_(api), scratch_(std::make_unique<NcclScratch>(device)) {
  if (host.size() == 1) return;
  watch_ = std::make_unique<NcclWatch>([this] { return LookAround(); },
                                       [this](const Status& cause) { return AbortGroups(cause); }, std::move(give_up));
}

NcclCommunicator::~NcclCommunicator() {
  // Groups wait for what is under way. What is being given back cannot be aborted any more: where that does not come
  // back, because a peer is gone, the watch gives up on this rank.
  for (const auto& meeting : meetings_) meeting->groups->Close();
  watch_.reset();
}

NcclCommunicator::Meeting& NcclCommunicator::MeetingOf(const Mesh& mesh) {
  TEMPER_CHECK(mesh.ranks() == size()) << "mesh " << mesh.ToString() << " for " << size() << " ranks";
  for (const auto& known : meetings_) {
    if (known->groups->mesh() == mesh) return *known;
  }
  auto made = std::make_unique<Meeting>();
  Meeting& meeting = *made;
  meeting.groups = std::make_unique<NcclGroups>(api_, host_, mesh);
  for (const std::span<std::byte> arena : arenas_) meeting.groups->AddMemory(arena);
  {
    const std::lock_guard lock(mutex_);
    meetings_.push_back(std::move(made));
  }
  if (mesh.size(Axis::kPp) > 1) {
    constexpr StreamUse kUse = StreamUse::kSends;
    meeting.connected = scratch_->Reserve(kUse, Bytes{1});
    if (meeting.connected.ok()) {
      meeting.connected = meeting.groups->ConnectNeighbours(Axis::kPp, device_.StreamFor(kUse), scratch_->At(kUse));
    }
  }
  return meeting;
}

// Outlives the groups: the device keeps it.
Result<std::span<std::byte>> NcclCommunicator::AllocateArena(Bytes size) {
  TEMPER_ASSIGN_OR_RETURN(const std::span<std::byte> arena, device_.Allocate(size));
  Register(arena);
  return arena;
}

void NcclCommunicator::Register(std::span<std::byte> arena) {
  arenas_.push_back(arena);
  for (const auto& meeting : meetings_) meeting->groups->AddMemory(arena);
}

std::unique_ptr<KernelTable> NcclCommunicator::Collectives(const Mesh& mesh) {
  const Meeting& meeting = MeetingOf(mesh);
  return std::make_unique<Table>(NcclContext{device_, *meeting.groups, *scratch_, sent_}, api_.library,
                                 meeting.connected);
}

Result<std::unique_ptr<DeviceExchange>> NcclCommunicator::MakeDeviceExchange(const Mesh& mesh, AxisSet axes) {
  NcclGroups& groups = *MeetingOf(mesh).groups;
  TEMPER_ASSIGN_OR_RETURN(const NcclGroup group, groups.Of(axes, StreamUse::kCompute));
  return std::unique_ptr<DeviceExchange>(std::make_unique<NcclExchange>(groups, group, device_.stream(), sent_));
}

// Remembered before the watch hears of it by the host, in other words.
void NcclCommunicator::Abort(const Status& cause) {
  AwaitTheWatch();
  host_.Abort(Remember(cause));
  (void)LetGo(cause);
}

// The watch stays: that the device lets go is yet to be seen.
Status NcclCommunicator::LetGo(const Status& cause) {
  AwaitTheWatch();
  const Status first = Remember(cause);
  (void)AbortGroups(first);
  return first;
}

// An error of NCCL's gives way to the peer that is gone, which the host knows of: it knows how, and NCCL does not.
Status NcclCommunicator::LookAround() {
  TEMPER_RETURN_IF_ERROR(host_.Check());
  Status error;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& meeting : meetings_) {
      if (error.ok()) error = meeting->groups->ErrorUnderWay();
    }
  }
  if (error.ok()) {
    failing_since_.reset();
    return OkStatus();
  }
  const auto now = std::chrono::steady_clock::now();
  if (!failing_since_) failing_since_ = now;
  if (now - *failing_since_ < kNoticing) return OkStatus();
  const Status first = Remember(error);
  host_.Abort(first);
  return first;
}

void NcclCommunicator::AwaitTheWatch() {
  std::unique_lock lock(mutex_);
  const bool failed =
      std::any_of(meetings_.begin(), meetings_.end(), [](const auto& meeting) { return meeting->groups->failed(); });
  if (failed && watch_ != nullptr) ended_.wait_for(lock, kNoticing, [this] { return !aborted_.ok(); });
}

Status NcclCommunicator::Remember(const Status& cause) {
  const std::lock_guard lock(mutex_);
  if (aborted_.ok()) aborted_ = cause;
  ended_.notify_all();
  return aborted_;
}

bool NcclCommunicator::AbortGroups(const Status& cause) {
  const Status first = Remember(cause);
  std::vector<NcclGroups*> all;
  const std::lock_guard lock(mutex_);
  for (const auto& meeting : meetings_) all.push_back(meeting->groups.get());
  return NcclGroups::Abort(all, first);
}

Bytes NcclCommunicator::bytes_sent() const {
  Bytes sum = host_.bytes_sent() + Bytes{sent_.load(std::memory_order_relaxed)};
  for (const auto& meeting : meetings_) sum = sum - meeting->groups->gathered();
  return sum;
}

}  // namespace temper
