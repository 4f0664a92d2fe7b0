#include "data/role_map.h"

#include <nlohmann/json.hpp>

namespace temper {
namespace {

void RenameRole(const RowRoles& roles, OrderedJson& message) {
  if (!message.is_object()) return;
  for (const char* key : {"role", "from"}) {
    const auto found = message.find(key);
    if (found == message.end() || !found->is_string()) continue;
    if (const std::string* role = FindRole(roles, found->get_ref<const std::string&>())) *found = *role;
  }
}

void RenameAll(const RowRoles& roles, OrderedJson& value) {
  if (!value.is_array()) return RenameRole(roles, value);
  for (OrderedJson& message : value) RenameRole(roles, message);
}

}  // namespace

void RenameRoles(const RowRoles& roles, OrderedJson& row) {
  if (roles.empty()) return;
  if (row.is_array()) return RenameAll(roles, row);  // a conversation as a row
  if (!row.is_object()) return;
  for (const char* field :
       {"messages", "conversations", "prompt", "completion", "chosen", "rejected", "rejected_response"}) {
    if (const auto found = row.find(field); found != row.end()) RenameAll(roles, *found);
  }
}

}  // namespace temper
