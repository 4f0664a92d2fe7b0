// DeviceRates: what one device does per second, as data, and from it the seconds of an instruction. A cluster file
// states it (plan/cluster.h), `temper doctor --calibrate` measures it; passes that choose by cost ask it.
//
//   seconds = launch + arithmetic / rate + operands / bandwidth
//
// The two terms are added, not compared: a kernel hides part of its loads behind its arithmetic, so the truth lies
// between their maximum and their sum, which is at most twice that. Measured rates are fitted in this form.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "graph/op.h"
#include "graph/rule.h"

namespace temper {

// What bounds an op on these operands: its OpKind (graph/rule.h), where products of narrow operands are a class of
// their own. A rate that is stated, not measured, is one per class.
enum class OpClass : uint8_t {
  kProduct,     // matrix products, the loss among them
  kNarrow,      // products with a side so short (LoRA's r) that they move more than they compute
  kAttention,   // forward and backward
  kMemory,      // everything else
  kCollective,  // not a device's alone: plan/cluster.h
};
OpClass ClassOf(Op op, const Types& inputs);

// Products with a side up to this are narrow: a register tile of every kernel is at least as wide, so that arithmetic
// is wasted, and operands are used so seldom that memory decides.
inline constexpr int64_t kNarrowSide = 64;

struct OpRate {
  // A kernel that works within a cache runs faster: bandwidth by the bytes of all operands, ascending. Between two
  // points the logarithms are interpolated; beyond them the nearest counts.
  struct Point {
    Bytes bytes;
    double bytes_per_second = 0;
  };
  Seconds launch;
  double flops_per_second = 0;  // 0: arithmetic takes no time of its own
  std::vector<Point> bandwidth;

  double BytesPerSecond(Bytes bytes) const;
  bool known() const { return !bandwidth.empty(); }
};

// Where the time of an instruction goes.
struct OpSeconds {
  Seconds launch, arithmetic, memory;
  Seconds total() const { return launch + arithmetic + memory; }
};

// How a device cuts a product: tiles of the result, dealt to units in waves. A product that does not fill the last wave
// leaves units idle. units == 0: no such loss is modelled (measured rates have it in them).
struct TileShape {
  int64_t rows = 1, columns = 1, units = 0;
  // Tiles of too few results to fill the units are cut along the inner dim down to this.
  int64_t shortest_inner = 512;
};

class DeviceRates {
 public:
  // A product has two rates: OpClass::kProduct and kNarrow; other ops ignore the class.
  void SetOp(Op op, OpClass op_class, DType dtype, OpRate rate);
  void SetClass(OpClass op_class, DType dtype, OpRate rate);
  void set_tile(const TileShape& tile) { tile_ = tile; }
  // Of the pairs of a row that is one document, the part that attention computes: less where rows hold several.
  void set_attended(double part) { attended_ = part; }
  const TileShape& tile() const { return tile_; }

  // What SetOp said of it, or nullptr. A class that the op is not of has none.
  const OpRate* Own(Op op, OpClass op_class, DType dtype) const;

  // The rate of `op` on operands of `dtype`: its own, or that of the op it is measured as, or its class's. Not known():
  // nothing is said of it.
  const OpRate& Of(Op op, OpClass op_class, DType dtype) const;

  // REQUIRES: not a collective, and operands that fit the op's rule.
  OpSeconds SecondsOf(Op op, const Types& inputs, const Types& outputs, const Attributes& attributes) const;

 private:
  // f32, bf16; all that is neither is computed at the rate of f32.
  static size_t Column(DType dtype) { return dtype == DType::kBF16 ? 1 : 0; }
  std::array<std::array<std::array<OpRate, 2>, 2>, kNumOps> ops_;  // [op][narrow][dtype]
  std::array<std::array<OpRate, 2>, 4> classes_;                   // [class][dtype]
  TileShape tile_;
  double attended_ = 1;
};

// Of a machine of which nothing was measured: a few cores of a current server. Good enough to tell what is worth moving
// from what is not.
DeviceRates TypicalHost();

// The same of a GPU, and of its link to the host: an A100 by its data sheet, at three fifths of the products' peak and
// four fifths of the bandwidths'. Newer ones have more of all, in much the same proportions.
DeviceRates TypicalGpu();
inline constexpr double kTypicalGpuLink = 25e9;  // PCIe 4.0 with 16 lanes: 31.5 GB/s

// Arithmetic as units spend it: idle units in the last wave count. At least `flops`.
Flops WithIdleUnits(const TileShape& tile, const ProductDims& dims, Flops flops);

}  // namespace temper
