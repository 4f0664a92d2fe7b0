#include "format/row_roles.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "format/quoted.h"
#include "format/row_columns.h"

namespace temper {
namespace {

// Those of chat templates, and the turn of ShareGPT that calls a function.
const std::vector<std::string>& Roles() {
  static const std::vector<std::string> kRoles = {"system", "developer", "user",         "assistant",
                                                  "tool",   "function",  "function_call"};
  return kRoles;
}

void PutRole(const RowRole& role, RowRoles& roles) {
  const auto known = std::find_if(roles.begin(), roles.end(), [&](const RowRole& r) { return r.name == role.name; });
  if (known == roles.end()) {
    roles.push_back(role);
  } else {
    known->role = role.role;
  }
}

}  // namespace

bool IsRole(std::string_view role) {
  return std::find(Roles().begin(), Roles().end(), role) != Roles().end();
}

Status AddRole(const RowRole& role, RowRoles& roles) {
  if (!IsRole(role.role)) {
    const std::string nearest = NearestName(role.role, Roles());
    return InvalidArgument(
        fmt::format("{} is no role of messages; {}roles are {} (ROLE=NAME, what the data calls it)", Quoted(role.role),
                    nearest.empty() ? "" : fmt::format("did you mean '{}'? ", nearest), fmt::join(Roles(), ", ")));
  }
  if (role.name.empty()) {
    return InvalidArgument(fmt::format("{} has no name: write {}=NAME, what the data calls it", role.role, role.role));
  }
  PutRole(role, roles);
  return OkStatus();
}

RowRoles Combined(const RowRoles& of_run, const RowRoles& of_file) {
  RowRoles out = of_run;
  for (const RowRole& role : of_file) PutRole(role, out);
  return out;
}

std::string ToString(const RowRoles& roles) {
  std::vector<std::string> parts;
  for (const RowRole& r : roles) parts.push_back(r.role + "=" + r.name);
  return fmt::format("{}", fmt::join(parts, ", "));
}

const std::string* FindRole(const RowRoles& roles, std::string_view name) {
  const auto found = std::find_if(roles.begin(), roles.end(), [&](const RowRole& r) { return r.name == name; });
  return found == roles.end() ? nullptr : &found->role;
}

}  // namespace temper
