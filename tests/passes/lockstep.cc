#include "lockstep.h"
#include "graph/named_ops.h"

#include <thread>

#include "backend/cpu/thread_exchange.h"
#include "base/philox.h"

namespace temper {
namespace {

// A tensor as outer x [dim] x inner.
struct Extents {
  int64_t outer = 1, size = 1, inner = 1;
};
Extents ExtentsOf(const Shape& shape, int dim) {
  Extents e;
  for (int d = 0; d < shape.rank(); ++d) (d < dim ? e.outer : d == dim ? e.size : e.inner) *= shape[d];
  return e;
}

// Copies between `part` and the range of `whole`'s dim `dim` that begins at `begin`.
template <class Body>
void ForPart(const Shape& whole, const Shape& part, int dim, int64_t begin, const Body& body) {
  const Extents w = ExtentsOf(whole, dim), p = ExtentsOf(part, dim);
  ASSERT_EQ(w.outer, p.outer);
  ASSERT_EQ(w.inner, p.inner);
  for (int64_t o = 0; o < p.outer; ++o) {
    for (int64_t i = 0; i < p.size * p.inner; ++i) {
      body((o * w.size + begin) * w.inner + i, o * p.size * p.inner + i);
    }
  }
}

// For sums in f64 (TestTensor returns floats).
double Get(const TestTensor& t, int64_t i) {
  return t.type().dtype == DType::kF64 ? reinterpret_cast<const double*>(t.data())[i] : t.Get(i);
}
void Set(TestTensor& t, int64_t i, double x) {
  if (t.type().dtype == DType::kF64) {
    reinterpret_cast<double*>(t.data())[i] = x;
  } else {
    t.Set(i, x);
  }
}

}  // namespace

Lockstep::Lockstep(const Mesh& mesh, const std::vector<Graph>& graphs, const Source& source)
    : mesh_(mesh), graphs_(graphs), values_(graphs.size()) {
  TEMPER_CHECK(static_cast<int>(graphs.size()) == mesh.ranks()) << graphs.size() << " graphs on " << mesh.ToString();
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const Graph& graph = graphs[static_cast<size_t>(rank)];
    std::vector<bool> made(static_cast<size_t>(graph.num_values()), false);
    for (const Node& node : graph.nodes()) {
      for (ValueId id : node.outputs) made[static_cast<size_t>(id)] = true;
    }
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      if (made[static_cast<size_t>(id)]) continue;
      TestTensor content = source(rank, graph.value(id));
      EXPECT_EQ(content.type(), graph.value(id).type) << graph.value(id).name;
      values_[static_cast<size_t>(rank)].emplace(id, std::move(content));
    }
  }
}

void Lockstep::Run() {
  const std::vector<Node>& nodes = graphs_[0].nodes();
  for (const Graph& graph : graphs_) ASSERT_EQ(graph.nodes().size(), nodes.size()) << "ranks have different programs";
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Graph& graph : graphs_) {
      const Node& node = graph.nodes()[i];
      ASSERT_EQ(ToString(node.op), ToString(nodes[i].op)) << "ranks have different programs";
      ASSERT_EQ(node.inputs, nodes[i].inputs);
      ASSERT_EQ(node.outputs, nodes[i].outputs);
    }
    IsCollective(nodes[i].op) ? RunCollective(i) : RunKernels(i);
    if (testing::Test::HasFatalFailure()) return;
  }
}

const TestTensor* Lockstep::Find(int rank, const std::string& name) const {
  const Graph& graph = graphs_[static_cast<size_t>(rank)];
  const auto& values = values_[static_cast<size_t>(rank)];
  for (ValueId id = graph.num_values(); id-- > 0;) {
    if (graph.value(id).name != name) continue;
    const auto it = values.find(graph.Root(id));
    if (it != values.end()) return &it->second;
  }
  return nullptr;
}

TestTensor& Lockstep::At(int rank, ValueId id) {
  const Graph& graph = graphs_[static_cast<size_t>(rank)];
  return values_[static_cast<size_t>(rank)].try_emplace(graph.Root(id), graph.value(id).type).first->second;
}

void Lockstep::RunKernels(size_t i) {
  const auto run = [&](int rank, std::unique_ptr<Exchange> exchange) {
    const Graph& graph = graphs_[static_cast<size_t>(rank)];
    const Node& node = graph.nodes()[i];
    KernelSpec spec{.op = node.op, .attributes = node.attributes};
    std::vector<std::byte*> in, out;
    for (ValueId id : node.inputs) {
      spec.inputs.push_back(graph.value(id).type);
      in.push_back(At(rank, id).data());
    }
    for (ValueId id : node.outputs) {
      spec.outputs.push_back(graph.value(id).type);
      out.push_back(At(rank, id).data());
    }
    auto kernel = MakeReferenceKernel(spec, std::move(exchange));
    ASSERT_TRUE(kernel.ok()) << kernel.status().message();
    const Status status = (*kernel)->Run({in.data(), out.data(), nullptr, HashName(node.rng_name)});
    EXPECT_TRUE(status.ok()) << status.message();
  };
  const Node& node = graphs_[0].nodes()[i];
  if (!node.attributes.Has("axes")) {
    for (int rank = 0; rank < mesh_.ranks(); ++rank) run(rank, nullptr);
    return;
  }
  // These ops communicate inside a kernel.
  const AxisSet axes = *AxisSet::Parse(node.attributes.String("axes"));
  std::map<int, std::unique_ptr<ExchangeGroup>> groups;  // by the first member
  std::vector<std::thread> members;
  for (int rank = 0; rank < mesh_.ranks(); ++rank) {
    auto& group = groups[mesh_.Group(axes, rank)[0]];
    if (group == nullptr) group = std::make_unique<ExchangeGroup>(mesh_.size(axes));
    for (ValueId id : node.outputs) At(rank, id);  // threads add nothing to the map
    members.emplace_back(
        [&run, rank, exchange = group->Join(mesh_.IndexIn(axes, rank))]() mutable { run(rank, std::move(exchange)); });
  }
  for (std::thread& m : members) m.join();
}

void Lockstep::RunCollective(size_t i) {
  const Node& first = graphs_[0].nodes()[i];
  const AxisSet axes = *AxisSet::Parse(first.attributes.String("axes"));
  ASSERT_EQ(first.attributes.Int("ranks"), mesh_.size(axes));
  const bool acc = first.attributes.Flag("acc");
  const int dim = static_cast<int>(first.attributes.IntOr("dim", 0));
  for (int leader = 0; leader < mesh_.ranks(); ++leader) {
    const std::vector<int> group = mesh_.Group(axes, leader);
    if (group[0] != leader) continue;
    for (size_t k = 0; k < first.outputs.size(); ++k) {
      const ValueId in = first.inputs[k], out = first.outputs[k];
      if (first.op == Op::kBroadcast) {
        for (int rank : group) {
          for (int64_t e = 0; e < At(rank, in).type().shape.elements(); ++e) {
            EXPECT_EQ(At(rank, in).Get(e), At(leader, in).Get(e)) << "ranks differ in a value that all should have";
          }
          At(rank, out) = At(rank, in).Copy();
        }
      } else if (first.op == Op::kShift) {
        for (size_t m = 0; m < group.size(); ++m) {
          At(group[(m + 1) % group.size()], out) = At(group[m], in).Copy();
        }
      } else if (first.op == Op::kAllGather) {
        for (int rank : group) {
          int64_t begin = 0;
          for (int from : group) {
            const TestTensor& part = At(from, in);
            TestTensor& whole = At(rank, out);
            ForPart(whole.type().shape, part.type().shape, dim, begin,
                    [&](int64_t w, int64_t p) { whole.Set(w, part.Get(p)); });
            begin += part.type().shape[dim];
          }
          ASSERT_EQ(begin, At(rank, out).type().shape[dim]);
        }
      } else {
        const int64_t n = At(leader, in).type().shape.elements();
        std::vector<double> sum(static_cast<size_t>(n), 0);
        for (int rank : group) {
          ASSERT_EQ(At(rank, in).type(), At(leader, in).type());
          for (int64_t e = 0; e < n; ++e) sum[static_cast<size_t>(e)] += Get(At(rank, in), e);
        }
        int64_t begin = 0;
        for (int rank : group) {
          TestTensor& to = At(rank, out);
          if (first.op == Op::kAllReduce) {
            for (int64_t e = 0; e < n; ++e) Set(to, e, sum[static_cast<size_t>(e)]);
            continue;
          }
          const TestTensor* before = acc ? &At(rank, first.inputs[first.outputs.size() + k]) : nullptr;
          ForPart(At(rank, in).type().shape, to.type().shape, dim, begin, [&](int64_t w, int64_t p) {
            to.Set(p, sum[static_cast<size_t>(w)] + (before == nullptr ? 0 : before->Get(p)));
          });
          begin += to.type().shape[dim];
        }
        const bool cut = first.op == Op::kReduceScatter;
        ASSERT_EQ(begin, cut ? At(leader, in).type().shape[dim] : 0);
      }
    }
  }
}

}  // namespace temper
