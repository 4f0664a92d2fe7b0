// Executor: runs a Program on an Arena with one backend's kernels. Creating it makes every kernel and resolves every
// address. Run then only calls kernels, or enqueues them if the arena is a device's, and waits once, at its end. One
// executor at a time may run on an arena.
//
// The schedule is an order, and results are those of that order. Collectives, transfers and moves marked `background`
// run beside the kernels that follow (runtime/lanes.h). An instruction that needs their result or overwrites their
// operands waits for them (program/waits.h), so concurrency cannot change a result.
//
// On a device the walk through the schedule stops only for kernels that run at the host (AdamW on states that live
// there), which wait for their operands, and for data from the disk.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device_part.h"
#include "device/kernel.h"
#include "device/store.h"
#include "program/program.h"
#include "program/waits.h"
#include "runtime/arena.h"
#include "runtime/lanes.h"
#include "runtime/pinned_staging.h"
#include "runtime/trace.h"
#include "tensor/view.h"

namespace temper {

// Host arrays of a step's micro-batches for one input or output buffer, one after another: micro-batch m is the m-th
// run of the buffer's size. The caller owns the memory, which must outlive Run.
struct HostArray {
  int buffer = -1;  // index into Program::buffers
  std::span<std::byte> bytes;
};

// The memory beside an arena for a Program that does not have everything there. All outlive the executor. REQUIRES:
// beside a device's arena, `host` is pinned for it (Arena::PinFor), and there are kernels of the host's.
struct FarTiers {
  Arena* host = nullptr;
  Store* disk = nullptr;
  // Kernels of instructions whose operands live at the host. nullptr: those of the arena's processor.
  KernelTable* host_kernels = nullptr;
  int host_threads = 1;  // for those kernels; a Program for a device has one thread, which enqueues
};

class Executor {
 public:
  // `collectives`: Communicator::Collectives; nullptr for one rank. `program`, `arena`, `kernels` and `collectives`
  // must outlive the executor. Errors: an instruction that the backend cannot run, by name. One thread at a time may
  // use it.
  static Result<std::unique_ptr<Executor>> Create(const Program& program, Arena& arena, KernelTable& kernels,
                                                  KernelTable* collectives = nullptr, const FarTiers& far = {});
  ~Executor();

  using BeforeUpdate = std::function<Status()>;
  // Runs the schedule once, and calls `before_update` where weights and states are about to change; its error ends the
  // run. Inputs are read from and outputs written to `io` at the schedule's load and store calls.
  // REQUIRES: each array holds its buffer's size for every micro-batch of the schedule.
  // Allocates nothing from the second run on. An error is sticky: later runs return it too.
  Status Run(std::span<const HostArray> io, const BeforeUpdate& before_update = nullptr);
  // Run for one micro-batch of the step, the last one with the update: all of them in their order are a Run. Executors
  // of Programs that were compiled together, which have the same step with other rows, may take turns between them.
  // Returns when what the micro-batch does in the background is done. REQUIRES: micro-batches do not overlap (no
  // pipeline).
  Status RunMicroBatch(int64_t micro_batch, std::span<const HostArray> io, const BeforeUpdate& before_update = nullptr);

  // All further runs record what they do in `trace`, which must outlive them; nullptr: they do not. Costs two readings
  // of the clock per instruction, and on a device a wait for it.
  void TraceInto(Trace* trace) { trace_ = trace; }

  // Whether consecutive kernels are enqueued as one unit if the arena's stream can record them, from the second run on
  // (the first loads them). A run with a trace enqueues them one by one. On by default.
  void set_replays(bool on) { replays_ = on; }

  // Writes the Program's constants: Create does it, and so must whoever has used the arena since.
  Status FillConstants();
  // Copies all bytes of a persistent buffer from or to the host, wherever the arena is. Not during Run.
  Status Write(int buffer, std::span<const std::byte> host);
  Status Read(int buffer, std::span<std::byte> host) const;
  // Address of a persistent buffer, for loading weights and saving them. REQUIRES: it is in the host's memory.
  View BufferView(int buffer) const;
  // The part of its tensor that a persistent buffer holds, wherever the arena is.
  DevicePart BufferPart(int buffer) const;
  const Program& program() const { return program_; }

 private:
  struct BoundInstruction;
  struct TraceNote;
  Executor(const Program& program, Arena& arena, KernelTable& kernels, KernelTable* collectives, const FarTiers& far);
  // The memory address of a Program's address, for StreamOf its tier.
  std::byte* At(Bytes address) const;
  Stream& StreamOf(Tier tier) const;
  Result<std::unique_ptr<Kernel>> MakeKernel(const Segment& segment, const Instruction& instruction, Tier tier) const;
  Result<std::unique_ptr<Kernel>> MakeMoveKernel(const Instruction& instruction, const Segment& segment,
                                                 const Binding& binding, size_t lane);
  Status BindAll();
  Status NoteBackground();
  void FindReaders();
  void FindBreaks();
  Status RecordAll();
  Status Copy(std::span<const HostArray> io, int micro_batch, bool load);
  const Buffer& BufferOfSize(int buffer, size_t bytes) const;
  struct Place {
    size_t call = 0, instruction = 0;  // in the schedule; of all instructions over it
    LaneCounts issued = {};            // before it
  };
  void FindMicroBatches();
  Status Walk(Place begin, size_t end, std::span<const HostArray> io, const BeforeUpdate& before_update);
  Status Keep(Status status);
  Status RunInstructions(const Call& call, size_t* at);
  Status RunRange(size_t begin, size_t end, const Call& call, size_t* at);
  Status OrOfEarlier(const Status& status) const;
  Status RunForeground(const BoundInstruction& b, const Call& call);
  Status TraceBackground(const LaneCounts& before) const;

  const Program& program_;
  Trace* trace_ = nullptr;
  Arena& arena_;
  KernelTable& table_;
  KernelTable* const collectives_;
  const FarTiers far_;
  std::unique_ptr<StoreStream> disk_;  // of far_.disk
  // Between the disk and a device: for each lane of the disk, and for the thread that runs the executor.
  std::array<std::unique_ptr<PinnedStaging>, kBackgroundLanes + 1> staging_;
  std::vector<std::unique_ptr<Kernel>> kernels_;  // one per instruction of a segment and tier; of a move, per binding
  std::vector<std::byte*> addresses_;             // operands of all bound instructions, inputs then outputs
  std::vector<const std::byte*> loaded_;          // the same: KernelArgs::loaded
  std::vector<std::vector<size_t>> readers_;      // per buffer of the Program's inputs, which operands it is
  std::vector<BoundInstruction> bound_;           // all bindings' instructions, in order
  std::vector<std::pair<size_t, size_t>> binding_range_;  // binding -> [begin, end) in bound_
  std::vector<std::string> names_;                        // of bindings: for Stream::Note
  // Per binding, its instructions in runs that are recorded or not; empty until RecordAll.
  struct Piece;
  std::vector<std::vector<Piece>> pieces_;
  bool replays_ = true;
  int64_t micro_batches_ = 0;  // what the schedule loads or stores
  std::vector<Place> begins_;  // of each micro-batch; empty if some overlap
  // Per instruction in the order of the schedule: how much of each lane must be complete before it is run or issued.
  std::vector<LaneCounts> waits_;
  std::array<std::vector<TraceNote>, kBackgroundLanes>
      notes_;    // what a trace will say of a run's background instructions
  Lanes lanes_;  // last: it uses the members above
  Status failed_;
};

}  // namespace temper
