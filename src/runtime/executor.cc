#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "graph/rule.h"

namespace temper {

struct Executor::BoundInstruction {
  Kernel* kernel;
  size_t inputs, outputs;  // indices into addresses_
  uint64_t rng_hash;
  Op op;
  Phase phase;
  int block;
  Cost cost;
};

Executor::Executor(const Program& program, Arena& arena) : program_(program), arena_(arena) {}
Executor::~Executor() = default;

// "constant.1.norm": every element is 1.
Status Executor::FillConstants() {
  constexpr std::string_view kPrefix = "constant.";
  for (const Buffer& buffer : program_.buffers) {
    if (buffer.role != Role::kConstant) continue;
    int x = 0;
    const std::string_view text = std::string_view(buffer.name).substr(std::min(kPrefix.size(), buffer.name.size()));
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), x);
    if (!buffer.name.starts_with(kPrefix) || parsed.ec != std::errc()) {
      return Corrupt(fmt::format("constant buffer '{}' does not say its value", buffer.name));
    }
    if (buffer.type.dtype != DType::kF32 && buffer.type.dtype != DType::kBF16) {
      return Corrupt(fmt::format("constant buffer '{}' is {}", buffer.name, buffer.type.ToString()));
    }
    const View view{arena_.At(buffer.offset), buffer.type};
    DispatchFloat(buffer.type.dtype, [&]<class T>() {
      for (T& element : view.as<T>()) element = FromFloat<T>(static_cast<float>(x));
    });
  }
  return OkStatus();
}

Result<std::unique_ptr<Executor>> Executor::Create(const Program& program, Arena& arena, KernelTable& kernels,
                                                   KernelTable* collectives) {
  TEMPER_CHECK(program.arena_bytes <= arena.size())
      << "program " << program.name << " needs " << program.arena_bytes.v << " bytes, the arena has " << arena.size().v;
  std::unique_ptr<Executor> executor(new Executor(program, arena));
  std::vector<size_t> first_kernel;  // per segment
  std::vector<std::vector<Cost>> costs;
  for (const Segment& segment : program.segments) {
    first_kernel.push_back(executor->kernels_.size());
    costs.emplace_back();
    for (const Instruction& instruction : segment.instructions) {
      KernelSpec spec{.op = instruction.op, .attributes = instruction.attributes, .threads = program.threads};
      for (int k : instruction.inputs) spec.inputs.push_back(segment.operands[static_cast<size_t>(k)]);
      for (int k : instruction.outputs) spec.outputs.push_back(segment.operands[static_cast<size_t>(k)]);
      const OpRule& rule = RuleOf(spec.op);
      if (rule.workspace) spec.workspace = rule.workspace(spec.inputs, spec.outputs, spec.attributes, program.threads);
      costs.back().push_back(rule.cost(spec.inputs, spec.outputs, spec.attributes));
      TEMPER_CHECK(spec.workspace <= program.workspace_bytes) << ToString(spec.op) << " workspace";
      const bool collective = IsCollective(spec.op);
      TEMPER_CHECK(!collective || collectives != nullptr) << ToString(spec.op) << " without a communicator";
      auto kernel = (collective ? *collectives : kernels).Make(spec);
      if (!kernel.ok()) return kernel.status().WithContext(fmt::format("{}: {}", segment.name, ToString(spec.op)));
      executor->kernels_.push_back(std::move(*kernel));
    }
  }
  for (const Binding& binding : program.bindings) {
    const auto s = static_cast<size_t>(binding.segment);
    const Segment& segment = program.segments[s];
    const size_t begin = executor->bound_.size();
    for (size_t i = 0; i < segment.instructions.size(); ++i) {
      const Instruction& instruction = segment.instructions[i];
      BoundInstruction bound{.kernel = executor->kernels_[first_kernel[s] + i].get(),
                             .inputs = executor->addresses_.size(),
                             .rng_hash = binding.rng_hashes[i],
                             .op = instruction.op,
                             .phase = segment.phase,
                             .block = binding.block,
                             .cost = costs[s][i]};
      const auto add = [&](int k) {
        executor->addresses_.push_back(arena.At(binding.offsets[static_cast<size_t>(k)]));
      };
      for (int k : instruction.inputs) add(k);
      bound.outputs = executor->addresses_.size();
      for (int k : instruction.outputs) add(k);
      executor->bound_.push_back(bound);
    }
    executor->binding_range_.emplace_back(begin, executor->bound_.size());
  }
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kLoadInputs && call.kind != Call::Kind::kStoreOutputs) continue;
    executor->micro_batches_ = std::max(executor->micro_batches_, int64_t{call.micro_batch} + 1);
  }
  TEMPER_RETURN_IF_ERROR(executor->FillConstants());
  return executor;
}

Status Executor::Run(std::span<const HostArray> io, const RunOptions& options) {
  if (!failed_.ok()) return failed_;
  for (const HostArray& array : io) {
    TEMPER_CHECK(array.buffer >= 0 && array.buffer < static_cast<int>(program_.buffers.size()))
        << "host array for buffer " << array.buffer << " of " << program_.buffers.size();
    const Buffer& buffer = program_.buffers[static_cast<size_t>(array.buffer)];
    TEMPER_CHECK(static_cast<int64_t>(array.bytes.size()) >= buffer.type.bytes().v * micro_batches_)
        << "host array for " << buffer.name << " has " << array.bytes.size() << " bytes; " << micro_batches_
        << " micro-batches of " << buffer.type.ToString() << " are run";
  }
  const auto copy = [&](int micro_batch, bool load) {
    for (const HostArray& array : io) {
      const Buffer& buffer = program_.buffers[static_cast<size_t>(array.buffer)];
      if ((buffer.role == Role::kInput) != load) continue;
      const Bytes size = buffer.type.bytes();
      std::byte* const host = array.bytes.data() + size.v * micro_batch;
      std::byte* const device = arena_.At(buffer.offset);
      std::memcpy(load ? device : host, load ? host : device, static_cast<size_t>(size.v));
    }
  };
  std::byte* const workspace = arena_.At(program_.workspace_offset);
  Trace* const trace = options.trace;
  for (const Call& call : program_.schedule) {
    if (call.kind == Call::Kind::kBeforeUpdate) {
      if (options.before_update) failed_ = options.before_update();
      if (!failed_.ok()) return failed_;
      continue;
    }
    if (call.kind != Call::Kind::kRun) {
      copy(call.micro_batch, call.kind == Call::Kind::kLoadInputs);
      continue;
    }
    const auto [begin, end] = binding_range_[static_cast<size_t>(call.binding)];
    for (size_t i = begin; i < end; ++i) {
      const BoundInstruction& b = bound_[i];
      const auto start = trace ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
      Status status = b.kernel->Run({.inputs = &addresses_[b.inputs],
                                     .outputs = &addresses_[b.outputs],
                                     .workspace = workspace,
                                     .rng_name_hash = b.rng_hash});
      if (trace) {
        trace->Record({b.op, b.phase, b.block, call.micro_batch, start, std::chrono::steady_clock::now(),
                       b.cost.read + b.cost.written, b.cost.flops});
      }
      if (!status.ok()) {
        failed_ = status.WithContext(fmt::format("{} block {} {}", ToString(b.phase), b.block, ToString(b.op)));
        return failed_;
      }
    }
  }
  return OkStatus();
}

View Executor::BufferView(int buffer) const {
  const Buffer& b = program_.buffers[static_cast<size_t>(buffer)];
  return {arena_.At(b.offset), b.type};
}

PartView Executor::BufferPart(int buffer) const {
  const View view = BufferView(buffer);
  const auto& shard = program_.buffers[static_cast<size_t>(buffer)].shard;
  return shard ? PartView(view, shard->global, shard->begin) : PartView(view);
}

}  // namespace temper
