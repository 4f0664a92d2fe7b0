// A running block of a launch: its warps, one after the other, each until it waits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ptx_machine.h"
#include "ptx_program.h"
#include "ptx_shared_memory.h"
#include "ptx_warp.h"

namespace temper::ptx {

// Generic addresses of memory that is not global begin here; no global memory is allocated at such addresses.
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 56, kLocalWindow = uint64_t{2} << 56,
                          kModuleWindow = uint64_t{3} << 56, kWindow = uint64_t{0xFF} << 56;

class Block {
 public:
  // `parameters`: the kernel's, packed. All must outlive it.
  Block(const Program& program, const Kernel& kernel, const Module::Launch& launch,
        std::span<const std::byte> parameters, std::span<std::byte> globals, AddressSpace& memory);

  // Runs block (x, y, z) of the grid.
  Status Run(int x, int y, int z);

  // The rest is for instructions.
  const Program& program() const { return program_; }
  const Kernel& kernel() const { return kernel_; }
  std::span<const std::byte> parameters() const { return parameters_; }
  SharedMemory& shared() { return shared_; }
  // `bytes` of global memory (or the module's); nullptr unless they all belong to one allocation.
  std::byte* Global(uint64_t address, int64_t bytes);
  int threads() const { return threads_; }
  std::array<int, 3> dimensions() const { return launch_.block; }
  std::array<int, 3> grid() const { return launch_.grid; }
  std::array<int, 3> Thread(int index) const;
  Warp& warp(int i) { return *warps_[static_cast<size_t>(i)]; }

  // Thread `thread` of the block makes an error. Only the first error is reported.
  void Fail(int thread, const Instruction& instruction, const std::string& what);
  bool failed() const { return !fault_.empty(); }
  // `warp` has reached barrier `id` for `threads` threads, and waits there if its state says so.
  void Arrive(Warp& warp, const Instruction& instruction, int id, int threads);

  // The products that the warps of a warpgroup have issued: all four must issue the same.
  struct Product {
    int32_t line;
    uint64_t left, right;
  };
  std::vector<Product>& products(int warpgroup) { return products_[static_cast<size_t>(warpgroup)]; }

 private:
  Status Error() const;

  const Program& program_;
  const Kernel& kernel_;
  const Module::Launch& launch_;
  std::span<const std::byte> parameters_;
  std::span<std::byte> globals_;
  AddressSpace& memory_;
  SharedMemory shared_;
  int threads_ = 0;
  std::vector<std::unique_ptr<Warp>> warps_;
  std::vector<std::vector<Product>> products_;
  struct Barrier {
    int arrived = 0, threads = 0;
    std::vector<Warp*> waiting;
  };
  std::array<Barrier, 16> barriers_;
  std::array<int, 3> at_{};
  std::string fault_;
};

}  // namespace temper::ptx
