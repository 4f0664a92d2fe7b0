// What ops have in common that draw a number for every element of x_TC by its place in the batch: operands (x, rng) and
// attributes that say which part of the batch x is. Element (t, c) is element (kRngFirstToken + row + t) * columns +
// column + c of the batch: x may be a part of a whole that is `columns` wide. Where rows are dealt over cp
// (tensor/context_part.h), kRngFirstToken is the place of the first of the whole rows that this rank has tokens of, and
// row + t counts its own tokens. Rows of `packed_row` tokens may be numbered as rows of `drawn_row` (draw_places.h).
#pragma once

#include "graph/ops/draw_places.h"
#include "graph/ops/operand_types.h"
#include "graph/ops/sharding.h"
#include "graph/rule.h"

namespace temper {

// Whether the operands are (x, rng), and x lies within the whole, in chunks of rows.
inline bool GoodDraws(const Types& in, const Attributes& a) {
  if (in.size() != 2 || !IsFloat(in[0]) || in[1].dtype != DType::kI64 || !IsVector(in[1], kNumRngWords)) return false;
  const TensorType& x = in[0];
  if (!a.Has("columns")) {
    if (a.IntOr("column", 0) != 0) return false;
  } else {
    const int64_t columns = a.Int("columns"), column = a.IntOr("column", 0);
    if (column > columns || x.shape.columns() > columns - column) return false;
  }
  if (!a.Has("packed_row")) return !a.Has("ranks") && !a.Has("index") && !a.Has("drawn_row");
  const int64_t row = a.IntOr("row", 0);
  return row <= int64_t{1} << 39 && GoodDrawPlaces(a, row + x.shape.rows());
}

// Philox costs about 60 integer operations per four elements.
inline Cost DrawsCost(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 16);
}

// A rank draws for its part of x what one rank would have drawn there: `row` and `column` say where the part begins,
// `columns` how wide the whole is. Rows are counted from the first that this rank's batch holds (kRngFirstToken).
// `p`: x's sharding.
inline void ShardDraws(ShardingSink& sink, const Sharding& p) {
  const Node& node = sink.node();
  const Shape& global = sink.value(node.inputs[0]).type.shape;
  Sharding batch;  // as the host deals rows
  for (const Axis axis : p.dims[0]) {
    if (!kTensorAxes.Has(axis)) batch.dims[0].push_back(axis);
  }
  const Box part = sink.box(global, p), rows = sink.box(global, batch);
  Attributes attributes = node.attributes;
  attributes.Set("row", part.begin[0] - rows.begin[0]);
  attributes.Set("column", part.begin[1]);
  attributes.Set("columns", global[1]);
  if (p.split(0).Has(Axis::kCp)) {
    const ContextPart dealt = sink.context();
    attributes.Set("packed_row", dealt.row);
    attributes.Set("ranks", dealt.ranks);
    attributes.Set("index", dealt.index);
  }
  const ValueId x = sink.Use(0, p);
  sink.Deliver(0, sink.Emit(node.op, {x, sink.Use(1, sink.sharding(1))}, std::move(attributes), {p})[0]);
}

}  // namespace temper
