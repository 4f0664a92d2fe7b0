#include "graph/ops/sharding.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "graph/named_ops.h"

namespace temper {

void ShardElementwise(ShardingSink& sink) {
  Sharding p = sink.Settled(sink.sharding(0));
  for (int i = 1; i < static_cast<int>(sink.node().inputs.size()); ++i) {
    p.varying |= sink.sharding(i).varying - p.split();
  }
  std::vector<ValueId> inputs;
  for (int i = 0; i < static_cast<int>(sink.node().inputs.size()); ++i) inputs.push_back(sink.Use(i, p));
  sink.Deliver(0, sink.Emit(sink.node().op, std::move(inputs), sink.node().attributes, {p})[0]);
}

void ShardNorm(ShardingSink& sink) {
  const Node& node = sink.node();
  Sharding p = sink.Settled(sink.sharding(0));
  const Value& scale = sink.value(node.inputs[1]);
  if (!p.split(1).empty() && (scale.labels.Has(DimLabel::kHeads) || scale.labels.Has(DimLabel::kKvHeads))) {
    // Gathered rows could not be cut into heads again.
    return sink.Refuse(fmt::format(
        "{} scales a norm over all heads together, which '{}' splits: that is not supported. Use mesh.fsdp, "
        "mesh.cp, mesh.pp or mesh.dp instead of mesh.tp",
        scale.name, p.split(1).ToString()));
  }
  for (const Axis axis : p.split(1).axes()) p = Gathered(p, 1, axis);
  std::vector<ValueId> inputs = {sink.Use(0, p)};
  const Sharding vector = VectorBeside(p, 1, sink.mesh());
  for (int i = 1; i < static_cast<int>(node.inputs.size()); ++i) inputs.push_back(sink.Use(i, vector));
  const std::vector<Sharding> shardings(node.outputs.size(), p);
  const auto outputs = sink.Emit(node.op, std::move(inputs), node.attributes, shardings);
  for (size_t i = 0; i < outputs.size(); ++i) sink.Deliver(static_cast<int>(i), outputs[i]);
}

bool RefusesPartsOfRows(const char* what, const Sharding& x, ShardingSink& sink) {
  if (x.split(0).Has(Axis::kCp)) {
    sink.Refuse(fmt::format(
        "cp splits rows between ranks, and {} along tokens has to see them whole: use mesh.fsdp, mesh.dp or mesh.pp "
        "instead of mesh.cp",
        what));
    return true;
  }
  if (sink.mesh().size(Axis::kRow) > 1 || sink.mesh().size(Axis::kDepth) > 1) {
    sink.Refuse(fmt::format(
        "{} along tokens is not supported in the 2-D modes of tensor parallelism: use mesh.tp_mode 1d", what));
    return true;
  }
  return false;
}

Sharding VectorBeside(const Sharding& p, int dim, const Mesh& mesh) {
  Sharding v = WholeBeside(p, mesh);
  v.dims[0] = p.dims[static_cast<size_t>(dim)];
  v.varying = v.varying - v.split(0);
  return v;
}

Sharding WholeBeside(const Sharding& p, const Mesh& mesh) {
  Sharding v;
  for (const Axis axis : mesh.axes().axes()) {
    const bool whole = p.DimOf(axis) < 0 && !p.partial.Has(axis) && !p.varying.Has(axis);
    if (!whole) v.varying |= axis;
  }
  return v;
}

void UseAlike(std::initializer_list<Sharding*> operands, const Mesh& mesh) {
  for (const Axis axis : mesh.axes().axes()) {
    const auto is_whole = [axis](const Sharding* p) {
      return p->DimOf(axis) < 0 && !p->varying.Has(axis) && !p->partial.Has(axis);
    };
    if (std::all_of(operands.begin(), operands.end(), is_whole)) continue;
    for (Sharding* p : operands) {
      if (is_whole(p)) p->varying |= axis;
    }
  }
}

Sharding Gathered(Sharding p, int dim, Axis axis) {
  auto& axes = p.dims[static_cast<size_t>(dim)];
  axes.erase(std::remove(axes.begin(), axes.end(), axis), axes.end());
  p.varying |= axis;
  return p;
}

void DeliverWithAcc(ShardingSink& sink, std::vector<ValueId> inputs, int acc, const Sharding& y) {
  DeliverWithAcc(sink, std::move(inputs), acc, y, sink.node().attributes);
}

void DeliverWithAcc(ShardingSink& sink, std::vector<ValueId> inputs, int acc, const Sharding& y,
                    Attributes attributes) {
  const Node& node = sink.node();
  const bool has_acc = node.attributes.Flag("acc");
  const bool later = has_acc && !y.partial.empty() && !(sink.sharding(acc) == y);
  if (has_acc && !later) inputs.push_back(sink.Use(acc, y));
  attributes.Set("acc", int64_t{has_acc && !later});
  ValueId sum = sink.Emit(node.op, std::move(inputs), std::move(attributes), {y})[0];
  if (later) {
    const Sharding settled = sink.Settled(y);
    sum = sink.Emit(Op::kAdd, {sink.Convert(sum, settled), sink.Use(acc, settled)}, {}, {settled})[0];
  }
  sink.Deliver(0, sum);
}

}  // namespace temper
