// embedding and its backward, rope, sum_rows.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/reference/reference.h"
#include "base/philox.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::table_and_sum_test {
namespace {

double Exact(int, int64_t) {
  return 0;
}

Tensor RandomRows(int64_t n, int64_t rows, uint64_t seed) {
  Tensor index({DType::kI32, {n}});
  for (int64_t i = 0; i < n; ++i) {
    // Low rows are frequent, like tokens: some occur many times, some never.
    const double u = UniformAt({.seed = seed}, i);
    index.Set(i, std::floor(u * u * u * static_cast<double>(rows)));
  }
  return index;
}

TEST(Embedding, CopiesTheRowsOfItsTokens) {
  for (DType dtype : kCompute) {
    for (auto [T, V, D] : {std::array<int64_t, 3>{1, 1, 1}, {5, 3, 7}, {300, 50, 65}, {129, 1000, 768}}) {
      const Tensor table = Tensor::Random({dtype, {V, D}}, 1);
      ExpectConforms({Op::kEmbedding, {table, RandomRows(T, V, 2)}, {{"offset", int64_t{0}}}}, Exact);
    }
    const Tensor positions = Tensor::Random({dtype, {10, 32}}, 3);
    ExpectConforms({Op::kEmbedding, {positions, Tensor::Ints({0, 1, 2, 7})}, {{"offset", int64_t{2}}}}, Exact);
  }
}

TEST(Embedding, RefusesRowsOutsideItsTable) {
  for (Isa isa : RunnableIsas()) {
    const auto kernels = MakeCpuKernels({.isa = isa});
    for (int32_t bad : {-1, 8, 10, 2147483647, -2147483647}) {
      Tensor table = Tensor::Random({DType::kF32, {10, 4}}, 1), y({DType::kF32, {3, 4}}),
             d_table({DType::kF32, {10, 4}});
      Tensor index = Tensor::Ints({0, 1, bad});
      const Attributes attributes{{"offset", int64_t{2}}, {"vocab", int64_t{10}}};
      const TensorType index_type = index.type();
      auto forward = kernels->Make({Op::kEmbedding, {table.type(), index_type}, {y.type()}, attributes});
      auto backward = kernels->Make({Op::kEmbeddingBackward, {y.type(), index_type}, {d_table.type()}, attributes});
      std::byte* forward_in[] = {table.data(), index.data()};
      std::byte* forward_out[] = {y.data()};
      std::byte* backward_in[] = {y.data(), index.data()};
      std::byte* backward_out[] = {d_table.data()};
      const Status status = (*forward)->Run({forward_in, forward_out, nullptr});
      // -1 + 2 is a row; the others are not.
      EXPECT_EQ(status.ok(), bad == -1) << bad << ": " << status.message();
      EXPECT_EQ((*backward)->Run({backward_in, backward_out, nullptr}).ok(), bad == -1) << bad;
    }
  }
}

TEST(Embedding, BackwardSumsTheTokensOfEachRow) {
  for (DType dtype : kCompute) {
    for (auto [T, V, D] : {std::array<int64_t, 3>{1, 1, 1}, {5, 3, 7}, {300, 50, 65}, {129, 1000, 200}}) {
      const Tensor d_x = Tensor::Random({dtype, {T, D}}, 4), index = RandomRows(T, V, 5);
      for (int64_t acc : {0, 1}) {
        OpCase backward{
            Op::kEmbeddingBackward, {d_x, index}, {{"acc", acc}, {"offset", int64_t{0}}, {"vocab", int64_t{V}}}};
        if (acc) backward.inputs.push_back(Tensor::Random({DType::kF32, {V, D}}, 6));
        // n terms one after the other: n roundoffs of the sum of magnitudes.
        std::vector<double> count(V * D, 0), magnitude(V * D, 0);
        for (int64_t i = 0; i < V * D && acc; ++i) magnitude[i] = std::fabs(backward.inputs[2][i]);
        for (int64_t i = 0; i < T * D; ++i) {
          const int64_t at = static_cast<int64_t>(index[i / D]) * D + i % D;
          count[at] += 1;
          magnitude[at] += std::fabs(d_x[i]);
        }
        ExpectConforms(backward, [&](int, int64_t i) { return kU * count[i] * magnitude[i]; });
      }
    }
  }
}

// Cuts of 50 rows into uneven parts, one of them empty.
constexpr int64_t kParts[][2] = {{0, 17}, {17, 17}, {17, 18}, {18, 50}};

TEST(Embedding, OfPartsOfItsTableSumsToThatOfTheWholeToTheBit) {
  constexpr int64_t T = 90, V = 50, D = 65, kOffset = 2;
  for (DType dtype : kCompute) {
    const Tensor table = Tensor::Random({dtype, {V, D}}, 1), index = RandomRows(T, V - kOffset, 2);
    const OpCase whole{Op::kEmbedding, {table, index}, {{"offset", kOffset}}};
    const Tensor want = RunOn(ReferenceKernels(), whole, 1)[0];
    Tensor sum({dtype, {T, D}});
    for (int64_t i = 0; i < T * D; ++i) sum.Set(i, 0);
    for (auto [begin, end] : kParts) {
      Tensor rows({dtype, {end - begin, D}});
      for (int64_t i = 0; i < (end - begin) * D; ++i) rows.Set(i, table[begin * D + i]);
      const OpCase part{Op::kEmbedding, {rows, index}, {{"offset", kOffset}, {"begin", begin}, {"whole", V}}};
      ExpectConforms(part, Exact);
      const Tensor term = RunOn(*MakeCpuKernels({}), part, 1)[0];
      for (int64_t i = 0; i < T * D; ++i) {
        ASSERT_TRUE(term[i] == 0 || sum[i] == 0) << "two parts have the row of token " << i / D;
        sum.Set(i, sum[i] + term[i]);
      }
    }
    EXPECT_TRUE(sum.SameBytes(want));
  }
}

TEST(Embedding, BackwardOfAPartOfItsTableIsThePartOfTheGradientToTheBit) {
  constexpr int64_t T = 90, V = 50, D = 65, kOffset = 2;
  for (DType dtype : kCompute) {
    const Tensor d_x = Tensor::Random({dtype, {T, D}}, 4), index = RandomRows(T, V - kOffset, 5);
    const Tensor before = Tensor::Random({DType::kF32, {V, D}}, 6);
    for (int64_t acc : {0, 1}) {
      for (Isa isa : RunnableIsas()) {
        const auto kernels = MakeCpuKernels({.threads = 3, .isa = isa});
        OpCase whole{Op::kEmbeddingBackward, {d_x, index}, {{"acc", acc}, {"offset", kOffset}, {"vocab", V}}};
        if (acc) whole.inputs.push_back(before);
        const Tensor want = RunOn(*kernels, whole, 1)[0];
        for (auto [begin, end] : kParts) {
          const int64_t rows = end - begin;
          OpCase part{Op::kEmbeddingBackward,
                      {d_x, index},
                      {{"acc", acc}, {"offset", kOffset}, {"vocab", rows}, {"begin", begin}, {"whole", V}}};
          const auto slice = [&, begin = begin](const Tensor& t) {
            Tensor s({DType::kF32, {rows, D}});
            for (int64_t i = 0; i < rows * D; ++i) s.Set(i, t[begin * D + i]);
            return s;
          };
          if (acc) part.inputs.push_back(slice(before));
          for (int threads : {1, 3}) {
            const Tensor got = RunOn(*kernels, part, threads)[0];
            EXPECT_TRUE(got.SameBytes(slice(want))) << "rows from " << begin << " on " << ToString(isa);
            if (!acc) continue;
            EXPECT_TRUE(RunOn(*kernels, part, threads, /*in_place=*/true)[0].SameBytes(got)) << ToString(isa);
          }
        }
      }
    }
  }
}

// Rows 40, 3 and 4 in a table of their own, the rest in the table without them: together a table in which they are
// replaced, and what a sum over tokens gives each row.
TEST(Embedding, OfListedRowsAndOfTheOthersIsThatOfTheTableWithTheseRows) {
  constexpr int64_t T = 90, V = 50, D = 65;
  const int64_t listed[] = {40, 3, 4};
  const Attributes without = {{"without", std::string("40,3-4")}};
  Attributes only = {{"only", std::string("40,3-4")}, {"whole", V}};
  for (DType dtype : kCompute) {
    const Tensor table = Tensor::Random({dtype, {V, D}}, 1), rows = Tensor::Random({dtype, {3, D}}, 2);
    const Tensor index = RandomRows(T, V, 3), d_x = Tensor::Random({dtype, {T, D}}, 4);
    Tensor replaced = table;
    for (int64_t r = 0; r < 3; ++r) {
      for (int64_t d = 0; d < D; ++d) replaced.Set(listed[r] * D + d, rows[r * D + d]);
    }
    const OpCase of_table{Op::kEmbedding, {table, index}, without}, of_rows{Op::kEmbedding, {rows, index}, only};
    ExpectConforms(of_table, Exact);
    ExpectConforms(of_rows, Exact);
    const Tensor want = RunOn(ReferenceKernels(), {Op::kEmbedding, {replaced, index}, {}}, 1)[0];
    const Tensor a = RunOn(ReferenceKernels(), of_table, 1)[0], b = RunOn(ReferenceKernels(), of_rows, 1)[0];
    for (int64_t i = 0; i < T * D; ++i) ASSERT_EQ(a[i] + b[i], want[i]) << i;

    const Tensor whole = RunOn(ReferenceKernels(), {Op::kEmbeddingBackward, {d_x, index}, {{"vocab", V}}}, 1)[0];
    only.Set("vocab", int64_t{3});
    const OpCase backward{Op::kEmbeddingBackward, {d_x, index}, only};
    ExpectConforms(backward, Exact);
    const Tensor d_rows = RunOn(ReferenceKernels(), backward, 1)[0];
    for (int64_t i = 0; i < 3 * D; ++i) ASSERT_EQ(d_rows[i], whole[listed[i / D] * D + i % D]) << i;
    only = {{"only", std::string("40,3-4")}, {"whole", V}};
  }
}

TEST(Embedding, OfAPartRefusesRowsOutsideTheWhole) {
  for (Isa isa : RunnableIsas()) {
    const auto kernels = MakeCpuKernels({.isa = isa});
    for (auto [row, good] : {std::pair<int32_t, bool>{0, true}, {7, true}, {9, true}, {10, false}, {-1, false}}) {
      Tensor table = Tensor::Random({DType::kF32, {3, 4}}, 1), y({DType::kF32, {1, 4}}), index = Tensor::Ints({row});
      const Attributes attributes{{"begin", int64_t{4}}, {"whole", int64_t{10}}, {"vocab", int64_t{3}}};
      auto forward = kernels->Make({Op::kEmbedding, {table.type(), index.type()}, {y.type()}, attributes});
      auto backward = kernels->Make({Op::kEmbeddingBackward, {y.type(), index.type()}, {table.type()}, attributes});
      std::byte* forward_in[] = {table.data(), index.data()};
      std::byte* forward_out[] = {y.data()};
      EXPECT_EQ((*forward)->Run({forward_in, forward_out, nullptr}).ok(), good) << row;
      std::byte* backward_in[] = {y.data(), index.data()};
      std::byte* backward_out[] = {table.data()};
      EXPECT_EQ((*backward)->Run({backward_in, backward_out, nullptr}).ok(), good) << row;
    }
  }
}

TEST(Rope, TableIsTheTwinsToTheBit) {
  std::vector<double> inv_freq;
  for (int e = 0; e < 33; ++e) inv_freq.push_back(std::pow(500000.0, -e / 33.0));
  std::vector<int32_t> positions;
  for (int t = 0; t < 77; ++t) positions.push_back(t * 1703);
  ExpectConforms({Op::kRopeTable, {Tensor::Ints(positions)}, {{"inv_freq", inv_freq}}}, Exact);
  ExpectConforms({Op::kRopeTable,
                  {Tensor::Ints(positions)},
                  {{"inv_freq", inv_freq}, {"interleaved", int64_t{1}}, {"scale", 1.19}}},
                 Exact);
  // Scaled by the position: another libm's logarithm may round differently.
  const OpCase scaled{Op::kRopeTable,
                      {Tensor::Ints(positions)},
                      {{"inv_freq", inv_freq}, {"scale", 1.5}, {"beta", 0.1}, {"original", int64_t{4096}}}};
  ExpectConforms(scaled, [](int, int64_t) { return 2 * kU * 2; });
  const auto table = RunOn(ReferenceKernels(), scaled, 1)[0];
  EXPECT_NEAR(table[0], 1.5, 1e-6) << "the first " << 4096 << " positions";
  const int64_t far = 70, width = 66;
  EXPECT_NEAR(std::hypot(table[far * width + 32], table[far * width + 65]),
              1.5 * (1 + 0.1 * std::log(1 + std::floor(70 * 1703 / 4096.0))), 1e-6);
}

// Every row is that of a table for documents of its length alone.
TEST(Rope, TableByDocumentIsTheTwinsAndThatOfEachLength) {
  const int64_t half = 16, near = 40;
  const double theta = 10000, factor = 3;
  std::vector<double> short_ones, long_ones;
  for (int64_t e = 0; e < half; ++e) {
    short_ones.push_back(std::pow(theta, -static_cast<double>(e) / half));
    long_ones.push_back(short_ones.back() / static_cast<double>(e + 1));
  }
  std::vector<int32_t> positions, lengths;
  for (const int32_t length : {40, 1, 41, 97, 7}) {
    for (int32_t t = 0; t < length; ++t) positions.push_back(t), lengths.push_back(length);
  }
  // transformers, _compute_dynamic_ntk_parameters.
  const auto grown = [&](double length) {
    std::vector<double> f;
    const double base = theta * std::pow(factor * length / near - (factor - 1), 2.0 * half / (2.0 * half - 2));
    for (int64_t e = 0; e < half; ++e) f.push_back(1 / std::pow(base, 2.0 * static_cast<double>(e) / (2.0 * half)));
    return f;
  };
  for (const bool dynamic : {false, true}) {
    Attributes by_document = {
        {"inv_freq", short_ones}, {"document_length", int64_t{1}}, {"near", near}, {"scale", 1.1}};
    if (dynamic) {
      by_document.Set("theta", theta);
      by_document.Set("factor", factor);
    } else {
      by_document.Set("long_inv_freq", long_ones);
    }
    const OpCase table{Op::kRopeTable, {Tensor::Ints(positions), Tensor::Ints(lengths)}, by_document};
    ExpectConforms(table, Exact);
    const Tensor got = RunOn(ReferenceKernels(), table, 1)[0];
    for (size_t t = 0; t < positions.size(); ++t) {
      const std::vector<double> f = lengths[t] <= near ? short_ones : dynamic ? grown(lengths[t]) : long_ones;
      for (int64_t e = 0; e < half; ++e) {
        const double angle = positions[t] * f[static_cast<size_t>(e)];
        const int64_t row = static_cast<int64_t>(t) * 2 * half;
        ASSERT_NEAR(got[row + e], 1.1 * std::cos(angle), 1e-5) << "position " << positions[t] << " of " << lengths[t];
        ASSERT_NEAR(got[row + half + e], 1.1 * std::sin(angle), 1e-5);
      }
    }
  }
}

// The first R of a head's E elements are rotated.
TEST(Rope, OfPartsOfHeadsAndOfInterleavedPairsAgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, heads, E, R] : {std::array<int64_t, 4>{1, 1, 4, 2},
                                  {9, 3, 10, 6},
                                  {65, 2, 64, 32},
                                  {33, 4, 80, 60},
                                  {20, 5, 128, 96},
                                  {7, 2, 64, 64},
                                  {7, 3, 6, 6}}) {
      std::vector<double> inv_freq;
      for (int64_t e = 0; e < R / 2; ++e) inv_freq.push_back(std::pow(10000.0, -2.0 * static_cast<double>(e) / R));
      std::vector<int32_t> positions(T);
      for (int64_t t = 0; t < T; ++t) positions[t] = static_cast<int32_t>(3 * t);
      const Tensor x = Tensor::Random({dtype, {T, heads * E}}, 7);
      for (const int64_t interleaved : {0, 1}) {
        const Tensor table = RunOn(
            ReferenceKernels(),
            {Op::kRopeTable, {Tensor::Ints(positions)}, {{"inv_freq", inv_freq}, {"interleaved", interleaved}}}, 1)[0];
        const auto rope = [&](const Tensor& of, int64_t inverse) {
          return OpCase{
              Op::kRope, {of, table}, {{"head_dim", int64_t{E}}, {"inverse", inverse}, {"interleaved", interleaved}}};
        };
        // Two products and a sum; elements that are not rotated keep their bits.
        ExpectConforms(rope(x, 0), [&, E = E, R = R](int, int64_t i) {
          const int64_t e = i % E;
          if (e >= R) return 0.0;
          const int64_t pair = interleaved ? i + 1 - 2 * (e % 2) : e < R / 2 ? i + R / 2 : i - R / 2;
          return 2 * kU * (std::fabs(x[i]) + std::fabs(x[pair]));
        });
        const Tensor y = RunOn(ReferenceKernels(), rope(x, 0), 1)[0],
                     back = RunOn(ReferenceKernels(), rope(y, 1), 1)[0];
        bool turned = false;
        for (int64_t i = 0; i < T * heads * E; ++i) {
          ASSERT_NEAR(back[i], x[i], 6 * UnitRoundoff(dtype));
          if (i % E >= R) {
            ASSERT_EQ(y[i], x[i]);
          }
          turned = turned || y[i] != x[i];
        }
        EXPECT_EQ(turned, T > 1);
      }
    }
  }
}

// As latent attention has queries: the last elements of each head turn.
TEST(Rope, TurnsElementsFromAPlaceOnAndLeavesTheOthersBitByBit) {
  for (const DType dtype : kCompute) {
    for (const auto& [T, heads, E, first, R] : {std::array<int64_t, 5>{1, 1, 4, 2, 2},
                                                {9, 3, 12, 5, 6},
                                                {33, 2, 192, 128, 64},
                                                {7, 4, 96, 64, 32},
                                                {5, 2, 24, 3, 18}}) {
      std::vector<double> inv_freq;
      for (int64_t e = 0; e < R / 2; ++e) inv_freq.push_back(std::pow(100.0, -2.0 * static_cast<double>(e) / R));
      std::vector<int32_t> positions(T);
      for (int64_t t = 0; t < T; ++t) positions[t] = static_cast<int32_t>(3 * t + 1);
      const Tensor x = Tensor::Random({dtype, {T, heads * E}}, 7);
      for (const int64_t interleaved : {0, 1}) {
        const Tensor table = RunOn(
            ReferenceKernels(),
            {Op::kRopeTable, {Tensor::Ints(positions)}, {{"inv_freq", inv_freq}, {"interleaved", interleaved}}}, 1)[0];
        const auto rope = [&, E = E, first = first](const Tensor& of, int64_t inverse) {
          return OpCase{Op::kRope,
                        {of, table},
                        {{"head_dim", E}, {"inverse", inverse}, {"interleaved", interleaved}, {"first", first}}};
        };
        const auto turns = [E = E, first = first, R = R](int64_t i) { return i % E >= first && i % E < first + R; };
        ExpectConforms(rope(x, 0), [&, E = E, first = first, R = R](int, int64_t i) {
          if (!turns(i)) return 0.0;
          const int64_t e = i % E - first;
          const int64_t pair = interleaved ? i + 1 - 2 * (e % 2) : e < R / 2 ? i + R / 2 : i - R / 2;
          return 2 * kU * (std::fabs(x[i]) + std::fabs(x[pair]));
        });
        const Tensor y = RunOn(ReferenceKernels(), rope(x, 0), 1)[0],
                     back = RunOn(ReferenceKernels(), rope(y, 1), 1)[0];
        bool turned = false;
        for (int64_t i = 0; i < T * heads * E; ++i) {
          ASSERT_NEAR(back[i], x[i], 6 * UnitRoundoff(dtype));
          if (!turns(i)) {
            ASSERT_EQ(y[i], x[i]);
          }
          turned = turned || y[i] != x[i];
        }
        EXPECT_TRUE(turned);
      }
    }
  }
}

TEST(AppendToHeads, GivesEachHeadTheBytesThatAllShare) {
  for (const DType dtype : kCompute) {
    for (const auto& [T, heads, N, R] :
         {std::array<int64_t, 4>{1, 1, 1, 1}, {300, 3, 7, 5}, {65, 4, 128, 64}, {9, 16, 24, 8}}) {
      ExpectConforms({Op::kAppendToHeads,
                      {Tensor::Random({dtype, {T, heads * N}}, 4), Tensor::Random({dtype, {T, R}}, 5)},
                      {{"heads", heads}}},
                     [](int, int64_t) { return 0.0; });
    }
  }
}

TEST(AppendToHeads, BackwardGivesBackWhatHeadsHaveAndAddsUpWhatTheyShare) {
  for (const DType dtype : kCompute) {
    for (const auto& [T, heads, N, R] :
         {std::array<int64_t, 4>{1, 1, 1, 1}, {300, 3, 7, 5}, {65, 4, 128, 64}, {9, 16, 24, 72}, {2, 200, 3, 130}}) {
      const Tensor d_y = Tensor::Random({dtype, {T, heads * (N + R)}}, 4);
      std::vector<double> magnitude(T * R, 0);
      for (int64_t i = 0; i < T * heads * (N + R); ++i) {
        const int64_t r = i % (N + R) - N;
        if (r >= 0) magnitude[i / (heads * (N + R)) * R + r] += std::fabs(d_y[i]);
      }
      // A sum of f32 over the heads.
      ExpectConforms({Op::kAppendToHeadsBackward, {d_y}, {{"heads", heads}, {"tail", R}}},
                     [&, heads = heads](int output, int64_t i) {
                       return output == 0 ? 0.0 : kU * static_cast<double>(heads) * magnitude[i];
                     });
    }
  }
}

constexpr std::array<int64_t, 3> kGatedHeads[] = {{1, 1, 1}, {300, 3, 7}, {65, 4, 128}, {9, 16, 24}};

TEST(GateHeads, AgreesWithItsTwin) {
  for (const DType dtype : kCompute) {
    for (const auto& [T, H, E] : kGatedHeads) {
      const Tensor x = Tensor::Random({dtype, {T, H * E}}, 4), gate = Tensor::Random({dtype, {T, H}}, 5);
      // exp within 2 u, a sum, a quotient and a product of f32.
      ExpectConforms({Op::kGateHeads, {x, gate}, {}}, [&](int, int64_t i) { return 6 * kU * std::fabs(x[i]); });
    }
  }
}

TEST(GateHeads, BackwardAgreesWithItsTwin) {
  for (const DType dtype : kCompute) {
    for (const auto& [T, H, E] : kGatedHeads) {
      const Tensor d_y = Tensor::Random({dtype, {T, H * E}}, 4), x = Tensor::Random({dtype, {T, H * E}}, 5);
      std::vector<double> magnitude(static_cast<size_t>(T * H), 0);
      for (int64_t i = 0; i < T * H * E; ++i) magnitude[static_cast<size_t>(i / E)] += std::fabs(d_y[i] * x[i]);
      // E products are added up in f32; then as above, and 1 - scale and a product more.
      ExpectConforms({Op::kGateHeadsBackward, {d_y, x, Tensor::Random({dtype, {T, H}}, 6)}, {}},
                     [&, E = E](int output, int64_t i) {
                       if (output == 0) return 6 * kU * std::fabs(d_y[i]);
                       return kU * (static_cast<double>(E) + 12) * magnitude[static_cast<size_t>(i)];
                     });
    }
  }
}

TEST(Rope, AgreesWithItsTwinAndItsInverseUndoesIt) {
  for (DType dtype : kCompute) {
    for (auto [T, heads, E] : {std::array<int64_t, 3>{1, 1, 2}, {9, 3, 6}, {65, 2, 64}, {33, 4, 80}, {20, 5, 128}}) {
      std::vector<double> inv_freq;
      for (int64_t e = 0; e < E / 2; ++e) inv_freq.push_back(std::pow(10000.0, -2.0 * e / E));
      std::vector<int32_t> positions(T);
      for (int64_t t = 0; t < T; ++t) positions[t] = static_cast<int32_t>(3 * t);
      const Tensor table =
          RunOn(ReferenceKernels(), {Op::kRopeTable, {Tensor::Ints(positions)}, {{"inv_freq", inv_freq}}}, 1)[0];
      const Tensor x = Tensor::Random({dtype, {T, heads * E}}, 7);
      for (int64_t inverse : {0, 1}) {
        const OpCase rope{Op::kRope, {x, table}, {{"head_dim", int64_t{E}}, {"inverse", inverse}}};
        // Two products and a sum.
        ExpectConforms(rope, [&, E = E](int, int64_t i) {
          const int64_t e = i % E, pair = e < E / 2 ? i + E / 2 : i - E / 2;
          return 2 * kU * (std::fabs(x[i]) + std::fabs(x[pair]));
        });
        const Tensor y = RunOn(ReferenceKernels(), rope, 1)[0];
        const Tensor back = RunOn(ReferenceKernels(),
                                  {Op::kRope, {y, table}, {{"head_dim", int64_t{E}}, {"inverse", 1 - inverse}}}, 1)[0];
        for (int64_t i = 0; i < T * heads * E; ++i) ASSERT_NEAR(back[i], x[i], 6 * UnitRoundoff(dtype));
      }
    }
  }
}

TEST(SumRows, AgreesWithItsTwin) {
  for (DType dtype : kCompute) {
    for (auto [T, O] : {std::pair<int64_t, int64_t>{1, 1}, {7, 3}, {64, 64}, {65, 65}, {1000, 130}, {3, 3000}}) {
      const Tensor d_y = Tensor::Random({dtype, {T, O}}, 8);
      for (int64_t acc : {0, 1}) {
        OpCase sum{Op::kSumRows, {d_y}, {{"acc", acc}}};
        if (acc) sum.inputs.push_back(Tensor::Random({DType::kF32, {O}}, 9, 10));
        std::vector<double> magnitude(O, 0);
        for (int64_t i = 0; i < T * O; ++i) magnitude[i % O] += std::fabs(d_y[i]);
        for (int64_t i = 0; i < O && acc; ++i) magnitude[i] += std::fabs(sum.inputs[1][i]);
        ExpectConforms(sum, [&, T = T](int, int64_t i) {
          return kU * (std::min<double>(64, T) + static_cast<double>(T) / 64 + 1) * magnitude[i];
        });
      }
    }
  }
}

}  // namespace
}  // namespace temper::table_and_sum_test
