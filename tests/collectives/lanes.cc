#include "lanes.h"
#include "graph/named_ops.h"

#include <fmt/core.h>

#include <chrono>
#include <thread>

#include "base/check.h"

namespace temper::collectives {
namespace {

constexpr int64_t kFew = 1000, kMany = 30'000;  // elements: exchanged through a mailbox, and read from arenas

// One collective over all ranks with its operands. `whole` elements, the same on all ranks where they are results.
struct Collective {
  std::unique_ptr<Kernel> kernel;
  Op op = Op::kAllReduce;
  float *in = nullptr, *out = nullptr;
  int64_t in_size = 0, out_size = 0;
  int64_t first = 0;  // of the whole, in this rank's part
  Status status;
  std::string wrong;

  // Runs as step `round` of rank `rank`.
  void Run(int rank, int ranks, int round) {
    const auto term = [round](int64_t r, int64_t i) { return static_cast<float>((r + 1) * (i % 97) + round); };
    for (int64_t i = 0; i < in_size; ++i) in[i] = op == Op::kAllGather ? term(0, i + first) : term(rank, i);
    auto* input = reinterpret_cast<std::byte*>(in);
    auto* output = reinterpret_cast<std::byte*>(out);
    status = kernel->Run({.inputs = &input, .outputs = &output});
    for (int64_t i = 0; i < out_size && status.ok() && wrong.empty(); ++i) {
      float want = 0;
      if (op == Op::kAllGather) want = term(0, i);
      if (op == Op::kShift) want = term((rank + ranks - 1) % ranks, i);
      // Sums of small integers: exact, in any order.
      for (int r = 0; r < ranks && (op == Op::kReduceScatter || op == Op::kAllReduce); ++r) {
        want += term(r, op == Op::kReduceScatter ? i + first : i);
      }
      if (out[i] != want) wrong = fmt::format("{} round {}: element {} is {}", ToString(op), round, i, out[i]);
    }
  }
};

class Maker {
 public:
  Maker(Communicator& communicator, std::span<std::byte> arena)
      : rank_(communicator.rank()), ranks_(communicator.size()), arena_(arena) {
    mesh_.set_size(Axis::kDp, ranks_);
    table_ = communicator.Collectives(mesh_);
  }

  // `lane`: the flags that choose it.
  Collective Make(Op op, int64_t elements, const std::vector<const char*>& lane) {
    const Part part = PartOf(elements, ranks_, rank_);
    const bool gathers = op == Op::kAllGather, scatters = op == Op::kReduceScatter;
    Collective c{.op = op, .in_size = gathers ? part.count : elements, .out_size = scatters ? part.count : elements};
    if (gathers || scatters) c.first = part.begin;
    KernelSpec spec{.op = op, .attributes = {{"axes", "dp"}, {"ranks", int64_t{ranks_}}}};
    spec.inputs = {{DType::kF32, {c.in_size}}};
    spec.outputs = {{DType::kF32, {c.out_size}}};
    if (gathers || scatters) {
      spec.attributes.Set("dim", int64_t{0});
      spec.attributes.Set("sizes", std::vector<double>{static_cast<double>(c.out_size)});
    }
    if (scatters) spec.attributes.Set("acc", int64_t{0});
    for (const char* const flag : lane) spec.attributes.Set(flag, int64_t{1});
    auto kernel = table_->Make(spec);
    TEMPER_CHECK(kernel.ok()) << kernel.status().message();
    c.kernel = std::move(*kernel);
    c.in = Take(c.in_size);
    c.out = Take(c.out_size);
    return c;
  }

 private:
  float* Take(int64_t elements) {
    std::byte* const piece = arena_.data() + used_;
    used_ += static_cast<size_t>(AlignUp({elements * 4}, 64).v);
    TEMPER_CHECK(used_ <= arena_.size()) << "the arena is too small";
    return reinterpret_cast<float*>(piece);
  }

  const int rank_, ranks_;
  const std::span<std::byte> arena_;
  size_t used_ = 0;
  Mesh mesh_;
  std::unique_ptr<KernelTable> table_;
};

}  // namespace

std::vector<std::string> CheckLanes(Communicator& communicator) {
  const int n = communicator.size(), rank = communicator.rank();
  if (n < 2) return {};
  const auto arena = communicator.AllocateArena(MiB(24));
  if (!arena.ok()) return {arena.status().message()};
  std::vector<std::string> failures;
  const auto note = [&](const Collective& c, const char* where) {
    if (!c.status.ok()) failures.push_back(fmt::format("{}: {}", where, c.status.message()));
    if (!c.wrong.empty()) failures.push_back(fmt::format("{}: {}", where, c.wrong));
  };
  const std::vector<const char*> in_line, background = {"background"}, soon = {"background", "soon"};
  const std::pair<std::vector<const char*>, std::vector<const char*>> pairs[] = {
      {background, in_line}, {soon, in_line}, {background, soon}};
  for (const Op op : {Op::kAllGather, Op::kReduceScatter, Op::kAllReduce, Op::kShift}) {
    for (int variant = 0; variant < 6; ++variant) {
      const int64_t elements = variant % 2 == 0 ? kFew : kMany;
      const auto& [lane, other_lane] = pairs[variant / 2];
      if (op == Op::kShift && lane == soon) continue;  // there is none
      Maker pieces(communicator, *arena);
      Collective beside = pieces.Make(op, elements, lane);
      Collective at_once = pieces.Make(Op::kAllReduce, elements, other_lane);
      // Odd ranks run one after the other. The others are in both at once, and finish the second only if the first, in
      // which they still wait for the odd ones, does not block it.
      for (Collective* const late : {&beside, &at_once}) {
        Collective* const early = late == &beside ? &at_once : &beside;
        if (rank % 2 == 1) {
          early->Run(rank, n, 1);
          late->Run(rank, n, 1);
        } else {
          std::thread other([&] { late->Run(rank, n, 1); });
          std::this_thread::sleep_for(std::chrono::milliseconds(20));  // now it most likely waits
          early->Run(rank, n, 1);
          other.join();
        }
        note(beside, "in one lane");
        note(at_once, "in another");
        if (!failures.empty()) return failures;
      }
      std::thread other([&] {
        for (int round = 0; round < 20 && beside.status.ok(); ++round) beside.Run(rank, n, round);
      });
      for (int round = 0; round < 20 && at_once.status.ok(); ++round) at_once.Run(rank, n, round);
      other.join();
      note(beside, "in one lane, many times");
      note(at_once, "in another, many times");
      if (!failures.empty()) return failures;
    }
  }
  return failures;
}

}  // namespace temper::collectives
