// The contract between the runtime and the transport of data between ranks. Every rank of a run has one Communicator;
// all ranks make the same calls in the same order.
//
// Errors are sticky and shared: when one rank fails (Abort) or vanishes, every call of every other rank returns an
// error that names the rank and the cause, within seconds. No call waits for ever: it waits for a peer that computes,
// reads or writes, but not for one that does nothing.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "device/kernel.h"
#include "tensor/mesh.h"

namespace temper {

// Exchanges of a few numbers inside a kernel (the statistics of a loss with a split vocabulary). Thread rule: the
// thread that runs kernels.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int index() const = 0;  // of this rank in the group
  virtual int size() const = 0;
  // all[i * mine.size() ...] comes from member i. Allocates nothing. REQUIRES: all.size() == mine.size() * size().
  virtual Status AllGather(std::span<const float> mine, std::span<float> all) = 0;
};

// How long ranks wait for others.
struct Patience {
  // The longest wait for a peer that neither computes nor reads nor writes. With the time to tell all others and to end
  // them, a rank that hangs ends the run within 30 s.
  Seconds idle{15};
  // The longest wait for any peer, however busy it looks.
  Seconds busy{3600};
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Among the ranks that share memory with this one: their number, the index of this rank, and its share of the
  // processors that they may run on.
  virtual int host_ranks() const = 0;
  virtual int host_rank() const = 0;
  virtual int processors() const = 0;
  // The name of a rank's machine.
  virtual std::string host_of(int rank) const = 0;

  // Kernels of the collective ops (graph/op_list.inc: all_gather, reduce_scatter, ...), whose attribute `axes` names
  // the group within `mesh`. Parts are in the group's order (Mesh::Group) and may be of any sizes that add up to the
  // whole. Sums are made in that order, too, in f32 (f64 for f64), then acc, and rounded once. Making a kernel is a
  // collective call of its group, except for send and recv. REQUIRES: mesh.ranks() == size(). Thread rule of these
  // kernels: five lanes with one thread each: collectives that are needed at once, those with attribute `background`,
  // those that also have `soon`, sends, and receives. In each lane members of a group, and both ends of a transfer,
  // match by order; a wait in one lane does not block another.
  virtual std::unique_ptr<KernelTable> Collectives(const Mesh& mesh) = 0;
  // Collective over the group. For kernels that exchange numbers while they run.
  virtual Result<std::unique_ptr<Exchange>> MakeExchange(const Mesh& mesh, AxisSet axes) = 0;

  // Memory for an arena: zeroed and touched, aligned to huge pages, kept until the communicator is destroyed. Where
  // ranks share a host, peers read it without an extra copy. Operands of collectives must lie in such memory. It does
  // not check whether the machine has that much.
  virtual Result<std::span<std::byte>> AllocateArena(Bytes size) = 0;

  // Agreement between all ranks, on the host; not for the step's data. Thread rule: not while a kernel runs.
  virtual Status Barrier() = 0;
  virtual Status AllReduceSum(std::span<double> values) = 0;
  virtual Status AllReduceMax(std::span<double> values) = 0;  // NaN if any is
  virtual Status Broadcast(std::span<std::byte> bytes, int root) = 0;

  // Applies from now on; all ranks set the same. Thread rule: as Barrier.
  virtual void SetPatience(const Patience& patience) = 0;

  // Whether the run continues, asked from a thread beside those that run the rank: these may wait for other ranks on a
  // device, where no communicator can check. Stops the run if a rank of this host has died, or has been stopped for as
  // long as patience lasts. Does not block. Thread rule: one thread at a time, any.
  virtual Status Check() = 0;

  // This rank has failed: tells all others why, and they return from their waits. Any thread.
  virtual void Abort(const Status& cause) = 0;
  // After a failure: whether this rank should tell the user, which is one at most (a launcher may do it instead).
  virtual bool ReportsFailure() const = 0;

  // Bytes that this rank's collectives and exchanges have sent to other ranks so far, by the cost rules of graph/ops.
  virtual Bytes bytes_sent() const = 0;
};

}  // namespace temper
