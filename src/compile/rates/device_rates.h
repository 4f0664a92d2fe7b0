// DeviceRates: the speed of one device, as data, and the seconds of an instruction computed from it. A cluster file
// states it (cluster/cluster.h) or `temper doctor --calibrate` measures it; passes that choose by cost use it.
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

// The class of an op on given operands: its OpKind (graph/rule.h), with a separate class for products of narrow
// operands. Stated rates, unlike measured ones, are one per class.
enum class OpClass : uint8_t {
  kProduct,     // matrix products, the loss among them
  kNarrow,      // products with a side so short (LoRA's r) that they move more than they compute
  kAttention,   // forward and backward
  kMemory,      // everything else
  kCollective,  // involves other devices: cluster/cluster.h
};
OpClass ClassOf(Op op, const Types& inputs);

// Products with a side up to this are narrow: every kernel's register tile is at least as wide, so arithmetic is
// wasted, and operands are reused so little that memory bounds the time.
inline constexpr int64_t kNarrowSide = 64;

struct OpRate {
  // Bandwidth by the bytes of all operands, ascending: a kernel that works within a cache runs faster. Between two
  // points the logarithms are interpolated; outside, the nearest point is used.
  struct Point {
    Bytes bytes;
    double bytes_per_second = 0;
  };
  Seconds launch;
  double flops_per_second = 0;  // 0: the time of arithmetic is not modelled
  std::vector<Point> bandwidth;

  double BytesPerSecond(Bytes bytes) const;
  bool known() const { return !bandwidth.empty(); }
};

// Where the time of an instruction goes.
struct OpSeconds {
  Seconds launch, arithmetic, memory;
  Seconds total() const { return launch + arithmetic + memory; }
};

// How a device splits a product: tiles of the result, assigned to units in waves. A product that does not fill the last
// wave leaves units idle. units == 0: idle units are not modelled (measured rates include them).
struct TileShape {
  int64_t rows = 1, columns = 1, units = 0;
  // If there are fewer tiles than units, tiles are split along the inner dim down to this length.
  int64_t shortest_inner = 512;
};

class DeviceRates {
 public:
  // Products have two rates: OpClass::kProduct and kNarrow; other ops ignore the class.
  void SetOp(Op op, OpClass op_class, DType dtype, OpRate rate);
  void SetClass(OpClass op_class, DType dtype, OpRate rate);
  // Gives each class without a rate that of the measured op that is most like its others: a linear product, attention,
  // a sum.
  void FillClasses();
  void set_tile(const TileShape& tile) { tile_ = tile; }
  // The fraction of a row's pairs that attention computes, relative
  // to a row of one document: less than 1 if rows hold several.
  void set_attended(double part) { attended_ = part; }
  const TileShape& tile() const { return tile_; }

  // The rate of SetOp, or nullptr. Only the classes of the op have one.
  const OpRate* Own(Op op, OpClass op_class, DType dtype) const;

  // The rate of SetClass; not known() if there is none.
  const OpRate& OfClass(OpClass op_class, DType dtype) const;

  // The rate of `op` on operands of `dtype`: its own, else that of the op it is measured as, else its class's. If there
  // is none, it is not known().
  const OpRate& Of(Op op, OpClass op_class, DType dtype) const;

  // REQUIRES: not a collective, and operands that fit the op's rule.
  OpSeconds SecondsOf(Op op, const Types& inputs, const Types& outputs, const Attributes& attributes) const;

 private:
  // f32, bf16; other types use the rate of f32.
  static size_t Column(DType dtype) { return dtype == DType::kBF16 ? 1 : 0; }
  std::vector<std::array<std::array<OpRate, 2>, 2>> ops_{static_cast<size_t>(NumOps())};  // [op][narrow][dtype]
  std::array<std::array<OpRate, 2>, 4> classes_;                                          // [class][dtype]
  TileShape tile_;
  double attended_ = 1;
};

// Defaults for a machine without measurements: a few cores of a
// current server. Good enough to decide which values are worth moving.
DeviceRates TypicalHost();

// GPUs spend 14 flops per pair and element of attention's backward, because they make scores twice; the op's cost rule
// counts the 10 that it needs. So its rate is this share of the flops that kernels do in a second.
inline constexpr double kNeededOfAttentionBackward = 10.0 / 14.0;

// Defaults for a GPU and its link to the host: an A100's data sheet, at three fifths of the peak in products, four
// fifths of the bandwidths, and attention as in its preset (examples/clusters). Newer GPUs have more of everything, in
// similar proportions.
DeviceRates TypicalGpu();
inline constexpr double kTypicalGpuLink = 25e9;  // PCIe 4.0 with 16 lanes: 31.5 GB/s

// Arithmetic including that of idle units in the last wave. At least `flops`.
Flops WithIdleUnits(const TileShape& tile, const ProductDims& dims, Flops flops);

}  // namespace temper
