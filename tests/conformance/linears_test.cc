// linears and its two gradients against their scalar twins, and against products one by one.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::linears_test {
namespace {

struct Products {
  int64_t T, I;
  std::vector<int64_t> rows;  // of each weight
};

// Tails in every dim, ranks that differ, more than one block of k; together thin, and not.
const Products kProducts[] = {{1, 1, {1, 1}},          {57, 130, {8, 8, 8}},  {100, 64, {16, 16}},
                              {70, 1101, {16, 5, 33}}, {90, 70, {40, 3, 60}}, {700, 33, {16, 16, 16}},
                              {31, 2100, {7, 2}}};

Tensor Absolute(const Tensor& t) {
  Tensor a = t;
  for (int64_t i = 0; i < t.type().shape.elements(); ++i) a.Set(i, std::fabs(t[i]));
  return a;
}

struct Case {
  OpCase op_case;
  int64_t terms;  // of an element's sum
};

Case MakeCase(Op op, const Products& p, DType dtype, bool acc) {
  Case c{.op_case = {.op = op, .attributes = {{"third", int64_t{p.rows.size() == 3}}}}};
  std::vector<Tensor>& in = c.op_case.inputs;
  uint64_t seed = 1;
  const auto add = [&](DType type, int64_t rows, int64_t columns) {
    in.push_back(Tensor::Random({type, {rows, columns}}, seed++));
  };
  if (op == Op::kLinears) {
    add(dtype, p.T, p.I);
    for (const int64_t O : p.rows) add(dtype, O, p.I);
    c.terms = p.I;
    return c;
  }
  c.op_case.attributes.Set("acc", int64_t{acc});
  for (const int64_t O : p.rows) add(dtype, p.T, O);
  if (op == Op::kLinearsDx) {
    for (const int64_t O : p.rows) {
      add(dtype, O, p.I);
      c.terms += O;
    }
    if (acc) add(dtype, p.T, p.I);
  } else {
    add(dtype, p.T, p.I);
    for (const int64_t O : p.rows) {
      if (acc) add(DType::kF32, O, p.I);
    }
    c.terms = p.T;
  }
  return c;
}

// A sum of `terms` products in f32 is off by at most terms + 4 roundings of the sum of magnitudes. d_x is one sum over
// all weights' rows, on every backend: it is rounded to its type once.
TEST(Linears, AndTheirGradientsConform) {
  for (const DType dtype : kCompute) {
    for (const Op op : {Op::kLinears, Op::kLinearsDx, Op::kLinearsDw}) {
      for (const Products& p : kProducts) {
        for (const bool acc : {false, true}) {
          if (op == Op::kLinears && acc) continue;
          const Case c = MakeCase(op, p, dtype, acc);
          OpCase magnitudes = c.op_case;
          for (Tensor& t : magnitudes.inputs) t = Absolute(t);
          const std::vector<Tensor> size = RunOn(ReferenceKernels(), magnitudes, 1);
          SCOPED_TRACE(std::string(ToString(op)) + " T=" + std::to_string(p.T) + " acc " + std::to_string(acc));
          ExpectConforms(c.op_case, [&](int k, int64_t i) {
            return 1.01 * static_cast<double>(c.terms + 4) * kU * size[static_cast<size_t>(k)][i] + kTiny;
          });
        }
      }
    }
  }
}

// Joining products changes no bit of x A^T: each element's sum runs as it would alone.
TEST(Linears, HaveTheBitsOfProductsOneByOne) {
  for (const DType dtype : kCompute) {
    for (const Isa isa : RunnableIsas()) {
      const auto kernels = MakeCpuKernels({.threads = 2, .isa = isa});
      for (const Products& p : kProducts) {
        const OpCase joined = MakeCase(Op::kLinears, p, dtype, false).op_case;
        const std::vector<Tensor> got = RunOn(*kernels, joined, 2);
        for (size_t n = 0; n < p.rows.size(); ++n) {
          const OpCase alone{.op = Op::kLinear, .inputs = {joined.inputs[0], joined.inputs[1 + n]}};
          EXPECT_TRUE(RunOn(*kernels, alone, 2)[0].SameBytes(got[n])) << ToString(isa) << " T=" << p.T << " " << n;
        }
      }
    }
  }
}

// Outputs may overwrite what is added to them.
TEST(Linears, AddToGradientsInPlace) {
  const auto kernels = MakeCpuKernels({.threads = 2});
  const OpCase c = MakeCase(Op::kLinearsDw, {57, 130, {8, 5, 9}}, DType::kBF16, true).op_case;
  const std::vector<Tensor> want = RunOn(*kernels, c, 2);
  std::vector<Tensor> inputs = c.inputs, outputs = {inputs[4], inputs[5], inputs[6]};
  std::vector<std::byte*> in, out;
  for (Tensor& t : inputs) in.push_back(t.data());
  for (Tensor& t : outputs) out.push_back(t.data());
  const KernelSpec spec = SpecOf(c, 2);
  Tensor workspace({DType::kF32, {(spec.workspace.v + 3) / 4}});
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int overwritten = OverwritableInput(c.op, c.attributes, static_cast<int>(in.size()), static_cast<int>(i));
    ASSERT_EQ(overwritten, 4 + static_cast<int>(i));
    in[static_cast<size_t>(overwritten)] = out[i];
  }
  auto kernel = kernels->Make(spec);
  ASSERT_TRUE(kernel.ok());
  ASSERT_TRUE((*kernel)->Run({in.data(), out.data(), workspace.data()}).ok());
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_TRUE(outputs[i].SameBytes(want[i])) << i;
}

}  // namespace
}  // namespace temper::linears_test
