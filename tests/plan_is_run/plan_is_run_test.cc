// The plan is the run: planned bytes are the bytes reserved and touched, and a step allocates
// nothing: neither from the C++ allocator, nor malloc, nor the kernel, on any thread. This
// binary counts by replacing malloc and related functions (glibc allows that; its own calls
// and every library's then come here) and by asking the kernel for mapped pages.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sys/stat.h>

#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "../tiny_run.h"
#include "base/machine_memory.h"
#include "base/scratch_folder.h"
#include "comm/local/local_communicator.h"
#include "data/token_memory.h"
#include "disk/disk_tier.h"
#include "format/safetensors_writer.h"
#include "infer/decode_engine.h"
#include "train/trainer.h"

#ifdef TEMPER_SANITIZED
#define TEMPER_COUNTS_ALLOCATIONS 0  // the sanitizer replaces the allocator
#else
#define TEMPER_COUNTS_ALLOCATIONS 1
#endif

namespace {
std::atomic<int64_t> allocations{0};  // by all threads
}

#if TEMPER_COUNTS_ALLOCATIONS
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);

void* malloc(size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(p, n);
}
void* memalign(size_t alignment, size_t n) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, n);
}
void* aligned_alloc(size_t alignment, size_t n) {
  return memalign(alignment, n);
}
int posix_memalign(void** out, size_t alignment, size_t n) {
  *out = memalign(alignment, n);
  return *out == nullptr ? ENOMEM : 0;
}
void free(void* p) {
  __libc_free(p);
}
}
#endif

namespace temper::plan_is_run_test {
namespace {

using tiny::Batch;
using tiny::Method;
using tiny::Must;
using tiny::RunSpec;
using tiny::TinyRun;

// Pages of address space that this process has mapped: shows any mmap or brk. Read without allocating.
int64_t MappedPages() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  long pages = -1;
  if (std::fscanf(file, "%ld", &pages) != 1) pages = -1;
  std::fclose(file);
  return pages;
}

struct Variant {
  std::string name;
  RunSpec spec;
  friend void PrintTo(const Variant& v, std::ostream* out) { *out << v.name; }
};
// With a team: what its threads do counts, too.
std::vector<Variant> Variants() {
  std::vector<Variant> variants = {
      {"llama_full_f32", {.micro_batches = 2}},
      {"llama_full_bf16_recompute", {.dtype = DType::kBF16, .micro_batches = 2, .recompute = Recompute::kBlock}},
      {"llama_lora_head_dropout_bf16",
       {.method = Method::kLoraWithHead, .dtype = DType::kBF16, .dropout = 0.1, .micro_batches = 2}},
      {"opt_full_bf16", {.config = tiny::OptConfigText(false), .dtype = DType::kBF16, .micro_batches = 2}},
      {"opt_lora_f32", {.config = tiny::OptConfigText(true), .method = Method::kLora, .micro_batches = 2}},
      {"wide_llama_full_bf16",
       {.config = tiny::LlamaConfigText(false, 512, 2, 4096), .dtype = DType::kBF16, .row = 256, .micro_batches = 2}},
      {"wide_llama_full_bf16_cast",
       {.config = tiny::LlamaConfigText(false, 512, 2, 4096),
        .dtype = DType::kBF16,
        .row = 256,
        .micro_batches = 1,
        .memory = {.matrices = TrainedMatrices::kCast}}},
      {"wide_llama_lora_f32",
       {.config = tiny::LlamaConfigText(true, 512, 2, 4096), .method = Method::kLora, .row = 256, .micro_batches = 1}},
  };
  for (Variant& v : variants) v.spec.threads = 2;
  return variants;
}

class PlanIsRun : public testing::TestWithParam<Variant> {};

TEST_P(PlanIsRun, StepsAndEvaluationsAllocateNothing) {
  if (!TEMPER_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer's allocator is in place of ours";
  for (const Isa isa : {DetectIsa(), Isa::kScalar}) {
    // The scalar kernels are slow: only for tiny models.
    if (isa == Isa::kScalar && GetParam().name.starts_with("wide")) continue;
    RunSpec spec = GetParam().spec;
    spec.isa = isa;
    TinyRun run(spec);
    Batch first = run.MakeBatch(1), second = run.MakeBatch(2);
    run.Step(first);  // threads start here
    run.Evaluate(first);
    (void)MappedPages();
    const int64_t pages = MappedPages();
    const int64_t before = allocations.load();
    for (int t = 0; t < 3; ++t) {
      run.Step(second);
      run.Evaluate(first);
    }
    const int64_t after = allocations.load();
    EXPECT_EQ(after - before, 0) << "on " << ToString(isa);
    EXPECT_EQ(MappedPages(), pages) << "something was mapped, on " << ToString(isa);
  }
  const int64_t before = allocations.load();
  delete new std::string(100, 'x');
  EXPECT_GE(allocations.load() - before, 2) << "the counter works";
}

// Bytes of [begin, begin + size) that are in memory now.
int64_t ResidentBytes(const std::byte* begin, int64_t size) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::vector<unsigned char> pages(static_cast<size_t>((size + page - 1) / page));
  if (mincore(const_cast<std::byte*>(begin), static_cast<size_t>(size), pages.data()) != 0) return -1;
  int64_t resident = 0;
  for (unsigned char p : pages) resident += (p & 1) * page;
  return resident;
}

TEST_P(PlanIsRun, PlannedBytesAreReservedAndTouched) {
  const TinyRun run(GetParam().spec);
  const Program& p = run.train();
  EXPECT_EQ(run.arena().size(), p.arena_bytes);
  EXPECT_EQ(run.eval().arena_bytes, p.arena_bytes);
  EXPECT_LE(p.peak.total(), p.arena_bytes);
  EXPECT_GE(ResidentBytes(run.arena().At({0}), p.arena_bytes.v), p.arena_bytes.v);
}

// The arena ends where the plan says, and nothing writes past
// it or into memory outside the buffers that a Program names.
TEST_P(PlanIsRun, AStepTouchesNothingOutsideItsBuffers) {
  TinyRun run(GetParam().spec);
  // Mark every byte that belongs to no buffer, no operand and no scratch.
  std::vector<uint8_t> bound(static_cast<size_t>(run.train().arena_bytes.v), 0);
  const auto mark = [&](Bytes begin, Bytes size) { std::fill_n(bound.begin() + begin.v, size.v, uint8_t{1}); };
  for (const Program* p : {&run.train(), &run.eval()}) {
    for (const Buffer& b : p->buffers) mark(b.offset, b.type.bytes());
    for (const Binding& binding : p->bindings) {
      const Segment& segment = p->segments[static_cast<size_t>(binding.segment)];
      for (size_t k = 0; k < segment.operands.size(); ++k) mark(binding.offsets[k], segment.operands[k].bytes());
      for (size_t i = 0; i < segment.instructions.size(); ++i) {
        mark(binding.scratch[i], ScratchOf(*p, segment, segment.instructions[i]));
      }
    }
  }
  std::byte* const arena = run.arena().At({0});
  int64_t gaps = 0;
  for (size_t i = 0; i < bound.size(); ++i) {
    if (bound[i]) continue;
    arena[i] = std::byte{0x5A};
    ++gaps;
  }
  Batch batch = run.MakeBatch(1);
  run.Step(batch);
  run.Evaluate(batch);
  run.Step(batch);
  int64_t overwritten = 0;
  for (size_t i = 0; i < bound.size(); ++i) overwritten += !bound[i] && arena[i] != std::byte{0x5A};
  EXPECT_EQ(overwritten, 0) << "of " << gaps << " bytes between operands";
}

INSTANTIATE_TEST_SUITE_P(Tiny, PlanIsRun, testing::ValuesIn(Variants()),
                         [](const testing::TestParamInfo<Variant>& info) { return info.param.name; });

// The work of `temper train` from one row of its log to the next, also across epochs.
TEST(Trainer, StepsAndEvaluationsAllocateNothing) {
  if (!TEMPER_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer's allocator is in place of ours";
  for (const Method method : {Method::kFull, Method::kLora}) {
    const double dropout = method == Method::kLora ? 0.1 : 0;
    const RunSpec spec = {
        .method = method, .dtype = DType::kBF16, .dropout = dropout, .micro_batches = 2, .threads = 2};
    TinyRun run(spec);
    MemoryTokens made;
    std::vector<int32_t> samples;
    for (int32_t s = 0; s < 20; ++s) {
      std::vector<int32_t> tokens(static_cast<size_t>(5 + 7 * s % 23));
      for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = (31 * s + 7 * static_cast<int32_t>(i)) % 160;
      made.Add(tokens, std::vector<uint8_t>(tokens.size(), 1));
      samples.push_back(s);
    }
    const TokenStore store = made.Store();
    Trainer trainer(run.executor(), store, samples, {.max_seq_len = spec.row},
                    {.micro_batches = spec.micro_batches,
                     .rows_per_micro_batch = spec.rows_per_micro_batch,
                     .schedule = {.kind = ScheduleKind::kConstant, .learning_rate = 1e-3}});
    Evaluator evaluator(run.eval_executor(), store, samples, {.max_seq_len = spec.row, .shuffle = false}, nullptr);
    bool ok = true;
    const auto both = [&] { ok = ok && trainer.Step({}).ok() && evaluator.Run().ok(); };
    both();
    (void)MappedPages();
    const int64_t pages = MappedPages(), before = allocations.load();
    while (ok && trainer.sampler().epochs_done() < 1.5) both();
    EXPECT_EQ(allocations.load() - before, 0);
    EXPECT_EQ(MappedPages(), pages) << "something was mapped";
    EXPECT_TRUE(ok);
  }
}

// The placement of values, set by an option or forced by a limit.
struct Placed {
  std::string name;
  MemorySpec memory;
  double device = 0, host = 0;  // limits, as fractions of the memory with everything on the device; 0: none
};
std::vector<Placed> Placements() {
  constexpr Tier kHost = Tier::kHost, kDisk = Tier::kDisk;
  return {{"device", {}},
          {"host", {.policy = TierPolicy::kHost}},
          {"host_and_activations", {.policy = TierPolicy::kHost, .activations = kHost}},
          {"weights_on_disk", {.weights = kDisk}},
          {"states_on_disk", {.optimizer = kDisk}},
          {"all_on_disk", {.weights = kDisk, .gradients = kDisk, .optimizer = kDisk}},
          {"limited", {}, 0.8},
          {"limited_and_disk", {.disk = true}, 0.8, 0.35}};
}

std::vector<Variant> PlacedVariants() {
  const std::vector<Variant> methods = {
      {"full_f32", {.micro_batches = 2}},
      {"full_bf16_recompute",
       {.config = tiny::LlamaConfigText(false),
        .dtype = DType::kBF16,
        .micro_batches = 3,
        .recompute = Recompute::kBlock}},
      {"lora_bf16_dropout", {.method = Method::kLora, .dtype = DType::kBF16, .dropout = 0.1, .micro_batches = 2}},
      {"lora_head_selective",
       {.method = Method::kLoraWithHead, .micro_batches = 1, .recompute = Recompute::kSelective}},
      {"full_one_micro_batch", {.config = tiny::LlamaConfigText(false), .dtype = DType::kBF16, .micro_batches = 1}},
      {"opt_full_bf16", {.config = tiny::OptConfigText(true), .dtype = DType::kBF16, .micro_batches = 2}}};
  std::vector<Variant> all;
  for (const Variant& method : methods) {
    const Bytes everything = TinyRun(method.spec).train().arena_bytes;
    const auto part = [&](double share) {
      return share == 0 ? kNoLimit : Bytes{static_cast<int64_t>(static_cast<double>(everything.v) * share)};
    };
    for (const Placed& placed : Placements()) {
      Variant variant{method.name + "_" + placed.name, method.spec};
      variant.spec.memory = placed.memory;
      variant.spec.memory.device = part(placed.device);
      variant.spec.memory.host = part(placed.host);
      all.push_back(std::move(variant));
    }
  }
  return all;
}

// Bytes of unlinked files of `folder` that this process has open. All of their blocks are allocated.
int64_t BytesReservedIn(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string path = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat st;
    if (error || !path.starts_with(folder) || stat(entry.path().c_str(), &st) != 0) continue;
    EXPECT_GE(st.st_blocks * 512, st.st_size);
    bytes += st.st_size;
  }
  return bytes;
}

// Checks that steps and evaluations allocate nothing on any thread after the first ones.
void ExpectNoAllocations(TinyRun& run) {
  Batch batch = run.MakeBatch(1), held_out = run.MakeBatch(2);
  const auto both = [&] {
    run.Step(batch);
    run.Evaluate(held_out);
  };
  both();
  (void)MappedPages();
  const int64_t pages = MappedPages(), before = allocations.load();
  for (int t = 0; t < 3; ++t) both();
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_EQ(MappedPages(), pages) << "something was mapped";
}

TEST(PlanIsRunInTiers, PlannedBytesAreReservedInEachAndStepsAllocateNothing) {
  const std::vector<Variant> variants = PlacedVariants();
  EXPECT_GE(variants.size(), 20u);
  int with_host = 0, with_disk = 0;
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.name);
    const ScratchFolder folder;
    RunSpec spec = variant.spec;
    spec.spill_folder = folder.path();
    TinyRun run(spec);
    for (const Program* p : {&run.train(), &run.eval()}) {
      EXPECT_EQ(run.arena().size(), p->arena_bytes);
      EXPECT_EQ(run.host().size(), p->host.bytes);
      EXPECT_EQ(run.disk().size(), p->disk.bytes);
    }
    const Program& p = run.train();
    EXPECT_LE(p.arena_bytes, spec.memory.device);
    EXPECT_LE(p.host.bytes, spec.memory.host);
    EXPECT_GE(ResidentBytes(run.arena().At({0}), p.arena_bytes.v), p.arena_bytes.v);
    EXPECT_GE(ResidentBytes(run.host().At({0}), p.host.bytes.v), p.host.bytes.v);
    EXPECT_EQ(BytesReservedIn(folder.path()), AlignUp(p.disk.bytes, DiskTier::kAlignment).v);
    with_host += p.host.bytes.v > 0;
    with_disk += p.disk.bytes.v > 0;
    if (TEMPER_COUNTS_ALLOCATIONS) ExpectNoAllocations(run);
  }
  EXPECT_GE(with_host, 10);
  EXPECT_GE(with_disk, 10);
}

TEST(PlanIsRunOnMeshes, PlannedBytesAreReservedOnEachRankAndStepsAllocateNothing) {
  struct MeshCase {
    std::string name;
    Axis axis;
    MemorySpec memory;
    PipelineKind schedule = PipelineKind::kOneForwardOneBackward;
  };
  constexpr int kRanks = 2;
  for (const MeshCase& c :
       {MeshCase{"fsdp", Axis::kFsdp}, MeshCase{"fsdp_states_at_host", Axis::kFsdp, {.optimizer = Tier::kHost}},
        MeshCase{"tp", Axis::kTp}, MeshCase{"tp_states_on_disk", Axis::kTp, {.optimizer = Tier::kDisk}},
        MeshCase{"cp", Axis::kCp}, MeshCase{"pipeline", Axis::kPp},
        MeshCase{"pipeline_zero_bubble", Axis::kPp, {}, PipelineKind::kZeroBubble}}) {
    SCOPED_TRACE(c.name);
    ThreadWorld world(kRanks);
    std::barrier meet(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        RunSpec spec{.rows_per_micro_batch = 2, .micro_batches = 4, .threads = 1, .memory = c.memory};
        spec.mesh.mesh.set_size(c.axis, kRanks);
        spec.mesh.rank = rank;
        spec.mesh.pipeline.kind = c.schedule;
        const auto communicator = world.Join(rank);
        spec.communicator = communicator.get();
        TinyRun run(spec);
        EXPECT_EQ(run.arena().size(), run.train().arena_bytes);
        EXPECT_EQ(run.eval().arena_bytes, run.train().arena_bytes);
        EXPECT_EQ(run.host().size(), run.train().host.bytes);
        EXPECT_GE(ResidentBytes(run.arena().At({0}), run.arena().size().v), run.arena().size().v);
        Batch batch = run.MakeBatch(1);
        run.Step(batch);
        run.Step(batch);
        meet.arrive_and_wait();
        const int64_t before = allocations.load();
        meet.arrive_and_wait();
        for (int t = 0; t < 3; ++t) run.Step(batch);
        meet.arrive_and_wait();
        if (TEMPER_COUNTS_ALLOCATIONS) {
          EXPECT_EQ(allocations.load() - before, 0) << "by both ranks, " << c.name;
        }
        meet.arrive_and_wait();
      });
    }
    for (std::thread& t : threads) t.join();
  }
}

TEST(Decoding, TokensAllocateNothing) {
  if (!TEMPER_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer's allocator is in place of ours";
  for (const std::string& config : {tiny::LlamaConfigText(true), tiny::OptConfigText(true)}) {
    const auto model = tiny::MakeModel(config);
    const auto kernels = MakeCpuKernels({.threads = 2});
    const auto engine =
        Must(DecodeEngine::Create(*model, {.dtype = DType::kBF16, .context = 128, .threads = 2}, *kernels));
    DecodeSequence* const session = engine->Open();
    std::vector<int32_t> prompt(90, 3);
    Must(session->Feed(prompt).status());
    session->Reset();
    const int64_t pages = MappedPages(), before = allocations.load();
    for (int round = 0; round < 2; ++round) {
      session->Reset();
      Must(session->Feed(prompt).status());
      const int32_t token = 7;
      for (int i = 0; i < 20; ++i) Must(session->Feed({&token, 1}).status());
    }
    EXPECT_EQ(allocations.load() - before, 0);
    EXPECT_EQ(MappedPages(), pages);
  }
}

// Reads of the spill file and of weights (converted, in several chunks), and writes of whole blocks and of others.
TEST(Disk, TransfersAllocateNothingAndATierTakesThePlannedBytes) {
  if (!TEMPER_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer's allocator is in place of ours";
  const ScratchFolder scratch;
  const std::string& folder = scratch.path();
  const TensorType stored{DType::kBF16, {2000, 1001}};
  std::vector<std::byte> memory(static_cast<size_t>(stored.bytes().v) * 2);
  auto writer = Must(SafetensorsWriter::Create(PosixEnv(), JoinPath(folder, "model.safetensors"), {{"w", stored}}));
  Must(writer.Append("w", std::span(memory).first(memory.size() / 2)));
  Must(writer.Finish());
  const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), folder));
  DiskTier::Spec spec{folder, MiB(16), {}};
  const View as_f32{nullptr, {DType::kF32, stored.shape}};
  spec.mapped.push_back({spec.spill, Must(FindSlices(Must(weights.Require("w")), as_f32)).front()});

  const Bytes resident = ResidentMemory();
  const auto tier = Must(DiskTier::Create(PosixEnv(), spec));
  // A thread's stack, its part of the C library and the pages that its first instructions touch.
  const Bytes threads = MiB(2);
  EXPECT_GE(ResidentMemory(), resident + DiskBuffers(/*spills=*/true));
  EXPECT_LE(ResidentMemory(), resident + DiskBuffers(/*spills=*/true) + threads);

  const auto all = [&] {
    Must(tier->Write(Bytes{0}, memory));
    Must(tier->Write(Bytes{4097}, memory));
    Must(tier->Read(Bytes{4097}, memory));
    Must(tier->Read(spec.spill, memory));
  };
  all();
  (void)MappedPages();
  const int64_t pages = MappedPages(), before = allocations.load();
  for (int round = 0; round < 3; ++round) all();
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_EQ(MappedPages(), pages);
}

// A model of about 100 MB of state: memory beyond the plan is code, libraries and small allocations.
TEST(Memory, ResidentBytesStayWithin150MiBOfThePlan) {
  if (!TEMPER_COUNTS_ALLOCATIONS) GTEST_SKIP() << "a sanitizer holds memory of its own";
  const Bytes before = ResidentMemory();
  TinyRun run({.config = tiny::LlamaConfigText(false, 512, 4, 4096),
               .dtype = DType::kBF16,
               .row = 512,
               .rows_per_micro_batch = 2,
               .micro_batches = 2});
  EXPECT_GT(run.train().arena_bytes, MiB(150)) << "too small for this test";
  for (uint64_t t = 0; t < 3; ++t) {
    Batch batch = run.MakeBatch(t);
    run.Step(batch);
  }
  const Bytes peak = PeakResidentMemory(), planned = run.train().arena_bytes;
  EXPECT_LE(peak, planned + MiB(150)) << ToString(peak) << " of " << ToString(planned) << " planned, "
                                      << ToString(before) << " before";
  EXPECT_GE(ResidentMemory(), planned);
}

}  // namespace
}  // namespace temper::plan_is_run_test
