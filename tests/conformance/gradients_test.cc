// Every gradient rule and every backward kernel against finite differences, in double: a small graph of the op, the
// loss on top, differentiated by compile/differentiate and executed by the reference kernels, against the same graph's
// loss at shifted inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "backend/cpu/reference/reference.h"
#include "base/philox.h"
#include "compile/step/differentiate.h"
#include "graph/builder.h"
#include "graph/named_ops.h"
#include "op_case.h"
#include "program/buffer_names.h"

namespace temper::gradients_test {
namespace {

using Values = std::map<ValueId, Tensor>;  // by the value that owns the address

class OpGraph {
 public:
  ValueId Source(const std::string& name, const Shape& shape, bool trainable = true) {
    const ValueId id = builder_.Source(name, {DType::kF64, shape}, Role::kWeight);
    graph_.value(id).trainable = trainable;
    Tensor t = Tensor::Random({DType::kF64, shape}, HashName(name));
    for (int64_t i = 0; i < shape.elements(); ++i) {
      if (std::fabs(t[i]) < 0.02) t.Set(i, t[i] < 0 ? -0.02 : 0.02);  // further from relu's kink than the steps
    }
    sources_.emplace(id, std::move(t));
    return id;
  }
  // A value that needs a gradient but is not a parameter: a source with a cast that changes nothing.
  ValueId Activation(const std::string& name, const Shape& shape) {
    return Add(Op::kCast, {Source("source of " + name, shape)}, {{"dtype", std::string("f64")}}, name)[0];
  }
  ValueId Given(const std::string& name, Tensor value) {
    const ValueId id = builder_.Source(name, value.type(), Role::kInput);
    sources_.emplace(id, std::move(value));
    return id;
  }
  ValueId Positions(int64_t T) {
    std::vector<int32_t> positions(T);
    std::iota(positions.begin(), positions.end(), 0);
    return Given("position", Tensor::Ints(positions));
  }
  std::vector<ValueId> Add(Op op, std::vector<ValueId> inputs, Attributes attributes, const std::string& name) {
    return builder_.Add(op, std::move(inputs), std::move(attributes), name);
  }
  const TensorType& type(ValueId id) const { return graph_.value(id).type; }

  // Puts a frozen head and the loss on y_TD, every fourth token without a target.
  void FinishWithLoss(ValueId y_TD) {
    const int64_t T = type(y_TD).shape[0], V = 5;
    std::vector<int32_t> targets(T);
    for (int64_t t = 0; t < T; ++t) targets[t] = t % 4 == 3 ? -1 : static_cast<int32_t>(t % V);
    const ValueId head = Source("head", {V, type(y_TD).shape[1]}, /*trainable=*/false);
    Finish({y_TD, head, Given("target", Tensor::Ints(targets))}, {});
  }
  void Finish(std::vector<ValueId> loss_inputs, Attributes attributes) {
    AddLoss(std::move(loss_inputs), std::move(attributes));
    Finish();
  }
  void AddLoss(std::vector<ValueId> inputs, Attributes attributes, Op op = Op::kLinearCrossEntropy) {
    losses_.push_back({Add(op, std::move(inputs), std::move(attributes), "loss")[0]});
  }
  // The sum of y's elements, each times its seed.
  void AddSeeded(ValueId y) {
    losses_.push_back({y, Given("seed", Tensor::Random(type(y), 77))});
    graph_.roots().push_back(losses_.back());
  }
  void Finish() {
    ASSERT_TRUE(Verify(graph_).ok()) << Verify(graph_).message();
    ExpectGradients(/*accumulate=*/false);
    ExpectGradients(/*accumulate=*/true);
  }

 private:
  Values Execute(const Graph& graph, const Values& sources) const {
    Values values = sources;
    for (const Node& node : graph.nodes()) {
      KernelSpec spec{.op = node.op, .attributes = node.attributes};
      std::vector<std::byte*> in, out;
      for (ValueId id : node.inputs) {
        spec.inputs.push_back(graph.value(id).type);
        in.push_back(values.at(graph.Root(id)).data());
      }
      for (ValueId id : node.outputs) {
        spec.outputs.push_back(graph.value(id).type);
        out.push_back(values.try_emplace(graph.Root(id), graph.value(id).type).first->second.data());
      }
      auto kernel = ReferenceKernels().Make(spec);
      const Status status = (*kernel)->Run({in.data(), out.data(), nullptr, HashName(node.rng_name)});
      EXPECT_TRUE(status.ok()) << status.message();
    }
    return values;
  }

  double LossAt(const Values& sources) const {
    const Values values = Execute(graph_, sources);
    double sum = 0;
    for (const LossRoot& root : losses_) {
      const Tensor& loss = values.at(root.loss);
      for (int64_t i = 0; i < loss.type().shape.elements(); ++i) {
        sum += root.seed == kNoValue ? loss[i] : values.at(root.seed)[i] * loss[i];
      }
    }
    return sum;
  }

  void ExpectGradients(bool accumulate) const {
    const Graph graph = Differentiate(graph_, accumulate);
    ASSERT_TRUE(Verify(graph).ok()) << Verify(graph).message() << PrintGraph(graph);
    // Gradients of earlier micro-batches.
    Values start = sources_;
    for (ValueId id = 0; accumulate && id < graph.num_values(); ++id) {
      const Value& v = graph.value(id);
      if (v.role == Role::kGradient && graph.Root(id) == id) start.emplace(id, Tensor::Random(v.type, id, 3));
    }
    const Values end = Execute(graph, start);
    int checked = 0;
    for (const auto& [id, x] : sources_) {
      if (!graph_.value(id).trainable) continue;
      const Tensor* gradient = nullptr;
      const Tensor* before = nullptr;
      for (ValueId g = 0; g < graph.num_values(); ++g) {
        if (graph.value(g).name != GradientName(graph_.value(id).name)) continue;
        gradient = &end.at(graph.Root(g));
        if (accumulate) before = &start.at(graph.Root(g));
      }
      ASSERT_NE(gradient, nullptr) << graph_.value(id).name;
      for (int64_t i = 0; i < x.type().shape.elements(); ++i) {
        const double want = Slope(id, i) + (before == nullptr ? 0 : (*before)[i]);
        // The formula of fourth order errs by h^4 f^(5) / 30 with h = 1e-3, about 1e-13 f^(5), and rounds f / h: 1e-13.
        ASSERT_NEAR((*gradient)[i], want, 1e-9 * (1 + std::fabs(want)))
            << graph_.value(id).name << " element " << i << (accumulate ? " accumulated" : "") << "\n"
            << PrintGraph(graph);
        ++checked;
      }
    }
    EXPECT_GT(checked, 0);
  }

  double Slope(ValueId id, int64_t i) const {
    constexpr double kStep = 1e-3;
    const auto at = [&](double shift) {
      Values shifted = sources_;
      Tensor& x = shifted.at(id);
      x.Set(i, x[i] + shift);
      return LossAt(shifted);
    };
    return (8 * (at(kStep) - at(-kStep)) - (at(2 * kStep) - at(-2 * kStep))) / (12 * kStep);
  }

  Graph graph_;
  GraphBuilder builder_{&graph_};
  Values sources_;
  std::vector<LossRoot> losses_;
};

constexpr int64_t kT = 6, kD = 4;

TEST(Gradients, OfEmbedding) {
  OpGraph g;
  const ValueId table = g.Source("table", {7, kD});
  const ValueId index = g.Given("index", Tensor::Ints({0, 3, 3, 1, 3, 4}));
  // The same table twice, as tied positions might: the second use accumulates.
  const ValueId a = g.Add(Op::kEmbedding, {table, index}, {{"offset", int64_t{0}}}, "a")[0];
  const ValueId b = g.Add(Op::kEmbedding, {table, index}, {{"offset", int64_t{2}}}, "b")[0];
  g.FinishWithLoss(g.Add(Op::kAdd, {a, b}, {}, "sum")[0]);
}

TEST(Gradients, OfRowsThatAreTrainedApartFromTheirTable) {
  OpGraph g;
  const ValueId table = g.Source("table", {7, kD}), rows = g.Source("rows", {2, kD});
  const ValueId index = g.Given("index", Tensor::Ints({0, 3, 3, 1, 3, 4}));
  const ValueId a = g.Add(Op::kEmbedding, {table, index}, {{"without", std::string("3,0")}}, "a")[0];
  const ValueId b = g.Add(Op::kEmbedding, {rows, index}, {{"only", std::string("3,0")}, {"whole", int64_t{7}}}, "b")[0];
  g.FinishWithLoss(g.Add(Op::kAdd, {a, b}, {}, "sum")[0]);
}

TEST(Gradients, OfLinearWithBiasScaleAndResidual) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, 3}), w = g.Source("w", {kD, 3}), bias = g.Source("bias", {kD});
  const ValueId residual = g.Activation("residual", {kT, kD});
  const ValueId y =
      g.Add(Op::kLinear, {x, w, bias, residual}, {{"bias", int64_t{1}}, {"acc", int64_t{1}}, {"scale", 0.7}}, "y")[0];
  g.FinishWithLoss(y);
}

TEST(Gradients, OfLinearsThatShareInputAndWeight) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD}), w = g.Source("w", {kD, kD});
  const ValueId y = g.Add(Op::kLinear, {x, w}, {}, "y")[0];
  const ValueId z = g.Add(Op::kLinear, {y, w, x}, {{"acc", int64_t{1}}}, "z")[0];
  g.FinishWithLoss(z);
}

// Of three products one, two or all are used, of two the second's weight being frozen; a weight stands in two nodes,
// and twice in one.
TEST(Gradients, OfLinearsOfTwoOrThreeWeights) {
  for (const int used : {1, 2, 3}) {
    OpGraph g;
    const ValueId x = g.Activation("x", {kT, 4}), a = g.Source("a", {2, 4}), b = g.Source("b", {2, 4}, used == 3),
                  c = g.Source("c", {3, 4}, used == 3), up = g.Source("up", {2, 3}, used == 3);
    const auto y = g.Add(Op::kLinears, {x, a, b, c}, {{"third", int64_t{1}}}, "y");
    ValueId sum = y[0];
    if (used > 1) sum = g.Add(Op::kAdd, {sum, y[1]}, {}, "sum")[0];
    if (used > 2) sum = g.Add(Op::kLinear, {y[2], up, sum}, {{"acc", int64_t{1}}}, "all")[0];
    g.FinishWithLoss(sum);
  }
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, 4}), a = g.Source("a", {2, 4}), b = g.Source("b", {3, 4});
  const auto y = g.Add(Op::kLinears, {x, a, b}, {}, "y"), again = g.Add(Op::kLinears, {x, b, b}, {}, "again");
  const ValueId once = g.Add(Op::kAdd, {y[1], again[0]}, {}, "once")[0];
  const ValueId sum = g.Add(Op::kAdd, {once, again[1]}, {}, "sum")[0], up = g.Source("up", {3, 2});
  g.FinishWithLoss(g.Add(Op::kLinear, {y[0], up, sum}, {{"acc", int64_t{1}}}, "all")[0]);
}

TEST(Gradients, OfAddScaleAndCast) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD}), y = g.Activation("y", {kT, kD});
  const ValueId sum = g.Add(Op::kAdd, {x, g.Add(Op::kScale, {y}, {{"factor", -0.7}}, "scaled")[0]}, {}, "sum")[0];
  const ValueId twice = g.Add(Op::kAdd, {sum, x}, {}, "twice")[0];
  g.FinishWithLoss(g.Add(Op::kCast, {twice}, {{"dtype", std::string("f64")}}, "cast")[0]);
}

TEST(Gradients, OfAVectorAddedToEveryRow) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD}), b = g.Source("b", {kD});
  const ValueId once = g.Add(Op::kAdd, {x, b}, {}, "once")[0];
  // A second use of the vector, whose gradient is added to that of the first.
  g.FinishWithLoss(g.Add(Op::kAdd, {g.Add(Op::kRelu, {once}, {}, "y")[0], b}, {}, "twice")[0]);
}

TEST(Gradients, OfRmsNormBesideAResidual) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD}), w = g.Source("w", {kD});
  const ValueId y = g.Add(Op::kRmsNorm, {x, w}, {{"eps", 1e-2}}, "y")[0];
  const ValueId z = g.Add(Op::kRmsNorm, {g.Add(Op::kAdd, {x, y}, {}, "sum")[0], w}, {{"eps", 1e-2}}, "z")[0];
  g.FinishWithLoss(z);
}

// A norm scales by the sum of two trained weights, of which one is added twice.
TEST(Gradients, OfWeightsThatAreComputedOn) {
  OpGraph g;
  const ValueId w = g.Source("w", {kD}), more = g.Source("more", {kD}), x = g.Activation("x", {kT, kD});
  const ValueId sum = g.Add(Op::kAdd, {w, more}, {}, "sum")[0];
  const ValueId all = g.Add(Op::kAdd, {sum, w}, {}, "all")[0];
  g.FinishWithLoss(g.Add(Op::kRmsNorm, {x, all}, {{"eps", 1e-5}}, "y")[0]);
}

TEST(Gradients, OfRmsNormOfGroups) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, 8}), w = g.Source("w", {4});
  const Attributes grouped{{"eps", 1e-2}, {"grouped", int64_t{1}}};
  const ValueId y = g.Add(Op::kRmsNorm, {x, w}, grouped, "y")[0];
  // Beside a second use of x and of w, whose gradients are added to.
  g.FinishWithLoss(g.Add(Op::kRmsNorm, {g.Add(Op::kAdd, {x, y}, {}, "sum")[0], w}, grouped, "z")[0]);
}

TEST(Gradients, OfRmsNormOfGroupsWithScalesOfTheirOwn) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, 8}), w = g.Source("w", {8});
  const Attributes groups{{"eps", 1e-2}, {"grouped", int64_t{1}}, {"groups", int64_t{2}}};
  const ValueId y = g.Add(Op::kRmsNorm, {x, w}, groups, "y")[0];
  g.FinishWithLoss(g.Add(Op::kRmsNorm, {g.Add(Op::kAdd, {x, y}, {}, "sum")[0], w}, groups, "z")[0]);
}

TEST(Gradients, OfRmsNormScaledByOnePlusW) {
  for (const int64_t grouped : {0, 1}) {
    OpGraph g;
    const ValueId x = g.Activation("x", {kT, 8}), w = g.Source("w", {grouped ? 4 : 8});
    const Attributes form{{"eps", 1e-2}, {"grouped", grouped}, {"plus_one", int64_t{1}}};
    g.FinishWithLoss(g.Add(Op::kRmsNorm, {x, w}, form, "y")[0]);
  }
}

TEST(Gradients, OfLayerNormOfGroups) {
  for (const bool own : {false, true}) {
    for (const bool shifted : {false, true}) {
      OpGraph g;
      const Shape parameter = own ? Shape{2, 4} : Shape{4};
      const ValueId x = g.Activation("x", {kT, 8}), w = g.Source("w", parameter);
      const ValueId b = shifted ? g.Source("b", parameter) : kNoValue;
      Attributes form{{"eps", 1e-2}, {"grouped", int64_t{1}}};
      if (!shifted) form.Set("unshifted", int64_t{1});
      const auto norm = [&](ValueId of, const char* name) {
        std::vector<ValueId> inputs = {of, w};
        if (shifted) inputs.push_back(b);
        return g.Add(Op::kLayerNorm, std::move(inputs), form, name)[0];
      };
      // Beside a second use of x and of the parameters, whose gradients are added to.
      g.FinishWithLoss(norm(g.Add(Op::kAdd, {x, norm(x, "y")}, {}, "sum")[0], "z"));
    }
  }
}

TEST(Gradients, OfLayerNormBesideAResidual) {
  for (const bool bias_is_trained : {false, true}) {
    OpGraph g;
    const ValueId x = g.Activation("x", {kT, kD}), w = g.Source("w", {kD}), b = g.Source("b", {kD}, bias_is_trained);
    const ValueId y = g.Add(Op::kLayerNorm, {x, w, b}, {{"eps", 1e-2}, {"plus_one", int64_t{1}}}, "y")[0];
    const ValueId z = g.Add(Op::kLayerNorm, {g.Add(Op::kAdd, {x, y}, {}, "sum")[0], w, b}, {{"eps", 1e-2}}, "z")[0];
    g.FinishWithLoss(z);
  }
}

TEST(Gradients, OfRopeOfPartOfAHead) {
  for (const int64_t interleaved : {0, 1}) {
    OpGraph g;
    const ValueId x = g.Activation("x", {kT, 12});
    const Attributes table_of{{"inv_freq", std::vector<double>{1.0, 0.3}},
                              {"f64", int64_t{1}},
                              {"scale", 1.25},
                              {"interleaved", interleaved}};
    const ValueId table = g.Add(Op::kRopeTable, {g.Positions(kT)}, table_of, "table")[0];
    const Attributes rope{{"head_dim", int64_t{6}}, {"inverse", int64_t{0}}, {"interleaved", interleaved}};
    g.FinishWithLoss(g.Add(Op::kRope, {x, table}, rope, "y")[0]);
  }
}

// Keys of latent attention: what each head has of its own, then what turns and all share.
TEST(Gradients, OfHeadsThatShareWhatTurns) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, 8}), tail = g.Activation("tail", {kT, 4});
  const Attributes of_table{{"inv_freq", std::vector<double>{1.0, 0.3}}, {"f64", int64_t{1}}};
  const ValueId table = g.Add(Op::kRopeTable, {g.Positions(kT)}, of_table, "table")[0];
  const ValueId heads = g.Add(Op::kAppendToHeads, {x, tail}, {{"heads", int64_t{2}}}, "heads")[0];
  const Attributes rope{{"head_dim", int64_t{8}}, {"inverse", int64_t{0}}, {"first", int64_t{4}}};
  g.FinishWithLoss(g.Add(Op::kRope, {heads, table}, rope, "y")[0]);
}

TEST(Gradients, OfGatesOfHeads) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, 8}), gate = g.Activation("gate", {kT, 2});
  g.FinishWithLoss(g.Add(Op::kGateHeads, {x, gate}, {}, "y")[0]);
}

TEST(Gradients, OfRope) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, 8});
  const Attributes inv_freq{{"inv_freq", std::vector<double>{1.0, 0.1}}, {"f64", int64_t{1}}};
  const ValueId table = g.Add(Op::kRopeTable, {g.Positions(kT)}, inv_freq, "table")[0];
  g.FinishWithLoss(g.Add(Op::kRope, {x, table}, {{"head_dim", int64_t{4}}, {"inverse", int64_t{0}}}, "y")[0]);
}

TEST(Gradients, OfAttentionWithGroupsDocumentsAndAWindow) {
  for (const double softcap : {0.0, 0.8}) {
    for (const int64_t window : {0, 2}) {
      OpGraph g;
      const ValueId q = g.Activation("q", {kT, 4 * 3}), k = g.Activation("k", {kT, 2 * 3}),
                    v = g.Activation("v", {kT, 2 * 3});
      const ValueId start = g.Given("document_start", Tensor::Ints({0, 0, 0, 0, 4, 4}));
      const Attributes attributes{
          {"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"scale", 0.6}, {"window", window}, {"softcap", softcap}};
      g.FinishWithLoss(g.Add(Op::kAttention, {q, k, v, start}, attributes, "o")[0]);
    }
  }
}

TEST(Gradients, OfAShortConvolutionAlongDocuments) {
  for (const int64_t silu : {0, 1}) {
    for (const int64_t bias : {0, 1}) {
      OpGraph g;
      const ValueId x = g.Activation("x", {kT, kD}), w = g.Source("w", {kD, 1, 3});
      std::vector<ValueId> inputs = {x, w, g.Given("document_start", Tensor::Ints({0, 0, 0, 0, 4, 4}))};
      if (bias) inputs.push_back(g.Source("bias", {kD}));
      g.FinishWithLoss(g.Add(Op::kShortConv, inputs, {{"silu", silu}, {"bias", bias}}, "y")[0]);
    }
  }
}

// With a least step, some are it.
TEST(Gradients, OfTheDecayOfAState) {
  for (const double least : {0.0, 0.6}) {
    OpGraph g;
    const ValueId a = g.Activation("a", {kT, kD}), a_log = g.Source("a_log", {kD}), dt_bias = g.Source("dt_bias", {kD});
    const Attributes attributes = least > 0 ? Attributes{{"min", least}} : Attributes();
    g.AddSeeded(g.Add(Op::kDecay, {a, a_log, dt_bias}, attributes, "g")[0]);
    g.Finish();
  }
}

// Two heads of each group; documents of 4 and 2 tokens.
TEST(Gradients, OfTheStateSpaceDualityAndItsSteps) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, 4 * 2}), b = g.Activation("b", {kT, 2 * 3}),
                c = g.Activation("c", {kT, 2 * 3}), a = g.Activation("a", {kT, 4});
  const ValueId a_log = g.Source("a_log", {4}), dt_bias = g.Source("dt_bias", {4}), d = g.Source("d", {4});
  const auto gates = g.Add(Op::kDecay, {a, a_log, dt_bias}, {{"steps", int64_t{1}}}, "gates");
  const ValueId start = g.Given("document_start", Tensor::Ints({0, 0, 0, 0, 4, 4}));
  g.FinishWithLoss(g.Add(Op::kSsd, {x, b, c, gates[0], gates[1], d, start},
                         {{"heads", int64_t{4}}, {"groups", int64_t{2}}}, "y")[0]);
}

// Two value heads of each key head; documents of 4 and 2 tokens.
TEST(Gradients, OfTheGatedDeltaRule) {
  OpGraph g;
  const ValueId q = g.Activation("q", {kT, 2 * 3}), k = g.Activation("k", {kT, 2 * 3}),
                v = g.Activation("v", {kT, 4 * 2}), decay = g.Activation("g", {kT, 4}), b = g.Activation("b", {kT, 4});
  const ValueId start = g.Given("document_start", Tensor::Ints({0, 0, 0, 0, 4, 4}));
  g.FinishWithLoss(
      g.Add(Op::kGatedDelta, {q, k, v, decay, b, start}, {{"heads", int64_t{4}}, {"key_heads", int64_t{2}}}, "o")[0]);
}

// With values narrower than keys, and a first document whose first three tokens see each other.
TEST(Gradients, OfAttentionWithASinkAndLastKeys) {
  for (const bool with_sink : {false, true}) {
    for (const bool with_last : {false, true}) {
      OpGraph g;
      const ValueId q = g.Activation("q", {kT, 4 * 3}), k = g.Activation("k", {kT, 2 * 3}),
                    v = g.Activation("v", {kT, 2 * 2});
      const ValueId start = g.Given("document_start", Tensor::Ints({0, 0, 0, 0, 4, 4}));
      const ValueId sink = with_sink ? g.Source("sink", {4}) : kNoValue;
      const ValueId last = with_last ? g.Given("last", Tensor::Ints({2, 2, 2, 3, 4, 5})) : kNoValue;
      Attributes attributes{{"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"scale", 0.6}, {"window", int64_t{3}}};
      std::vector<ValueId> inputs = {q, k, v, start};
      if (with_sink) attributes.Set("sink", int64_t{1}), inputs.push_back(sink);
      if (with_last) attributes.Set("last", int64_t{1}), inputs.push_back(last);
      g.FinishWithLoss(g.Add(Op::kAttention, inputs, attributes, "o")[0]);
    }
  }
}

// A sink that is not trained leaves nothing but its part in the softmax.
TEST(Gradients, OfAttentionWithAFrozenSink) {
  OpGraph g;
  const ValueId q = g.Activation("q", {kT, 2 * 3}), k = g.Activation("k", {kT, 3}), v = g.Activation("v", {kT, 3});
  const ValueId start = g.Given("document_start", Tensor::Ints({0, 0, 0, 0, 4, 4}));
  const ValueId sink = g.Source("sink", {2}, /*trainable=*/false);
  const Attributes attributes{{"heads", int64_t{2}}, {"kv_heads", int64_t{1}}, {"scale", 0.6}, {"sink", int64_t{1}}};
  g.FinishWithLoss(g.Add(Op::kAttention, {q, k, v, start, sink}, attributes, "o")[0]);
}

TEST(Gradients, OfGluOfEveryActivation) {
  const int64_t one = 1;
  for (const Attributes& activation :
       {Attributes{}, Attributes{{"gelu", one}}, Attributes{{"gelu", one}, {"tanh", one}}, Attributes{{"sigmoid", one}},
        Attributes{{"identity", one}}}) {
    OpGraph g;
    const ValueId gate = g.Activation("gate", {kT, kD}), up = g.Activation("up", {kT, kD});
    g.FinishWithLoss(g.Add(Op::kGlu, {gate, up}, activation, "h")[0]);
  }
}

// Numbers on both sides of every bound.
TEST(Gradients, OfGluOfClampedPairs) {
  OpGraph g;
  const ValueId pairs = g.Activation("pairs", {kT, 2 * kD});
  g.FinishWithLoss(g.Add(Op::kGlu, {pairs}, {{"clamped", int64_t{1}}, {"alpha", 1.702}, {"limit", 0.6}}, "h")[0]);
}

// The choice is fixed: the logits of no two experts are as near to each other as the steps of the differences.
TEST(Gradients, OfTokensRoutedToExperts) {
  constexpr int64_t kExperts = 5, kActive = 2, kF = 3;
  for (const int64_t normalise : {0, 1}) {
    for (const int64_t sigmoid : {0, 1}) {
      OpGraph g;
      const ValueId x = g.Activation("x", {kT, kD}), logits = g.Activation("logits", {kT, kExperts});
      const ValueId w = g.Source("w", {kExperts, kF, kD});
      const auto routed =
          g.Add(Op::kRoute, {logits},
                {{"active", kActive}, {"normalise", normalise}, {"sigmoid", sigmoid}, {"scale", 1.7}}, "route");
      const ValueId rows = g.Add(Op::kGatherRows, {x, routed[1]}, {}, "rows")[0];
      const ValueId base = g.Activation("base", {kT * kActive, kF});
      const ValueId y = g.Add(Op::kGroupedLinear, {rows, w, routed[2], base},
                              {{"active", kActive}, {"scale", 0.6}, {"acc", int64_t{1}}}, "y")[0];
      g.FinishWithLoss(g.Add(Op::kCombine, {y, routed[1], routed[0]}, {{"weighted", int64_t{1}}}, "sum")[0]);
    }
  }
}

// Of two blocks; tensor ranks each have a part of the experts. Loads are given: they have no gradient.
TEST(Gradients, OfTheLossThatBalancesExperts) {
  constexpr int64_t kExperts = 5, kActive = 2;
  const Attributes parts[] = {{}, {{"begin", int64_t{1}}, {"count", int64_t{3}}}};
  for (const Attributes& part : parts) {
    OpGraph g;
    const ValueId present = g.Given("present", Tensor::Of({DType::kF32, {kT}}, {1, 1, 1, 1, 1, 0}));
    const ValueId load = g.Given("load", Tensor::Of({DType::kF32, {2, kExperts}}, {4, 1, 2, 2, 1, 0, 5, 3, 1, 1}));
    ValueId sum = kNoValue;
    for (const char* const block : {"first", "second"}) {
      Attributes attributes = part;
      std::vector<ValueId> inputs = {g.Activation(block, {kT, kExperts}), present};
      if (sum != kNoValue) inputs.push_back(sum), attributes.Set("acc", int64_t{1});
      sum = g.Add(Op::kRouterSum, std::move(inputs), std::move(attributes), std::string(block) + "_sum")[0];
    }
    Attributes attributes{{"active", kActive}};
    if (part.Has("begin")) attributes.Set("begin", part.Int("begin"));
    g.AddSeeded(g.Add(Op::kBalance, {load, sum}, std::move(attributes), "balance")[0]);
    g.Finish();
  }
}

// Adapters of two experts, as PEFT's files hold them: rows of both, columns of both in turn.
TEST(Gradients, OfTheMatricesThatOneMatrixHolds) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD}), a = g.Source("a", {2 * 3, kD}), b = g.Source("b", {4, 3 * 2});
  const ValueId expert = g.Given("expert", Tensor::Ints({0, 0, 0, 0, 1, 1}));
  const Attributes two{{"matrices", int64_t{2}}}, one_each{{"active", int64_t{1}}};
  const ValueId a_ERD = g.Add(Op::kUnstack, {a}, two, "a_ERD")[0];
  const ValueId b_EOR = g.Add(Op::kUnstack, {b}, {{"matrices", int64_t{2}}, {"interleaved", int64_t{1}}}, "b_EOR")[0];
  const ValueId h = g.Add(Op::kGroupedLinear, {x, a_ERD, expert}, one_each, "h")[0];
  g.FinishWithLoss(g.Add(Op::kGroupedLinear, {h, b_EOR, expert}, one_each, "y")[0]);
}

TEST(Gradients, OfScaleBy) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD}), factor = g.Source("factor", {1}, /*trainable=*/false);
  g.FinishWithLoss(g.Add(Op::kScaleBy, {x, factor}, {}, "y")[0]);
}

// Of two slices, one of which has a column of the other.
// Beside x that is scaled once more by the same magnitudes, less one.
TEST(Gradients, OfColumnsScaledByMagnitudesOverNorms) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD}), m = g.Source("m", {kD});
  Tensor squares({DType::kF64, {kD}});
  for (int64_t i = 0; i < kD; ++i) squares.Set(i, i == 1 ? 0 : 0.3 + 0.2 * static_cast<double>(i));
  const ValueId q = g.Given("q", std::move(squares));
  const ValueId y = g.Add(Op::kScaleColumns, {x, m, q}, {}, "y")[0];
  const ValueId less = g.Add(Op::kScaleColumns, {x, m, q}, {{"minus_one", int64_t{1}}}, "less")[0];
  g.FinishWithLoss(g.Add(Op::kAdd, {y, g.Add(Op::kRelu, {less}, {}, "relu")[0]}, {}, "sum")[0]);
}

TEST(Gradients, OfSliceColumns) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD});
  const auto slice = [&](int64_t begin, const char* name) {
    return g.Add(Op::kSliceColumns, {x}, {{"begin", begin}, {"count", int64_t{2}}}, name)[0];
  };
  g.FinishWithLoss(g.Add(Op::kGlu, {slice(0, "a"), slice(1, "b")}, {}, "y")[0]);
}

TEST(Gradients, OfRelu) {
  OpGraph g;
  g.FinishWithLoss(g.Add(Op::kRelu, {g.Activation("x", {kT, kD})}, {}, "y")[0]);
}

TEST(Gradients, OfReluSquared) {
  OpGraph g;
  g.FinishWithLoss(g.Add(Op::kReluSquared, {g.Activation("x", {kT, kD})}, {}, "y")[0]);
}

// Numbers on both sides of the bounds.
TEST(Gradients, OfClamp) {
  OpGraph g;
  g.FinishWithLoss(g.Add(Op::kClamp, {g.Activation("x", {kT, kD})}, {{"limit", 0.4}}, "y")[0]);
}

TEST(Gradients, OfXieluAndItsTwoNumbers) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD}), p = g.Source("alpha_p", {1}), n = g.Source("alpha_n", {1});
  const ValueId beta = g.Given("beta", Tensor::Of({DType::kF32, {1}}, {0.375})),
                eps = g.Given("eps", Tensor::Of({DType::kF32, {1}}, {-1e-6}));
  g.FinishWithLoss(g.Add(Op::kXielu, {x, p, n, beta, eps}, {}, "y")[0]);
}

TEST(Gradients, OfAttentionWithSlopes) {
  OpGraph g;
  const ValueId q = g.Activation("q", {kT, 4 * 3}), k = g.Activation("k", {kT, 2 * 3}),
                v = g.Activation("v", {kT, 2 * 3});
  const ValueId start = g.Given("document_start", Tensor::Ints({0, 0, 0, 0, 4, 4}));
  const Attributes attributes{{"heads", int64_t{4}},
                              {"kv_heads", int64_t{2}},
                              {"scale", 0.6},
                              {"slopes", std::vector<double>{0.8, 0.4, 0.2, 0.1}}};
  g.FinishWithLoss(g.Add(Op::kAttention, {q, k, v, start}, attributes, "o")[0]);
}

TEST(Gradients, OfGeluByErfAndTanh) {
  for (int64_t tanh : {0, 1}) {
    OpGraph g;
    g.FinishWithLoss(g.Add(Op::kGelu, {g.Activation("x", {kT, kD})}, {{"tanh", tanh}}, "y")[0]);
  }
}

TEST(Gradients, OfDropoutUseTheMaskOfTheForwardPass) {
  OpGraph g;
  Tensor rng({DType::kI64, {kNumRngWords}});
  rng.Set(kRngSeed, 17);
  rng.Set(kRngStep, 3);
  rng.Set(kRngFirstToken, 2);
  const ValueId rng_id = g.Given("rng", std::move(rng));
  g.FinishWithLoss(g.Add(Op::kDropout, {g.Activation("x", {kT, kD}), rng_id}, {{"p", 0.4}}, "y")[0]);
}

TEST(Gradients, OfNoisePassIt) {
  OpGraph g;
  Tensor rng({DType::kI64, {kNumRngWords}});
  rng.Set(kRngSeed, 17);
  const ValueId rng_id = g.Given("rng", std::move(rng));
  g.FinishWithLoss(g.Add(Op::kNoise, {g.Activation("x", {kT, kD}), rng_id}, {{"magnitude", 0.4}}, "y")[0]);
}

TEST(Gradients, OfTheLossOfRewards) {
  for (const double center : {0.0, 0.3}) {
    OpGraph g;
    g.AddLoss({g.Activation("reward", {kT, 1}), g.Given("document", Tensor::Ints({0, 0, 0, 3, 3, 5})),
               g.Given("sample", Tensor::Ints({0, 0, 0, 0, 0, 5})),
               g.Given("margin", Tensor::Of({DType::kF32, {kT}}, {0.5, 0.5, 0.5, 0.5, 0.5, 0}))},
              {{"center", center}}, Op::kRewardLoss);
    g.Finish();
  }
}

TEST(Gradients, OfLinearCrossEntropyWithALoraBranch) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD}), w = g.Source("w", {5, kD});
  const ValueId x2 = g.Activation("x2", {kT, 2}), w2 = g.Source("w2", {5, 2});
  const ValueId target = g.Given("target", Tensor::Ints({4, -1, 0, 2, 2, -1}));
  g.Finish({x, w, target, x2, w2}, {{"pair2", int64_t{1}}});
}

TEST(Gradients, OfLinearCrossEntropyWithWeightsAndSmoothLabels) {
  for (const auto& [softcap, smoothing] : {std::pair(0.0, 0.0), {1.5, 0.0}, {0.0, 0.3}, {1.5, 0.3}}) {
    for (const bool lora : {false, true}) {
      OpGraph g;
      std::vector<ValueId> inputs = {g.Activation("x", {kT, kD}), g.Source("w", {5, kD}),
                                     g.Given("target", Tensor::Ints({4, -1, 0, 2, 2, 1}))};
      if (lora) inputs.insert(inputs.end(), {g.Activation("x2", {kT, 2}), g.Source("w2", {5, 2})});
      inputs.push_back(g.Given("weight", Tensor::Of({DType::kF64, {kT}}, {0.5, 3, 0, 2, 1, 256})));
      g.Finish(inputs,
               {{"pair2", int64_t{lora}}, {"weighted", int64_t{1}}, {"softcap", softcap}, {"smoothing", smoothing}});
    }
  }
}

TEST(Gradients, OfLinearCrossEntropyWithABias) {
  for (const bool trainable : {true, false}) {
    for (const bool lora : {false, true}) {
      OpGraph g;
      std::vector<ValueId> inputs = {g.Activation("x", {kT, kD}), g.Source("w", {5, kD}),
                                     g.Given("target", Tensor::Ints({4, -1, 0, 2, 2, 1}))};
      if (lora) inputs.insert(inputs.end(), {g.Activation("x2", {kT, 2}), g.Source("w2", {5, 2})});
      inputs.push_back(g.Source("bias", {5}, trainable));
      inputs.push_back(g.Given("weight", Tensor::Of({DType::kF64, {kT}}, {0.5, 3, 0, 2, 1, 256})));
      g.Finish(inputs, {{"pair2", int64_t{lora}},
                        {"bias", int64_t{1}},
                        {"weighted", int64_t{1}},
                        {"softcap", 1.5},
                        {"smoothing", 0.3}});
    }
  }
}

TEST(Gradients, OfLinearDistillation) {
  for (const double beta : {0.0, 0.3, 1.0}) {
    for (const bool full : {false, true}) {  // LoRA on the head, a bias, weights and caps
      OpGraph g;
      std::vector<ValueId> inputs = {g.Activation("x", {kT, kD}), g.Source("w", {5, kD}),
                                     g.Given("target", Tensor::Ints({4, -1, 0, 2, 2, 1}))};
      Attributes a = {{"beta", beta}, {"temperature", full ? 0.7 : 1.0}};
      if (full)
        inputs.insert(inputs.end(), {g.Activation("x2", {kT, 2}), g.Source("w2", {5, 2}), g.Source("bias", {5})});
      inputs.push_back(g.Given("y", Tensor::Random({DType::kF64, {kT, 3}}, 21)));
      inputs.push_back(g.Given("u", Tensor::Random({DType::kF64, {5, 3}}, 22)));
      if (full) {
        inputs.push_back(g.Given("teacher_bias", Tensor::Random({DType::kF64, {5}}, 23)));
        inputs.push_back(g.Given("weight", Tensor::Of({DType::kF64, {kT}}, {0.5, 3, 0, 2, 1, 256})));
        for (const char* flag : {"pair2", "bias", "teacher_bias", "weighted"}) a.Set(flag, int64_t{1});
        a.Set("softcap", 1.5);
        a.Set("teacher_softcap", 2.0);
      }
      g.AddLoss(std::move(inputs), std::move(a), Op::kLinearDistillation);
      g.Finish();
    }
  }
}

TEST(Gradients, OfSeveralRootsAreAddedUp) {
  OpGraph g;
  const ValueId x = g.Activation("x", {kT, kD}), w = g.Source("w", {5, kD}), v = g.Source("v", {kD, kD});
  const ValueId y = g.Add(Op::kLinear, {x, v}, {}, "y")[0], z = g.Add(Op::kLinear, {y, v}, {}, "z")[0];
  g.AddSeeded(y);
  g.AddLoss({y, w, g.Given("target", Tensor::Ints({4, -1, 0, 2, 2, 1}))}, {});
  g.AddLoss({z, w, g.Given("next", Tensor::Ints({1, 3, -1, 2, 0, 1}))}, {});
  g.Finish();
}

TEST(Gradients, OfLinearCrossEntropyOfATrainableHeadAndOfAFrozenOne) {
  for (int trainable = 1; trainable < 4; ++trainable) {
    OpGraph g;
    const ValueId x = (trainable & 1) ? g.Activation("x", {kT, kD}) : g.Source("x", {kT, kD}, false);
    const ValueId w = g.Source("w", {5, kD}, trainable & 2);
    g.Finish({x, w, g.Given("target", Tensor::Ints({4, -1, 0, 2, 2, -1}))}, {});
  }
}

}  // namespace
}  // namespace temper::gradients_test
