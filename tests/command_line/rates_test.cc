// The rates by which a run within memory limits chooses: a plan and a run with the same rates choose alike, and a
// resumed run chooses as before.
#include "temper_program.h"

namespace temper::program::rates_test {
namespace {

// A measured machine; `copies`: between its tiers.
std::string Machine(const std::string& copies) {
  std::string text =
      "name: somewhere\ndate: \"2026-11-24\"\nshared: true\n"
      "device: {name: \"some CPU\", memory: 16 GB}\nhost:\n  devices: 1\n  memory: 16 GB\n"
      "  disk: {read: 1 GB/s, write: 1 GB/s}\nmeasured:\n  - ranks: 1\n    f32_peak: 100 GFLOP/s\n"
      "    copies: {bandwidth: " +
      copies + ", kernels: 1.5, moves: 1.3}\n    rates:\n";
  for (const char* dtype : {"f32", "bf16"}) {
    for (const auto& [op, op_class] :
         {std::pair{"linear", "product"}, {"linear", "narrow"}, {"attention", "attention"}, {"add", "memory"}}) {
      text += fmt::format(
          "      - {{op: {}, class: {}, dtype: {}, launch: 1 us, rate: 100 GFLOP/s, bandwidth: [{{of: 1 B, is: 10 "
          "GB/s}}]}}\n",
          op, op_class, dtype);
    }
  }
  return text;
}

class Rates : public Workplace {
 protected:
  // A run that does not fit its limits.
  static Arguments Limited(const Arguments& more) {
    return With(Train({"--method", "full", "--dtype", "bf16", "--memory.device", "6MiB", "--save_steps", "2"}), more);
  }
  // The lines of what was chosen, from a run's messages.
  static std::string Chosen(const Ended& ended) {
    EXPECT_EQ(ended.code, 0) << ended.err;
    const size_t begin = ended.err.find("memory      gradients"), end = ended.err.find("rates       ", begin);
    return begin == std::string::npos || end == std::string::npos ? "" : ended.err.substr(begin, end - begin);
  }
  static std::string Source(const Ended& ended) {
    const size_t at = ended.err.find("rates       ");
    return at == std::string::npos ? "" : ended.err.substr(at, ended.err.find('\n', at) - at);
  }
};

TEST_F(Rates, ARunByTheRatesOfAFileChoosesAsItsPlanOnThatCluster) {
  Spill("slow.yaml", Machine("20 MB/s"));
  Spill("fast.yaml", Machine("50 GB/s"));
  std::map<std::string, std::string> placements;
  for (const std::string file : {"slow.yaml", "fast.yaml"}) {
    SCOPED_TRACE(file);
    Arguments plan = Limited({});
    plan[0] = "plan";
    const Ended planned = Temper(With(plan, {"--json", "--cluster", file, "--rates", "measure"}));
    ASSERT_EQ(planned.code, 0) << planned.err;
    const Json report = Json::parse(planned.out);
    EXPECT_EQ(report["rates"], "measured on some CPU, 2026-11-24");
    const Ended ran = Temper(Limited({"--rates", file, "--overwrite"}));
    const std::string chosen = Chosen(ran);
    EXPECT_EQ(Source(ran), "rates       measured on some CPU, 2026-11-24");
    EXPECT_NE(chosen.find(report["placement"].get<std::string>()), std::string::npos) << report["placement"] << "\n"
                                                                                      << chosen;
    EXPECT_EQ(Json::parse(FirstLines(Path("out/metrics.jsonl"), 1))["device_peak_bytes"],
              report["bytes"]["device"]["total"]);
    placements[file] = chosen;
  }
  EXPECT_NE(placements["slow.yaml"], placements["fast.yaml"]);
}

TEST_F(Rates, AResumedRunTakesThoseThatItMeasuredUnlessItRunsOnOtherThreads) {
  Arguments run = Limited({"--rates", "measure"});
  const Ended first = Temper(run);
  const std::string chosen = Chosen(first);
  EXPECT_NE(Source(first).find("measured on "), std::string::npos) << first.err;
  const std::string kept = Slurp("out/checkpoint-2/rates.yaml");
  run.push_back("--resume=out/checkpoint-2");
  const Ended again = Temper(run);
  EXPECT_EQ(Chosen(again), chosen);
  EXPECT_EQ(Slurp("out/checkpoint-4/rates.yaml"), kept);
  const Ended elsewhere = Temper(With(run, {"--threads", "2"}));
  ExpectEnd(elsewhere, 0, {"rates       the checkpoint's are of 1 rank of 1 thread", "this is 1 rank of 2 threads"});
  EXPECT_NE(Slurp("out/checkpoint-4/rates.yaml").find("name: 1 rank of 2 threads"), std::string::npos);
}

TEST_F(Rates, MfuCountsFromTheCalibratedPeakAndARunSaysWhetherTheMachineIsSlowerNow) {
  const std::string cache = Path("cache");
  ASSERT_TRUE(PosixEnv().CreateFolders(cache + "/temper").ok());
  Spill("cache/temper/none.yaml", "");
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  const Ended plain = Temper(Limited({"--rates", "measure"}));
  ExpectEnd(plain, 0, {"MFU         100 % is "});
  EXPECT_EQ(plain.err.find("when it was calibrated"), std::string::npos) << plain.err;
  const std::string kept = Slurp("out/checkpoint-2/rates.yaml"), key = "name: \"";
  const size_t begin = kept.find(key) + key.size();
  const std::string machine = kept.substr(begin, kept.find('"', begin) - begin);
  std::string calibrated = Machine("10 GB/s");
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"some CPU", machine},
                                 {"f32_peak: 100 GFLOP/s", "f32_peak: 90000 TFLOP/s"}}) {
    calibrated.replace(calibrated.find(from), from.size(), to);
  }
  Spill("cache/temper/this.yaml", calibrated);
  const Ended slower = Temper(Limited({"--overwrite"}));
  unsetenv("XDG_CACHE_HOME");
  ExpectEnd(
      slower, 0,
      {"MFU         100 % is 9e+04 TFLOP/s, the peak of products in bf16, measured when the machine was calibrated "
       "(2026-",
       "warning: the machine gives 0 % of that now"});
}

TEST_F(Rates, NothingIsMeasuredForARunThatFits) {
  const Ended open = Temper(Train({"--rates", "measure"}));
  EXPECT_EQ(open.code, 0) << open.err;
  EXPECT_EQ(Source(open), "");
  EXPECT_FALSE(Has("out/checkpoint-4/rates.yaml"));
  ExpectEnd(Temper(Limited({"--rates", "nowhere.yaml", "--overwrite"})), 1, {"'nowhere.yaml' is neither a file nor a"});
}

TEST_F(Rates, RanksMeasureTogetherAndChooseByTheSame) {
  const Ended ran =
      Temper(Limited({"--rates", "measure", "--nprocs", "2", "--mesh", "fsdp=2", "--memory.device", "4.5MiB"}));
  ExpectEnd(ran, 0, {"rates       measured on "});
  EXPECT_NE(Slurp("out/checkpoint-4/rates.yaml").find("name: 2 ranks of 1 thread"), std::string::npos);
}

// Measuring takes a minute: where the result cannot be kept, nothing is measured.
TEST_F(Rates, AMachineIsMeasuredOnlyWhereTheResultCanBeKept) {
  Spill("file", "");
  setenv("XDG_CACHE_HOME", Path("file").c_str(), 1);
  for (const Arguments& line : {Arguments{"plan", "--model", kModel, "--cluster", "this"}, {"doctor", "--calibrate"}}) {
    const Ended ended = Temper(line);
    ExpectEnd(ended, 1, {"the measured speeds of this machine are kept in ", "set XDG_CACHE_HOME to a folder"});
    EXPECT_EQ(ended.err.find("rank of"), std::string::npos) << ended.err;
  }
  unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace temper::program::rates_test
