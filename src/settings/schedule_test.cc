#include "settings/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "format/json.h"

namespace temper::schedule_test {
namespace {

RampShape ShapeNamed(const std::string& name) {
  const std::map<std::string, RampShape> shapes = {
      {"linear", RampShape::kLinear}, {"cosine", RampShape::kCosine}, {"1-sqrt", RampShape::kOneMinusSqrt}};
  return shapes.at(name);
}

Schedule ScheduleOfCase(const Json& c) {
  const std::map<std::string, ScheduleKind> kinds = {{"linear", ScheduleKind::kLinear},
                                                     {"cosine", ScheduleKind::kCosine},
                                                     {"cosine_with_min_lr", ScheduleKind::kCosineWithMinLr},
                                                     {"cosine_with_restarts", ScheduleKind::kCosineWithRestarts},
                                                     {"polynomial", ScheduleKind::kPolynomial},
                                                     {"inverse_sqrt", ScheduleKind::kInverseSqrt},
                                                     {"constant", ScheduleKind::kConstant},
                                                     {"constant_with_warmup", ScheduleKind::kConstantWithWarmup},
                                                     {"warmup_stable_decay", ScheduleKind::kWarmupStableDecay}};
  Schedule s;
  s.kind = kinds.at(c["lr_scheduler_type"]);
  s.learning_rate = c["learning_rate"];
  s.warmup_steps = c["warmup_steps"];
  s.total_steps = c["total_steps"];
  const Json& extra = c["lr_scheduler_kwargs"];
  s.num_cycles = extra.value("num_cycles", s.kind == ScheduleKind::kCosineWithRestarts ? 1 : 0.5);
  s.lr_end = extra.value("lr_end", s.lr_end);
  s.power = extra.value("power", s.power);
  if (extra.contains("timescale")) s.timescale = extra["timescale"].get<int64_t>();
  s.decay_steps = extra.value("num_decay_steps", int64_t{0});
  if (extra.contains("num_stable_steps")) s.stable_steps = extra["num_stable_steps"].get<int64_t>();
  s.warmup_shape = ShapeNamed(extra.value("warmup_type", "linear"));
  s.decay_shape = ShapeNamed(extra.value("decay_type", "cosine"));
  s.min_lr_rate = extra.value("min_lr_ratio", extra.value("min_lr_rate", 0.0));
  if (extra.contains("min_lr")) s.min_lr_rate = extra["min_lr"].get<double>() / s.learning_rate;
  return s;
}

TEST(Schedule, EqualsTransformersAtEveryStepAndBeyondTheEnd) {
  const auto goldens = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/schedule/goldens.json");
  ASSERT_TRUE(goldens.ok()) << goldens.status().message();
  const Json& cases = (*goldens)["cases"];
  ASSERT_GE(cases.size(), 25u);
  for (const Json& c : cases) {
    const Schedule s = ScheduleOfCase(c);
    EXPECT_TRUE(s.Check().ok()) << s.Check().message();
    const auto rates = c["rates"].get<std::vector<double>>();
    for (size_t step = 0; step < rates.size(); ++step) {
      // Same operations in the same order: only cos may differ between the two libms, by one unit in the last place of
      // a number up to 1, scaled by the peak.
      EXPECT_NEAR(s.At(static_cast<int64_t>(step)), rates[step], 0x1p-52 * s.learning_rate)
          << c["lr_scheduler_type"] << " " << c["lr_scheduler_kwargs"] << " step " << step;
    }
  }
}

TEST(Schedule, RefusesPhasesLongerThanTheRun) {
  Schedule s;
  s.kind = ScheduleKind::kWarmupStableDecay;
  s.total_steps = 10;
  s.warmup_steps = 4;
  s.decay_steps = 7;
  EXPECT_NE(s.Check().message().find("num_decay_steps"), std::string::npos);
  s.decay_steps = 6;
  EXPECT_TRUE(s.Check().ok());
}

// As transformers runs it: the rate rises to the end, and does not get to its peak.
TEST(Schedule, WarnsOfAWarmupThatIsLongerThanTheRun) {
  Schedule s;
  s.kind = ScheduleKind::kLinear;
  s.learning_rate = 1e-3;
  s.total_steps = 4;
  s.warmup_steps = 10;
  EXPECT_TRUE(s.Check().ok());
  EXPECT_DOUBLE_EQ(s.At(3), 3e-4);
  ASSERT_TRUE(s.Warning().has_value());
  EXPECT_NE(s.Warning()->find("10 warmup steps are more than the run's 4: learning_rate is not reached, the last step "
                              "has 0.0003 of 0.001"),
            std::string::npos)
      << *s.Warning();
  s.warmup_steps = 4;
  EXPECT_FALSE(s.Warning().has_value());
}

TEST(Schedule, RefusesAPolynomialThatRisesAndATimescaleShorterThanTheWarmup) {
  Schedule s;
  s.kind = ScheduleKind::kPolynomial;
  s.total_steps = 10;
  s.learning_rate = 1e-4;
  EXPECT_TRUE(s.Check().ok());
  s.lr_end = 1e-4;
  EXPECT_NE(s.Check().message().find("lr_end"), std::string::npos);
  s.kind = ScheduleKind::kInverseSqrt;
  s.warmup_steps = 5;
  EXPECT_TRUE(s.Check().ok());
  s.timescale = 4;
  EXPECT_NE(s.Check().message().find("timescale"), std::string::npos);
}

TEST(Schedule, RoundsWarmupAsTransformersDoes) {
  EXPECT_EQ(WarmupSteps(0.03, 100), 3);
  EXPECT_EQ(WarmupSteps(0.03, 101), 4);
  EXPECT_EQ(WarmupSteps(0.0, 101), 0);
}

}  // namespace
}  // namespace temper::schedule_test
