// Tests what --model accepts, and that only results go to stdout, for scripts.
#include <cmath>
#include <sstream>

#include "temper_program.h"

namespace temper::program::models_test {
namespace {

// One short LoRA and one short full run, made once for all tests of this file.
class Models : public Workplace {
 protected:
  static void SetUpTestSuite() {
    runs_ = new ScratchFolder();
    const std::string data = runs_->path() + "/d.jsonl";
    temper::Spill(data, FirstLines(kExample + "/pirate_train.jsonl", 60));
    const std::vector<std::pair<Arguments, std::string>> kinds = {
        {{"--learning_rate", "1e-2"}, "lora"}, {{"--method", "full", "--learning_rate", "1e-3"}, "full"}};
    for (const auto& [options, name] : kinds) {
      Arguments run = Train({"--output_dir", name, "--save_steps", "2"});
      run = With(run, options);
      const Ended ended = RunTemper(run, runs_->path());
      ASSERT_EQ(ended.code, 0) << ended.err;
    }
  }
  static void TearDownTestSuite() {
    delete runs_;
    runs_ = nullptr;
  }

  static std::string Of(const std::string& name) { return runs_->path() + "/" + name; }

  std::string Continue(const std::string& model) const {
    const Ended ended = Temper({"generate", "--model", model, "--prompt", "Why is the sky blue?", "--max_new_tokens",
                                "12", "--temperature", "0", "--threads", "1", "--dtype", "f32"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.out.back(), '\n');
    return ended.out;
  }
  Json Evaluate(const std::string& model) const {
    const Ended ended = Temper({"eval", "--model", model, "--data", "e.jsonl", "--threads", "1", "--dtype", "f32"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_NE(ended.err.find("e.jsonl: 6 rows"), std::string::npos) << ended.err;
    return Json::parse(ended.out);  // all of stdout
  }

  static ScratchFolder* runs_;
};
ScratchFolder* Models::runs_ = nullptr;

TEST_F(Models, GenerateAndEvalTakeAModelAnAdapterAnOutputAndACheckpoint) {
  // An adapter folder with nothing else in it, as PEFT writes it.
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("adapter")).ok());
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
    Spill(JoinPath("adapter", file), temper::Slurp(Of("lora/") + file));
  }
  std::map<std::string, std::string> said;
  std::map<std::string, double> loss;
  for (const std::string& model : {kModel, Of("lora"), Of("lora/checkpoint-4"), Of("lora/checkpoint-2"),
                                   std::string("adapter"), Of("full"), Of("full/checkpoint-4")}) {
    said[model] = Continue(model);
    const Json report = Evaluate(model);
    loss[model] = report["eval_loss"].get<double>();
    EXPECT_NEAR(report["perplexity"].get<double>(), std::exp(loss[model]), 1e-9 * std::exp(loss[model]));
    EXPECT_EQ(report["samples"], 6);
  }
  for (const std::string& same : {Of("lora/checkpoint-4"), std::string("adapter")}) {
    EXPECT_EQ(said[Of("lora")], said[same]) << same;
    EXPECT_EQ(loss[Of("lora")], loss[same]) << same;
  }
  // The checkpoint has f32 masters, the result is rounded to bf16, to 2^-9 of each weight.
  EXPECT_NEAR(loss[Of("full")], loss[Of("full/checkpoint-4")], 0.01 * loss[Of("full")]);
  EXPECT_LT(loss[Of("lora")], loss[kModel]) << "the adapter is not used";
  EXPECT_LT(loss[Of("full")], loss[kModel]) << "the trained weights are not used";
  EXPECT_NE(loss[Of("lora")], loss[Of("lora/checkpoint-2")]);
  // --base, if the adapter names another place.
  std::string config = Slurp("adapter/adapter_config.json");
  config.replace(config.find(kModel), kModel.size(), "/nowhere/at-all");
  Spill("adapter/adapter_config.json", config);
  ExpectEnd(Temper({"eval", "--model", "adapter", "--data", "e.jsonl"}), 1,
            {"made for '/nowhere/at-all', which is not here", "--base FOLDER"});
  const Ended with_base =
      Temper({"eval", "--model", "adapter", "--base", kModel, "--data", "e.jsonl", "--threads", "1", "--dtype", "f32"});
  EXPECT_EQ(Json::parse(with_base.out)["eval_loss"], loss[Of("lora")]);
}

TEST_F(Models, ExportMergesEveryKindToTheSameLoss) {
  for (const std::string& model : {Of("lora"), Of("lora/checkpoint-4"), Of("full"), Of("full/checkpoint-4"), kModel}) {
    SCOPED_TRACE(model);
    const Ended ended = Temper({"export", "--model", model, "--output_dir", "merged", "--dtype", "f32", "--overwrite"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(Temper({"inspect", "merged"}).code, 0);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "config.json"}) {
      EXPECT_TRUE(Has(JoinPath("merged", file))) << file;
    }
    // Merged in f32: the two differ only by rounding.
    EXPECT_NEAR(Evaluate("merged")["eval_loss"].get<double>(), Evaluate(model)["eval_loss"].get<double>(), 1e-4);
  }
  ExpectEnd(Temper({"export", "--model", kModel, "--output_dir", "merged"}), 2, {"merged is not empty", "--overwrite"});
  ExpectEnd(Temper({"export", "--model", kModel, "--output_dir", Of("lora"), "--overwrite"}), 2, {"holds a run"});
  ExpectEnd(Temper({"export", "--model", kModel, "--output_dir", "x", "--dtype", "i32"}), 2,
            {"dtype should be one of stored, bf16, f16, f32, but is 'i32'"});
}

TEST_F(Models, EveryStoredTypeIsRead) {
  const double loss = Evaluate(kModel)["eval_loss"].get<double>();
  for (const char* dtype : {"f16", "bf16", "f32"}) {
    ASSERT_EQ(Temper({"export", "--model", kModel, "--output_dir", dtype, "--dtype", dtype}).code, 0);
    EXPECT_NE(Temper({"inspect", dtype}).out.find(dtype), std::string::npos);
    // The example's weights are bf16; f16 rounds values below 6e-8 to zero.
    EXPECT_NEAR(Evaluate(dtype)["eval_loss"].get<double>(), loss, 1e-4) << dtype;
    EXPECT_EQ(Temper(Train({"--model", dtype, "--max_steps", "1", "--output_dir", std::string("o_") + dtype})).code, 0);
  }
}

TEST_F(Models, InspectTakesEveryKindAndAFile) {
  for (const std::string& path : {kModel, kModel + "/model.safetensors", Of("lora"), Of("lora/checkpoint-2"),
                                  Of("lora/adapter_model.safetensors"), Of("full"), Of("full/checkpoint-4"),
                                  Of("full/checkpoint-4/state-00000-of-00001.safetensors")}) {
    const Ended ended = Temper({"inspect", path});
    EXPECT_EQ(ended.code, 0) << path << ended.err;
    EXPECT_EQ(ended.err, "") << path;
    EXPECT_NE(ended.out.find("tensors ("), std::string::npos) << ended.out;
  }
  ExpectEnd(Temper({"inspect", "nothing"}), 1, {"nothing: there is no such file or folder"});
  ExpectEnd(Temper({"inspect", "."}), 1, {"holds nothing that Temper knows"});
}

TEST_F(Models, TrainContinuesFromAnAdapter) {
  ExpectEnd(Temper(Train({"--model", Of("lora"), "--max_steps", "1"})), 0, {"settings    lora.r 16: from the adapter"});
  EXPECT_TRUE(Has("out/adapter_config.json"));
  ExpectEnd(Temper(Train({"--model", Of("lora"), "--lora.r", "4", "--output_dir", "o2"})), 2,
            {"lora.* differs from the configuration of adapter", "(r 16, alpha 32)"});
  ExpectEnd(Temper(Train({"--model", Of("lora"), "--method", "full", "--output_dir", "o3"})), 2,
            {"is an adapter, but method is full", "temper export --model"});
}

TEST_F(Models, ChatAnswersLineByLineOnStdout) {
  // Through a shell, for its standard input.
  const Ended ended = Process({"sh", "-c",
                               "printf 'Why does it rain?\\n/new\\nWhy is ice cold?\\n' | " + kProgram +
                                   " chat --threads 1 --max_new_tokens 5 --model " + kModel},
                              folder())
                          .Wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 2) << ended.out;
}

TEST_F(Models, GenerateAnswersAMessageLikeChat) {
  const Arguments decoding = {"--model", Of("lora"), "--threads", "1", "--max_new_tokens", "8", "--temperature", "0"};
  const auto with = [&](Arguments command) {
    command = With(command, decoding);
    return command;
  };
  const Ended generated = Temper(with({"generate", "--chat", "--prompt", "Why does it rain?"}));
  ASSERT_EQ(generated.code, 0) << generated.err;
  std::string chat = "printf 'Why does it rain?\\n' | " + kProgram;
  for (const std::string& word : with({"chat"})) chat += " " + word;
  EXPECT_EQ(Process({"sh", "-c", chat}, folder()).Wait().out, generated.out);
  EXPECT_NE(Temper(with({"generate", "--prompt", "Why does it rain?"})).out, generated.out)
      << "the template is not used";
  // One seed gives one text.
  const auto drawn = [&](const char* seed) {
    return Temper({"generate", "--model", kModel, "--prompt", "The", "--threads", "1", "--temperature", "1.5", "--seed",
                   seed})
        .out;
  };
  EXPECT_EQ(drawn("1"), drawn("1"));
  EXPECT_NE(drawn("1"), drawn("2"));
}

// Whatever else is answered at the same time. Each answer is that of its prompt alone.
TEST_F(Models, GenerateAnswersAFileOfPromptsInItsOrder) {
  const std::vector<std::string> prompts = {"Why does it rain?", "The", "Why is the sky blue, and the sea salt?", "A"};
  std::string lines, rows;
  for (const std::string& prompt : prompts) {
    lines += prompt + "\n";
    rows += Json{{"prompt", prompt}}.dump() + "\n";
  }
  Spill("p.txt", lines);
  Spill("p.jsonl", rows);
  const Arguments decoding = {"--model", Of("lora"), "--threads", "1", "--max_new_tokens", "8"};
  const auto answer = [&](Arguments command) {
    const Ended ended = Temper(With(command, decoding));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  const std::string out = answer({"generate", "--prompts", "p.txt", "--batch", "3"});
  EXPECT_EQ(answer({"generate", "--prompts", "p.txt", "--batch", "1"}), out);
  EXPECT_EQ(answer({"generate", "--prompts", "p.jsonl"}), out);
  std::istringstream answers(out);
  std::string line;
  for (const std::string& prompt : prompts) {
    ASSERT_TRUE(std::getline(answers, line));
    const Json row = Json::parse(line);
    EXPECT_EQ(row["prompt"], prompt);
    EXPECT_EQ(row["completion"].get<std::string>() + "\n", answer({"generate", "--prompt", prompt}));
  }
  EXPECT_FALSE(std::getline(answers, line));
  const Arguments chat = {"generate", "--prompts", "p.jsonl", "--chat", "--temperature", "1.3"};
  EXPECT_EQ(answer(With(Arguments(chat), {"--batch", "4"})), answer(With(Arguments(chat), {"--batch", "2"})));
}

TEST_F(Models, GenerateWarnsIfItStopsAtTheModelsLastPosition) {
  std::string config = Slurp(JoinPath(CopyModel("short"), "config.json"));
  const std::string positions = "\"max_position_embeddings\": 512";
  ASSERT_NE(config.find(positions), config.npos);
  Spill("short/config.json",
        config.replace(config.find(positions), positions.size(), "\"max_position_embeddings\": 16"));
  const auto generate = [&](const char* tokens) {
    return Temper(
        {"generate", "--model", "short", "--prompt", "Why is the sky", "--max_new_tokens", tokens, "--threads", "1"});
  };
  ExpectEnd(generate("64"), 0, {"the answer is cut off after", "it fills the 16 positions of the model"});
  EXPECT_EQ(generate("4").err.find("cut off"), std::string::npos);
}

TEST_F(Models, PreviewShowsSupervisedText) {
  const Ended ended = Temper({"data", "preview", "--model", kModel, "--data", "d.jsonl"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json row = Json::parse(FirstLines(Path("d.jsonl"), 1));
  const std::string answer = row["messages"].back()["content"].get<std::string>();
  EXPECT_NE(ended.out.find(answer.substr(0, 12)), std::string::npos) << ended.out;
}

TEST_F(Models, PreviewPrintsEverySampleAsJson) {
  const Ended ended = Temper({"data", "preview", "--model", kModel, "--data", "d.jsonl", "--json"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  std::istringstream lines(ended.out), rows(Slurp("d.jsonl"));
  int samples = 0;
  for (std::string line, row; std::getline(lines, line) && std::getline(rows, row); ++samples) {
    const Json sample = Json::parse(line);
    EXPECT_EQ(sample["place"], "d.jsonl line " + std::to_string(samples + 1));
    EXPECT_EQ(sample["input_ids"].size(), sample["labels"].size());
    size_t supervised = 0;
    for (size_t i = 0; i < sample["labels"].size(); ++i) {
      if (sample["labels"][i] == -100) continue;
      EXPECT_EQ(sample["labels"][i], sample["input_ids"][i]);
      ++supervised;
    }
    const Json& span = sample["spans"].back();
    EXPECT_GT(supervised, 0u);
    EXPECT_LE(span["end"].get<size_t>() - span["begin"].get<size_t>(), supervised);
    const auto answer = Json::parse(row)["messages"].back()["content"].get<std::string>();
    EXPECT_NE(span["text"].get<std::string>().find(answer.substr(0, 12)), std::string::npos) << line;
  }
  EXPECT_EQ(samples, 60);
  ExpectEnd(Temper({"data", "preview", "--model", kModel, "--data", "d.jsonl", "--json", "--packed"}), 2, {"--packed"});
}

TEST_F(Models, TemplatesGetTheirVariables) {
  CopyModel("switched");
  Spill("switched/chat_template.jinja",
        "{% for m in messages %}{{ m.role }}{{ 'ON' if enable_thinking else 'OFF' }}:{{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant{{ 'ON' if enable_thinking else 'OFF' }}:{% endif %}");
  const auto preview = [&](const Arguments& options) {
    Arguments run = {"data", "preview", "--model", "switched", "--data", "d.jsonl"};
    run = With(run, options);
    return Temper(run).out;
  };
  EXPECT_NE(preview({}).find("assistantOFF:"), std::string::npos);
  EXPECT_NE(preview({"--chat_template_kwargs", "{\"enable_thinking\": true}"}).find("assistantON:"), std::string::npos);
  const Arguments train =
      Train({"--model", "switched", "--max_steps", "1", "--chat_template_kwargs", "{\"enable_thinking\": true}"});
  ExpectEnd(Temper(train), 0, {});
  EXPECT_NE(Slurp("out/run.yaml").find("chat_template_kwargs: {\"enable_thinking\":true}"), std::string::npos);
  ExpectEnd(Temper({"chat", "--model", "switched", "--chat_template_kwargs", "[]"}), 2, {"should be a JSON object"});
}

// transformers 5 changes the tokenizer.json of a LlamaTokenizer:
// Temper's output names a class that it leaves unchanged.
TEST_F(Models, AFinishedModelNamesATokenizerClassThatIsReadUnchanged) {
  CopyModel("llama");
  Json config = Json::parse(Slurp("llama/tokenizer_config.json"));
  config["tokenizer_class"] = "LlamaTokenizer";
  Spill("llama/tokenizer_config.json", config.dump());
  ExpectEnd(Temper(Train({"--model", "llama", "--method", "full", "--max_steps", "1"})), 0,
            {"tokenizer ", "names LlamaTokenizer", "exports name PreTrainedTokenizerFast"});
  ExpectEnd(Temper({"export", "--model", "out", "--output_dir", "exported"}), 0, {});
  for (const char* folder : {"out", "exported"}) {
    const Json written = Json::parse(Slurp(std::string(folder) + "/tokenizer_config.json"));
    EXPECT_EQ(written["tokenizer_class"], "PreTrainedTokenizerFast") << folder;
  }
}

// The model has positions for 512.
TEST_F(Models, PreviewPacksRowsAsLongAsTrainingDoes) {
  const auto row_of = [&](const Arguments& options) {
    Arguments run = {"data", "preview", "--model", kModel, "--data", "d.jsonl", "--packed", "--samples", "1"};
    run = With(run, options);
    const std::string out = Temper(run).out;
    const size_t of = out.find(" of ", out.find(':'));
    return of == out.npos ? 0 : std::atoi(out.c_str() + of + 4);
  };
  EXPECT_EQ(row_of({}), 512);
  EXPECT_EQ(row_of({"--max_seq_len", "96"}), 96);
  EXPECT_EQ(row_of({"--max_seq_len", "700"}), 700) << "training accepts this with a warning";
}

TEST_F(Models, PlanNeedsOnlyConfigJson) {
  Spill("config.json", temper::Slurp(kModel + "/config.json"));
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("bare")).ok());
  Spill("bare/config.json", Slurp("config.json"));
  const Arguments options = {"--threads", "1", "--max_seq_len", "96", "--gradient_accumulation_steps", "1"};
  Arguments plan = {"plan", "--model", "bare", "--json"};
  plan = With(plan, options);
  const Ended ended = Temper(plan);
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json report = Json::parse(ended.out);
  EXPECT_EQ(report["architecture"], "LlamaForCausalLM");
  EXPECT_EQ(report["tokens_per_step"], 96);
  // The plan is the run: the same bytes and the same Program.
  std::ifstream in(Of("lora/metrics.jsonl"));
  std::string row;
  std::getline(in, row);
  EXPECT_EQ(report["bytes"]["device"]["total"], Json::parse(row)["device_peak_bytes"]);
  EXPECT_EQ(report["program_hash"], Json::parse(temper::Slurp(Of("lora/checkpoint-2/manifest.json")))["program"]);
  int64_t sum = 0;
  for (const auto& [key, bytes] : report["bytes"]["device"].items()) sum += key == "total" ? 0 : bytes.get<int64_t>();
  EXPECT_EQ(report["bytes"]["device"]["total"], sum);
  ExpectEnd(Temper({"generate", "--model", "bare", "--prompt", "x"}), 1, {"bare holds no weights"});
}

TEST_F(Models, AReportThatCannotBeWrittenIsAnError) {
  if (!PosixEnv().IsFolder("/dev/shm") || access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  const Ended ended =
      Process({"sh", "-c", kProgram + " plan --json --model " + kModel + " > /dev/full"}, folder()).Wait();
  ExpectEnd(ended, 1, {"could not be written to stdout", "No space left on device"});
}

using Help = Workplace;

TEST_F(Help, CommandsExplainThemselves) {
  for (const char* command :
       {"train", "plan", "generate", "chat", "eval", "data", "export", "inspect", "doctor", "version"}) {
    const Ended ended = Temper({command, "--help"});
    EXPECT_EQ(ended.code, 0) << command;
    EXPECT_TRUE(ended.out.starts_with(fmt::format("usage: temper {}", command))) << ended.out;
    EXPECT_EQ(ended.err, "");
    EXPECT_EQ(Temper({"help", command}).out, ended.out);
  }
  EXPECT_NE(Temper({"--help"}).out.find("\n  train "), std::string::npos);
  const Ended nothing = Temper({});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_EQ(nothing.out, "");
  ExpectEnd(Temper({"trian"}), 2, {"no command 'trian'; did you mean 'train'?"});
}

// Threads, libraries and machine detection may only be set up once the command is known to need them.
TEST_F(Help, TakesLessThan50MillisecondsOfAProcessor) {
#ifdef TEMPER_SANITIZED
  GTEST_SKIP() << "a sanitizer takes longer to start";
#endif
  double least = 1;
  for (int i = 0; i < 5; ++i) least = std::min(least, Temper({"--help"}).processor.v);
  EXPECT_LT(least, 0.05);
}

}  // namespace
}  // namespace temper::program::models_test
