#include "format/row_roles.h"

#include <gtest/gtest.h>

namespace temper::row_roles_test {
namespace {

TEST(RowRoles, ANameHasOneRoleAndARoleSeveralNames) {
  RowRoles roles;
  EXPECT_TRUE(AddRole({"user", "customer"}, roles).ok());
  EXPECT_TRUE(AddRole({"assistant", "agent"}, roles).ok());
  EXPECT_TRUE(AddRole({"assistant", "bot"}, roles).ok());
  EXPECT_EQ(*FindRole(roles, "bot"), "assistant");
  EXPECT_EQ(FindRole(roles, "user"), nullptr);
  const RowRoles combined = Combined(roles, {{"user", "bot"}});
  EXPECT_EQ(ToString(combined), "user=customer, assistant=agent, user=bot");
}

TEST(RowRoles, AnUnknownRoleIsRefusedWithTheNearest) {
  RowRoles roles;
  EXPECT_NE(AddRole({"asistant", "agent"}, roles).message().find("did you mean 'assistant'?"), std::string::npos);
  EXPECT_NE(AddRole({"user", ""}, roles).message().find("user has no name: write user=NAME"), std::string::npos);
  EXPECT_TRUE(roles.empty());
}

}  // namespace
}  // namespace temper::row_roles_test
