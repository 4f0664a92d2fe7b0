// The contract between the runtime and what carries data between ranks. Every rank of a run has one Communicator; all
// ranks make the same calls in the same order.
//
// Errors are sticky and shared: when one rank fails (Abort) or vanishes, every call of every other rank returns an
// error that names the rank and the cause, within seconds. No call waits for ever: a peer that computes, reads or
// writes is waited for, one that does nothing is not.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "device/kernel.h"
#include "tensor/mesh.h"

namespace temper {

// Exchanges of a few numbers inside of a kernel (the statistics of a loss whose vocabulary is split). Thread rule: the
// thread that runs kernels.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int index() const = 0;  // of this rank in the group
  virtual int size() const = 0;
  // all[i * mine.size() ...] is what member i gave. Allocates nothing. REQUIRES: all.size() == mine.size() * size().
  virtual Status AllGather(std::span<const float> mine, std::span<float> all) = 0;
};

// With ranks that others wait for.
struct Patience {
  // How long one that neither computes nor reads nor writes is waited for. With what it takes to tell all others and to
  // end them, a rank that hangs ends the run within 30 s.
  Seconds idle{15};
  // How long any is waited for, however busy it looks.
  Seconds busy{3600};
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Of the ranks that share memory with this one: how many there are, which of them this is, and its share of the
  // processors that they may run on.
  virtual int host_ranks() const = 0;
  virtual int host_rank() const = 0;
  virtual int processors() const = 0;

  // Kernels of the collective ops (graph/op.h: all_gather, reduce_scatter, ...), whose attribute `axes` names the group
  // within `mesh`. Parts stand in the group's order (Mesh::Group) and may be of any sizes that add up to the whole;
  // sums are made in that order, too, in f32 (f64 for f64), then acc, and rounded once. Making a kernel is a collective
  // call of its group, but for send and recv. REQUIRES: mesh.ranks() == size(). Thread rule of what it makes: five
  // lanes with one thread each: collectives that are needed at once, those with the attribute `background`, those that
  // have `soon` as well, sends, and receives. In each lane members of a group, and both ends of a transfer, find each
  // other by their order; what waits in one lane holds up nothing in another.
  virtual std::unique_ptr<KernelTable> Collectives(const Mesh& mesh) = 0;
  // Collective over the group. For kernels that exchange numbers while they run.
  virtual Result<std::unique_ptr<Exchange>> MakeExchange(const Mesh& mesh, AxisSet axes) = 0;

  // Memory for an arena: zeroed and touched, aligned to huge pages, kept until the communicator is gone. Where ranks
  // share a host, peers read it without a copy in between. Operands of collectives must lie in such memory. It does not
  // ask whether the machine has that much.
  virtual Result<std::span<std::byte>> AllocateArena(Bytes size) = 0;

  // Agreement between all ranks, on the host; not for the step's data. Thread rule: not while a kernel runs.
  virtual Status Barrier() = 0;
  virtual Status AllReduceSum(std::span<double> values) = 0;
  virtual Status AllReduceMax(std::span<double> values) = 0;  // NaN where any is
  virtual Status Broadcast(std::span<std::byte> bytes, int root) = 0;

  // From here on; all ranks set the same. Thread rule: as Barrier.
  virtual void SetPatience(const Patience& patience) = 0;

  // Whether the run goes on, asked from beside the threads that run the rank: they may wait for others where no
  // communicator can look around, on a device. Stops it where a rank of this host has died, or has been stopped for as
  // long as patience lasts. Waits for nothing. Thread rule: one thread at a time, any.
  virtual Status Check() = 0;

  // This rank cannot go on: all others are told why and return from what they wait in. Any thread.
  virtual void Abort(const Status& cause) = 0;
  // After a failure: whether this is the rank that should tell the user, which is one at most (a launcher may do it).
  virtual bool ReportsFailure() const = 0;

  // Bytes that this rank's collectives and exchanges have sent to other ranks so far, by the cost rules of graph/ops.
  virtual Bytes bytes_sent() const = 0;
};

}  // namespace temper
