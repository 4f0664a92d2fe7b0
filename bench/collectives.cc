// How long do collectives between ranks of one machine take, against a memcpy of the same size by all ranks at once?
//   bench/collectives [--ranks 2] [--mib 64] [--threads 1] [--dtype f32]
//   mpirun -n 2 bench/collectives [--ranks_per_host 1] ...
// Ranks are processes, as with `temper train --nprocs`, or MPI's, as if that many of them shared a host. Times are
// those of the slowest rank.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "comm/local/local_communicator.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/mpi/started_by_mpi.h"
#include "graph/named_ops.h"

namespace temper {
namespace {

constexpr int kRounds = 30;

struct Options {
  int ranks = 2, threads = 1, ranks_per_host = 0;
  int64_t mib = 64;
  DType dtype = DType::kF32;
};

void Must(const Status& status) {
  TEMPER_CHECK(status.ok()) << status.message();
}

Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--ranks") options.ranks = std::atoi(argv[i + 1]);
    if (flag == "--ranks_per_host") options.ranks_per_host = std::atoi(argv[i + 1]);
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--mib") options.mib = std::atoll(argv[i + 1]);
    if (flag == "--dtype") options.dtype = *ParseDType(argv[i + 1]);
  }
  return options;
}

class Bench {
 public:
  Bench(Communicator& communicator, const Options& options) : communicator_(communicator), options_(options) {
    mesh_.set_size(Axis::kFsdp, communicator.size());
    table_ = communicator.Collectives(mesh_);
    auto arena = communicator.AllocateArena(MiB(3 * options.mib));
    Must(arena.status());
    for (int i = 0; i < 3; ++i) at_[i] = arena->data() + MiB(i * options.mib).v;
    elements_ = MiB(options.mib).v / SizeOf(options.dtype);
  }

  std::unique_ptr<Kernel> Make(Op op) {
    const int n = communicator_.size();
    const TensorType whole{options_.dtype, {elements_}};
    TensorType part = whole;
    part.shape.set_dim(0, PartOf(elements_, n, communicator_.rank()).count);
    KernelSpec spec{.op = op, .attributes = {{"axes", "fsdp"}, {"ranks", int64_t{n}}}, .threads = options_.threads};
    spec.inputs = {op == Op::kAllGather ? part : whole};
    spec.outputs = {op == Op::kReduceScatter ? part : whole};
    if (op != Op::kAllReduce) {
      spec.attributes.Set("dim", int64_t{0});
      spec.attributes.Set("sizes", std::vector<double>{static_cast<double>(spec.outputs[0].shape[0])});
    }
    if (op == Op::kReduceScatter) spec.attributes.Set("acc", int64_t{0});
    auto kernel = table_->Make(spec);
    Must(kernel.status());
    return std::move(*kernel);
  }

  // Milliseconds of each round, from when all are ready until all are done.
  double Time(const std::function<void()>& work) {
    using Clock = std::chrono::steady_clock;
    Must(communicator_.Barrier());
    const auto start = Clock::now();
    work();
    Must(communicator_.Barrier());
    double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    Must(communicator_.AllReduceMax({&ms, 1}));
    return ms;
  }

  void Run() {
    struct Row {
      const char* name;
      std::function<void()> work;
      std::vector<double> times;
    };
    const auto kernel = [&](Op op, std::byte* in, std::byte* out) {
      return [this, in, out, made = std::shared_ptr<Kernel>(Make(op))] {
        Must(made->Run({.inputs = &in, .outputs = &out}));
      };
    };
    std::vector<Row> rows = {
        {"memcpy", [&] { std::memcpy(at_[1], at_[0], static_cast<size_t>(MiB(options_.mib).v)); }, {}},
        {"all_gather", kernel(Op::kAllGather, at_[0], at_[1]), {}},
        {"reduce_scatter", kernel(Op::kReduceScatter, at_[0], at_[2]), {}},
        {"all_reduce", kernel(Op::kAllReduce, at_[0], at_[1]), {}},
        {"all_reduce in place", kernel(Op::kAllReduce, at_[1], at_[1]), {}},
        {"barrier", [] {}, {}}};
    for (int round = -2; round < kRounds; ++round) {
      for (Row& row : rows) {
        const double ms = Time(row.work);
        if (round >= 0) row.times.push_back(ms);
      }
    }
    if (communicator_.rank() != 0) return;
    fmt::print("{} ranks of {} threads, {} MiB of {}: milliseconds, and as a ratio to memcpy by all ranks at once\n",
               communicator_.size(), options_.threads, options_.mib, ToString(options_.dtype));
    for (Row& row : rows) {
      std::sort(row.times.begin(), row.times.end());
      const auto& base = rows[0].times;
      fmt::print("{:20} best {:7.3f} ({:4.2f}x)   median {:7.3f} ({:4.2f}x)\n", row.name, row.times[0],
                 row.times[0] / base[0], row.times[kRounds / 2], row.times[kRounds / 2] / base[kRounds / 2]);
    }
  }

 private:
  Communicator& communicator_;
  const Options options_;
  Mesh mesh_;
  std::unique_ptr<KernelTable> table_;
  std::byte* at_[3];
  int64_t elements_;
};

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  using namespace temper;
  const Options options = Parse(argc, argv);
  if (const auto launched = RankFromEnvironment()) {
    auto communicator = JoinLaunched(*launched);
    Must(communicator.status());
    Bench(**communicator, options).Run();
    return 0;
  }
  if (StartedByMpi()) {
    auto communicator = JoinMpi({.ranks_per_host = options.ranks_per_host});
    Must(communicator.status());
    Bench(**communicator, options).Run();
    return 0;
  }
  const auto result = Launch({.ranks = options.ranks});
  Must(result.status());
  return result->exit_code;
}
