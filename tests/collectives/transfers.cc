#include "transfers.h"
#include "graph/named_ops.h"

#include <fmt/core.h>

#include <cstring>
#include <thread>

#include "base/check.h"

namespace temper::collectives {
namespace {

// Byte i of transfer `number` from `rank`.
std::byte Content(int rank, int number, int64_t i) {
  return static_cast<std::byte>(i * 131 + rank * 17 + number * 29 + 3);
}

// The transfers of one thread of a rank, in order.
struct Lane {
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::byte*> memory;
  std::vector<int64_t> sizes;
  Status status;

  void Run() {
    for (size_t k = 0; k < kernels.size() && status.ok(); ++k) {
      status = kernels[k]->Run({.inputs = &memory[k], .outputs = &memory[k]});
    }
  }
};

}  // namespace

KernelSpec TransferSpec(Op op, int peer, int tag, const TensorType& type) {
  KernelSpec spec{.op = op,
                  .attributes = {{"axes", std::string("pp")}, {"peer", int64_t{peer}}, {"tag", int64_t{tag}}}};
  (op == Op::kSend ? spec.inputs : spec.outputs).push_back(type);
  if (op == Op::kSend) return spec;
  std::vector<double> shape;
  for (int d = 0; d < type.shape.rank(); ++d) shape.push_back(static_cast<double>(type.shape[d]));
  spec.attributes.Set("dtype", std::string(ToString(type.dtype)));
  spec.attributes.Set("shape", std::move(shape));
  return spec;
}

std::vector<std::string> CheckTransfers(Communicator& communicator) {
  const int n = communicator.size(), rank = communicator.rank();
  if (n < 2) return {};
  std::vector<std::string> failures;
  Mesh mesh;
  mesh.set_size(Axis::kPp, n);
  const auto table = communicator.Collectives(mesh);
  const auto arena = communicator.AllocateArena(MiB(24));
  if (!arena.ok()) return {arena.status().message()};
  size_t used = 0;
  const std::vector<TensorType> types = {{DType::kF32, {5}},
                                         {DType::kBF16, {100'003}},
                                         {DType::kF32, {0, 7}},
                                         {DType::kI32, {3, 1}},
                                         {DType::kBF16, {1021, 1031}}};
  Lane sends, receives;
  const auto add = [&](Lane* lane, Op op, int peer, int number, const TensorType& type) {
    auto kernel = table->Make(TransferSpec(op, peer, number, type));
    TEMPER_CHECK(kernel.ok()) << kernel.status().message();
    lane->kernels.push_back(std::move(*kernel));
    lane->memory.push_back(arena->data() + used);
    lane->sizes.push_back(type.bytes().v);
    used += static_cast<size_t>(AlignUp(type.bytes(), 64).v);
    TEMPER_CHECK(used <= arena->size()) << "the arena is too small";
  };
  int number = 0;
  for (const int step : {1, n - 1}) {  // to the next rank, then to the previous one
    for (const TensorType& type : types) {
      add(&sends, Op::kSend, (rank + step) % n, number, type);
      for (int64_t i = 0; i < sends.sizes.back(); ++i) sends.memory.back()[i] = Content(rank, number, i);
      add(&receives, Op::kRecv, (rank + n - step) % n, number, type);
      ++number;
    }
  }
  KernelSpec sum{.op = Op::kAllReduce,
                 .inputs = {{DType::kF32, {1000}}},
                 .outputs = {{DType::kF32, {1000}}},
                 .attributes = {{"axes", std::string("pp")}, {"ranks", int64_t{n}}}};
  auto collective = table->Make(sum);
  if (!collective.ok()) return {collective.status().message()};
  auto* const terms = reinterpret_cast<float*>(arena->data() + used);

  std::thread sender([&] { sends.Run(); }), receiver([&] { receives.Run(); });
  for (int turn = 0; turn < 20; ++turn) {
    for (int i = 0; i < 1000; ++i) terms[i] = static_cast<float>(rank + i + turn);
    std::byte* const memory = arena->data() + used;
    const Status status = (*collective)->Run({.inputs = &memory, .outputs = &memory});
    if (!status.ok()) failures.push_back(status.message());
    for (int i = 0; i < 1000 && status.ok(); ++i) {
      if (terms[i] != static_cast<float>(n * (i + turn) + n * (n - 1) / 2))
        failures.push_back("a sum beside transfers");
    }
    if (!failures.empty()) break;
  }
  sender.join();
  receiver.join();
  for (const Lane* lane : {&sends, &receives}) {
    if (!lane->status.ok()) failures.push_back(lane->status.message());
  }
  for (size_t k = 0; k < receives.memory.size() && failures.empty(); ++k) {
    const int step = k < types.size() ? 1 : n - 1, from = (rank + n - step) % n;
    for (int64_t i = 0; i < receives.sizes[k]; ++i) {
      if (receives.memory[k][i] == Content(from, static_cast<int>(k), i)) continue;
      failures.push_back(fmt::format("transfer {} from rank {}: byte {} of {}", k, from, i, receives.sizes[k]));
      break;
    }
  }
  return failures;
}

}  // namespace temper::collectives
