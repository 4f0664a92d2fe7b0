#include "compile/mesh/verify_ring.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "graph/named_ops.h"

namespace temper {
namespace {

// State of a value on rank r: it belongs to the data of rank r - away, and contains terms of the keys (or, for a
// gradient of keys, of the queries) of `seen` out of `of` ranks. A value outside all rings has away = seen = 0.
struct Travelled {
  int64_t away = 0, seen = 0, of = 0;
};

class RingVerifier {
 public:
  explicit RingVerifier(const Graph& graph) : graph_(graph), travelled_(static_cast<size_t>(graph.num_values())) {}

  Status Run() {
    for (const Node& node : graph_.nodes()) {
      node_ = &node;
      switch (node.op) {
        case Op::kShift:
          TEMPER_RETURN_IF_ERROR(Shift());
          break;
        case Op::kAttentionStep:
          TEMPER_RETURN_IF_ERROR(Step(1, 4));
          break;
        case Op::kAttentionStepBackward:
          TEMPER_RETURN_IF_ERROR(Step(2, 7));
          break;
        case Op::kAdd:
          TEMPER_RETURN_IF_ERROR(Add());
          break;
        default:
          for (size_t i = 0; i < node.inputs.size(); ++i) TEMPER_RETURN_IF_ERROR(IsHome(i));
      }
    }
    return OkStatus();
  }

 private:
  Travelled& Of(ValueId id) { return travelled_[static_cast<size_t>(id)]; }
  Travelled& In(size_t i) { return Of(node_->inputs[i]); }
  const std::string& Name(size_t i) const { return graph_.value(node_->inputs[i]).name; }
  Status Refuse(const std::string& why) const {
    return Corrupt(fmt::format("the {} node {} {} that makes {} is wrong: {}", ToString(node_->phase),
                               ToString(node_->op), OfBlock(node_->block), graph_.value(node_->outputs[0]).name, why));
  }

  Status Shift() {
    if (const std::string& axes = node_->attributes.String("axes"); axes != AxisSet(Axis::kCp).ToString()) {
      return Refuse(fmt::format("it shifts over {}, along which rows are not split", axes));
    }
    const int64_t ranks = node_->attributes.Int("ranks");
    for (size_t i = 0; i < node_->inputs.size(); ++i) {
      Travelled t = In(i);
      t.away = (t.away + 1) % ranks;
      t.of = ranks;
      Of(node_->outputs[i]) = t;
    }
    return OkStatus();
  }

  // Checks a step whose keys are inputs `keys` and `keys` + 1, and whose running sums begin at input `sums`.
  Status Step(size_t keys, size_t sums) {
    const Attributes& a = node_->attributes;
    const int64_t ranks = a.Int("ranks"), away = (a.Int("index") - a.Int("origin") + ranks) % ranks;
    for (const size_t k : {keys, keys + 1}) {
      if (In(k).away == away) continue;
      return Refuse(fmt::format("it expects {} of the {}-th rank before this one, but it is of the {}-th", Name(k),
                                away, In(k).away));
    }
    const bool acc = a.Flag("acc");
    for (size_t i = 0; i < node_->inputs.size(); ++i) {
      const bool own_share = i == keys || i == keys + 1 || (acc && i >= sums);
      if (!own_share) TEMPER_RETURN_IF_ERROR(IsHome(i));
    }
    const Travelled before = acc ? In(sums) : Travelled();
    if (acc && before.seen != away) {
      return Refuse(
          fmt::format("it is step {} of the ring, but {} has the keys of {} ranks", away, Name(sums), before.seen));
    }
    const Travelled sum = {0, before.seen + 1, ranks};
    const bool forward = node_->op == Op::kAttentionStep;
    for (size_t k = 0; k < node_->outputs.size(); ++k) {
      Of(node_->outputs[k]) = forward || k == 0 ? sum : Travelled{away, 1, ranks};
    }
    return OkStatus();
  }

  Status Add() {
    const Travelled a = In(0), b = In(1);
    if (a.of == 0 && b.of == 0) return OkStatus();
    if (Whole(a) && Whole(b)) return OkStatus();
    if (a.away != b.away || a.seen == 0 || b.seen == 0) {
      return Refuse(fmt::format("it adds {}, of the {}-th rank before this one, to {}, of the {}-th", Name(0), a.away,
                                Name(1), b.away));
    }
    Of(node_->outputs[0]) = {a.away, a.seen + b.seen, a.of};
    return OkStatus();
  }

  static bool Whole(const Travelled& t) { return t.of == 0 || (t.away == 0 && t.seen % t.of == 0); }

  Status IsHome(size_t i) {
    const Travelled& t = In(i);
    if (Whole(t)) return OkStatus();
    if (t.away != 0) {
      return Refuse(fmt::format("{} belongs to the {}-th rank before this one", Name(i), t.away));
    }
    return Refuse(fmt::format("{} contains the terms of {} of {} ranks", Name(i), t.seen, t.of));
  }

  const Graph& graph_;
  const Node* node_ = nullptr;
  std::vector<Travelled> travelled_;
};

}  // namespace

Status VerifyRings(const Graph& graph) {
  return RingVerifier(graph).Run();
}

}  // namespace temper
