#include "run/calibration.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "backend/cpu/gemm_peak.h"
#include "base/for_each.h"
#include "base/machine_memory.h"
#include "base/quantity.h"
#include "base/team.h"
#include "comm/local/local_communicator.h"
#include "disk/disk_tier.h"
#include "plan/rate_fit.h"
#include "run/calibration_cases.h"
#include "runtime/arena.h"

namespace temper {
namespace {

using Clock = std::chrono::steady_clock;

double Elapsed(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// Time per case, for cases that compute and for those that move data.
constexpr Seconds kComputeBudget{0.025}, kMoveBudget{0.010};

DeviceRates MeasureRates(int ranks, int threads) {
  DeviceRates rates;
  const KernelTimer timer(ranks, threads);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const RateCases& wanted : CalibrationCases(dtype)) {
      std::vector<TimedSample> samples;
      for (const TimedCase& c : wanted.cases) {
        const Seconds seconds = timer.Time(c, wanted.computes ? kComputeBudget : kMoveBudget);
        if (seconds > Seconds{0}) samples.push_back({CostOf(c), seconds});
      }
      if (samples.size() < wanted.cases.size()) continue;  // not an op of this backend in this dtype
      rates.SetOp(wanted.op, wanted.op_class, wanted.dtype, wanted.computes ? FitRate(samples) : FitBandwidth(samples));
    }
  }
  // Ops that are not timed (tables, slices) move data as fast as a sum.
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    rates.SetClass(OpClass::kMemory, dtype, rates.Of(Op::kAdd, OpClass::kMemory, dtype));
  }
  return rates;
}

// All ranks gather parts of `whole`; seconds of the slowest, the median of some rounds.
double GatherSeconds(int ranks, int threads, Bytes whole) {
  constexpr int kRounds = 15;
  ThreadWorld world(ranks);
  Mesh mesh;
  mesh.set_size(Axis::kFsdp, ranks);
  std::vector<double> rounds;
  const auto rank = [&](int r) {
    const auto communicator = world.Join(r);
    const auto arena = communicator->AllocateArena(whole * 2);
    TEMPER_CHECK(arena.ok()) << arena.status().message();
    const int64_t n = whole.v / SizeOf(DType::kF32);
    KernelSpec spec{.op = Op::kAllGather,
                    .inputs = {{DType::kF32, {PartOf(n, ranks, r).count}}},
                    .outputs = {{DType::kF32, {n}}},
                    .attributes = {{"axes", std::string("fsdp")},
                                   {"ranks", int64_t{ranks}},
                                   {"dim", int64_t{0}},
                                   {"sizes", std::vector<double>{static_cast<double>(n)}}},
                    .threads = threads};
    const auto kernel = communicator->Collectives(mesh)->Make(spec);
    TEMPER_CHECK(kernel.ok()) << kernel.status().message();
    std::byte *in = arena->data(), *out = arena->data() + whole.v;
    for (int round = -2; round < kRounds; ++round) {
      Status met = communicator->Barrier();
      const auto start = Clock::now();
      if (met.ok()) met = (*kernel)->Run({.inputs = &in, .outputs = &out});
      double seconds = Elapsed(start);
      if (met.ok()) met = communicator->AllReduceMax({&seconds, 1});
      TEMPER_CHECK(met.ok()) << met.message();
      if (r == 0 && round >= 0) rounds.push_back(seconds);
    }
  };
  std::vector<std::thread> others;
  for (int r = 1; r < ranks; ++r) others.emplace_back(rank, r);
  rank(0);
  for (std::thread& t : others) t.join();
  std::sort(rounds.begin(), rounds.end());
  return rounds[rounds.size() / 2];
}

Link MeasureLink(int ranks, int threads) {
  constexpr Bytes kSmall = KiB(4), kLarge = MiB(32);
  const double latency = GatherSeconds(ranks, threads, kSmall);
  const double sent = static_cast<double>(kLarge.v) * (ranks - 1) / ranks;
  const double moving = std::max(GatherSeconds(ranks, threads, kLarge) - latency, 1e-9);
  return {.bytes_per_second = sent / moving, .latency = {latency / (ranks - 1)}};
}

// A product represents all kernels beside moves, since products take most of a step's time.
TimedCase ProductBesideMoves() {
  const TensorType x{DType::kF32, {512, 768}}, w{DType::kF32, {2048, 768}}, y{DType::kF32, {512, 2048}};
  return {.op = Op::kLinear, .inputs = {x, w, y}, .attributes = {{"acc", int64_t{1}}, {"bias", int64_t{0}}}};
}
// Long enough for many time slices of the scheduler.
constexpr Seconds kBesideBudget{0.12};

// One thread's copies in memory, like a run's between device and host
// (runtime/move.cc): of a weight's size, over more memory than a cache holds.
Status MeasureCopies(const KernelTimer& timer, int ranks, Cluster::Share* share) {
  constexpr Bytes kMove = MiB(4), kMemory = MiB(32);
  struct Memory {
    std::unique_ptr<Arena> from, to;
    Bytes at;
  };
  std::vector<Memory> memories;
  for (int r = 0; r < ranks; ++r) {
    TEMPER_ASSIGN_OR_RETURN(auto from, Arena::Create(kMemory));
    TEMPER_ASSIGN_OR_RETURN(auto to, Arena::Create(kMemory));
    memories.push_back({std::move(from), std::move(to), {}});
  }
  const auto copy = [&](int rank) {
    Memory& m = memories[static_cast<size_t>(rank)];
    const Status copied = HostStream().Copy(m.from->At(m.at), m.to->At(m.at), kMove);
    TEMPER_CHECK(copied.ok()) << copied.message();
    m.at += kMove;
    if (m.at == kMemory) m.at = {};
  };
  const KernelTimer::Beside found = timer.TimeBeside(ProductBesideMoves(), copy, kBesideBudget);
  share->copies = static_cast<double>(kMove.v) / found.alone.v;
  share->beside_copies = found.contention;
  return OkStatus();
}

// Writes and reads like the disk tier of a run: two concurrent transfers, of memory that is not in blocks.
Status MeasureDisk(Env& env, const std::string& folder, Cluster* cluster) {
  constexpr Bytes kMove = MiB(32), kFile = MiB(256), kOff{64};
  constexpr size_t kUnderWay = 2;
  TEMPER_ASSIGN_OR_RETURN(const auto tier, DiskTier::Create(env, {folder, kFile, {}}));
  std::vector<std::unique_ptr<Arena>> memories;
  for (size_t t = 0; t < kUnderWay; ++t) {
    TEMPER_ASSIGN_OR_RETURN(memories.emplace_back(), Arena::Create(kMove + kOff));
  }
  Status failed;
  std::mutex mutex;  // guards the status
  const auto transfer = [&](size_t t, Bytes at, bool writes) {
    const std::span<std::byte> move(memories[t]->At(kOff), static_cast<size_t>(kMove.v));
    Status done = writes ? tier->Write(at, move) : tier->Read(at, move);
    const std::lock_guard lock(mutex);
    if (failed.ok()) failed = std::move(done);
  };
  const auto rate = [&](bool writes) {
    const auto begin = Clock::now();
    ForEach(kUnderWay, kUnderWay, [&](int64_t t) {
      for (Bytes at = kMove * t; at < kFile; at += kMove * kUnderWay) transfer(static_cast<size_t>(t), at, writes);
    });
    return static_cast<double>(kFile.v) / Elapsed(begin);
  };
  cluster->disk_write = rate(/*writes=*/true);
  cluster->disk_read = rate(/*writes=*/false);
  TEMPER_RETURN_IF_ERROR(failed);
  // Beside the kernels of one rank. Several ranks share the disk and the cores equally, so kernels lose the same.
  const auto two_reads = [&](int) {
    std::thread other([&] { transfer(1, kMove, /*writes=*/false); });
    transfer(0, {}, /*writes=*/false);
    other.join();
  };
  const KernelTimer timer(1, AvailableProcessors());
  const Contention beside = timer.TimeBeside(ProductBesideMoves(), two_reads, kBesideBudget).contention;
  for (auto& [ranks, share] : cluster->shares) share.beside_disk = beside;
  return failed;
}

// "AMD EPYC 9655". A saved calibration is only valid for the same processor.
std::string ProcessorName() {
  const Result<std::string> text = ReadTextFile(PosixEnv(), "/proc/cpuinfo");
  if (!text.ok()) return "CPU";
  const size_t at = text->find("model name");
  if (at == std::string::npos) return "CPU";
  const size_t begin = text->find(": ", at) + 2;
  std::string name = text->substr(begin, text->find('\n', begin) - begin);
  std::erase(name, '"');
  return name;
}

std::string MachineName() {
  return fmt::format("{}, {} threads, {}", ProcessorName(), AvailableProcessors(), ToString(DetectIsa()));
}

}  // namespace

Result<Cluster> CalibrateThisMachine(Env& env, const std::string& folder,
                                     const std::function<void(const std::string&)>& progress) {
  const int cores = AvailableProcessors();
  Cluster cluster{.name = "this",
                  .device = MachineName(),
                  .memory = FindAvailableMemory().bytes,
                  .devices_per_host = cores,
                  .host_memory = FindAvailableMemory().bytes,
                  .shared = true};
  for (int ranks = 1; ranks <= cores; ranks *= 2) {
    const int threads = cores / ranks;
    progress(fmt::format("{} of {}", Counted(ranks, "rank"), Counted(threads, "thread")));
    Cluster::Share& share = cluster.shares[ranks];
    share.rates = MeasureRates(ranks, threads);
    share.f32_peak = MeasureGemmPeak(DType::kF32, threads, DetectIsa());
    share.bf16_peak = MeasureGemmPeak(DType::kBF16, threads, DetectIsa());
    if (ranks > 1) share.link = MeasureLink(ranks, threads);
    TEMPER_RETURN_IF_ERROR(MeasureCopies(KernelTimer(ranks, threads), ranks, &share));
  }
  progress("disk");
  TEMPER_RETURN_IF_ERROR(env.CreateFolders(folder));
  TEMPER_RETURN_IF_ERROR(MeasureDisk(env, folder, &cluster));
  return cluster;
}

Result<std::string> CalibrationPath() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return JoinPath(cache, "temper/this.yaml");
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') {
    return NotFound("neither XDG_CACHE_HOME nor HOME names a folder: set one of them to save calibrations there");
  }
  return JoinPath(home, ".cache/temper/this.yaml");
}

Result<Cluster> OpenClusterOrThis(Env& env, const std::string& name) {
  if (name != "this") return OpenCluster(env, name);
  TEMPER_ASSIGN_OR_RETURN(const std::string path, CalibrationPath());
  constexpr char kRemedy[] = "run `temper doctor --calibrate` (some seconds, on an idle machine)";
  if (!env.IsFile(path)) return NotFound(fmt::format("this machine has not been measured: {}", kRemedy));
  TEMPER_ASSIGN_OR_RETURN(Cluster cluster, OpenCluster(env, path));
  if (cluster.device != MachineName()) {
    return InvalidArgument(fmt::format("{} was measured on another machine ({}): {}", path, cluster.device, kRemedy));
  }
  cluster.memory = FindAvailableMemory().bytes;  // now
  return cluster;
}

}  // namespace temper
