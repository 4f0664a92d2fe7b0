// Attention as a ring of steps equals attention: in double, outputs and gradients of all ranks are those of one kernel
// on whole rows, and the gradients are the slopes of the ring's own outputs.
#include "compile/mesh/ring.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compile/mesh/verify_ring.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "lockstep.h"
#include "tensor/context_part.h"

namespace temper::ring_test {
namespace {

constexpr int64_t kRows = 2, kRow = 12, kTokens = kRows * kRow, kHeads = 4, kKvHeads = 2, kE = 2;

// Values of the whole batch, by name.
using Numbers = std::map<std::string, std::vector<double>>;

double* Doubles(const TestTensor& t) {
  return reinterpret_cast<double*>(t.data());
}

Shape ShapeOf(const std::string& name, int64_t tokens) {
  if (name == "document_start") return {tokens};
  return {tokens, name == "k" || name == "v" ? kKvHeads * kE : kHeads * kE};
}

Numbers Inputs() {
  Numbers inputs;
  std::mt19937 engine(1);
  std::normal_distribution<double> normal;
  for (const char* name : {"q", "k", "v", "d_o"}) {
    auto& numbers = inputs[name];
    numbers.resize(static_cast<size_t>(ShapeOf(name, kTokens).elements()));
    for (double& x : numbers) x = normal(engine);
  }
  // Rows of 12: documents of 8 and 4, of 1, 10 and 1. Chunks of 2 or 3.
  for (const int64_t start : {0, 0, 0, 0, 0, 0, 0, 0, 8, 8, 8, 8, 12, 13, 13, 13, 13, 13, 13, 13, 13, 13, 13, 23}) {
    inputs["document_start"].push_back(static_cast<double>(start));
  }
  return inputs;
}

// q, k, v -> o, and with d_o -> d_q, d_k, d_v, for one rank; with ranks = 1 it has all tokens.
Graph AttentionOf(int64_t ranks, int64_t index, int64_t window) {
  Graph graph;
  GraphBuilder build(&graph);
  const int64_t T = kTokens / ranks;
  std::map<std::string, ValueId> in;
  for (const char* name : {"q", "k", "v", "d_o"}) {
    in[name] = build.Source(name, {DType::kF64, ShapeOf(name, T)}, Role::kWeight);
  }
  in["document_start"] = build.Source("document_start", {DType::kI32, {T}}, Role::kInput);
  Attributes a = {{"heads", kHeads}, {"kv_heads", kKvHeads}, {"scale", 0.6}, {"window", window}, {"row", kRow}};
  if (ranks > 1) {
    a.Set("axes", std::string("cp"));
    a.Set("ranks", ranks);
    a.Set("index", index);
  }
  const auto o = build.Add(Op::kAttention, {in["q"], in["k"], in["v"], in["document_start"]}, a, "o");
  graph.value(o[0]).name = "o";
  const auto d = build.Add(Op::kAttentionBackward,
                           {in["d_o"], in["q"], in["k"], in["v"], o[0], o[1], in["document_start"]}, a, "d");
  const char* const names[] = {"d_q", "d_k", "d_v"};
  for (size_t i = 0; i < 3; ++i) {
    graph.value(d[i]).name = names[i];
    // Adds a reader: values without readers are not sent.
    build.Add(Op::kCast, {d[i]}, {{"dtype", std::string("f64")}}, "read");
  }
  return graph;
}

// The results of all ranks for the batch, assembled.
class Ring {
 public:
  Ring(int64_t ranks, int64_t window) : ranks_(ranks) {
    for (int64_t index = 0; index < ranks; ++index) {
      graphs_.push_back(LowerRings(AttentionOf(ranks, index, window), {}));
      EXPECT_TRUE(Verify(graphs_.back()).ok()) << Verify(graphs_.back()).message() << PrintGraph(graphs_.back());
    }
  }

  Numbers Run(const Numbers& inputs) const {
    Mesh mesh;
    mesh.set_size(Axis::kCp, static_cast<int>(ranks_));
    Lockstep run(mesh, graphs_, [&](int rank, const Value& v) {
      TestTensor t(v.type);
      const std::vector<double>& all = inputs.at(v.name);
      ForTokens(rank, t, [&](int64_t to, int64_t from) {
        if (v.type.dtype == DType::kI32) {
          t.Set(to, all[static_cast<size_t>(from)]);
        } else {
          Doubles(t)[to] = all[static_cast<size_t>(from)];
        }
      });
      return t;
    });
    run.Run();
    Numbers outputs;
    for (const char* name : {"o", "d_q", "d_k", "d_v"}) {
      for (int rank = 0; rank < ranks_; ++rank) {
        const TestTensor& t = *run.Find(rank, name);
        auto& all = outputs[name];
        all.resize(static_cast<size_t>(t.type().shape.elements() * ranks_));
        ForTokens(rank, t, [&](int64_t from, int64_t to) { all[static_cast<size_t>(to)] = Doubles(t)[from]; });
      }
    }
    return outputs;
  }

 private:
  // Calls body(element of the rank, element of the batch).
  template <class Body>
  void ForTokens(int rank, const TestTensor& t, const Body& body) const {
    const ContextPart part{kRow, ranks_, rank};
    const int64_t columns = t.type().shape.elements() / t.type().shape[0];
    for (int64_t i = 0; i < t.type().shape.elements(); ++i) {
      body(i, part.PlaceOf(i / columns) * columns + i % columns);
    }
  }

  const int64_t ranks_;
  std::vector<Graph> graphs_;
};

class RingOf : public testing::TestWithParam<int> {};

TEST_P(RingOf, HasTheOutputsAndGradientsOfOneKernelOnWholeRows) {
  for (const int64_t window : {0, 1, 5}) {
    const Numbers inputs = Inputs();
    const Numbers want = Ring(1, window).Run(inputs), got = Ring(GetParam(), window).Run(inputs);
    for (const auto& [name, numbers] : want) {
      for (size_t i = 0; i < numbers.size(); ++i) {
        ASSERT_NEAR(got.at(name)[i], numbers[i], 1e-13 * (1 + std::fabs(numbers[i])))
            << name << " element " << i << " window " << window;
      }
    }
  }
}

TEST_P(RingOf, HasGradientsThatAreSlopes) {
  constexpr double kStep = 1e-3;
  for (const int64_t window : {0, 5}) {
    const Ring ring(GetParam(), window);
    const Numbers inputs = Inputs(), gradients = ring.Run(inputs);
    const auto value_at = [&](const char* name, size_t i, double shift) {
      Numbers shifted = inputs;
      shifted.at(name)[i] += shift;
      const Numbers outputs = ring.Run(shifted);
      double sum = 0;
      for (size_t e = 0; e < outputs.at("o").size(); ++e) sum += outputs.at("o")[e] * inputs.at("d_o")[e];
      return sum;
    };
    for (const char* name : {"q", "k", "v"}) {
      for (size_t i = 0; i < inputs.at(name).size(); i += 7) {
        const double slope = (8 * (value_at(name, i, kStep) - value_at(name, i, -kStep)) -
                              (value_at(name, i, 2 * kStep) - value_at(name, i, -2 * kStep))) /
                             (12 * kStep);
        // The formula errs by h^4 f^(5) / 30, about 1e-13 f^(5), and rounds f / h: 1e-12.
        ASSERT_NEAR(gradients.at(std::string("d_") + name)[i], slope, 1e-9 * (1 + std::fabs(slope)))
            << name << " element " << i << " window " << window;
      }
    }
  }
}

TEST_P(RingOf, IsVerifiedAsCompleteAndEveryErrorInItIsFound) {
  for (int64_t index = 0; index < GetParam(); ++index) {
    const Graph good = LowerRings(AttentionOf(GetParam(), index, 0), {});
    ASSERT_TRUE(VerifyRings(good).ok()) << VerifyRings(good).message();
    int planted = 0;
    for (size_t i = 0; i < good.nodes().size(); ++i) {
      const Node& node = good.nodes()[i];
      const auto expect_refused = [&](const std::string& what, const auto& damage) {
        Graph bad = good;
        damage(bad.nodes()[i]);
        EXPECT_FALSE(VerifyRings(bad).ok()) << what << " of node " << i << " " << ToString(node.op);
        ++planted;
      };
      if (node.attributes.Has("origin")) {
        expect_refused("keys taken for another rank's",
                       [&](Node& n) { n.attributes.Set("origin", (n.attributes.Int("origin") + 1) % GetParam()); });
      }
      // Without the node: its outputs are its inputs.
      if (node.op == Op::kShift || (node.op == Op::kAttentionStep && node.attributes.Flag("acc"))) {
        Graph bad = good;
        std::map<ValueId, ValueId> instead;
        const size_t first = node.op == Op::kShift ? 0 : 4;
        for (size_t k = 0; k < node.outputs.size(); ++k) instead[node.outputs[k]] = node.inputs[first + k];
        bad.nodes().erase(bad.nodes().begin() + static_cast<long>(i));
        for (Node& n : bad.nodes()) {
          for (ValueId& id : n.inputs) {
            if (const auto it = instead.find(id); it != instead.end()) id = it->second;
          }
        }
        EXPECT_FALSE(VerifyRings(bad).ok()) << "without node " << i << " " << ToString(node.op);
        ++planted;
      }
    }
    // Steps forward and backward; shifts of keys, of their gradients; steps after the first.
    EXPECT_GE(planted, 2 * GetParam() + 3 * (GetParam() - 1) + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, RingOf, testing::Values(2, 3));

}  // namespace
}  // namespace temper::ring_test
