// RenameRoles: gives the speakers of a row's conversations the names that chat templates know (format/row_roles.h).
// A pure function; any thread.
#pragma once

#include "format/json.h"
#include "format/row_roles.h"

namespace temper {

// In every list of messages that a row may have, and in a message alone: `role` (or ShareGPT's `from`) of a name in
// `roles` becomes its role. `row` has its fields under their own names (data/column_map.h).
void RenameRoles(const RowRoles& roles, OrderedJson& row);

}  // namespace temper
