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
  bool background;
  const Instruction* instruction;
  const Segment* segment;
  KernelArgs Args(std::byte* const* addresses, std::byte* workspace) const {
    return {.inputs = addresses + inputs,
            .outputs = addresses + outputs,
            .workspace = workspace,
            .rng_name_hash = rng_hash};
  }
};

struct Executor::TraceNote {
  const BoundInstruction* bound;
  int micro_batch;
};

namespace {

struct Range {
  const std::byte *begin, *end;
  bool Overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

size_t LaneOf(Op op) {
  return op == Op::kSend ? 1 : op == Op::kRecv ? 2 : 0;
}

// The bytes that an instruction reads and writes, and whether it meets other ranks. Ranks of a group must meet in the
// same order, whichever threads they come on; transfers have an order of their own.
struct Footprint {
  std::vector<Range> reads, writes;
  bool meets = false;

  bool ConflictsWith(const Footprint& later) const {
    const auto meet = [](const std::vector<Range>& a, const std::vector<Range>& b) {
      return std::any_of(a.begin(), a.end(), [&](const Range& x) {
        return std::any_of(b.begin(), b.end(), [&](const Range& y) { return x.Overlaps(y); });
      });
    };
    return (meets && later.meets) || meet(writes, later.reads) || meet(writes, later.writes) ||
           meet(reads, later.writes);
  }
};

}  // namespace

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
  executor->BindAll(first_kernel, costs);
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kLoadInputs && call.kind != Call::Kind::kStoreOutputs) continue;
    executor->micro_batches_ = std::max(executor->micro_batches_, int64_t{call.micro_batch} + 1);
  }
  executor->FindWaits();
  TEMPER_RETURN_IF_ERROR(executor->FillConstants());
  return executor;
}

void Executor::BindAll(const std::vector<size_t>& first_kernel, const std::vector<std::vector<Cost>>& costs) {
  for (const Binding& binding : program_.bindings) {
    const auto s = static_cast<size_t>(binding.segment);
    const Segment& segment = program_.segments[s];
    const size_t begin = bound_.size();
    for (size_t i = 0; i < segment.instructions.size(); ++i) {
      const Instruction& instruction = segment.instructions[i];
      BoundInstruction bound{.kernel = kernels_[first_kernel[s] + i].get(),
                             .inputs = addresses_.size(),
                             .rng_hash = binding.rng_hashes[i],
                             .op = instruction.op,
                             .phase = segment.phase,
                             .block = binding.block,
                             .cost = costs[s][i],
                             .background = instruction.attributes.Flag("background"),
                             .instruction = &instruction,
                             .segment = &segment};
      const auto add = [&](int k) { addresses_.push_back(arena_.At(binding.offsets[static_cast<size_t>(k)])); };
      for (int k : instruction.inputs) add(k);
      bound.outputs = addresses_.size();
      for (int k : instruction.outputs) add(k);
      bound_.push_back(bound);
    }
    binding_range_.emplace_back(begin, bound_.size());
  }
}

void Executor::FindWaits() {
  std::vector<Footprint> footprints;
  for (const BoundInstruction& b : bound_) {
    Footprint& f = footprints.emplace_back();
    const auto add = [&](const std::vector<int>& operands, size_t first, std::vector<Range>* ranges) {
      for (size_t k = 0; k < operands.size(); ++k) {
        const Bytes size = b.segment->operands[static_cast<size_t>(operands[k])].bytes();
        if (size > Bytes{0}) ranges->push_back({addresses_[first + k], addresses_[first + k] + size.v});
      }
    };
    add(b.instruction->inputs, b.inputs, &f.reads);
    add(b.instruction->outputs, b.outputs, &f.writes);
    f.meets = b.instruction->attributes.Has("axes") && !IsTransfer(b.op);
  }
  std::array<std::vector<size_t>, kLanes> issued;  // bound instructions, in the order they are issued
  std::array<size_t, kLanes> awaited = {};         // of those, known to be complete
  for (const Call& call : program_.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const auto [begin, end] = binding_range_[static_cast<size_t>(call.binding)];
    for (size_t i = begin; i < end; ++i) {
      const size_t own = LaneOf(bound_[i].op);
      auto& waits = waits_.emplace_back();
      for (size_t lane = 0; lane < kLanes; ++lane) {
        // What runs in a lane runs in order: there it waits without being told to.
        if (bound_[i].background && lane == own) continue;
        for (size_t k = issued[lane].size(); k > awaited[lane]; --k) {
          if (footprints[issued[lane][k - 1]].ConflictsWith(footprints[i])) awaited[lane] = k;
        }
        waits[lane] = static_cast<uint32_t>(awaited[lane]);
      }
      if (bound_[i].background) {
        issued[own].push_back(i);
        lanes_[own].notes.push_back({&bound_[i], call.micro_batch});
      }
    }
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (!issued[lane].empty()) lanes_[lane].queue = std::make_unique<BackgroundQueue>(issued[lane].size());
  }
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
  size_t at = 0;  // instructions run, over the schedule
  for (Lane& lane : lanes_) lane.awaited = 0;
  for (const Call& call : program_.schedule) {
    switch (call.kind) {
      case Call::Kind::kRun:
        failed_ = RunInstructions(call, options.trace, &at);
        break;
      case Call::Kind::kBeforeUpdate:
        if (options.before_update) failed_ = options.before_update();
        break;
      case Call::Kind::kLoadInputs:
      case Call::Kind::kStoreOutputs:
        Copy(io, call.micro_batch, call.kind == Call::Kind::kLoadInputs);
        break;
    }
    if (!failed_.ok()) return failed_;
  }
  for (size_t lane = 0; lane < kLanes && failed_.ok(); ++lane) {
    BackgroundQueue* const queue = lanes_[lane].queue.get();
    if (queue == nullptr) continue;
    failed_ = AwaitBackground(lane, queue->issued(), options.trace);
    if (failed_.ok()) queue->Reset();
  }
  return failed_;
}

void Executor::Copy(std::span<const HostArray> io, int micro_batch, bool load) {
  for (const HostArray& array : io) {
    const Buffer& buffer = program_.buffers[static_cast<size_t>(array.buffer)];
    if ((buffer.role == Role::kInput) != load) continue;
    const Bytes size = buffer.type.bytes();
    std::byte* const host = array.bytes.data() + size.v * micro_batch;
    std::byte* const device = arena_.At(buffer.offset);
    std::memcpy(load ? device : host, load ? host : device, static_cast<size_t>(size.v));
  }
}

Status Executor::AwaitBackground(size_t lane, size_t count, Trace* trace) {
  auto& [queue, notes, awaited] = lanes_[lane];
  if (count <= awaited) return OkStatus();
  const Status status = queue->Wait(count);
  if (!status.ok()) return status.WithContext(lane == 0 ? "a collective in the background" : "a transfer");
  for (; awaited < count; ++awaited) {
    if (!trace) continue;
    const BackgroundQueue::Item& item = queue->item(awaited);
    const auto& [b, micro_batch] = notes[awaited];
    trace->Record(
        {b->op, b->phase, b->block, micro_batch, item.start, item.end, b->cost.read + b->cost.written, b->cost.flops});
  }
  return OkStatus();
}

Status Executor::RunInstructions(const Call& call, Trace* trace, size_t* at) {
  std::byte* const workspace = arena_.At(program_.workspace_offset);
  const auto [begin, end] = binding_range_[static_cast<size_t>(call.binding)];
  for (size_t i = begin; i < end; ++i, ++*at) {
    const BoundInstruction& b = bound_[i];
    for (size_t lane = 0; lane < kLanes; ++lane)
      TEMPER_RETURN_IF_ERROR(AwaitBackground(lane, waits_[*at][lane], trace));
    if (b.background) {
      lanes_[LaneOf(b.op)].queue->Issue(b.kernel, b.Args(addresses_.data(), nullptr));
      continue;
    }
    const auto start = trace ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
    const Status status = b.kernel->Run(b.Args(addresses_.data(), workspace));
    if (trace) {
      trace->Record({b.op, b.phase, b.block, call.micro_batch, start, std::chrono::steady_clock::now(),
                     b.cost.read + b.cost.written, b.cost.flops});
    }
    if (!status.ok()) {
      return status.WithContext(fmt::format("{} block {} {}", ToString(b.phase), b.block, ToString(b.op)));
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
