// temper plan for users: the considered choices in its JSON, and its use of a run's data.
#include <algorithm>

#include "model/published_sizes_for_test.h"
#include "temper_program.h"

namespace temper::program::plan_test {
namespace {

std::string LastLine(const std::string& text) {
  const std::string_view lines = std::string_view(text).substr(0, text.find_last_not_of('\n') + 1);
  return std::string(lines.substr(lines.rfind('\n') + 1));
}

class Plan : public Workplace {
 protected:
  Json Report(const Arguments& more) {
    Arguments plan = {"plan",
                      "--json",
                      "--model",
                      kModel,
                      "--threads",
                      "1",
                      "--max_seq_len",
                      "512",
                      "--cluster",
                      "RTX3090-24",
                      "--per_device_train_batch_size",
                      "2"};
    plan = With(plan, more);
    const Ended ended = Temper(plan);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.code == 0 ? Json::parse(ended.out) : Json();
  }
};

TEST_F(Plan, NamesTheConsideredWaysToMakeAStepFit) {
  const Json open = Report({"--method", "full"});
  EXPECT_FALSE(open.contains("placement"));
  const int64_t whole = open["bytes"]["device"]["total"];
  const Json report = Report({"--method", "full", "--memory.device", std::to_string(whole * 2 / 3)});
  EXPECT_TRUE(report["fits"]);
  ASSERT_TRUE(report.contains("alternatives"));
  const Json& alternatives = report["alternatives"];
  ASSERT_GE(alternatives.size(), 2u);
  EXPECT_EQ(alternatives[0]["recompute"], report["recompute"]);
  EXPECT_EQ(alternatives[0]["bytes"]["device"], report["bytes"]["device"]["total"]);
  EXPECT_LE(alternatives[0]["bytes"]["device"].get<int64_t>(), whole * 2 / 3);
  int64_t moved = 0;
  if (report.contains("bytes_moved")) {
    for (const Json& link : report["bytes_moved"]) moved += link["bytes"].get<int64_t>();
  }
  EXPECT_EQ(alternatives[0]["bytes_moved"], moved);
  for (size_t i = 0; i < alternatives.size(); ++i) {
    const Json& one = alternatives[i];
    EXPECT_EQ(one["chosen"], i == 0);
    EXPECT_EQ(one.contains("seconds_without_traffic"), one["fits"].get<bool>()) << one.dump();
    if (one["fits"]) {
      EXPECT_GE(one["seconds_without_traffic"], alternatives[0]["seconds_without_traffic"]);
    }
  }
}

// "step_seconds" is a whole step, with what ranks send; what alternatives are compared by has another name.
TEST_F(Plan, SecondsOfAStepAndOfAlternativesAreNamedByWhatTheyCount) {
  const Json open = Report({"--method", "full"});
  const std::string limit = std::to_string(open["bytes"]["device"]["total"].get<int64_t>() * 2 / 3);
  const Json alone = Report({"--method", "full", "--memory.device", limit});
  EXPECT_NEAR(alone["alternatives"][0]["seconds_without_traffic"].get<double>(), alone["step_seconds"].get<double>(),
              1e-9)
      << "one rank has no traffic";
  const Arguments two = {"plan",      "--json", "--model",         kModel,
                         "--cluster", "8xH100", "--method",        "full",
                         "--mesh",    "fsdp=2", "--memory.device", std::to_string(std::stoll(limit) / 2)};
  const Ended ended = Temper(two);
  ASSERT_EQ(ended.code, 0) << ended.err;
  const Json sharded = Json::parse(ended.out);
  ASSERT_TRUE(sharded.contains("alternatives"));
  for (const Json& one : sharded["alternatives"]) EXPECT_FALSE(one.contains("step_seconds")) << one.dump();
  EXPECT_LT(sharded["alternatives"][0]["seconds_without_traffic"], sharded["step_seconds"]);
}

TEST_F(Plan, WarnsOfWeightsThatTrainingWouldRefuse) {
  CopyModel("model");
  const Ended good = Temper({"plan", "--model", "model"});
  ExpectEnd(good, 0, {});
  EXPECT_EQ(good.err.find("would be refused"), std::string::npos) << good.err;
  std::string config = Slurp("model/config.json");
  const std::string five = "\"num_hidden_layers\": 5";
  ASSERT_NE(config.find(five), std::string::npos);
  Spill("model/config.json", config.replace(config.find(five), five.size(), "\"num_hidden_layers\": 6"));
  const Ended lacking = Temper({"plan", "--model", "model"});
  EXPECT_EQ(lacking.code, 1);
  EXPECT_NE(LastLine(lacking.out).find("the run would be refused because of its weights: "), std::string::npos);
  EXPECT_NE(LastLine(lacking.out).find("model.layers.5."), std::string::npos) << lacking.out;
}

// As loud as `temper train`, which is the question: not among the warnings above the plan.
TEST_F(Plan, EndsWithWhatTheRunWouldBeRefusedFor) {
  const auto plan = [&](const Arguments& more) {
    return Temper(With({"plan", "--model", kModel, "--threads", "1", "--rates", "typical"}, more));
  };
  EXPECT_EQ(plan({"--data", "d.jsonl"}).code, 0);
  Spill("bad.jsonl", "{oops\n");
  for (const auto& [data, why] :
       {std::pair<Arguments, std::string>{{"--data", "nosuch.jsonl"}, "cannot open nosuch.jsonl"},
        {{"--data", "no/data/*.jsonl"}, "there is no folder no/data/"},
        {{"--data", "d.jsonl", "--eval_data", "nosuch.jsonl"}, "--eval_data: cannot open nosuch.jsonl"},
        {{"--data", "d.jsonl", "--eval_data", "bad.jsonl"}, "bad.jsonl line 1"},
        {{"--data", "bad.jsonl"}, "bad.jsonl line 1"}}) {
    SCOPED_TRACE(why);
    const Ended ended = plan(data);
    EXPECT_EQ(ended.code, 1);
    EXPECT_TRUE(LastLine(ended.out).starts_with("the run would be refused because of its data: ")) << ended.out;
    EXPECT_NE(LastLine(ended.out).find(why), std::string::npos) << LastLine(ended.out);
    EXPECT_EQ(ended.out.find("the run fits"), std::string::npos) << ended.out;
  }
  const Ended json = plan({"--data", "nosuch.jsonl", "--json"});
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(Json::parse(json.out)["refused"].size(), 1u);
  // Elsewhere the file may be there.
  const Ended elsewhere = plan({"--data", "nosuch.jsonl", "--cluster", "RTX3090-24"});
  ExpectEnd(elsewhere, 0, {"the run's steps are not known: "});
}

TEST_F(Plan, KnowsWhatTheRunsLengthMeansForItsSchedule) {
  const Arguments run = {"--model", kModel,    "--data",  "d.jsonl",   "--threads",
                         "1",       "--rates", "typical", "--packing", "false"};
  Arguments warm = run, decays = run;
  warm.insert(warm.begin(), "plan");
  decays.insert(decays.begin(), "plan");
  ExpectEnd(Temper(With(warm, {"--warmup_steps", "1000"})), 0, {"1000 warmup steps are more than the run's"});
  const Ended ended = Temper(
      With(decays, {"--lr_scheduler_type", "warmup_stable_decay", "--lr_scheduler_kwargs.num_decay_steps", "999"}));
  EXPECT_EQ(ended.code, 1);
  EXPECT_TRUE(LastLine(ended.out).starts_with("the run would be refused because of its length: ")) << ended.out;
}

TEST_F(Plan, ReadDataEstimatesAttentionFromTheLengthsOfDocuments) {
  const auto attention = [](const Json& report) {
    double seconds = 0;
    for (const Json& op : report["ops"]) {
      if (op["op"].get<std::string>().starts_with("attention")) seconds += op["seconds"].get<double>();
    }
    return seconds;
  };
  const Json unread = Report({"--data", "d.jsonl"});
  const Json read = Report({"--data", "d.jsonl", "--read_data", "true"});
  EXPECT_FALSE(unread.contains("rows"));
  const double tokens = read["rows"]["tokens"], attended = read["rows"]["attended"];
  EXPECT_GT(tokens, 0.5);
  EXPECT_LE(tokens, 1.0);
  const double places = unread["tokens_per_step"];
  EXPECT_EQ(read["tokens_per_step"], static_cast<int64_t>(places * tokens));
  const double seconds = read["step_seconds"], per_second = read["tokens_per_second"];
  EXPECT_NEAR(per_second * seconds, read["tokens_per_step"].get<double>(), 0.5);
  EXPECT_GT(attended, 0);
  EXPECT_LT(attended, 0.5) << "the example's answers are shorter than 256 tokens";
  EXPECT_LT(attention(read), attention(unread));
  EXPECT_LT(read["model_flops"], unread["model_flops"]);
  EXPECT_EQ(read["bytes"], unread["bytes"]) << "a step's reserved memory does not depend on data";
  ExpectEnd(Temper({"plan", "--model", kModel, "--read_data", "true"}), 2, {"read_data", "--data"});
}

TEST_F(Plan, SaysTheStepsAndTokensThatTheRunThenHas) {
  const Arguments run = Train({"--max_steps", "-1", "--num_train_epochs", "1.5", "--gradient_accumulation_steps", "4",
                               "--eval_fraction", "0.1"});
  Arguments plan = run;
  plan[0] = "plan";
  plan.insert(plan.end(), {"--cluster", "RTX3090-24", "--json"});
  const Ended planned = Temper(plan);
  ASSERT_EQ(planned.code, 0) << planned.err;
  const Json report = Json::parse(planned.out);
  const Json length = report["run"];
  const int64_t steps = length["steps"];
  EXPECT_NEAR(length["seconds"].get<double>(), static_cast<double>(steps) * report["step_seconds"].get<double>(), 1e-9);
  const Ended ended = Temper(run);
  ExpectEnd(
      ended, 0,
      {fmt::format(
          "{} per epoch, {} steps in all",
          length["steps_per_epoch"] == 1 ? "1 step" : fmt::format("{} steps", length["steps_per_epoch"].get<int64_t>()),
          steps)});
  Json last;
  std::ifstream in(Path("out/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    if (Json row = Json::parse(line); row.contains("tokens")) last = row;
  }
  EXPECT_EQ(last["step"], steps);
  EXPECT_NEAR(last["tokens"].get<double>(), length["tokens"].get<double>(), 0.1 * length["tokens"].get<double>());
}

// Its whole script has run, on planned and on measured data.
TEST_F(Plan, ABrowserDrawsItsPageBesideAMeasuredRun) {
  ASSERT_EQ(Temper(Train({"--profile", "--max_steps", "2", "--memory.tiers", "host"})).code, 0);
  const Json report = Report({"--memory.tiers", "host", "--html", "page.html", "--measured", "out/trace.json"});
  ASSERT_FALSE(report.is_null());
  const auto chromium = [&](const Arguments& more) {
    Arguments all = {"timeout", "120", "chromium"};
    all = With(all, more);
    return Process(all, folder()).Wait();
  };
  if (chromium({"--version"}).code != 0) GTEST_SKIP() << "there is no chromium here";
  const Ended drawn =
      chromium({"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--enable-logging=stderr",
                "--user-data-dir=" + Path("browser"), "--dump-dom", "file://" + Path("page.html")});
  ASSERT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_EQ(drawn.err.find("CONSOLE"), std::string::npos) << drawn.err;
  const std::string& page = drawn.out;
  const auto part = [&](const std::string& id) {
    const size_t begin = page.find("id=\"" + id + "\"");
    return begin == page.npos ? "" : page.substr(begin, page.find("<h2>", begin) - begin);
  };
  const auto count = [](const std::string& text, const std::string& what) {
    size_t found = 0;
    for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_NE(part("memory").find("<path d=\"M"), std::string::npos) << "memory over time";
  EXPECT_NE(part("memory_key").find("activations and scratch"), std::string::npos);
  EXPECT_GE(count(part("tiers"), "<tr>"), 3u) << "device and host, below their title";
  EXPECT_NE(part("moves").find("host to device"), std::string::npos);
  // Kernels, fetches and evictions of both, 46 pixels each: the canvas is as high as its content.
  EXPECT_NE(part("queues").find(fmt::format("height=\"{}\"", 2 * 3 * 46 + 34)), std::string::npos) << part("queues");
  EXPECT_NE(part("ops").find("planned / measured"), std::string::npos);
  EXPECT_GE(count(part("ops"), "<tr>"), report["ops"].size() + 2) << "a title, and the step";
  EXPECT_NE(part("tensors").find("model.layers.0.mlp.down_proj.weight"), std::string::npos);
}

TEST_F(Plan, AnInvalidTraceIsAnErrorThatNamesItsOption) {
  ExpectEnd(
      Temper({"plan", "--model", kModel, "--cluster", "RTX3090-24", "--html", "page.html", "--measured", "d.jsonl"}), 1,
      {"--measured: d.jsonl"});
  EXPECT_FALSE(Has("page.html"));
}

// Every line of it, except those about this machine. Kernels of AVX2 pack no weights (docs/design/memory.md).
TEST_F(Plan, PrintsWhatTheDocsShow) {
  const auto model = [&](const std::string& name, const std::string& config) {
    ASSERT_TRUE(PosixEnv().CreateFolders(Path(name)).ok());
    Spill(JoinPath(name, "config.json"), config);
  };
  model("tinyllama-1.1b",
        R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 2048, "intermediate_size": 5632, "vocab_size": 32000,
            "max_position_embeddings": 2048, "num_attention_heads": 32, "num_key_value_heads": 4,
            "num_hidden_layers": 22, "rms_norm_eps": 1e-5, "tie_word_embeddings": false})");
  model("llama-3.1-405b", temper::Slurp(std::string(kProjectFolder) + "/tests/prediction/configs/llama-3.1-405b.json"));
  std::ifstream page(std::string(kProjectFolder) + "/docs/howto/plan.md");
  int shown = 0;
  bool in_block = false;
  std::string printed;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("$ temper plan ")) {
      in_block = true;
      const Ended ended = Process({"sh", "-c",
                                   "ONEDNN_MAX_CPU_ISA=AVX2 " + kProgram + line.substr(std::string("$ temper").size()) +
                                       " --threads 2 --dtype bf16"},
                                  folder())
                              .Wait();
      ASSERT_EQ(ended.code, 0) << ended.err;
      printed = "\n" + ended.out;
    } else if (line == "```") {
      in_block = false;
    } else if (in_block && line.find("...") == line.npos && !line.starts_with("this machine")) {
      ++shown;
      EXPECT_NE(printed.find("\n" + line + "\n"), std::string::npos) << "docs/howto/plan.md: " << line << printed;
    }
  }
  EXPECT_GT(shown, 20);
}

// Weights that come from host and disk: the less of them, the faster. A step that computes most of the time has no such
// remedy.
TEST_F(Plan, NamesTheBasesThatWouldMakeAStepOfMinutesFaster) {
  const Arguments slow = {"plan",
                          "--model",
                          "llama-3.2-1b",
                          "--cluster",
                          "RTX3090-24",
                          "--gradient_accumulation_steps",
                          "256",
                          "--per_device_train_batch_size",
                          "1",
                          "--max_seq_len",
                          "128",
                          "--memory.device",
                          "1GiB",
                          "--memory.host",
                          "1GiB"};
  const Ended ended = Temper(slow);
  ExpectEnd(ended, 0, {});
  EXPECT_NE(ended.out.find("\nslow        a step takes 1 m "), std::string::npos) << ended.out;
  for (const char* base : {"\n  --base_dtype int8  ", "\n  --base_dtype nf4   "}) {
    EXPECT_NE(ended.out.find(base), std::string::npos) << base << ended.out;
  }
  const Ended busy = Temper({"plan", "--model", "llama-3.2-1b", "--cluster", "RTX3090-24",
                             "--gradient_accumulation_steps", "512", "--per_device_train_batch_size", "1"});
  EXPECT_NE(busy.out.find("\nslow        a step takes "), std::string::npos) << busy.out;
  EXPECT_EQ(busy.out.find("settings that would be faster"), std::string::npos) << busy.out;
}

TEST_F(Plan, OfACardWithoutKernelsSaysWhatIsMissingBesideItsFigures) {
  const Ended ended = Temper({"plan", "--model", kModel, "--cluster", "T4"});
  ExpectEnd(ended, 1, {});
  EXPECT_NE(ended.out.find("T4 16 GB has compute capability 7.5, and Temper's kernels need 8.0"), std::string::npos)
      << ended.out;
  EXPECT_NE(ended.out.find("per step"), std::string::npos);
}

// The docs' plan on eight devices shows the suggestion.
TEST_F(Plan, SuggestsNoSearchToOneDevice) {
  const Ended ended = Temper({"plan", "--model", kModel, "--cluster", "RTX3090-24"});
  ExpectEnd(ended, 0, {});
  EXPECT_NE(ended.out.find("bound by"), std::string::npos);
  EXPECT_EQ(ended.out.find("--search"), std::string::npos);
}

// Of the largest model of each class, where there is memory for it, beside a plan of its first four blocks: a processor
// that is twice as slow takes twice as long for both. Per block it is 0.4 to 1.1 times as much.
TEST_F(Plan, OfAPublishedModelTakesNoLongerPerBlockThanOfItsFirstFew) {
  std::map<std::string, const PublishedSize*> largest;
  for (const PublishedSize& size : kPublishedSizes) {
    if (size.parameters > int64_t{80'000'000'000} || size.blocks == 0) continue;
    const PublishedSize*& most = largest[size.architecture];
    if (most == nullptr || most->parameters < size.parameters) most = &size;
  }
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("m")).ok());
  const auto seconds_of = [&](const PublishedSize& size, int64_t blocks) {
    Json config = size.Config();
    config["num_hidden_layers"] = blocks;
    if (config.contains("attention_types")) {  // GPT-Neo's kinds of blocks, and how often they come
      Json& kinds = config["attention_types"][0];
      kinds[1] = blocks / static_cast<int64_t>(kinds[0].size());
    }
    if (config.contains("layer_types")) {
      Json& types = config["layer_types"];
      types.erase(types.begin() + blocks, types.end());
    }
    Spill("m/config.json", config.dump());
    Arguments plan = {"plan", "--json", "--model", "m", "--cluster", "1xH200"};
    if (size.parameters > int64_t{40'000'000'000}) {
      plan = {"plan", "--json", "--model", "m", "--cluster", "8xH100", "--nprocs", "8", "--mesh", "fsdp=8"};
    }
    const Ended ended = Temper(plan);
    EXPECT_EQ(ended.code, 0) << size.name << ": " << ended.err;
    if (blocks == size.blocks) {
      EXPECT_EQ(Json::parse(ended.out)["parameters"], size.parameters) << size.name;
    }
    return ended.processor.v;
  };
  for (const auto& [architecture, size] : largest) {
    constexpr int64_t kFew = 4;
    const double limit = 3.0 * static_cast<double>(size->blocks) / kFew;
    double few = seconds_of(*size, kFew), all = seconds_of(*size, size->blocks);
    // Other programs may slow down one of the two: then both again, and the fastest of each.
    for (int i = 0; i < 3 && all >= limit * few; ++i) {
      few = std::min(few, seconds_of(*size, kFew)), all = std::min(all, seconds_of(*size, size->blocks));
    }
    EXPECT_LT(all, limit * few) << size->name << ": " << all << " s, " << few << " s of its first blocks";
  }
}

}  // namespace
}  // namespace temper::program::plan_test
