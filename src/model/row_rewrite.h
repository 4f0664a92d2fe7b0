// Rows of a table of words that are trained apart from it (format/trained_rows.h), as a rewrite of a forward graph:
//   embedding(E, t)      becomes  embedding(E, t) without those rows + embedding(R, t) of those rows alone,
//   linear(x, E)         becomes  linear(x, E) + linear(linear(x, R) - linear(x, E0), S),
// where R are the trained rows, E0 the table's own and S says which words they are. The head's term is exact for all
// other words; of the loss it is the second pair of operands. It costs what LoRA of rank N on the head costs, N rows.
#pragma once

#include <span>

#include "format/trained_rows.h"
#include "graph/graph.h"

namespace temper {

// `training`: the rows are trained. REQUIRES: the head has no adapter where it reads the rows (ResolveTrainable).
Graph ReadRows(std::span<const TrainedRows> all, bool training, Graph forward);

}  // namespace temper
