// The processor that a command computes on: this machine's CPU or one of its GPUs.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"
#include "runtime/arena.h"
#include "settings/run_config.h"

namespace temper {

struct ProcessorChoice {
  int gpu = -1;      // its number; -1: the CPU
  std::string name;  // in messages
  std::string uuid;  // of a GPU (gpu_device.h)
  bool has_bf16 = false;

  bool on_gpu() const { return gpu >= 0; }
  DeviceChoice device() const { return on_gpu() ? DeviceChoice::kGpu : DeviceChoice::kCpu; }
  // The dtype for `auto`.
  DType dtype() const { return has_bf16 ? DType::kBF16 : DType::kF32; }
};

// A rank's number among those of this machine, each of which computes on its own GPU.
struct RankOfMachine {
  int rank = 0, ranks = 1;
  bool launched = false;  // by --nprocs: all see the same GPUs
};

// Opens nothing. kAuto: a GPU if there is one for each rank, else the CPU. kGpu: one-line errors, which say what is
// missing (a GPU, its driver, this build's support of it) and what to do.
Result<ProcessorChoice> ChooseProcessor(DeviceChoice wanted, const RankOfMachine& rank = {});

class Processor {
 public:
  // Errors: as OpenGpu.
  static Result<Processor> Open(const ProcessorChoice& choice, int threads);

  // nullptr: the host.
  Device* device() const { return device_.get(); }
  KernelTable& kernels() const { return device_ ? device_->kernels() : *cpu_; }
  Result<std::unique_ptr<Arena>> Reserve(Bytes size) const;

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<KernelTable> cpu_;
};

// FLOP/s of a matrix product [n, n] x [n, n] of random numbers; n is doubled until it takes kLongEnough (or is 8192).
// MFU on a device is relative to this. Takes some milliseconds and up to 400 MB of its memory.
Result<double> MeasureProductPeak(Device& device, DType dtype);

// Bytes per second: read plus written, for a copy within the device's memory; from and to the host's pinned memory.
struct CopyRates {
  double within = 0, to_device = 0, from_device = 0;
};
Result<CopyRates> MeasureCopyRates(Device& device);

}  // namespace temper
