// The contract between the runtime and a backend: a kernel is made once per distinct instruction, from its types and
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
  Bytes workspace;  // the size of Run's scratch: the op's workspace rule
};

struct KernelArgs {
  // Addresses of operands in the op's order (graph/op_list.inc), 64-byte aligned. An output may equal an input's
  // address if the graph says that it updates it.
  std::byte* const* inputs;
  std::byte* const* outputs;
  std::byte* workspace;
  uint64_t rng_name_hash = 0;  // for random ops: HashName of the value's canonical name
  // Per input, the host's copy of the bytes that it has loaded in this run, unchanged until the run has ended: a kernel
  // on a device can read them without waiting. nullptr for all other inputs, or altogether.
  const std::byte* const* loaded = nullptr;
};

class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual Status Run(const KernelArgs& args) = 0;
  // Whether Run only enqueues the same work again, given the same addresses: then a stream can record it.
  virtual bool replayable() const { return true; }
  // For a kernel that runs in the background, beside others: its thread begins to wait for it, or ceases to. From this
  // the rank's watch tells a thread that waits for other ranks from one that hangs.
  virtual void NoteAwaited(bool /*awaited*/) {}
};

// A backend's set of kernels.
class KernelTable {
 public:
  virtual ~KernelTable() = default;
  virtual const std::string& name() const = 0;
  // kUnsupported if this backend cannot run the instruction; the message says why.
  virtual Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) = 0;
};

}  // namespace temper
