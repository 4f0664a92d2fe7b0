// For tests of linear_cross_entropy with a vocabulary shared by ranks: ranks as threads, and their joint results.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/cpu/products/loss_twin.h"
#include "backend/cpu/thread_exchange.h"
#include "graph/named_ops.h"

namespace temper {

// Rows [begin, begin + count) of a matrix, or these elements of a vector.
inline TestTensor RowsOf(const TestTensor& t, int64_t begin, int64_t count) {
  const bool matrix = t.type().shape.rank() == 2;
  const int64_t columns = matrix ? t.type().shape[1] : 1;
  TestTensor rows({t.type().dtype, matrix ? Shape{count, columns} : Shape{count}});
  for (int64_t i = 0; i < count * columns; ++i) rows.Set(i, t.Get(begin * columns + i));
  return rows;
}

// The outputs of every rank: rank r has the words from cuts[r] to cuts[r + 1] and the kernels of table_of(r, group);
// fast(r): they are not the scalar twins.
inline std::vector<TestTensors> RunShared(
    const LossRun& whole, const std::vector<int64_t>& cuts,
    const std::function<std::unique_ptr<KernelTable>(int rank, ExchangeGroup& group)>& table_of,
    const std::function<bool(int rank)>& fast, int threads, bool in_place, Op op = Op::kLinearCrossEntropy) {
  const int ranks = static_cast<int>(cuts.size()) - 1;
  ExchangeGroup group(ranks);
  std::vector<TestTensors> outputs(static_cast<size_t>(ranks));
  std::vector<std::thread> members;
  for (int rank = 0; rank < ranks; ++rank) {
    members.emplace_back([&, rank] {
      const auto r = static_cast<size_t>(rank);
      const int64_t begin = cuts[r], count = cuts[r + 1] - begin;
      TestTensors inputs;
      Attributes a = whole.attributes;
      if (op == Op::kTokenLogprob) a = LogprobRun(whole).attributes;
      const LossOperands operands(a);
      for (int i = 0; i < operands.num_inputs; ++i) {
        const bool by_words = i == operands.bias || i == operands.acc_bias ||
                              std::any_of(operands.pairs.begin(), operands.pairs.end(),
                                          [i](const auto& pair) { return i == pair.w || i == pair.acc; });
        const TestTensor& input = whole.inputs[static_cast<size_t>(i)];
        inputs.push_back(by_words ? RowsOf(input, begin, count) : input.Copy());
      }
      a.Set("axes", std::string("tp"));
      a.Set("ranks", int64_t{ranks});
      a.Set("begin", begin);
      a.Set("whole", cuts.back());
      const auto table = table_of(rank, group);
      const TwinRun run{op, a, &inputs, in_place ? whole.in_place : decltype(whole.in_place){}};
      outputs[r] = RunKernel(run, *table, fast(rank), threads);
    });
  }
  for (std::thread& m : members) m.join();
  return outputs;
}

// The ranks' joint result: the loss and hits of each (all the same), d_x summed, d_w one above the other.
inline void ExpectTogether(const LossRun& whole, const TestTensors& want, const std::vector<TestTensors>& ranks,
                           const std::string& what) {
  for (size_t o = 0; o < want.size(); ++o) {
    const std::string output = what + " output " + std::to_string(o);
    const DType dtype = want[o].type().dtype;
    const int64_t n = want[o].type().shape.elements();
    std::vector<double> got;
    if (whole.terms_of[o] != nullptr) {
      got.resize(static_cast<size_t>(n), 0);
      for (const TestTensors& rank : ranks) {
        for (int64_t i = 0; i < n; ++i) got[static_cast<size_t>(i)] += rank[o].Get(i);
      }
    } else {
      for (const TestTensors& rank : ranks) {
        if (whole.is_of_tokens(o)) {
          EXPECT_TRUE(rank[o].SameBits(ranks[0][o])) << output << ": ranks differ";
          if (&rank != &ranks[0]) continue;
        }
        for (int64_t i = 0; i < rank[o].type().shape.elements(); ++i) got.push_back(rank[o].Get(i));
      }
    }
    ASSERT_EQ(static_cast<int64_t>(got.size()), n) << output;
    for (int64_t i = 0; i < n; ++i) {
      // Every rank rounds its term.
      const double terms = whole.terms_of[o] == nullptr ? 0 : (*whole.terms_of[o])[static_cast<size_t>(i)];
      const double allowed = 2.02 * UnitRoundoff(dtype) * std::fabs(want[o].Get(i)) + whole.Bound(o, i) +
                             1.01 * UnitRoundoff(dtype) * terms;
      ASSERT_LE(std::fabs(got[static_cast<size_t>(i)] - want[o].Get(i)), allowed)
          << output << " element " << i << " is " << got[static_cast<size_t>(i)] << ", should be " << want[o].Get(i);
    }
  }
}

// Uneven cuts of V words; one part may be empty, as the last of very few words is.
inline std::vector<std::vector<int64_t>> CutsOf(int64_t V) {
  return {{0, V / 2, V}, {0, V - V / 5, V}, {0, V / 7, V / 2 + 1, V}, {0, 0, V}, {0, V / 4, V / 2, V - V / 4, V}};
}

// Some targets are the first and the last words of parts.
inline void AimAtEdges(const std::vector<int64_t>& cuts, TestTensor* target_T) {
  const int64_t T = target_T->type().shape[0];
  int64_t t = 0;
  const auto aim = [&](int64_t word) {
    while (t < T && target_T->Get(t) < 0) ++t;
    if (t < T && word >= 0 && word < cuts.back()) target_T->Set(t++, static_cast<double>(word));
  };
  for (const int64_t cut : cuts) {
    aim(cut - 1);
    aim(cut);
  }
}

}  // namespace temper
