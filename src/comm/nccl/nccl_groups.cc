#include "comm/nccl/nccl_groups.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <vector>

#include "base/for_each.h"
#include "base/log.h"

namespace temper {

namespace {

// Longer than any call takes that only enqueues.
constexpr std::chrono::seconds kCallsTake{5};

// Blocks of a kernel of NCCL's, which takes up to 32 by default. Each holds a multiprocessor until the peers have come.
// Five streams have such kernels at once (device/device.h), in an order that differs between ranks: if they did not all
// fit onto a card, some would wait for multiprocessors, and those that hold them for peers that wait in the same way.
// An RTX 3090 has 82; on smaller cards (L4: 58, A10: 72) that is left to NCCL_MAX_CTAS. Enough for a link's bandwidth
// is assumed; NCCL_MAX_CTAS wins.
constexpr int kMostBlocks = 16;

}  // namespace

NcclGroups::~NcclGroups() {
  Close();
}

Result<NcclGroups::Inside> NcclGroups::Enter() {
  Inside inside(mutex_);
  TEMPER_RETURN_IF_ERROR(aborted_);
  return inside;
}

Status NcclGroups::StatusOf(NcclResult result, const char* what) {
  Status status = api_.StatusOf(result, what);
  if (!status.ok()) failed_.store(true);
  return status;
}

Status NcclGroups::ErrorUnderWay() {
  const Inside inside(mutex_, std::try_to_lock);
  if (!inside.owns_lock() || !aborted_.ok()) return OkStatus();
  const auto ask = [this](const NcclGroup& group) {
    NcclResult error = 0;
    const NcclResult asked = api_.get_async_error(group.comm, &error);
    return api_.StatusOf(asked != 0 ? asked : error, "what is under way");
  };
  for (const auto& [key, group] : groups_) TEMPER_RETURN_IF_ERROR(ask(group));
  for (const auto& [key, group] : edges_) TEMPER_RETURN_IF_ERROR(ask(group));
  return OkStatus();
}

// All at once, as far as there are threads: an abort frees memory, which waits for the device, where kernels of
// communicators may run that are yet to be aborted (NCCL's issue 1013).
bool NcclGroups::Abort(const std::vector<NcclGroups*>& all, const Status& cause) {
  TEMPER_CHECK(!cause.ok()) << "an abort without a cause";
  const auto deadline = std::chrono::steady_clock::now() + kCallsTake;
  bool entered_all = true;
  std::vector<Inside> entered;
  std::vector<NcclComm> aborting;
  decltype(NcclApi::abort) abort = nullptr;
  for (NcclGroups* const groups : all) {
    Inside inside(groups->mutex_, deadline);
    entered_all = entered_all && inside.owns_lock();
    if (!inside.owns_lock() || !groups->aborted_.ok()) continue;
    groups->aborted_ = cause;
    entered.push_back(std::move(inside));
    abort = groups->api_.abort;
    for (const auto& [key, group] : groups->groups_) aborting.push_back(group.comm);
    for (const auto& [key, group] : groups->edges_) aborting.push_back(group.comm);
  }
  const auto all_of_them = static_cast<int>(aborting.size());
  if (all_of_them > 0) ForEach(all_of_them, all_of_them, [&](int64_t i) { abort(aborting[static_cast<size_t>(i)]); });
  return entered_all;
}

void NcclGroups::Close() {
  std::vector<NcclComm> open;
  std::vector<std::pair<NcclComm, void*>> added;
  {
    const Inside inside(mutex_);
    added.swap(added_);
    memory_.clear();
    for (const auto& [key, group] : groups_) open.push_back(group.comm);
    for (const auto& [key, group] : edges_) open.push_back(group.comm);
    groups_.clear();
    edges_.clear();
    if (!aborted_.ok()) return;
  }
  for (const auto& [comm, handle] : added) (void)api_.drop_memory(comm, handle);
  for (const NcclComm comm : open) (void)api_.destroy(comm);
}

void NcclGroups::AddMemory(std::span<std::byte> memory) {
  const Inside inside(mutex_);
  memory_.push_back(memory);
  if (!aborted_.ok()) return;
  for (const auto& [key, group] : groups_) Add(group.comm, memory);
  for (const auto& [key, group] : edges_) Add(group.comm, memory);
}

void NcclGroups::Add(NcclComm comm, std::span<std::byte> memory) {
  if (memory.empty()) return;
  void* handle = nullptr;
  const Status added =
      api_.StatusOf(api_.add_memory(comm, memory.data(), memory.size(), &handle), "registering memory");
  if (!added.ok()) return LogWarning(added.message() + "; data goes through its own buffers");
  added_.emplace_back(comm, handle);
}

template <class Key>
Status NcclGroups::Keep(std::map<Key, NcclGroup>* among, const Key& key, const NcclGroup& group) {
  const Inside inside(mutex_);
  if (aborted_.ok()) {
    (*among)[key] = group;
    for (const std::span<std::byte> memory : memory_) Add(group.comm, memory);
  } else {
    (void)api_.abort(group.comm);
  }
  return aborted_;
}

Result<Exchange*> NcclGroups::ExchangeOver(AxisSet axes) {
  std::unique_ptr<Exchange>& exchange = exchanges_[axes];
  if (exchange == nullptr) {
    TEMPER_ASSIGN_OR_RETURN(exchange, host_.MakeExchange(mesh_, axes));
  }
  return exchange.get();
}

// An exchange is of floats, which hold whole numbers below 2^24.
Result<std::vector<int64_t>> NcclGroups::Gather(AxisSet axes, const std::vector<int64_t>& mine) {
  constexpr int kBits = 22;
  TEMPER_ASSIGN_OR_RETURN(Exchange* const exchange, ExchangeOver(axes));
  std::vector<float> halves, all(2 * mine.size() * static_cast<size_t>(exchange->size()));
  for (const int64_t n : mine) {
    halves.push_back(static_cast<float>(n >> kBits));
    halves.push_back(static_cast<float>(n & ((1 << kBits) - 1)));
  }
  gathered_.fetch_add(static_cast<int64_t>(halves.size() * sizeof(float)) * (exchange->size() - 1),
                      std::memory_order_relaxed);
  TEMPER_RETURN_IF_ERROR(exchange->AllGather(halves, all));
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < all.size(); i += 2) {
    numbers.push_back((static_cast<int64_t>(all[i]) << kBits) + static_cast<int64_t>(all[i + 1]));
  }
  return numbers;
}

Result<NcclComm> NcclGroups::Meet(AxisSet axes, int founder, bool joining, int size, int index) {
  NcclUniqueId id = {};
  Status made;
  if (mesh_.IndexIn(axes, rank()) == founder) made = StatusOf(api_.get_unique_id(&id), "the name of a group");
  // The last number: whether there is a name. All get to hear it.
  std::vector<int64_t> mine(std::begin(id.bytes), std::end(id.bytes));
  for (int64_t& byte : mine) byte &= 0xFF;
  mine.push_back(made.ok());
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> all, Gather(axes, mine));
  const auto founders = all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * founder;
  TEMPER_RETURN_IF_ERROR(made);
  if (founders[sizeof(id.bytes)] == 0) return IoError("between GPUs: another rank could not name a group");
  if (!joining) return NcclComm{nullptr};
  std::transform(founders, founders + sizeof(id.bytes), std::begin(id.bytes),
                 [](int64_t byte) { return static_cast<char>(byte); });
  NcclComm comm = nullptr;
  NcclConfig config{.most_blocks = kMostBlocks};
  TEMPER_RETURN_IF_ERROR(StatusOf(api_.init_rank(&comm, size, id, index, &config), "joining a group"));
  return comm;
}

Result<NcclGroup> NcclGroups::Of(AxisSet axes, StreamUse use) {
  const auto key = std::pair(axes, use);
  if (const auto it = groups_.find(key); it != groups_.end()) return it->second;
  NcclGroup group{.index = mesh_.IndexIn(axes, rank()), .size = mesh_.size(axes)};
  TEMPER_ASSIGN_OR_RETURN(group.comm, Meet(axes, /*founder=*/0, /*joining=*/true, group.size, group.index));
  TEMPER_RETURN_IF_ERROR(Keep(&groups_, key, group));
  return group;
}

// All at once, in one order for all: ranks that make transfers need not make the same ones.
Status NcclGroups::ConnectNeighbours(AxisSet axes, Stream& stream, std::byte* byte) {
  const int n = mesh_.size(axes), own = mesh_.IndexIn(axes, rank());
  std::set<std::pair<int, int>> pairs;
  for (int i = 0; i < n; ++i) {
    pairs.emplace(i, (i + 1) % n);
    pairs.emplace((i + 1) % n, i);
  }
  for (const auto& [from, to] : pairs) {
    NcclGroup group{.index = own == from ? 0 : 1, .size = 2};
    TEMPER_ASSIGN_OR_RETURN(group.comm, Meet(axes, from, own == from || own == to, group.size, group.index));
    if (group.comm == nullptr) continue;
    TEMPER_RETURN_IF_ERROR(Keep(&edges_, {axes, from, to}, group));
    {
      TEMPER_ASSIGN_OR_RETURN(const Inside inside, Enter());
      const NcclResult met = own == from ? api_.send(byte, 1, NcclType::kUint8, 1, group.comm, stream.handle())
                                         : api_.receive(byte, 1, NcclType::kUint8, 0, group.comm, stream.handle());
      TEMPER_RETURN_IF_ERROR(StatusOf(met, "meeting a neighbour"));
    }
    TEMPER_RETURN_IF_ERROR(stream.Synchronize());
  }
  return OkStatus();
}

Result<NcclGroup> NcclGroups::Between(AxisSet axes, int from, int to) const {
  const auto it = edges_.find({axes, from, to});
  if (it != edges_.end()) return it->second;
  return InvalidArgument(fmt::format("a transfer from {} to {} along {} of mesh {}: they are not neighbours", from, to,
                                     axes.ToString(), mesh_.ToString()));
}

}  // namespace temper
