// For tests: ways to run the GPU backend's kernels on operands in the host's memory: on the emulator, or, if they are
// built for a GPU, on that. Empty if there is none.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#ifdef TEMPER_GPU_EMULATED
#include "backend/gpu/emulator/emulated_kernels.h"
#endif
#include "backend/cpu/kernel_twin.h"
#include "backend/gpu/gpu_device.h"

namespace temper {

// Runs each kernel on a device: operands are copied there and back.
class OnDevice final : public KernelTable {
 public:
  // REQUIRES: `device` outlives the table and what it makes.
  OnDevice(Device& device, std::span<std::byte> memory) : device_(device), memory_(memory) {}
  OnDevice(std::unique_ptr<Device> device, std::span<std::byte> memory)
      : owned_(std::move(device)), device_(*owned_), memory_(memory) {}
  const std::string& name() const override { return device_.name(); }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    TEMPER_ASSIGN_OR_RETURN(auto kernel, device_.kernels().Make(spec));
    return std::unique_ptr<Kernel>(std::make_unique<Copying>(this, spec, std::move(kernel)));
  }

 private:
  class Copying final : public Kernel {
   public:
    Copying(OnDevice* table, const KernelSpec& spec, std::unique_ptr<Kernel> kernel)
        : table_(*table), spec_(spec), kernel_(std::move(kernel)) {}

    Status Run(const KernelArgs& args) override {
      std::vector<Copy> copies;
      const std::vector<std::byte> guard(kGuard + kAlignment, kGuardByte);
      size_t used = kGuard;
      const auto place = [&](std::byte* host, Bytes bytes) {
        for (const Copy& c : copies) {
          if (c.host.data() == host && !c.host.empty() && bytes > Bytes{0}) return c.device;  // in place
        }
        const auto size = static_cast<size_t>(bytes.v), rounded = (size + kAlignment - 1) / kAlignment * kAlignment;
        TEMPER_CHECK(used + rounded + kGuard <= table_.memory_.size()) << "operands of " << used + size << " bytes";
        copies.push_back({.host = {host, size},
                          .device = table_.memory_.data() + used,
                          .behind = std::vector<std::byte>(rounded - size + kGuard)});
        used += rounded + kGuard;
        return copies.back().device;
      };
      std::vector<std::byte*> in, out;
      for (size_t i = 0; i < spec_.inputs.size(); ++i) in.push_back(place(args.inputs[i], spec_.inputs[i].bytes()));
      for (size_t i = 0; i < spec_.outputs.size(); ++i) out.push_back(place(args.outputs[i], spec_.outputs[i].bytes()));
      std::byte* const workspace = place(args.workspace, spec_.workspace);
      Stream& stream = table_.device_.stream();
      std::vector<std::byte> before(kGuard);
      const auto guards_of = [&](size_t bytes) { return std::span(guard).first(bytes); };
      TEMPER_RETURN_IF_ERROR(stream.CopyToDevice(guards_of(kGuard), table_.memory_.data()));
      for (const Copy& c : copies) {
        TEMPER_RETURN_IF_ERROR(stream.CopyToDevice(c.host, c.device));
        TEMPER_RETURN_IF_ERROR(stream.CopyToDevice(guards_of(c.behind.size()), c.device + c.host.size()));
      }
      TEMPER_RETURN_IF_ERROR(kernel_->Run({.inputs = in.data(),
                                           .outputs = out.data(),
                                           .workspace = workspace,
                                           .rng_name_hash = args.rng_name_hash,
                                           .loaded = args.loaded}));
      TEMPER_RETURN_IF_ERROR(stream.CopyToHost(table_.memory_.data(), before));
      for (Copy& c : copies) {
        TEMPER_RETURN_IF_ERROR(stream.CopyToHost(c.device, c.host));
        TEMPER_RETURN_IF_ERROR(stream.CopyToHost(c.device + c.host.size(), c.behind));
      }
      TEMPER_RETURN_IF_ERROR(stream.Synchronize());
      const auto intact = [](const std::vector<std::byte>& bytes) {
        return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kGuardByte; });
      };
      EXPECT_TRUE(intact(before)) << "written before the first operand of " << ToString(spec_.op);
      for (size_t i = 0; i < copies.size(); ++i) {
        EXPECT_TRUE(intact(copies[i].behind)) << "written behind operand " << i << " of " << ToString(spec_.op);
      }
      return OkStatus();
    }

   private:
    // No kernel may write the bytes between operands.
    static constexpr size_t kGuard = 256, kAlignment = 256;
    static constexpr std::byte kGuardByte{0x5A};
    struct Copy {
      std::span<std::byte> host;
      std::byte* device;
      std::vector<std::byte> behind;
    };
    OnDevice& table_;
    const KernelSpec spec_;
    const std::unique_ptr<Kernel> kernel_;
  };

  const std::unique_ptr<Device> owned_;
  Device& device_;
  const std::span<std::byte> memory_;
};

inline constexpr Bytes kTestMemory = MiB(256);

// Whether tests that find no GPU are to fail: TEMPER_TEST_DEVICE=gpu.
inline bool IsGpuAskedFor() {
  const char* const device = std::getenv("TEMPER_TEST_DEVICE");
  return device != nullptr && std::string_view(device) == "gpu";
}

// Pairs of a table and one that must give the same bits.
struct GpuTables {
  std::unique_ptr<KernelTable> table, again;
};
inline std::vector<GpuTables> GpusUnderTest() {
  std::vector<GpuTables> tables;
#ifdef TEMPER_GPU_EMULATED
  std::vector<simt::Machine> machines = {{.warp_size = 64}};
#ifndef TEMPER_PTX_TESTS  // which run kernels on warps of 32
  machines.push_back({.warp_size = 32});
#endif
  for (simt::Machine machine : machines) {
    auto table = MakeEmulatedGpuKernels(machine);
    machine.order = 7;  // the same bits in whatever order threads run
    tables.push_back({std::move(table), MakeEmulatedGpuKernels(machine)});
  }
#else
  static const auto device = OpenGpu(0);
  if (!device.ok() && IsGpuAskedFor()) ADD_FAILURE() << device.status().message();
  if (device.ok()) {
    static const auto memory = (*device)->Allocate(kTestMemory);
    TEMPER_CHECK(memory.ok()) << memory.status().message();
    const auto table = [] { return std::make_unique<OnDevice>(**device, *memory); };
    tables.push_back({table(), table()});  // run to run
  }
#endif
  return tables;
}

// Runs a twin's operands on each: check(outputs, name); the same bits in any order of threads.
template <class Check>
void OnGpus(const TwinRun& run, const std::string& what, const Check& check) {
  for (const GpuTables& gpu : GpusUnderTest()) {
    const TestTensors got = RunKernel(run, *gpu.table, /*fast=*/true, 1);
    check(got, what + " on " + gpu.table->name());
    const TestTensors again = RunKernel(run, *gpu.again, /*fast=*/true, 1);
    for (size_t o = 0; o < got.size(); ++o) EXPECT_TRUE(again[o].SameBits(got[o])) << what << " output " << o;
  }
}

// A device of its own, for cases that end in an error: a device's errors stick. nullptr if there is none.
inline std::unique_ptr<KernelTable> GpuToSpoil() {
#ifdef TEMPER_GPU_EMULATED
  return MakeEmulatedGpuKernels({});
#else
  auto device = OpenGpu(0);
  if (!device.ok()) return nullptr;
  const auto memory = (*device)->Allocate(MiB(4));
  TEMPER_CHECK(memory.ok()) << memory.status().message();
  return std::make_unique<OnDevice>(std::move(*device), *memory);
#endif
}

}  // namespace temper
