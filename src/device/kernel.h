// The contract between the runtime and a backend: a kernel is made once per distinct instruction from its types and
// attributes, and run any number of times on addresses. Running allocates nothing: scratch is passed in.
//
// Thread rule: kernels are made and run by one thread (the compute queue); inside, they may use a team of threads. On a
// device with a stream (device/device.h), Run enqueues: addresses are the device's, nothing on the host may touch what
// they point to, and the two arrays of addresses need not outlive the call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "graph/attributes.h"
#include "graph/op.h"
#include "tensor/shape.h"

namespace temper {

struct KernelSpec {
  Op op;
  std::vector<TensorType> inputs, outputs;
  Attributes attributes;
  int threads = 1;
  Bytes workspace;  // what Run will be given: the op's workspace rule
};

struct KernelArgs {
  // Addresses of operands in the op's order (graph/op.h), 64-byte aligned. An output may equal an input's address where
  // the graph says that it updates it.
  std::byte* const* inputs;
  std::byte* const* outputs;
  std::byte* workspace;
  uint64_t rng_name_hash = 0;  // for random ops: HashName of the value's canonical name
  // Per input, where the host has the bytes that it has put there in this run, which stay as they are until the run has
  // ended: what a kernel on a device can know without waiting for it. nullptr for all others, or altogether.
  const std::byte* const* loaded = nullptr;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual Status Run(const KernelArgs& args) = 0;
  // Whether all that Run does is enqueue the same work again, given the same addresses: what a stream can record.
  virtual bool replayable() const { return true; }
  // Of one that runs in the background, beside others: the thread that runs those begins to wait for it, or ceases to.
  // What watches over ranks tells by it a thread that waits for other ranks from one that hangs.
  virtual void NoteAwaited(bool /*awaited*/) {}
};

// A backend's set of kernels.
class KernelTable {
 public:
  virtual ~KernelTable() = default;
  virtual const std::string& name() const = 0;
  // kUnsupported where this backend cannot run the instruction; the message says why.
  virtual Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) = 0;
};

}  // namespace temper
