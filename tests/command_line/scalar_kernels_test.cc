// A run with scalar kernels warns about them.
#include "temper_program.h"

namespace temper::program::scalar_kernels_test {
namespace {

using ScalarKernels = Workplace;

TEST_F(ScalarKernels, AreAnnouncedByTrainAndPlanWithTheirReason) {
  const Arguments full = {"--method", "full", "--from_scratch", "true", "--max_steps", "1"};
  const auto train = [&](const std::string& model) {
    Arguments run = Train({"--model", model, "--output_dir", model + "-out"});
    run = With(run, full);
    const Ended ended = Temper(run);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.err;
  };
  const auto plan = [&](const std::string& model) {
    const Ended ended = Temper(With({"plan", "--model", model, "--max_seq_len", "96"}, full));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.err;
  };
  CopyModel("even");
  CopyModel("odd");
  Json config = Json::parse(Slurp("odd/config.json"));
  config["num_attention_heads"] = 8;  // of 20 numbers each
  config.erase("head_dim");
  Spill("odd/config.json", config.dump());
  for (const std::string& err : {train("odd"), plan("odd")}) {
    for (const char* op : {"attention", "attention_backward"}) {
      EXPECT_NE(err.find("warning: " + std::string(op) + " of "), err.npos) << err;
    }
    EXPECT_NE(err.find("runs on a scalar kernel, which is slow: head_dim 20 is not a multiple of 16"), err.npos) << err;
  }
  for (const std::string& err : {train("even"), plan("even")}) EXPECT_EQ(err.find("scalar kernel"), err.npos) << err;
}

}  // namespace
}  // namespace temper::program::scalar_kernels_test
