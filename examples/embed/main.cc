// Trains a small model within this program, shows how far it is, and lets it answer.
//   embed MODEL DATA OUTPUT_DIR [QUESTION]
#include <temper/temper.h>

#include <cstdio>
#include <string>
#include <vector>

class Shown : public temper::Observer {
 public:
  void OnStep(const temper::StepMetrics& s) override {
    std::printf("step %ld of %ld: loss %.3f, %.0f s left\n", static_cast<long>(s.step),
                static_cast<long>(s.total_steps), s.loss, s.seconds_left);
  }
  void OnLine(Level level, std::string_view line) override {
    if (level != Level::kInfo) std::printf("%.*s\n", static_cast<int>(line.size()), line.data());
  }
};

int Fail(const temper::Status& status) {
  std::fprintf(stderr, "%s\n", status.message().c_str());
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 4) return Fail({temper::StatusCode::kInvalidArgument, "usage: embed MODEL DATA OUTPUT_DIR [QUESTION]"});
  temper::Settings run;
  run.Set("model", argv[1]).Set("data", argv[2]).Set("output_dir", argv[3]).Set("max_steps", 8);
  run.Set("learning_rate", 1e-3).Set("max_seq_len", 128).Set("warmup_steps", 0).Set("overwrite", true);
  Shown shown;
  const auto trained = temper::Train(run, &shown);
  if (!trained.ok()) return Fail(trained.status());
  auto model = temper::Open(temper::Settings().Set("model", trained->output_dir), &shown);
  if (!model.ok()) return Fail(model.status());
  const std::vector<temper::Message> messages = {{"user", argc > 4 ? argv[4] : "Why does it rain?"}};
  const auto answer = model->Chat(messages, temper::Settings().Set("max_new_tokens", 32));
  if (!answer.ok()) return Fail(answer.status());
  std::printf("%s\n", answer->c_str());
}
