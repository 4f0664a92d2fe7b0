#include "runtime/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "graph/rule.h"
#include "program/waits.h"
#include "runtime/move.h"

namespace temper {

struct Executor::BoundInstruction {
  Kernel* kernel;
  size_t inputs, outputs;  // indices into addresses_
  uint64_t rng_hash;
  std::byte* workspace;
  Op op;
  size_t lane;
  Phase phase;
  int block;
  Cost cost;
  bool background;
  KernelArgs Args(std::byte* const* addresses) const {
    return {.inputs = addresses + inputs,
            .outputs = addresses + outputs,
            .workspace = workspace,
            .rng_name_hash = rng_hash};
  }
};

struct Executor::Piece {
  size_t begin, end;                     // in bound_
  std::unique_ptr<Recording> recording;  // nullptr: instruction by instruction
};

struct Executor::TraceNote {
  const BoundInstruction* bound;
  int micro_batch;
};

Executor::Executor(const Program& program, Arena& arena, const FarTiers& far)
    : program_(program), arena_(arena), far_(far) {
  if (far_.disk != nullptr) disk_ = std::make_unique<StoreStream>(*far_.disk, BaseOf(Tier::kDisk));
}
Executor::~Executor() = default;

std::byte* Executor::At(Bytes address) const {
  const Tier tier = TierOf(address);
  const Bytes offset = address - BaseOf(tier);
  if (tier == Tier::kDisk) return disk_->AddressOf(offset);
  return (tier == Tier::kHost ? *far_.host : arena_).At(offset);
}

Stream& Executor::StreamOf(Tier tier) const {
  if (tier == Tier::kDisk) return *disk_;
  return (tier == Tier::kHost ? *far_.host : arena_).stream();
}

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
    std::vector<std::byte> host(static_cast<size_t>(buffer.type.bytes().v));
    DispatchFloat(buffer.type.dtype, [&]<class T>() {
      for (T& element : View{host.data(), buffer.type}.as<T>()) element = FromFloat<T>(static_cast<float>(x));
    });
    TEMPER_RETURN_IF_ERROR(Write(static_cast<int>(&buffer - program_.buffers.data()), host));
  }
  return OkStatus();
}

Result<std::unique_ptr<Executor>> Executor::Create(const Program& program, Arena& arena, KernelTable& kernels,
                                                   KernelTable* collectives, const FarTiers& far) {
  const auto check = [&](Tier tier, Bytes there) {
    const Bytes needed = program.bytes_in(tier);
    TEMPER_CHECK(needed <= there) << "program " << program.name << " needs " << needed.v << " bytes of "
                                  << ToString(tier) << " memory, there are " << there.v;
  };
  check(Tier::kDevice, arena.size());
  check(Tier::kHost, far.host != nullptr ? far.host->size() : Bytes{});
  check(Tier::kDisk, far.disk != nullptr ? far.disk->size() : Bytes{});
  std::unique_ptr<Executor> executor(new Executor(program, arena, far));
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
      if (IsMove(spec.op)) {  // one per binding
        executor->kernels_.emplace_back();
        continue;
      }
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
  executor->waits_ = FindWaits(program);
  executor->NoteBackground();
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
      const auto address = [&](int k) { return binding.offsets[static_cast<size_t>(k)]; };
      const std::vector<int>& operands = instruction.outputs.empty() ? instruction.inputs : instruction.outputs;
      const bool hosted = !operands.empty() && TierOf(address(operands[0])) == Tier::kHost;
      if (IsMove(instruction.op)) {
        const auto end = [&](int k) -> MoveEnd { return {At(address(k)), &StreamOf(TierOf(address(k)))}; };
        const int from = instruction.inputs[0];
        moves_.push_back(
            MakeMove(end(from), end(instruction.outputs[0]), segment.operands[static_cast<size_t>(from)].bytes()));
      }
      BoundInstruction bound{
          .kernel = IsMove(instruction.op) ? moves_.back().get() : kernels_[first_kernel[s] + i].get(),
          .inputs = addresses_.size(),
          .rng_hash = binding.rng_hashes[i],
          .workspace = At(hosted ? program_.host.workspace_offset : program_.workspace_offset),
          .op = instruction.op,
          .lane = LaneOf(instruction, binding),
          .phase = segment.phase,
          .block = binding.block,
          .cost = costs[s][i],
          .background = instruction.attributes.Flag("background")};
      const auto add = [&](int k) { addresses_.push_back(At(address(k))); };
      for (int k : instruction.inputs) add(k);
      bound.outputs = addresses_.size();
      for (int k : instruction.outputs) add(k);
      bound_.push_back(bound);
    }
    binding_range_.emplace_back(begin, bound_.size());
  }
}

void Executor::NoteBackground() {
  for (const Call& call : program_.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const auto [begin, end] = binding_range_[static_cast<size_t>(call.binding)];
    for (size_t i = begin; i < end; ++i) {
      if (!bound_[i].background) continue;
      lanes_[bound_[i].lane].notes.push_back({&bound_[i], call.micro_batch});
    }
  }
  for (Lane& lane : lanes_) {
    if (lane.notes.empty()) continue;
    // What runs beside kernels on a device needs events between two streams, which Stream has not yet.
    TEMPER_CHECK(arena_.on_host()) << "collectives in the background of a device";
    lane.queue = std::make_unique<BackgroundQueue>(lane.notes.size());
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
        failed_ = Copy(io, call.micro_batch, call.kind == Call::Kind::kLoadInputs);
        break;
    }
    if (!failed_.ok()) return failed_;
  }
  for (size_t lane = 0; lane < kBackgroundLanes && failed_.ok(); ++lane) {
    BackgroundQueue* const queue = lanes_[lane].queue.get();
    if (queue == nullptr) continue;
    failed_ = AwaitBackground(lane, queue->issued(), options.trace);
    if (failed_.ok()) queue->Reset();
  }
  if (failed_.ok()) failed_ = arena_.stream().Synchronize();
  if (failed_.ok() && replays_ && !arena_.on_host() && pieces_.empty()) failed_ = RecordAll();
  return failed_;
}

// What waits for another queue between two instructions cannot be one piece with them.
Status Executor::RecordAll() {
  const bool waits = std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.queue != nullptr; });
  const auto recordable = [&](size_t i) { return !waits && bound_[i].kernel->replayable(); };
  for (const auto& [first, last] : binding_range_) {
    std::vector<Piece>& pieces = pieces_.emplace_back();
    for (size_t begin = first, end = first; begin < last; begin = end) {
      while (end < last && recordable(end) == recordable(begin)) ++end;
      Piece& piece = pieces.emplace_back(begin, end, nullptr);
      if (!recordable(begin)) continue;
      TEMPER_ASSIGN_OR_RETURN(piece.recording, arena_.stream().Record([&]() -> Status {
        for (size_t i = begin; i < end; ++i) {
          TEMPER_RETURN_IF_ERROR(bound_[i].kernel->Run(bound_[i].Args(addresses_.data())));
        }
        return OkStatus();
      }));
    }
  }
  return OkStatus();
}

Status Executor::Copy(std::span<const HostArray> io, int micro_batch, bool load) {
  for (const HostArray& array : io) {
    const Buffer& buffer = program_.buffers[static_cast<size_t>(array.buffer)];
    if ((buffer.role == Role::kInput) != load) continue;
    const Bytes size = buffer.type.bytes();
    std::byte* const host = array.bytes.data() + size.v * micro_batch;
    std::byte* const device = At(buffer.offset);
    Stream& stream = StreamOf(buffer.tier());
    const auto bytes = static_cast<size_t>(size.v);
    TEMPER_RETURN_IF_ERROR(load ? stream.CopyToDevice({host, bytes}, device)
                                : stream.CopyToHost(device, {host, bytes}));
  }
  return OkStatus();
}

Status Executor::AwaitBackground(size_t lane, size_t count, Trace* trace) {
  auto& [queue, notes, awaited] = lanes_[lane];
  if (count <= awaited) return OkStatus();
  const Status status = queue->Wait(count);
  if (!status.ok()) {
    return status.WithContext(lane == 0 ? "a collective in the background" : lane < 3 ? "a transfer" : "a move");
  }
  for (; awaited < count; ++awaited) {
    if (!trace) continue;
    const BackgroundQueue::Item& item = queue->item(awaited);
    const auto& [b, micro_batch] = notes[awaited];
    trace->Record({b->op, b->phase, b->block, micro_batch, item.start, item.end, b->cost.read + b->cost.written,
                   b->cost.flops, kQueueOfLane[lane]});
  }
  return OkStatus();
}

Status Executor::RunInstructions(const Call& call, Trace* trace, size_t* at) {
  const auto [begin, end] = binding_range_[static_cast<size_t>(call.binding)];
  if (trace || !replays_ || pieces_.empty()) return RunRange(begin, end, call, trace, at);
  for (const Piece& piece : pieces_[static_cast<size_t>(call.binding)]) {
    if (piece.recording == nullptr) {
      TEMPER_RETURN_IF_ERROR(RunRange(piece.begin, piece.end, call, nullptr, at));
      continue;
    }
    TEMPER_RETURN_IF_ERROR(piece.recording->Replay());
    *at += piece.end - piece.begin;
  }
  return OkStatus();
}

Status Executor::RunRange(size_t begin, size_t end, const Call& call, Trace* trace, size_t* at) {
  for (size_t i = begin; i < end; ++i, ++*at) {
    const BoundInstruction& b = bound_[i];
    for (size_t lane = 0; lane < kBackgroundLanes; ++lane) {
      TEMPER_RETURN_IF_ERROR(AwaitBackground(lane, waits_[*at][lane], trace));
    }
    if (b.background) {
      lanes_[b.lane].queue->Issue(b.kernel, b.Args(addresses_.data()));
      continue;
    }
    const auto start = trace ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point();
    Status status = b.kernel->Run(b.Args(addresses_.data()));
    if (trace) {
      if (status.ok()) status = arena_.stream().Synchronize();  // a trace of when work was done, not of when enqueued
      trace->Record({b.op, b.phase, b.block, call.micro_batch, start, std::chrono::steady_clock::now(),
                     b.cost.read + b.cost.written, b.cost.flops});
    }
    if (!status.ok()) {
      return status.WithContext(fmt::format("{} block {} {}", ToString(b.phase), b.block, ToString(b.op)));
    }
  }
  return OkStatus();
}

const Buffer& Executor::BufferOfSize(int buffer, size_t bytes) const {
  const Buffer& b = program_.buffers.at(static_cast<size_t>(buffer));
  TEMPER_CHECK(static_cast<int64_t>(bytes) == b.type.bytes().v) << bytes << " bytes for " << b.name;
  return b;
}

Status Executor::Write(int buffer, std::span<const std::byte> host) {
  const Buffer& b = BufferOfSize(buffer, host.size());
  Stream& stream = StreamOf(b.tier());
  TEMPER_RETURN_IF_ERROR(stream.CopyToDevice(host, At(b.offset)));
  return stream.Synchronize();
}

Status Executor::Read(int buffer, std::span<std::byte> host) const {
  const Buffer& b = BufferOfSize(buffer, host.size());
  Stream& stream = StreamOf(b.tier());
  TEMPER_RETURN_IF_ERROR(stream.CopyToHost(At(b.offset), host));
  return stream.Synchronize();
}

View Executor::BufferView(int buffer) const {
  const Buffer& b = program_.buffers[static_cast<size_t>(buffer)];
  TEMPER_CHECK(b.tier() == Tier::kHost || (b.tier() == Tier::kDevice && arena_.on_host()))
      << b.name << " of program " << program_.name << " is not in the host's memory";
  return {At(b.offset), b.type};
}

DevicePart Executor::BufferPart(int buffer) const {
  const Buffer& b = program_.buffers[static_cast<size_t>(buffer)];
  const View view = {At(b.offset), b.type};
  return {b.shard ? PartView(view, b.shard->global, b.shard->begin) : PartView(view), StreamOf(b.tier())};
}

}  // namespace temper
