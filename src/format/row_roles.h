// RowRoles: what a data file calls the speakers of its conversations, where chat templates have other names for them:
//   user=customer, assistant=agent
// A role may have several names. The names that Temper knows anyway (data/template/conversation.h) go on being read.
// Value types and pure functions; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

struct RowRole {
  std::string role, name;
  bool operator==(const RowRole&) const = default;
};
using RowRoles = std::vector<RowRole>;  // each name at most once

bool IsRole(std::string_view role);
// Adds a name, or gives one that is there another role. Errors: an unknown role, with the nearest; no name.
Status AddRole(const RowRole& role, RowRoles& roles);
// `of_file` goes before `of_run`.
RowRoles Combined(const RowRoles& of_run, const RowRoles& of_file);
// "user=customer, assistant=agent".
std::string ToString(const RowRoles& roles);
// The role of a speaker of this name; nullptr where none is given.
const std::string* FindRole(const RowRoles& roles, std::string_view name);

}  // namespace temper
