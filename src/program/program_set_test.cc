#include "program/program_set.h"

#include <gtest/gtest.h>

#include "program/program_names.h"

namespace temper::program_set_test {
namespace {

TEST(ProgramSet, FindsProgramsByNameInTheOrderTheyWereCompiled) {
  const ProgramSet set({Program{.name = "train"}, Program{.name = "eval"}, Program{.name = "decode.16"}});
  EXPECT_EQ(set.first().name, "train");
  EXPECT_EQ(set.At(ProgramName(ProgramKind::kEval)).name, "eval");
  EXPECT_EQ(set.Find(ProgramName(ProgramKind::kDecode, 16)), &set.all()[2]);
  EXPECT_EQ(set.Find("score"), nullptr);
  EXPECT_EQ(set.all().size(), 3u);
  EXPECT_DEATH((void)set.At("score"), "no Program 'score' was compiled");
}

}  // namespace
}  // namespace temper::program_set_test
