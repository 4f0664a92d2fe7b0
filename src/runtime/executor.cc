#include "runtime/executor.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "graph/ops/move_part.h"
#include "graph/rule.h"
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
  bool at_host;  // its kernel is the host's
  bool moves;    // between tiers
  bool breaks;   // waits for a lane, at some place in the schedule, for which none of its binding before it has
  KernelArgs Args(const Executor& executor) const {
    std::byte* const* const addresses = executor.addresses_.data();
    return {.inputs = addresses + inputs,
            .outputs = addresses + outputs,
            .workspace = workspace,
            .rng_name_hash = rng_hash,
            .loaded = executor.loaded_.data() + inputs};
  }
  // Of an error of its own: which instruction it is.
  Status Named(const Status& status) const {
    if (status.ok()) return status;
    return status.WithContext(fmt::format("{} {} {}", ToString(phase), ToString(op), OfBlock(block)));
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

Executor::Executor(const Program& program, Arena& arena, KernelTable& kernels, KernelTable* collectives,
                   const FarTiers& far)
    : program_(program), arena_(arena), table_(kernels), collectives_(collectives), far_(far), lanes_(arena.device()) {
  if (far_.disk != nullptr) disk_ = std::make_unique<StoreStream>(*far_.disk, BaseOf(Tier::kDisk));
}
Executor::~Executor() {
  (void)arena_.stream().Synchronize();  // nothing enqueued outlives its kernel
}

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
  TEMPER_CHECK(arena.on_host() || program.host.bytes.v == 0 || far.host_kernels != nullptr) << "kernels of the host";
  std::unique_ptr<Executor> executor(new Executor(program, arena, kernels, collectives, far));
  TEMPER_RETURN_IF_ERROR(executor->BindAll());
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kLoadInputs && call.kind != Call::Kind::kStoreOutputs) continue;
    executor->micro_batches_ = std::max(executor->micro_batches_, int64_t{call.micro_batch} + 1);
  }
  executor->waits_ = FindWaits(program);
  TEMPER_RETURN_IF_ERROR(executor->NoteBackground());
  executor->FindReaders();
  executor->FindBreaks();
  executor->FindMicroBatches();
  TEMPER_RETURN_IF_ERROR(executor->FillConstants());
  return executor;
}

Result<std::unique_ptr<Kernel>> Executor::MakeKernel(const Segment& segment, const Instruction& instruction,
                                                     Tier tier) const {
  KernelSpec spec{.op = instruction.op, .attributes = instruction.attributes, .threads = program_.threads};
  for (int k : instruction.inputs) spec.inputs.push_back(segment.operands[static_cast<size_t>(k)]);
  for (int k : instruction.outputs) spec.outputs.push_back(segment.operands[static_cast<size_t>(k)]);
  spec.workspace = ScratchOf(program_, segment, instruction);
  const bool collective = IsCollective(spec.op);
  TEMPER_CHECK(!collective || collectives_ != nullptr) << ToString(spec.op) << " without a communicator";
  const bool at_host = tier == Tier::kHost && far_.host_kernels != nullptr;
  // What runs there has scratch for its operands, not for its threads: its workspace is as planned.
  if (at_host) spec.threads = far_.host_threads;
  KernelTable& own = at_host ? *far_.host_kernels : table_;
  auto kernel = (collective ? *collectives_ : own).Make(spec);
  if (!kernel.ok()) return kernel.status().WithContext(fmt::format("{}: {}", segment.name, ToString(spec.op)));
  return kernel;
}

Result<std::unique_ptr<Kernel>> Executor::MakeMoveKernel(const Instruction& instruction, const Segment& segment,
                                                         const Binding& binding, size_t lane) {
  const auto source = static_cast<size_t>(instruction.inputs[0]), target = static_cast<size_t>(instruction.outputs[0]);
  const MovedBytes moved = MovedBytesOf(segment.operands[source], instruction.inputs.size(), segment.operands[target],
                                        instruction.attributes);
  const auto end = [&](Bytes address) -> MoveEnd { return {At(address), TierOf(address)}; };
  const MoveEnd from = end(binding.offsets[source] + moved.from), to = end(binding.offsets[target] + moved.to);
  MovePath path{.disk = disk_.get()};
  if (instruction.attributes.Flag("routed")) {
    if (arena_.device() != nullptr) return Unsupported("a GPU fetches stacks of experts whole");
    const auto expert = static_cast<size_t>(instruction.inputs[1]);
    const auto* const expert_P = reinterpret_cast<const int32_t*>(At(binding.offsets[expert]));
    return MakeRoutedFetch(from, to, moved.size,
                           {expert_P, segment.operands[expert].shape.elements(), segment.operands[source].shape[0]},
                           path);
  }
  if (Device* const device = arena_.device()) {
    const bool background = instruction.attributes.Flag("background");
    const auto use = StreamOfLane(lane);
    path.link = &device->StreamFor(background && use ? *use : StreamUse::kCompute);
    const auto is = [&](Tier tier) { return from.tier == tier || to.tier == tier; };
    if (is(Tier::kDisk) && is(Tier::kDevice)) {
      std::unique_ptr<PinnedStaging>& staging = staging_[background ? lane : kBackgroundLanes];
      if (staging == nullptr) {
        TEMPER_ASSIGN_OR_RETURN(staging, PinnedStaging::Make(*device));
      }
      path.staging = staging.get();
    }
  }
  return MakeMove(from, to, moved.size, path);
}

Status Executor::BindAll() {
  // Made in the order of the segments: to make a collective is to meet those that make it, too.
  struct Made {
    std::array<Kernel*, kNumTiers> kernel = {};  // by the tier of its operands
    Cost cost;
  };
  std::vector<std::vector<Made>> made;  // per segment and instruction
  const auto tier_of = [](const Instruction& instruction, const Binding& binding) {
    const std::vector<int>& operands = instruction.outputs.empty() ? instruction.inputs : instruction.outputs;
    return operands.empty() ? Tier::kDevice : TierOf(binding.offsets[static_cast<size_t>(operands[0])]);
  };
  for (size_t s = 0; s < program_.segments.size(); ++s) {
    const Segment& segment = program_.segments[s];
    std::vector<Made>& of_segment = made.emplace_back();
    for (const Instruction& instruction : segment.instructions) {
      Made& one = of_segment.emplace_back();
      std::vector<TensorType> in, out;
      for (int k : instruction.inputs) in.push_back(segment.operands[static_cast<size_t>(k)]);
      for (int k : instruction.outputs) out.push_back(segment.operands[static_cast<size_t>(k)]);
      one.cost = RuleOf(instruction.op).cost(in, out, instruction.attributes);
      if (IsMove(instruction.op)) continue;
      for (const Binding& binding : program_.bindings) {
        if (static_cast<size_t>(binding.segment) != s) continue;
        const Tier tier = tier_of(instruction, binding);
        Kernel*& kernel = one.kernel[static_cast<size_t>(tier)];
        if (kernel != nullptr) continue;
        const Tier other = tier == Tier::kDevice ? Tier::kHost : Tier::kDevice;
        Kernel* const same = far_.host_kernels == nullptr ? one.kernel[static_cast<size_t>(other)] : nullptr;
        if (same == nullptr) {
          TEMPER_ASSIGN_OR_RETURN(kernels_.emplace_back(), MakeKernel(segment, instruction, tier));
        }
        kernel = same != nullptr ? same : kernels_.back().get();
      }
    }
  }
  for (const Binding& binding : program_.bindings) {
    const auto s = static_cast<size_t>(binding.segment);
    const Segment& segment = program_.segments[s];
    const size_t begin = bound_.size();
    for (size_t i = 0; i < segment.instructions.size(); ++i) {
      const Instruction& instruction = segment.instructions[i];
      const Tier tier = tier_of(instruction, binding);
      const size_t lane = LaneOf(instruction, binding);
      const bool moves = IsMove(instruction.op);
      if (moves) {
        TEMPER_ASSIGN_OR_RETURN(kernels_.emplace_back(), MakeMoveKernel(instruction, segment, binding, lane));
      }
      TEMPER_CHECK(!IsTransfer(instruction.op) || arena_.on_host() || instruction.attributes.Flag("background"))
          << "a transfer among the kernels of a device, where it has a stream of its own";
      const bool hosted = !moves && tier == Tier::kHost;
      BoundInstruction bound{.kernel = moves ? kernels_.back().get() : made[s][i].kernel[static_cast<size_t>(tier)],
                             .inputs = addresses_.size(),
                             .rng_hash = binding.rng_hashes[i],
                             .workspace = At(binding.scratch[i]),
                             .op = instruction.op,
                             .lane = lane,
                             .phase = segment.phase,
                             .block = binding.block,
                             .cost = made[s][i].cost,
                             .background = instruction.attributes.Flag("background"),
                             .at_host = hosted && far_.host_kernels != nullptr,
                             .moves = moves};
      const auto add = [&](int k) { addresses_.push_back(At(binding.offsets[static_cast<size_t>(k)])); };
      for (int k : instruction.inputs) add(k);
      bound.outputs = addresses_.size();
      for (int k : instruction.outputs) add(k);
      bound_.push_back(bound);
    }
    binding_range_.emplace_back(begin, bound_.size());
    names_.push_back(fmt::format("{} {}", ToString(segment.phase), OfBlock(binding.block)));
  }
  return OkStatus();
}

Status Executor::NoteBackground() {
  LaneCounts issued = {};
  for (const Call& call : program_.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const auto [begin, end] = binding_range_[static_cast<size_t>(call.binding)];
    for (size_t i = begin; i < end; ++i) {
      if (!bound_[i].background) continue;
      notes_[bound_[i].lane].push_back({&bound_[i], call.micro_batch});
      ++issued[bound_[i].lane];
    }
  }
  return lanes_.Prepare(issued, waits_);
}

// Buffers share memory with nothing else: an operand at an input's address is that input.
void Executor::FindReaders() {
  loaded_.assign(addresses_.size(), nullptr);
  readers_.resize(program_.buffers.size());
  for (size_t b = 0; b < program_.buffers.size(); ++b) {
    const Buffer& buffer = program_.buffers[b];
    if (buffer.role != Role::kInput) continue;
    const std::byte* const at = At(buffer.offset);
    for (size_t k = 0; k < addresses_.size(); ++k) {
      if (addresses_[k] == at) readers_[b].push_back(k);
    }
  }
}

// A wait belongs to a place in the schedule, not to a binding: the same one waits in one micro-batch and not in
// another. So waits are enqueued between recordings, not recorded, and none may be due in the middle of one.
void Executor::FindBreaks() {
  LaneCounts kernels_have = {};
  size_t at = 0;
  for (const Call& call : program_.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const auto [begin, end] = binding_range_[static_cast<size_t>(call.binding)];
    for (size_t i = begin; i < end; ++i, ++at) {
      if (bound_[i].background) continue;
      for (size_t lane = 0; lane < kBackgroundLanes; ++lane) {
        if (waits_[at][lane] <= kernels_have[lane]) continue;
        bound_[i].breaks = true;
        kernels_have[lane] = waits_[at][lane];
      }
    }
  }
}

void Executor::FindMicroBatches() {
  Place at;
  for (; at.call < program_.schedule.size(); ++at.call) {
    const Call& call = program_.schedule[at.call];
    if (call.kind == Call::Kind::kRun) {
      const auto [begin, end] = binding_range_[static_cast<size_t>(call.binding)];
      at.instruction += end - begin;
      for (size_t i = begin; i < end; ++i) {
        if (bound_[i].background) ++at.issued[bound_[i].lane];
      }
    }
    if (call.kind != Call::Kind::kLoadInputs) continue;
    const bool next = call.micro_batch == static_cast<int>(begins_.size());
    begins_.push_back(at);
    if (!next) return begins_.clear();
  }
}

Status Executor::Run(std::span<const HostArray> io, const BeforeUpdate& before_update) {
  return Keep(failed_.ok() ? Walk({}, program_.schedule.size(), io, before_update) : failed_);
}

Status Executor::RunMicroBatch(int64_t micro_batch, std::span<const HostArray> io, const BeforeUpdate& before_update) {
  const auto m = static_cast<size_t>(micro_batch);
  TEMPER_CHECK(m < begins_.size()) << "micro-batch " << micro_batch << " of " << begins_.size();
  const Place begin = m == 0 ? Place() : begins_[m];
  const size_t end = m + 1 < begins_.size() ? begins_[m + 1].call : program_.schedule.size();
  return Keep(failed_.ok() ? Walk(begin, end, io, before_update) : failed_);
}

Status Executor::Keep(Status status) {
  failed_ = std::move(status);
  // What is on its way to the caller's arrays must not come when these are gone.
  if (!failed_.ok() && !arena_.on_host()) (void)arena_.stream().Synchronize();
  return failed_;
}

Status Executor::Walk(Place begin, size_t end, std::span<const HostArray> io, const BeforeUpdate& before_update) {
  for (const HostArray& array : io) {
    TEMPER_CHECK(array.buffer >= 0 && array.buffer < static_cast<int>(program_.buffers.size()))
        << "host array for buffer " << array.buffer << " of " << program_.buffers.size();
    const Buffer& buffer = program_.buffers[static_cast<size_t>(array.buffer)];
    TEMPER_CHECK(static_cast<int64_t>(array.bytes.size()) >= buffer.type.bytes().v * micro_batches_)
        << "host array for " << buffer.name << " has " << array.bytes.size() << " bytes; " << micro_batches_
        << " micro-batches of " << buffer.type.ToString() << " are run";
  }
  size_t at = begin.instruction;
  TEMPER_RETURN_IF_ERROR(lanes_.Begin(trace_ != nullptr, begin.issued));
  for (size_t k = begin.call; k < end; ++k) {
    const Call& call = program_.schedule[k];
    switch (call.kind) {
      case Call::Kind::kRun:
        TEMPER_RETURN_IF_ERROR(RunInstructions(call, &at));
        break;
      case Call::Kind::kBeforeUpdate:
        if (before_update) TEMPER_RETURN_IF_ERROR(before_update());
        break;
      case Call::Kind::kLoadInputs:
      case Call::Kind::kStoreOutputs:
        TEMPER_RETURN_IF_ERROR(Copy(io, call.micro_batch, call.kind == Call::Kind::kLoadInputs));
        break;
    }
  }
  TEMPER_RETURN_IF_ERROR(lanes_.Finish());
  TEMPER_RETURN_IF_ERROR(arena_.stream().Synchronize());
  if (trace_ != nullptr) TEMPER_RETURN_IF_ERROR(TraceBackground(begin.issued));
  const bool whole = end - begin.call == program_.schedule.size();
  if (whole && replays_ && !arena_.on_host() && pieces_.empty()) TEMPER_RETURN_IF_ERROR(RecordAll());
  return OkStatus();
}

// Of what was issued behind the first `before` of each lane.
Status Executor::TraceBackground(const LaneCounts& before) const {
  for (size_t lane = 0; lane < kBackgroundLanes; ++lane) {
    Lanes::Clock::time_point busy_until{};
    for (size_t n = before[lane]; n < lanes_.issued(lane); ++n) {
      const auto& [b, micro_batch] = notes_[lane][n];
      TEMPER_ASSIGN_OR_RETURN(Lanes::Span time, lanes_.TimeOf(lane, n));
      // Of a disk's lane two may be under way: each counts from where those before it ended, so that none overlap and
      // the sum of them is the time in which the lane was busy.
      if (IsDiskLane(lane)) time.start = std::max(time.start, busy_until);
      busy_until = time.end = std::max(time.start, time.end);
      trace_->Record({b->op, b->phase, b->block, micro_batch, time.start, time.end, b->cost.read + b->cost.written,
                      b->cost.flops, kQueueOfLane[lane]});
    }
  }
  return OkStatus();
}

// What is issued to another queue, run at the host, or has to wait for either is not one piece with what is before it.
Status Executor::RecordAll() {
  const auto recordable = [&](size_t i) {
    const BoundInstruction& b = bound_[i];
    return !b.background && !b.at_host && !IsCollective(b.op) && b.kernel->replayable();
  };
  for (size_t binding = 0; binding < binding_range_.size(); ++binding) {
    const auto [first, last] = binding_range_[binding];
    std::vector<Piece>& pieces = pieces_.emplace_back();
    for (size_t begin = first, end = first; begin < last; begin = end) {
      do {
        ++end;
      } while (end < last && recordable(end) == recordable(begin) && !(recordable(end) && bound_[end].breaks));
      Piece& piece = pieces.emplace_back(Piece{begin, end, nullptr});
      if (!recordable(begin)) continue;
      TEMPER_ASSIGN_OR_RETURN(piece.recording, arena_.stream().Record([&, from = first]() -> Status {
        if (begin == from) TEMPER_RETURN_IF_ERROR(arena_.stream().Note(names_[binding]));
        for (size_t i = begin; i < end; ++i) {
          TEMPER_RETURN_IF_ERROR(bound_[i].Named(bound_[i].kernel->Run(bound_[i].Args(*this))));
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
    for (const size_t k : readers_[static_cast<size_t>(array.buffer)]) loaded_[k] = host;
  }
  if (load) lanes_.NoteEnqueued(/*on_pinned=*/false);  // what reads inputs in the background comes after them
  return OkStatus();
}

Status Executor::RunInstructions(const Call& call, size_t* at) {
  const auto [begin, end] = binding_range_[static_cast<size_t>(call.binding)];
  const auto binding = static_cast<size_t>(call.binding);
  const auto* const pieces = trace_ != nullptr || !replays_ || pieces_.empty() ? nullptr : &pieces_[binding];
  // A recording holds it.
  const bool noted = pieces != nullptr && !pieces->empty() && pieces->front().recording != nullptr;
  if (!noted) TEMPER_RETURN_IF_ERROR(arena_.stream().Note(names_[binding]));
  if (pieces == nullptr) return RunRange(begin, end, call, at);
  for (const Piece& piece : *pieces) {
    if (piece.recording == nullptr) {
      TEMPER_RETURN_IF_ERROR(RunRange(piece.begin, piece.end, call, at));
      continue;
    }
    TEMPER_RETURN_IF_ERROR(lanes_.Await(Lanes::Foreground::kStream, waits_[*at]));
    TEMPER_RETURN_IF_ERROR(OrOfEarlier(piece.recording->Replay()));
    lanes_.NoteEnqueued(/*on_pinned=*/false);
    *at += piece.end - piece.begin;
  }
  return OkStatus();
}

Status Executor::RunRange(size_t begin, size_t end, const Call& call, size_t* at) {
  for (size_t i = begin; i < end; ++i, ++*at) {
    const BoundInstruction& b = bound_[i];
    if (b.background) {
      TEMPER_RETURN_IF_ERROR(lanes_.Issue(b.lane, waits_[*at], b.kernel, b.Args(*this)));
      continue;
    }
    // What a store has to do with is done by the host, through pinned memory.
    const bool at_host = b.at_host || (b.moves && !StreamOfLane(b.lane));
    if (at_host && b.moves) lanes_.NoteEnqueued(/*on_pinned=*/true);  // it may read what kernels have yet to write
    TEMPER_RETURN_IF_ERROR(lanes_.Await(at_host ? Lanes::Foreground::kHost : Lanes::Foreground::kStream, waits_[*at]));
    if (const Status status = RunForeground(b, call); !status.ok()) {
      const bool may_be_of_another = trace_ == nullptr && !IsCollective(b.op) && !at_host;
      return may_be_of_another ? OrOfEarlier(b.Named(status)) : b.Named(status);
    }
    if (!at_host) lanes_.NoteEnqueued(/*on_pinned=*/b.moves);
  }
  return OkStatus();
}

// Where something was not enqueued because a kernel before it has failed, the stream knows more of that one.
Status Executor::OrOfEarlier(const Status& status) const {
  if (status.ok()) return status;
  const Status earlier = arena_.stream().Synchronize();
  return earlier.ok() ? status : earlier;
}

Status Executor::RunForeground(const BoundInstruction& b, const Call& call) {
  if (trace_ == nullptr) return b.kernel->Run(b.Args(*this));
  const auto start = std::chrono::steady_clock::now();
  Status status = b.kernel->Run(b.Args(*this));
  if (status.ok()) status = arena_.stream().Synchronize();  // a trace of when work was done, not of when enqueued
  trace_->Record({b.op, b.phase, b.block, call.micro_batch, start, std::chrono::steady_clock::now(),
                  b.cost.read + b.cost.written, b.cost.flops});
  return status;
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
