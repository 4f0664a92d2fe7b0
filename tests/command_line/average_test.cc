// temper export of several models: their mean.
#include "file_tensors.h"

namespace temper::program::average_test {
namespace {

class Average : public Workplace {
 protected:
  // The numbers of a model folder that `temper export` writes of `models`.
  Tensors Exported(const std::vector<std::string>& models, const std::string& to, const std::string& dtype) const {
    Arguments line = {"export"};
    line.insert(line.end(), models.begin(), models.end());
    const Ended ended = Temper(With(line, {"--output_dir", to, "--dtype", dtype}));
    EXPECT_EQ(ended.code, 0) << ended.err;
    if (models.size() > 1) {
      EXPECT_NE(ended.err.find(fmt::format("{}: the mean of {} models: ", to, models.size())), std::string::npos)
          << ended.err;
    }
    return Read(Path(to + "/model.safetensors"));
  }
};

// Of an adapter's checkpoints the mean of their merged models, of a full run's that of their masters: in double,
// rounded once. Also of adapters of other ranks and of a full run beside an adapter.
TEST_F(Average, IsTheMeanOfEachNumberOfTheModels) {
  const auto train = [&](const std::string& out, const Arguments& more) {
    const Ended ended = Temper(With(Train({"--output_dir", out, "--save_steps", "2"}), more));
    ASSERT_EQ(ended.code, 0) << ended.err;
  };
  train("lora", {"--learning_rate", "1e-2"});
  train("wider", {"--learning_rate", "1e-2", "--lora.r", "3"});
  train("full", {"--method", "full", "--learning_rate", "1e-3"});
  int count = 0;
  for (const std::vector<std::string>& models : {std::vector<std::string>{"lora/checkpoint-2", "lora/checkpoint-4"},
                                                 {"full/checkpoint-2", "full/checkpoint-4", "full"},
                                                 {"lora", "wider", "full/checkpoint-4"}}) {
    SCOPED_TRACE(models.front());
    const std::string name = fmt::format("mean{}", count++);
    std::map<std::string, std::vector<double>> sums;
    for (size_t i = 0; i < models.size(); ++i) {
      for (const auto& [tensor, own] : Exported({models[i]}, fmt::format("{}of{}", name, i), "f32")) {
        const std::vector<float> numbers = Floats(own);
        std::vector<double>& sum = sums[tensor];
        sum.resize(numbers.size());
        for (size_t k = 0; k < numbers.size(); ++k) sum[k] += double{numbers[k]};
      }
    }
    const Tensors mean = Exported(models, name, "f32"), rounded = Exported(models, name + "b", "bf16");
    ASSERT_EQ(mean.size(), sums.size());
    int moved = 0;
    for (const auto& [tensor, sum] : sums) {
      const std::vector<float> got = Floats(mean.at(tensor)), in_bf16 = Floats(rounded.at(tensor)),
                               first = Floats(Read(Path(name + "of0/model.safetensors")).at(tensor));
      moved += got != first;
      for (size_t k = 0; k < sum.size(); ++k) {
        const double wanted = sum[k] / static_cast<double>(models.size());
        ASSERT_EQ(got[k], static_cast<float>(wanted)) << tensor << " " << k;
        ASSERT_NEAR(double{in_bf16[k]}, wanted, 0x1p-8 * std::fabs(wanted)) << tensor << " " << k;
      }
    }
    EXPECT_GT(moved, 10) << "the models are all alike";
  }
  // A model as any other, without a card: none of the runs' tells of it.
  EXPECT_EQ(Temper({"inspect", "mean0"}).code, 0);
  EXPECT_TRUE(Has("mean2of0/README.md"));
  EXPECT_FALSE(Has("mean2/README.md"));
}

TEST_F(Average, OfModelsThatAreNotAlikeIsRefused) {
  const std::string other = kGoldens + "/models/arcee";
  const Ended ended = Temper({"export", kModel, other, "--output_dir", "mean"});
  ExpectEnd(ended, 2, {"config.json differs in ", "a mean is of models with the same tensors"});
  EXPECT_FALSE(Has("mean"));
  // The same configuration, but for a tensor's rows.
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("short")).ok());
  Spill("short/config.json", temper::Slurp(kModel + "/config.json"));
  Tensors tensors = Read(kModel + "/model.safetensors");
  tensors.erase(tensors.begin());
  Write(Path("short/model.safetensors"), tensors);
  ExpectEnd(Temper({"export", kModel, "short", "--output_dir", "mean"}), 1, {});
  ExpectEnd(Temper({"export", kModel, kModel, "--output_dir", "mean", "--format", "gguf"}), 2,
            {"a mean of models is written with --format hf"});
  ExpectEnd(Temper({"export", kModel, kModel, "--adapter", "x", "--output_dir", "mean"}), 2,
            {"--adapter is for one model"});
  ExpectEnd(Temper({"inspect", kModel, kModel}), 2, {"takes one model"});
  ExpectEnd(Temper({"export", kModel, kModel, "--output_dir", kModel, "--overwrite"}), 2,
            {"is the folder being exported"});
}

}  // namespace
}  // namespace temper::program::average_test
