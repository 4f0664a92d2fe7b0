// grouped_linear and its gradients: a product for the rows of each expert that has some, one after the other, by the
// whole team. A quantised stack is dequantised where it is packed, the matrices of experts that have rows alone. Sums
// of a row's product go through k in blocks that do not depend on the number of rows.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/products/gemm.h"
#include "graph/named_ops.h"
#include "graph/ops/routed_rows.h"

namespace temper {
namespace {

class GroupedLinearKernel final : public Kernel {
 public:
  GroupedLinearKernel(const KernelSpec& spec, const GemmShape& shape, int64_t experts, Isa isa)
      : shape_(shape),
        experts_(experts),
        first_(spec.attributes.IntOr("begin", 0)),
        whole_(spec.attributes.IntOr("whole", experts)),
        rows_(spec.inputs[0].shape[0]),
        threads_(spec.threads),
        of_weight_(spec.op == Op::kGroupedLinearDw),
        acc_(spec.attributes.Flag("acc")),
        in_bytes_(SizeOf(shape.dtype)),
        out_bytes_(SizeOf(shape.out_dtype)) {
    int64_t& rows = of_weight_ ? shape_.k : shape_.m;
    const int64_t most_rows = rows;
    for (const int64_t at_most : kRowsOfPlans) {
      if (at_most >= most_rows) break;
      rows = at_most;
      plans_.push_back({at_most, Gemm(shape_, spec.threads, isa)});
    }
    rows = most_rows;
    plans_.push_back({most_rows, Gemm(shape_, spec.threads, isa)});
    for (const Plan& plan : plans_) {
      TEMPER_CHECK(plan.product.workspace() + FirstRows() <= spec.workspace)
          << ToString(spec.op) << " " << spec.inputs[0].ToString() << " by " << spec.inputs[1].ToString() << " needs "
          << (plan.product.workspace() + FirstRows()).v << " bytes, its rule gives " << spec.workspace.v;
    }
    operands_.a_stride = spec.inputs[0].shape[1];
    const TensorType& b = spec.inputs[1];
    const Shape& w = b.shape;
    operands_.b_stride = b.packed()            ? PackedPanels(b.layout, w.rows(), w.columns()).panel_bytes()  // of all
                         : b.dtype.quantised() ? b.dtype.RowBytes(w.columns())
                                               : w.columns();
    // Rows of a packed matrix are lines of panels, or pairs within each.
    matrix_bytes_ = of_weight_                                ? 0
                    : b.layout == ElementLayout::kColumnPairs ? w[1] / kPanelLines * operands_.b_stride
                    : b.layout == ElementLayout::kRowPairs    ? w[1] * kPanelLines * in_bytes_
                                                              : w[1] * b.dtype.RowBytes(w[2]);
    operands_.b_format = spec.inputs[1].dtype;
    operands_.b_columns = w.columns();
    TileOutput& out = operands_.output;
    out.out_dtype = out.acc_dtype = spec.outputs[0].dtype;
    out.out_stride = out.acc_stride = shape.n;
    out.scale = static_cast<float>(spec.attributes.DoubleOr("scale", 1.0));
  }

  Status Run(const KernelArgs& args) override {
    auto* const first_E1 = reinterpret_cast<int32_t*>(args.workspace);
    TEMPER_RETURN_IF_ERROR(FindExpertRows(In<int32_t>(args, 2), rows_, whole_, plans_.back().most_rows, first_E1));
    const int32_t* const own_E1 = first_E1 + first_;
    RunTeam(threads_, [&](TeamMember self) {
      if (!of_weight_) {
        ClearRows(args, 0, own_E1[0], self);
        ClearRows(args, own_E1[experts_], rows_, self);
      }
      for (int64_t e = 0; e < experts_; ++e) RunExpert(args, e, own_E1[e], own_E1[e + 1], self);
    });
    return OkStatus();
  }

 private:
  Bytes FirstRows() const { return AlignUp(Bytes{(whole_ + 1) * 4}, 64); }

  // Rows [begin, end) are those of other ranks' experts.
  void ClearRows(const KernelArgs& args, int64_t begin, int64_t end, TeamMember self) const {
    TileOutput rows;
    rows.out = args.outputs[0] + begin * shape_.n * out_bytes_;
    if (begin < end) KeepGradient(rows, (end - begin) * shape_.n * out_bytes_, self);
  }

  // Of rows [begin, end).
  void RunExpert(const KernelArgs& args, int64_t e, int64_t begin, int64_t end, TeamMember self) const {
    if (begin == end && !of_weight_) return;
    GemmOperands operands = operands_;
    Gemm::Extent extent{shape_.m, shape_.n, shape_.k};
    const int64_t gradient = shape_.m * shape_.n;  // elements of an expert's
    const int64_t out_at = of_weight_ ? e * gradient : begin * shape_.n;
    operands.a = args.inputs[0] + begin * operands.a_stride * in_bytes_;
    operands.b = args.inputs[1] + (of_weight_ ? begin * operands.b_stride * in_bytes_ : e * matrix_bytes_);
    operands.output.out = args.outputs[0] + out_at * out_bytes_;
    operands.output.acc = acc_ ? args.inputs[3] + out_at * out_bytes_ : nullptr;
    (of_weight_ ? extent.k : extent.m) = end - begin;
    if (begin == end) return KeepGradient(operands.output, gradient * out_bytes_, self);
    const auto plan =
        std::find_if(plans_.begin(), plans_.end(), [&](const Plan& p) { return p.most_rows >= end - begin; });
    plan->product.RunInTeam(operands, extent, args.workspace + FirstRows().v, self);
  }

  // The gradient of an expert without rows: what there was, or zeros where there is none.
  static void KeepGradient(const TileOutput& output, int64_t bytes, TeamMember self) {
    constexpr int64_t kLine = 64;  // members do not share cache lines
    const int64_t lines = (bytes + kLine - 1) / kLine;
    const int64_t begin = lines * self.index / self.size * kLine;
    const int64_t end = std::min(bytes, lines * (self.index + 1) / self.size * kLine);
    auto* const out = static_cast<std::byte*>(output.out);
    if (output.acc == nullptr) {
      std::memset(out + begin, 0, static_cast<size_t>(end - begin));
    } else if (output.acc != output.out) {
      std::memcpy(out + begin, static_cast<const std::byte*>(output.acc) + begin, static_cast<size_t>(end - begin));
    }
  }

  struct Plan {
    int64_t most_rows;
    Gemm product;
  };

  GemmShape shape_;
  std::vector<Plan> plans_;  // by most_rows
  const int64_t experts_;    // of this rank, from `first_` on of the whole
  const int64_t first_, whole_, rows_;
  const int threads_;
  const bool of_weight_, acc_;
  const int64_t in_bytes_, out_bytes_;
  int64_t matrix_bytes_ = 0;  // from one expert's to the next
  GemmOperands operands_;
};

}  // namespace

std::unique_ptr<Kernel> MakeGroupedLinear(const KernelSpec& spec, Isa isa) {
  const DType dtype = spec.inputs[0].dtype.compute();
  if (!AllFast({spec.inputs[0], spec.inputs[1].computed()})) return nullptr;
  if (spec.inputs[1].packed() && !TilesOf(dtype, isa).pair_panels) return nullptr;
  const bool forward = spec.op == Op::kGroupedLinear, of_weight = spec.op == Op::kGroupedLinearDw;
  const Shape &x = spec.inputs[0].shape, &w = spec.inputs[1].shape, &out = spec.outputs[0].shape;
  const int64_t most_rows = x[0] / spec.attributes.Int("active");  // an expert has a row per token at most
  GemmShape shape{.m = most_rows,
                  .n = out[1],
                  .k = x[1],
                  .dtype = dtype,
                  .out_dtype = spec.outputs[0].dtype.compute(),
                  .a_k_contiguous = !of_weight,
                  .b_k_contiguous = forward,
                  .b_packed = spec.inputs[1].packed()};
  if (of_weight) shape.m = out[1], shape.n = out[2], shape.k = most_rows;
  return std::make_unique<GroupedLinearKernel>(spec, shape, of_weight ? out[0] : w[0], isa);
}

}  // namespace temper
