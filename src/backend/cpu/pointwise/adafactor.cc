// adafactor: three passes over the gradient, for its squares, for the size of the step and for the step, of which the
// last also reads and writes the weight: 20 bytes per element plus the weight's in compute precision.
#include "backend/cpu/pointwise/adafactor_step.h"

#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"
#include "graph/ops/adafactor_workspace.h"

namespace temper {
namespace {

template <class W>
class AdafactorKernel final : public Kernel {
 public:
  AdafactorKernel(const KernelSpec& spec, Isa isa)
      : attributes_(spec.attributes),
        of_(spec.inputs[0].shape),
        threads_(spec.threads),
        vectors_(VectorsFor<float>(isa)),
        step_(VectorsFor<W>(isa).adafactor_step),
        factored_(attributes_.Flag("factored")) {
    TEMPER_CHECK(of_.total <= spec.workspace) << "adafactor of " << spec.inputs[0].ToString();
  }

  Status Run(const KernelArgs& args) override {
    const int64_t n = of_.matrices * of_.rows * of_.columns;
    if (n == 0) return OkStatus();
    const int first_other = factored_ ? 4 : 3;
    const AdafactorScalars s =
        PrepareAdafactor(attributes_, In<float>(args, first_other), In<double>(args, first_other + 1));
    std::byte* const memory = args.workspace;
    auto *const of_rows = reinterpret_cast<float*>(memory + of_.of_rows.v), *const of_columns =
                                                                                reinterpret_cast<float*>(
                                                                                    memory + of_.of_columns.v);
    if (factored_) {
      FindFactors(args, s, of_rows, of_columns);
    } else {
      FindFactorsOfVector(args, s, of_rows, of_columns);
    }
    const float *const master = In<float>(args, 0), *const g = In<float>(args, 1);
    auto* const squares = reinterpret_cast<double*>(memory + of_.squares.v);
    ForBlocks([=, this, &s](int64_t block, int64_t matrix, int64_t row, int64_t end) {
      double of_u = 0, of_w = 0;
      for (; row < end; ++row) {
        const int64_t at = row * of_.columns;
        of_u +=
            vectors_.adafactor_squares_of_step(of_rows[row], of_columns + matrix * of_.columns, g + at, of_.columns);
        if (s.scales) of_w += vectors_.sum_squares(master + at, of_.columns);
      }
      squares[2 * block] = of_u;
      squares[2 * block + 1] = of_w;
    });
    double of_u = 0, of_w = 0;
    for (int64_t block = 0; block < of_.blocks(); ++block) {
      of_u += squares[2 * block];
      of_w += squares[2 * block + 1];
    }
    const AdafactorFactors factors = AdafactorFactorsOf(s, n, of_u, of_w);
    float* const new_master = Out<float>(args, 0);
    W* const weight = attributes_.Flag("weight") ? Out<W>(args, factored_ ? 3 : 2) : nullptr;
    const auto keep = static_cast<float>(factors.keep), minus_step = static_cast<float>(factors.minus_step);
    ForBlocks([=, this](int64_t, int64_t matrix, int64_t row, int64_t end) {
      for (; row < end; ++row) {
        const int64_t at = row * of_.columns;
        step_(keep, minus_step, of_rows[row], of_columns + matrix * of_.columns, master + at, g + at, new_master + at,
              weight == nullptr ? nullptr : weight + at, of_.columns);
      }
    });
    return OkStatus();
  }

 private:
  // Calls body(block, matrix, first row, end of rows), rows counted over all matrices.
  template <class Body>
  void ForBlocks(const Body& body) const {
    ParallelFor(threads_, of_.blocks(), [&](int64_t block) {
      const int64_t matrix = block / of_.blocks_per_matrix;
      const int64_t row = block % of_.blocks_per_matrix * of_.rows_per_block;
      const int64_t end = std::min(row + of_.rows_per_block, of_.rows), before = matrix * of_.rows;
      body(block, matrix, before + row, before + end);
    });
  }

  void FindFactors(const KernelArgs& args, const AdafactorScalars& s, float* of_rows, float* of_columns) const {
    const float *const g = In<float>(args, 1), *const row_means = In<float>(args, 2),
                       *const column_means = In<float>(args, 3);
    float *const new_rows = Out<float>(args, 1), *const new_columns = Out<float>(args, 2);
    auto* const sums = reinterpret_cast<float*>(args.workspace + of_.sums.v);
    const double clip = double{s.clip} * double{s.clip};
    const double of_row = clip / static_cast<double>(of_.columns), of_column = clip / static_cast<double>(of_.rows);
    ForBlocks([=, this, &s](int64_t block, int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const double square = vectors_.sum_squares(g + row * of_.columns, of_.columns);
        new_rows[row] = s.Next(row_means[row], of_row * square);
      }
      vectors_.adafactor_squares(g + begin * of_.columns, end - begin, of_.columns, sums + block * of_.columns);
    });
    ParallelFor(threads_, of_.matrices, [=, this, &s](int64_t matrix) {
      double sum = 0;
      const int64_t begin = matrix * of_.rows, end = begin + of_.rows;
      for (int64_t row = begin; row < end; ++row) sum += double{new_rows[row]};
      const double mean = sum / static_cast<double>(of_.rows);
      for (int64_t row = begin; row < end; ++row) {
        of_rows[row] = static_cast<float>(double{s.clip} * std::sqrt(mean / double{new_rows[row]}));
      }
    });
    const int64_t per_matrix = (of_.columns + kElementsPerRange - 1) / kElementsPerRange;
    ParallelFor(threads_, of_.matrices * per_matrix, [=, this, &s](int64_t range) {
      const int64_t matrix = range / per_matrix, begin = range % per_matrix * kElementsPerRange;
      const float* const of_blocks = sums + matrix * of_.blocks_per_matrix * of_.columns;
      for (int64_t c = begin; c < std::min(begin + kElementsPerRange, of_.columns); ++c) {
        double sum = 0;
        for (int64_t block = 0; block < of_.blocks_per_matrix; ++block) {
          sum += double{of_blocks[block * of_.columns + c]};
        }
        const int64_t at = matrix * of_.columns + c;
        new_columns[at] = s.Next(column_means[at], of_column * sum);
        of_columns[at] = 1 / std::sqrt(new_columns[at]);
      }
    });
  }

  // A row whose columns keep what the elements do.
  void FindFactorsOfVector(const KernelArgs& args, const AdafactorScalars& s, float* of_rows, float* of_columns) const {
    const float *const g = In<float>(args, 1), *const v = In<float>(args, 2);
    float* const new_v = Out<float>(args, 1);
    of_rows[0] = s.clip;
    ParallelBlocks(threads_, of_.columns, kElementsPerRange, [=, &s](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const double x = double{s.clip * g[i]};
        new_v[i] = s.Next(v[i], x * x);
        of_columns[i] = 1 / std::sqrt(new_v[i]);
      }
    });
  }

  const Attributes attributes_;
  const AdafactorWorkspace of_;
  const int threads_;
  const VectorKernelsOf<float>& vectors_;
  void (*const step_)(float keep, float minus_step, float of_row, const float* of_columns, const float* master,
                      const float* g, float* new_master, W* weight, int64_t n);
  const bool factored_;
};

}  // namespace

std::unique_ptr<Kernel> MakeAdafactor(const KernelSpec& spec, Isa isa) {
  const DType weight = spec.attributes.Flag("weight") ? spec.outputs.back().dtype.dtype() : DType::kF32;
  if (weight != DType::kF32 && weight != DType::kBF16) return nullptr;
  return DispatchFloat(
      weight, [&]<class W>() -> std::unique_ptr<Kernel> { return std::make_unique<AdafactorKernel<W>>(spec, isa); });
}

}  // namespace temper
