#include "run/calibration.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/products/gemm_peak.h"
#include "base/for_each.h"
#include "base/log.h"
#include "base/machine_memory.h"
#include "base/processors.h"
#include "base/quantity.h"
#include "base/team.h"
#include "base/thread.h"
#include "cluster/cluster_rates.h"
#include "cluster/rate_fit.h"
#include "comm/local/local_communicator.h"
#include "compile/run/run_rates.h"
#include "disk/disk_tier.h"
#include "graph/named_ops.h"
#include "run/calibration_cases.h"
#include "run/machine.h"
#include "run/other_load.h"
#include "runtime/arena.h"

namespace temper {
namespace {

using Clock = std::chrono::steady_clock;

double Elapsed(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

// How much is measured, and for how long.
struct Effort {
  Seconds compute, move;  // per case that computes, and that moves data
  Seconds beside;         // per round of kernels and moves together: many time slices of the scheduler
  Bytes disk;             // written and read
  std::vector<Op> ops;    // empty: all
  Flops largest;          // of a case; 0: no limit
};
// More than most caches hold: the masters of a step are each cast once in a micro-batch, and are in no cache.
constexpr Bytes kBeyondCaches = MiB(192);
constexpr double kPeakSeconds = 0.3;  // of each measurement of the multipliers' peak
const Effort kCalibration = {
    .compute = {0.025}, .move = {0.010}, .beside = {0.12}, .disk = MiB(256), .ops = {}, .largest = {}};
// The ops that take most of a step; others are as fast as the most similar of these (DeviceRates::FillClasses).
const Effort kQuick = {.compute = {0.004},
                       .move = {0.003},
                       .beside = {0.02},
                       .disk = MiB(64),
                       .ops = {Op::kLinear, Op::kAttention, Op::kAdd, Op::kAdamw},
                       .largest = {1.2e9}};

// `late`: asked between measurements; true ends them, and the rates then lack the rest.
DeviceRates MeasureRates(
    int ranks, int threads, const std::vector<DType>& dtypes, const Effort& effort,
    const std::function<bool()>& late = [] { return false; }) {
  DeviceRates rates;
  const KernelTimer timer(ranks, threads);
  for (const DType dtype : dtypes) {
    for (const RateCases& wanted : CalibrationCases(dtype)) {
      const auto& ops = effort.ops;
      if (!ops.empty() && std::find(ops.begin(), ops.end(), wanted.op) == ops.end()) continue;
      if (!ops.empty() && wanted.computes && dtype != dtypes.back()) continue;  // a run computes in the last one
      if (late()) return rates;
      std::vector<TimedSample> samples;
      bool all = true;
      for (const TimedCase& c : wanted.cases) {
        if (effort.largest.v > 0 && CostOf(c).flops.v > effort.largest.v && wanted.computes) continue;
        const Bytes memory = wanted.op == Op::kCast ? kBeyondCaches / ranks : Bytes{};
        const Seconds seconds = timer.Time(c, wanted.computes ? effort.compute : effort.move, memory);
        if (seconds > Seconds{0}) samples.push_back({CostOf(c), seconds});
        all &= seconds > Seconds{0};
      }
      if (!all || samples.empty()) continue;  // not an op of this backend in this dtype
      rates.SetOp(wanted.op, wanted.op_class, wanted.dtype, wanted.computes ? FitRate(samples) : FitBandwidth(samples));
    }
  }
  rates.FillClasses();
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
  for (int r = 1; r < ranks; ++r) others.push_back(StartThread([&rank, r] { rank(r); }));
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

// One thread's copies in memory, like a run's between device and host
// (runtime/move.cc): of a weight's size, over more memory than a cache holds.
Status MeasureCopies(const KernelTimer& timer, int ranks, Seconds budget, Cluster::Share* share) {
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
  const KernelTimer::Beside found = timer.TimeBeside(ProductBesideMoves(), copy, budget);
  share->copies = static_cast<double>(kMove.v) / found.alone.v;
  share->beside_copies = found.contention;
  return OkStatus();
}

// Writes and reads like the disk tier of a run: two concurrent transfers, of memory that is not in blocks.
Status MeasureDisk(Env& env, const std::string& folder, int threads, const Effort& effort, Cluster* cluster) {
  constexpr Bytes kOff{64};
  constexpr size_t kUnderWay = 2;
  const Bytes file = effort.disk, move = file / 8;
  TEMPER_ASSIGN_OR_RETURN(const auto tier, DiskTier::Create(env, {folder, file, {}}));
  std::vector<std::unique_ptr<Arena>> memories;
  for (size_t t = 0; t < kUnderWay; ++t) {
    TEMPER_ASSIGN_OR_RETURN(memories.emplace_back(), Arena::Create(move + kOff));
  }
  Status failed;
  std::mutex mutex;  // guards the status
  const auto transfer = [&](size_t t, Bytes at, bool writes) {
    const std::span<std::byte> memory(memories[t]->At(kOff), static_cast<size_t>(move.v));
    Status done = writes ? tier->Write(at, memory) : tier->Read(at, memory);
    const std::lock_guard lock(mutex);
    if (failed.ok()) failed = std::move(done);
  };
  const auto rate = [&](bool writes) {
    const auto begin = Clock::now();
    ForEach(kUnderWay, kUnderWay, [&](int64_t t) {
      for (Bytes at = move * t; at < file; at += move * kUnderWay) transfer(static_cast<size_t>(t), at, writes);
    });
    return static_cast<double>(file.v) / Elapsed(begin);
  };
  cluster->disk_write = rate(/*writes=*/true);
  cluster->disk_read = rate(/*writes=*/false);
  TEMPER_RETURN_IF_ERROR(failed);
  // Beside the kernels of one rank. Several ranks share the disk and the cores equally, so kernels lose the same.
  const auto two_reads = [&](int) {
    std::thread other = StartThread([&] { transfer(1, move, /*writes=*/false); });
    transfer(0, {}, /*writes=*/false);
    other.join();
  };
  const KernelTimer timer(1, threads);
  const Contention beside = timer.TimeBeside(ProductBesideMoves(), two_reads, effort.beside).contention;
  for (auto& [ranks, share] : cluster->shares) share.beside_disk = beside;
  return failed;
}

// "AMD EPYC 9655". A saved calibration is only valid for the same processor.
std::string ProcessorName() {
  const Result<std::string> text = PosixEnv().ReadGenerated("/proc/cpuinfo");
  if (!text.ok()) return "CPU";
  const size_t at = text->find("model name");
  if (at == std::string::npos) return "CPU";
  const size_t begin = text->find(": ", at) + 2;
  std::string name = text->substr(begin, text->find('\n', begin) - begin);
  std::erase(name, '"');
  return name;
}

std::string MachineName(int threads) {
  return fmt::format("{}, {} threads, {}", ProcessorName(), threads, ToString(DetectIsa()));
}

}  // namespace

Result<Cluster> CalibrateThisMachine(Env& env, const std::string& folder,
                                     const std::function<void(const std::string&)>& progress, Seconds most) {
  const int cores = AvailableProcessors();
  Cluster cluster{.name = "this",
                  .device = MachineName(cores),
                  .date = Today(),
                  .memory = FindAvailableMemory().bytes,
                  .devices_per_host = cores,
                  .host_memory = FindAvailableMemory().bytes,
                  .shared = true};
  const OtherLoad load(env);
  // Where a quota gives the process the time of fewer processors than it watches, load on the others is not its own.
  const bool all_ours = ProcessorsAtStart().limit.empty();
  const auto begin = Clock::now();
  const auto late = [&] { return Elapsed(begin) > most.v; };
  std::vector<double> peaks;  // of all cores, from time to time
  const auto look = [&] { peaks.push_back(MeasureGemmPeak(DType::kBF16, cores, DetectIsa(), kPeakSeconds)); };
  look();
  for (int ranks = 1; ranks <= cores; ranks *= 2) {
    const int threads = cores / ranks;
    progress(fmt::format("{} of {}", Counted(ranks, "rank"), Counted(threads, "thread")));
    Cluster::Share& share = cluster.shares[ranks];
    share.rates = MeasureRates(ranks, threads, {DType::kF32, DType::kBF16}, kCalibration, late);
    if (late()) {
      const std::string load_text = DescribeOtherLoad(all_ours ? load.SinceStart() : std::nullopt, cores, peaks);
      return InUse(fmt::format(
          "this machine was not measured within {}, and {} were expected{}: nothing is saved. Run `temper doctor "
          "--calibrate` when it is idle; a plan without --cluster this needs no measurements",
          ToString(most), ToString(CalibrationTakes()), load_text.empty() ? "" : "; " + load_text));
    }
    share.f32_peak = MeasureGemmPeak(DType::kF32, threads, DetectIsa(), kPeakSeconds);
    share.bf16_peak = MeasureGemmPeak(DType::kBF16, threads, DetectIsa(), kPeakSeconds);
    if (ranks > 1) share.link = MeasureLink(ranks, threads);
    TEMPER_RETURN_IF_ERROR(MeasureCopies(KernelTimer(ranks, threads), ranks, kCalibration.beside, &share));
    look();
  }
  progress("disk");
  TEMPER_RETURN_IF_ERROR(env.CreateFolders(folder));
  TEMPER_RETURN_IF_ERROR(MeasureDisk(env, folder, cores, kCalibration, &cluster));
  look();
  cluster.other_load = DescribeOtherLoad(all_ours ? load.SinceStart() : std::nullopt, cores, peaks);
  return cluster;
}

std::string NameOf(const RunOnMachine& run) {
  return fmt::format("{} of {}", Counted(run.ranks, "rank"), Counted(run.threads, "thread"));
}

std::string MachineOf(const RunOnMachine& run) {
  return run.gpu != nullptr ? run.gpu->name() : MachineName(run.ranks * run.threads);
}

namespace {

// Failures leave the disk unmeasured: the run itself says whether it needs one.
void TryDisk(Env& env, const RunOnMachine& run, Cluster* cluster) {
  if (run.folder.empty() || !MeasureDisk(env, run.folder, run.threads, kQuick, cluster).ok()) {
    cluster->disk_read = cluster->disk_write = 0;
  }
  cluster->disk_read *= run.ranks;  // the others read and write at the same time
  cluster->disk_write *= run.ranks;
}

Result<std::string> MeasureCpuRun(Env& env, const RunOnMachine& run) {
  Cluster cluster{.name = NameOf(run),
                  .device = MachineOf(run),
                  .date = Today(),
                  .memory = FindAvailableMemory().bytes,
                  .devices_per_host = run.ranks,
                  .host_memory = FindAvailableMemory().bytes,
                  .shared = true};
  Cluster::Share& share = cluster.shares[run.ranks];
  std::vector<DType> dtypes = {DType::kF32};  // of masters and states
  if (run.dtype != DType::kF32) dtypes.push_back(run.dtype);
  share.rates = MeasureRates(1, run.threads, dtypes, kQuick);
  for (double* peak : {&share.f32_peak, &share.bf16_peak}) {
    *peak = share.rates.OfClass(OpClass::kProduct, run.dtype).flops_per_second;
  }
  TEMPER_RETURN_IF_ERROR(MeasureCopies(KernelTimer(1, run.threads), 1, kQuick.beside, &share));
  TryDisk(env, run, &cluster);
  return PrintCluster(Rounded(cluster));
}

// Rates of a GPU by class. Attention is not measured: its shares are those of examples/clusters/1xH200.yaml, as parts
// of what products reach there.
Result<std::string> MeasureGpuRun(Env& env, const RunOnMachine& run) {
  TEMPER_ASSIGN_OR_RETURN(const double f32, MeasureProductPeak(*run.gpu, DType::kF32));
  TEMPER_ASSIGN_OR_RETURN(const double bf16, MeasureProductPeak(*run.gpu, DType::kBF16));
  TEMPER_ASSIGN_OR_RETURN(const CopyRates copies, MeasureCopyRates(*run.gpu));
  TEMPER_ASSIGN_OR_RETURN(const Device::Memory memory, run.gpu->MeasureMemory());
  const DeviceRates at_host = MeasureRates(1, run.threads, {DType::kF32}, kQuick);
  Cluster disk;
  disk.shares[1] = {};
  TryDisk(env, run, &disk);
  const auto rate = [](double measured, const char* unit) { return PrintQuantity(Rounded(measured), unit); };
  const auto peak = [&](double measured, double attention, double backward) {
    return fmt::format("{{peak: {}, products: 1, attention: {}, attention_backward: {}}}", rate(measured, "FLOP/s"),
                       attention, backward);
  };
  std::string text = fmt::format(
      "# Measured by Temper.\nname: {}\ndate: \"{}\"\ndevice:\n  name: \"{}\"\n  memory: {} B\n  bandwidth: {}\n"
      "  bandwidth_share: 1\n  launch: {}\n  f32: {}\n  bf16: {}\nhost:\n  memory: {} B\n  bandwidth: {}\n"
      "  copies: {{to_device: {}, from_device: {}}}\n",
      NameOf(run), Today(), MachineOf(run), memory.total.v, rate(copies.within, "B/s"),
      PrintQuantity(TypicalGpu().OfClass(OpClass::kMemory, DType::kF32).launch.v, "s"), peak(f32, 0.5, 0.5),
      peak(bf16, 0.45, 0.32), FindAvailableMemory().bytes.v,
      rate(at_host.OfClass(OpClass::kMemory, DType::kF32).BytesPerSecond(MiB(64)) * run.ranks, "B/s"),
      rate(copies.to_device, "B/s"), rate(copies.from_device, "B/s"));
  if (disk.disk_read > 0) {
    text += fmt::format("  disk: {{read: {}, write: {}}}\n", rate(disk.disk_read, "B/s"), rate(disk.disk_write, "B/s"));
  }
  return text;
}

}  // namespace

Result<std::string> MeasureRun(Env& env, const RunOnMachine& run) {
  return run.gpu != nullptr ? MeasureGpuRun(env, run) : MeasureCpuRun(env, run);
}

std::optional<std::string> CalibrationOf(Env& env, const RunOnMachine& run) {
  const Result<std::string> path = CalibrationPath();
  if (run.gpu != nullptr || !path.ok() || !env.IsFile(*path)) return std::nullopt;
  Result<Cluster> cluster = OpenCluster(env, *path);
  if (!cluster.ok() || !cluster->shared || cluster->device != MachineOf(run)) return std::nullopt;
  const auto share = cluster->shares.find(run.ranks);
  if (share == cluster->shares.end()) return std::nullopt;
  cluster->name = NameOf(run);
  cluster->devices_per_host = run.ranks;
  cluster->shares = {*share};
  return PrintCluster(Rounded(*cluster));
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

namespace {

constexpr char kThis[] = "this";
std::string CalibrateRemedy() {
  return fmt::format("run `temper doctor --calibrate` (about {}, on an idle machine)", ToString(CalibrationTakes()));
}

// The path of this machine's calibration, which exists.
Result<std::string> ThisPath(Env& env) {
  TEMPER_ASSIGN_OR_RETURN(std::string path, CalibrationPath());
  if (env.IsFile(path)) return path;
  return NotFound(fmt::format("this machine has not been measured: {}", CalibrateRemedy()));
}

}  // namespace

Seconds CalibrationTakes() {
  // 52 s were measured on 2 idle cores, which ranks divide in two ways.
  constexpr Seconds kDivision{26};
  int divisions = 0;
  for (int ranks = 1; ranks <= AvailableProcessors(); ranks *= 2) ++divisions;
  return {kDivision.v * divisions};
}

namespace {

// Beside four programs as busy as this one it takes five times as long.
constexpr double kMostTimes = 5;

// A machine is measured for a minute: only if the result can be kept.
Status CheckPlace(Env& env, const std::string& path) {
  const std::string probe = path + ".probe";
  Status can = env.CreateFolders(FolderOf(path));
  if (can.ok()) can = WriteTextFileAtomically(env, probe, "");
  if (can.ok()) return env.RemoveFile(probe);
  return Status(can.code(),
                fmt::format("the measured speeds of this machine are kept in {}: {}: set XDG_CACHE_HOME to a "
                            "folder that can be written",
                            path, can.message()));
}

}  // namespace

Result<Cluster> CalibrateAndSave(Env& env) {
  TEMPER_ASSIGN_OR_RETURN(const std::string path, CalibrationPath());
  TEMPER_RETURN_IF_ERROR(CheckPlace(env, path));
  TEMPER_ASSIGN_OR_RETURN(Cluster cluster,
                          CalibrateThisMachine(
                              env, FolderOf(path), [](const std::string& what) { LogInfo("measuring   " + what); },
                              Seconds{CalibrationTakes().v * kMostTimes}));
  if (!cluster.other_load.empty()) {
    LogWarning(
        fmt::format("while the machine was measured, {}: what is planned by this may be too slow; measure again "
                    "when it is idle",
                    cluster.other_load));
  }
  TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(env, path, PrintCluster(cluster)));
  return cluster;
}

Result<std::string> ReadClusterOrThis(Env& env, const std::string& name) {
  if (name != kThis) return ReadCluster(env, name);
  TEMPER_RETURN_IF_ERROR(OpenClusterOrThis(env, name).status());
  TEMPER_ASSIGN_OR_RETURN(const std::string path, ThisPath(env));
  return ReadTextFile(env, path, MiB(1));
}

Result<Cluster> OpenClusterOrThis(Env& env, const std::string& name) {
  if (name != kThis) return OpenCluster(env, name);
  TEMPER_ASSIGN_OR_RETURN(const std::string path, ThisPath(env));
  TEMPER_ASSIGN_OR_RETURN(Cluster cluster, OpenCluster(env, path));
  if (cluster.device != MachineName(AvailableProcessors())) {
    return InvalidArgument(
        fmt::format("{} was measured on another machine ({}): {}", path, cluster.device, CalibrateRemedy()));
  }
  cluster.memory = FindAvailableMemory().bytes;  // now
  cluster.packs = ReadsPackedWeights(DetectIsa());
  return cluster;
}

}  // namespace temper
