// For tests: what gemm_tile_amx-inl.h and attention_tile_amx-inl.h compute where the processor has no AMX.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "backend/cpu/attention/attention_tile.h"
#include "backend/cpu/products/gemm_tile.h"
#include "device/kernel.h"

namespace temper {

// REQUIRES: Isa::kAvx512Bf16Dot is among RunnableIsas().
extern const TileKernels kTilesBF16AmxEmulated;
extern const AttentionKernels kAttentionBF16AmxEmulated;

// The kernels that `make` makes with one of these.
class EmulatedAmx final : public KernelTable {
 public:
  using Maker = std::function<std::unique_ptr<Kernel>(const KernelSpec&)>;
  explicit EmulatedAmx(Maker make) : make_(std::move(make)) {}
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override { return make_(spec); }

 private:
  const std::string name_ = "an emulated amx_bf16";
  const Maker make_;
};

// A thread's registers. All kernels of a thread use the same ones, as on a processor.
struct EmulatedRegisters {
  bool configured;
  int row_bytes[8], rows[8];
  alignas(64) unsigned char data[8][16][64];
};
extern __thread EmulatedRegisters emulated_registers;  // thread_local would add a function that the linker merges

// Threads that have configured their tile registers and not released them. Read by __atomic_load_n, or when no product
// runs.
extern int threads_with_emulated_tiles;

}  // namespace temper
