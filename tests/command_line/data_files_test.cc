// Data files: several in a run, exact on resume and on ranks; compressed ones and tables; and what is refused of them.
#include <zstd.h>

#include <filesystem>

#include "format/parquet/parquet_file_for_test.h"
#include "temper_program.h"

namespace temper::program::data_files_test {
namespace {

std::string Zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  const size_t size = ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3);
  TEMPER_CHECK(!ZSTD_isError(size));
  packed.resize(size);
  return packed;
}

class DataFiles : public Workplace {
 protected:
  // Three epochs over two files of which one gives a part of its samples to each.
  Arguments Run(const Arguments& more = {}) const {
    Arguments run = With(Train({"--num_train_epochs", "3", "--save_steps", "20", "--learning_rate", "1e-3"}), more);
    for (const char* option : {"--max_steps", "--data"}) {
      const auto at = std::find(run.begin(), run.end(), option);
      if (at != run.end()) run.erase(at, at + 2);
    }
    run.insert(run.end(), {"--data", "d.jsonl:max_samples=20", "--data", "e.jsonl:passes=2.5"});
    return run;
  }
};

TEST_F(DataFiles, ARunOnTwoFilesStoppedAndResumedEndsWithTheSameBytes) {
  const Ended whole = Temper(Run());
  ExpectEnd(whole, 0,
            {"d.jsonl: 20 rows of messages (detected at line 1); 1 pass an epoch",
             "e.jsonl: 6 rows of messages (detected at line 1); 2.5 passes an epoch"});
  ASSERT_TRUE(PosixEnv().Rename(Path("out"), Path("whole")).ok());
  Process first(Command(Run()), folder());
  ASSERT_TRUE(first.ReadErrUntil("step 43/"));  // in the second epoch
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait().code, 75);
  ExpectEnd(Temper(With(Run(), {"--resume"})), 0, {"resume      from out/checkpoint-"});
  ExpectSame(Path("whole"), Path("out"));

  // Other use of the same files is other data.
  Arguments other = With(Run(), {"--resume"});
  other.back() = "--resume=checkpoint-20";
  other[static_cast<size_t>(std::find(other.begin(), other.end(), "e.jsonl:passes=2.5") - other.begin())] = "e.jsonl";
  ExpectEnd(Temper(other), 2,
            {"trained with other settings: data [{path: d.jsonl, max_samples: 20}, {path: e.jsonl, "
             "passes: 2.5}] (now [{path: d.jsonl, max_samples: 20}, e.jsonl])"});
}

// The first rank reads the files; the others learn where each begins.
TEST_F(DataFiles, TwoRanksSeeTheSameSamplesAsOne) {
  const Arguments one = Run({"--gradient_accumulation_steps", "2", "--output_dir", "one"});
  const Arguments two = Run({"--nprocs", "2", "--mesh", "dp=2", "--output_dir", "two"});
  ASSERT_EQ(Temper(one).code, 0);
  ASSERT_EQ(Temper(two).code, 0);
  const auto expected = Losses(Path("one")), got = Losses(Path("two"));
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [step, loss] : expected) EXPECT_NEAR(got.at(step), loss, 0.02 * loss) << step;
}

// Which files there are is decided once: run.yaml names them, and a file that comes later is no part of the run.
TEST_F(DataFiles, AFolderTrainsAsItsFilesDoAndIsSavedAsThese) {
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("rows")).ok());
  Spill("rows/2.jsonl", Slurp("e.jsonl"));
  Spill("rows/1.jsonl", Slurp("d.jsonl"));
  Spill("rows/README.md", "what the rows are");
  Arguments files = Train({"--data", "rows/1.jsonl", "--output_dir", "files"});
  files.insert(files.end(), {"--data", "rows/2.jsonl"});
  ASSERT_EQ(Temper(files).code, 0);
  const Ended by_folder = Temper(Train({"--data", Path("rows"), "--output_dir", "out"}));
  ExpectEnd(by_folder, 0, {"rows/1.jsonl: 60 rows", "rows/2.jsonl: 6 rows"});
  EXPECT_EQ(Slurp("files/adapter_model.safetensors"), Slurp("out/adapter_model.safetensors"));
  EXPECT_NE(Slurp("out/run.yaml").find(fmt::format("data: [{0}/1.jsonl, {0}/2.jsonl]\n", Path("rows"))),
            std::string::npos)
      << Slurp("out/run.yaml");

  Spill("rows/3.jsonl", Slurp("d.jsonl"));
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("elsewhere")).ok());
  const Ended again = RunTemper({"train", Path("out/run.yaml"), "--output_dir", Path("again")}, Path("elsewhere"));
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(Slurp("again/adapter_model.safetensors"), Slurp("out/adapter_model.safetensors"));
  // The same command goes on with the files that it began with, as long as these are among what it finds.
  const Arguments resumed = {"--output_dir", "out", "--resume", "--max_steps", "4"};
  ExpectEnd(Temper(Train(With(resumed, {"--data", Path("rows")}))), 0,
            {fmt::format("data        {}/3.jsonl left out: the run began without it", Path("rows")),
             "resume      from out/checkpoint-"});
  ExpectEnd(Temper(Train(With(resumed, {"--data", "rows/[13].jsonl"}))), 2, {"the data is not what this run was"});
  ExpectEnd(Temper(Train(With(resumed, {"--data", "rows/[1-3]*"}))), 0, {"/3.jsonl left out"});
  ExpectEnd(Temper(Train({"--data", "rows/[12].jsonl", "--output_dir", "out", "--resume", "--max_steps", "5"})), 0,
            {"resume      from out/checkpoint-"});
  // On ranks, where only the first looks for files.
  ExpectEnd(Temper(Train({"--data", "rows/[12].jsonl:max_samples=4", "--output_dir", "two", "--nprocs", "2"})), 0,
            {"rows/1.jsonl: 4 rows", "rows/2.jsonl: 4 rows"});
}

// Neither does a run read its own files, nor delete its data, when a pattern stands for them.
TEST_F(DataFiles, APatternThatCoversTheOutputFolderFindsOnlyData) {
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("out/rows")).ok());
  Spill("out/rows/d.jsonl", Slurp("d.jsonl"));
  const Arguments trained = Train({"--data", "*/rows/*.jsonl", "--output_dir", "out"});
  ExpectEnd(Temper(trained), 0, {"out/rows/d.jsonl: 60 rows"});
  ExpectEnd(Temper(With(trained, {"--overwrite"})), 2,
            {"overwrite would delete the data of this run: out/rows/d.jsonl"});
  ExpectEnd(Temper(Train({"--data", "out/*.jsonl", "--output_dir", "out", "--resume"})), 2,
            {"--data 'out/*.jsonl': all that it stands for (out/metrics.jsonl) is in output_dir (out)"});
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("in")).ok());
  Spill("in/d.jsonl", Slurp("d.jsonl"));
  const Arguments wide = Train({"--data", "*n/*.jsonl", "--output_dir", "then"});
  ExpectEnd(Temper(wide), 0, {"in/d.jsonl: 60 rows"});
  ExpectEnd(Temper(With(wide, {"--resume", "--max_steps", "4"})), 0,
            {"data        then/metrics.jsonl left out: among the files that a run writes into output_dir"});
}

TEST_F(DataFiles, ColumnsWithOtherNamesTrainAsTheirFields) {
  Spill("plain.jsonl",
        "{\"prompt\": \"Who?\", \"completion\": \" I.\"}\n{\"prompt\": \"Why?\", \"completion\": \" So.\"}\n");
  Spill("named.jsonl",
        "{\"frage\": \"Who?\", \"a\": {\"text\": \" I.\"}}\n{\"frage\": \"Why?\", \"a\": {\"text\": \" So.\"}}\n");
  ASSERT_EQ(Temper(Train({"--data", "plain.jsonl", "--output_dir", "plain"})).code, 0);
  const Arguments named = {"--data", "named.jsonl", "--columns", "prompt=frage,completion=a.text"};
  ExpectEnd(Temper(Train(With({"--output_dir", "out"}, named))), 0, {"named.jsonl: 2 rows of prompt/completion"});
  EXPECT_EQ(Slurp("plain/adapter_model.safetensors"), Slurp("out/adapter_model.safetensors"));
  const auto eval = [&](const Arguments& data) { return Temper(With({"eval", kModel}, data)).out; };
  EXPECT_EQ(eval(named), eval({"--data", "plain.jsonl"}));
  // So does what was trained on them, without being told again.
  const Ended trained = Temper({"eval", "out", "--data", "named.jsonl"});
  ExpectEnd(trained, 0, {"columns     prompt=frage, completion=a.text, as in out/run.yaml"});
  EXPECT_EQ(trained.out, Temper({"eval", "out", "--data", "plain.jsonl"}).out);
  // A resumed run reads the same columns.
  ExpectEnd(Temper(Train({"--data", "named.jsonl", "--columns", "prompt=frage,completion=frage", "--resume"})), 2,
            {"trained with other settings: columns {prompt: frage, completion: a.text}"});
  ExpectEnd(Temper(Train({"--data", "named.jsonl", "--columns", "prompt=frage,completion=a.txt", "--output_dir", "o"})),
            2, {"no row has the column 'a.txt'", "did you mean 'a.text'?"});
}

TEST_F(DataFiles, SpeakersWithOtherNamesTrainAsTheirRoles) {
  const auto row = [](const char* user, const char* assistant) {
    return fmt::format(R"({{"messages": [{{"role": "{}", "content": "Who?"}}, {{"role": "{}", "content": "I."}}]}})",
                       user, assistant) +
           "\n";
  };
  Spill("plain.jsonl", row("user", "assistant") + row("user", "assistant"));
  Spill("named.jsonl", row("customer", "agent") + row("user", "bot"));
  const Arguments zephyr = {"--chat_template", "zephyr"};
  ASSERT_EQ(Temper(Train(With({"--data", "plain.jsonl", "--output_dir", "plain"}, zephyr))).code, 0);
  const Arguments named = {"--data", "named.jsonl", "--roles", "user=customer,assistant=agent,assistant=bot"};
  ExpectEnd(Temper(Train(With(With({"--output_dir", "out"}, named), zephyr))), 0, {"named.jsonl: 2 rows of messages"});
  EXPECT_EQ(Slurp("plain/adapter_model.safetensors"), Slurp("out/adapter_model.safetensors"));
  const Ended evaluated = Temper({"eval", "out", "--data", "named.jsonl"});
  ExpectEnd(evaluated, 0, {"roles       user=customer, assistant=agent, assistant=bot, as in out/run.yaml"});
  EXPECT_EQ(evaluated.out, Temper({"eval", "out", "--data", "plain.jsonl"}).out);
  ExpectEnd(Temper(Train(With({"--data", "named.jsonl", "--resume"}, {"--roles", "user=customer,assistant=agent"}))), 2,
            {"trained with other settings: roles {user: customer, assistant: [agent, bot]}"});
  ExpectEnd(Temper(Train(With({"--data", "named.jsonl", "--output_dir", "o"}, zephyr))), 2,
            {"named.jsonl line 1", "unknown role 'customer'", "--roles user=NAME"});
  ExpectEnd(Temper(Train(With({"--output_dir", "o", "--data", "named.jsonl", "--roles", "usr=a"}, zephyr))), 2,
            {"did you mean 'user'?"});
}

// The separator is the run's, also where its result is measured.
TEST_F(DataFiles, FieldsOfAPromptAreJoinedAsSaid) {
  Spill("joined.jsonl", R"({"instruction": "Who\nis it?", "output": "I."})"
                        "\n");
  Spill("fields.jsonl", R"({"instruction": "Who", "input": "is it?", "output": "I."})"
                        "\n");
  ASSERT_EQ(Temper(Train({"--data", "joined.jsonl", "--output_dir", "joined"})).code, 0);
  ASSERT_EQ(Temper(Train({"--data", "fields.jsonl", "--prompt_separator", "\\n", "--output_dir", "out"})).code, 0);
  EXPECT_EQ(Slurp("joined/adapter_model.safetensors"), Slurp("out/adapter_model.safetensors"));
  const Ended evaluated = Temper({"eval", "out", "--data", "fields.jsonl"});
  ExpectEnd(evaluated, 0, {R"(separator   "\n", as in out/run.yaml)"});
  EXPECT_EQ(evaluated.out, Temper({"eval", "out", "--data", "joined.jsonl"}).out);
  const auto answer = [&](const char* prompts) {
    return Temper({"generate", "out", "--prompts", prompts, "--max_new_tokens", "4", "--temperature", "0"});
  };
  ExpectEnd(answer("fields.jsonl"), 0, {R"(separator   "\n", as in out/run.yaml)"});
  EXPECT_EQ(answer("fields.jsonl").out, answer("joined.jsonl").out);
  EXPECT_NE(answer("fields.jsonl").out.find(R"("Who\nis it?")"), std::string::npos) << answer("fields.jsonl").out;
}

TEST_F(DataFiles, LongRowsAreCountedLeftOutOrRefused) {
  std::string rows = Json({{"prompt", std::string(400, 'q')}, {"completion", " I."}}).dump() + "\n";
  for (int i = 0; i < 60; ++i) rows += Json({{"prompt", "Who?"}, {"completion", fmt::format(" {}.", i)}}).dump() + "\n";
  Spill("long.jsonl", rows);
  const auto end = [&](const char* long_rows) {
    return Temper({"data", "preview", kModel, "--data", "long.jsonl", "--max_seq_len", "96", "--long_rows", long_rows});
  };
  ExpectEnd(end("split"), 0,
            {"cut: 1 row (1.64 %) longer than max_seq_len", "dropped: 1 row (1.64 %) without supervised"});
  const Ended proportional = end("proportional");
  ExpectEnd(proportional, 0, {"cut: 1 row (1.64 %) longer than max_seq_len"});
  EXPECT_EQ(proportional.err.find("dropped"), proportional.err.npos) << "the answer is kept";
  ExpectEnd(end("drop"), 0, {"left out: 1 row (1.64 %) longer than max_seq_len; raise --max_seq_len"});
  ExpectEnd(end("error"), 1, {"long.jsonl line 1: the row has ", "max_seq_len is 96", "--long_rows drop"});
  ExpectEnd(end("truncate"), 2, {"split, cut, proportional, drop, error"});
  for (const auto& [task, long_rows] :
       {std::pair{"dpo", "proportional"}, {"reward", "cut"}, {"classify", "proportional"}}) {
    ExpectEnd(Temper(Train({"--data", "d.jsonl", "--output_dir", "o", "--task", task, "--long_rows", long_rows})), 2,
              {fmt::format("task: {} has no use for long_rows: {}", task, long_rows)});
  }
}

// What train and plan take: to look at its data, and to measure what it has trained.
TEST_F(DataFiles, TheFileOfARunStandsForItsModelItsDataAndItsOptions) {
  Spill("named.jsonl", "{\"frage\": \"Who?\", \"a\": \" I.\"}\n{\"frage\": \"Why?\", \"a\": \" So.\"}\n");
  Spill("run.yaml", "model: " + kModel +
                        "\ndata: {path: named.jsonl, passes: 2}\ncolumns: {prompt: frage, completion: a}\n"
                        "train_on_prompt: true\nmax_seq_len: 96\nmax_steps: 1\noutput_dir: out\nthreads: 1\n");
  const Arguments told = {"--data",        "named.jsonl", "--columns", "prompt=frage,completion=a", "--train_on_prompt",
                          "--max_seq_len", "96"};
  const Ended shown = Temper({"data", "preview", "run.yaml", "--json"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out, Temper(With({"data", "preview", kModel, "--json"}, told)).out);
  EXPECT_NE(shown.out, Temper({"data", "preview", "run.yaml", "--json", "--no-train_on_prompt"}).out);
  ExpectEnd(Temper({"eval", "run.yaml"}), 1, {"run.yaml: its output_dir out is not there: train it first"});
  ASSERT_EQ(Temper({"train", "run.yaml"}).code, 0);
  const Ended measured = Temper({"eval", "run.yaml"});
  ExpectEnd(measured, 0, {"run.yaml has no eval_data: this is of the data that it trains on"});
  EXPECT_EQ(measured.out, Temper(With({"eval", "out", "--threads", "1"}, told)).out);
  const auto answer = [&](const char* model) {
    return Temper({"generate", model, "--prompt", "Who?", "--max_new_tokens", "4", "--temperature", "0"}).out;
  };
  EXPECT_EQ(answer("run.yaml"), answer("out"));
  Spill("run.yaml", "modle: m\n");
  ExpectEnd(Temper({"data", "preview", "run.yaml"}), 2, {"run.yaml line 1: unknown key 'modle'"});
}

TEST_F(DataFiles, RowsOfAnyFormatTrainByATemplate) {
  Spill("plain.jsonl", "{\"prompt\": \"Who? \", \"completion\": \"I.\"}\n");
  Spill("own.jsonl", "{\"frage\": \"Who?\", \"a\": {\"text\": \"I.\"}, \"weight\": 0.5}\n");
  Spill("row.jinja", "{{ frage }} {% generation %}{{ a.text }}{% endgeneration %}");
  const Arguments own = {"--data", "own.jsonl", "--row_template", "row.jinja"};
  ASSERT_EQ(Temper(Train({"--data", "plain.jsonl", "--output_dir", "plain"})).code, 0);
  ExpectEnd(Temper(Train(With({"--output_dir", "out"}, own))), 0, {"own.jsonl: 1 row of fields of the row template"});
  EXPECT_EQ(Slurp("plain/adapter_model.safetensors"), Slurp("out/adapter_model.safetensors"));
  EXPECT_EQ(Temper(With({"eval", kModel}, own)).out, Temper({"eval", kModel, "--data", "plain.jsonl"}).out);
  // Another template makes other tokens, and is no resume.
  Spill("row.jinja", "{{ frage }} {{ a.text }}");
  const Arguments resumed = Train({"--data", "own.jsonl", "--output_dir", "out", "--resume"});
  ExpectEnd(Temper(With(resumed, own)), 2, {"or the tokenizer or --row_template row.jinja has"});
  ExpectEnd(Temper(resumed), 2, {"or the tokenizer or --row_template row.jinja has"});
  Spill("other.jinja", "{{ a.text }}");
  ExpectEnd(Temper(With(resumed, {"--row_template", "other.jinja"})), 2,
            {"or the tokenizer or --row_template, then row.jinja and now other.jinja, has"});
  Spill("row.jinja", "{{ frage }} {% generation %}{{ a.text }}{% endgeneration %}");
  ExpectEnd(Temper(With(resumed, {"--max_steps", "5"})), 0, {"resume      from out/checkpoint-4"});
  for (const Arguments& other : {Arguments{"--chat_template", "alpaca"}, {"--columns", "text=frage"}}) {
    ExpectEnd(Temper(Train(With(With({"--output_dir", "x"}, own), other))), 2, {"both row_template and "});
  }
  ExpectEnd(Temper(With({"eval", kModel, "--chat_template", "alpaca"}, own)), 2,
            {"both row_template and chat_template are set"});
  const Ended evaluated = Temper({"eval", "out", "--data", "own.jsonl"});
  ExpectEnd(evaluated, 0, {"rows        by the row_template in out/run.yaml"});
  EXPECT_EQ(evaluated.err.find("no row has"), evaluated.err.npos) << evaluated.err;
  const auto printed = [&](const std::string& row) {
    return Temper({"eval", kModel, "--data", "own.jsonl", "--row_template", row});
  };
  ExpectEnd(printed("{{ frag }} {{ a.txt }}{{ a.text }}"), 0,
            {"the row template prints 'frag', which no row has", "the row template prints 'a.txt', which no row has"});
  EXPECT_EQ(evaluated.out, Temper({"eval", "out", "--data", "plain.jsonl"}).out);
  // The template itself does, too.
  const Arguments itself = {"--data", "own.jsonl", "--row_template", Slurp("row.jinja")};
  ASSERT_EQ(Temper(Train(With({"--output_dir", "itself"}, itself))).code, 0);
  EXPECT_EQ(Slurp("plain/adapter_model.safetensors"), Slurp("itself/adapter_model.safetensors"));
  ExpectEnd(Temper({"train", "itself/run.yaml", "--resume", "--max_steps", "5"}), 0,
            {"/itself/checkpoint-4 at step 4"});
  ExpectEnd(Temper(Train(With({"--output_dir", "x"}, {"--data", "own.jsonl", "--row_template", "{{ frage"}))), 2,
            {"row_template, line 1"});
  Spill("row.jinja", "{{ frage");
  ExpectEnd(Temper(Train(With({"--output_dir", "x"}, own))), 2, {"row.jinja, line 1"});
}

TEST_F(DataFiles, EvaluationAndPreviewTakeSeveralFiles) {
  const auto samples = [](const Ended& ended) { return Json::parse(ended.out)["samples"].get<int64_t>(); };
  const Ended evaluated = Temper({"eval", kModel, "--data", "d.jsonl:max_samples=7", "--data", "e.jsonl"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  EXPECT_EQ(samples(evaluated), 13);
  const Ended shown = Temper({"data", "preview", kModel, "--json", "--data", "e.jsonl", "--data", "d.jsonl"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_NE(shown.out.find("{\"place\":\"e.jsonl line 6\""), std::string::npos);
  EXPECT_NE(shown.out.find("{\"place\":\"d.jsonl line 60\""), std::string::npos);
}

TEST_F(DataFiles, FilesThatAreNotReadAreNamedBeforeTheModelIsPlanned) {
  Spill("p.xlsx", "PK\x03\x04....");
  const Ended ended = Temper({"train", "--model", kModel, "--data", "p.xlsx", "--output_dir", "o"});
  ExpectEnd(ended, 1, {"p.xlsx is a spreadsheet: save it as CSV first"});
  EXPECT_EQ(ended.err.find("plan  "), std::string::npos) << ended.err;
}

// Rows of prompt and completion in a Parquet file.
std::string Parquet(const std::vector<std::pair<std::string, std::string>>& rows) {
  TestPage prompts{.values = 0}, completions{.values = 0};
  for (const auto& [prompt, completion] : rows) {
    ++prompts.values, ++completions.values;
    prompts.bytes += WithLength(prompt);
    completions.bytes += WithLength(completion);
  }
  return ParquetFile({{.name = "prompt", .pages = {prompts}}, {.name = "completion", .pages = {completions}}},
                     prompts.values);
}

TEST_F(DataFiles, ParquetTrainsResumesAndIsPreviewedAsTheSameRowsInJsonLines) {
  std::string lines;
  std::vector<std::pair<std::string, std::string>> rows;
  for (int i = 0; i < 12; ++i) {
    rows.emplace_back(fmt::format("What is {}?", i), fmt::format(" It is \"{}\".", i * i));
    lines += DumpJson(Json{{"prompt", rows.back().first}, {"completion", rows.back().second}}) + "\n";
  }
  Spill("rows.jsonl", lines);
  Spill("rows.parquet", Parquet(rows));
  ASSERT_EQ(Temper(Train({"--data", "rows.jsonl", "--output_dir", "lines"})).code, 0);
  ExpectEnd(Temper(Train({"--data", "rows.parquet", "--output_dir", "parquet"})), 0,
            {"rows.parquet: 12 rows of prompt/completion (detected at row 1)"});
  EXPECT_EQ(Slurp("lines/adapter_model.safetensors"), Slurp("parquet/adapter_model.safetensors"));
  ExpectEnd(Temper(Train({"--data", "rows.parquet", "--output_dir", "parquet", "--resume", "--max_steps", "5"})), 0,
            {"resume      from parquet/checkpoint-"});
  const Ended shown = Temper({"data", "preview", kModel, "--json", "--data", "rows.parquet"});
  ExpectEnd(shown, 0, {});
  EXPECT_NE(shown.out.find("{\"place\":\"rows.parquet row 12\""), std::string::npos) << shown.out;
}

TEST_F(DataFiles, OfAFolderWithSplitsTheSplitIsReadThatIsMeant) {
  ASSERT_TRUE(PosixEnv().CreateFolders(Path("set")).ok());
  Spill("set/train-00000-of-00002.parquet", Parquet({{"a", " 1"}, {"b", " 2"}}));
  Spill("set/train-00001-of-00002.parquet", Parquet({{"c", " 3"}}));
  Spill("set/test-00000-of-00001.parquet", Parquet({{"d", " 4"}}));
  const Ended trained = Temper(Train({"--data", "set", "--eval_data", "set:split=test", "--output_dir", "out"}));
  ExpectEnd(trained, 0,
            {"data        set: the split train (2 files); not test", "set/train-00000-of-00002.parquet: 2 rows",
             "set/train-00001-of-00002.parquet: 1 row", "set/test-00000-of-00001.parquet: 1 row"});
  ExpectEnd(Temper(Train({"--data", "set", "--eval_data", "set:split=test", "--output_dir", "out", "--resume",
                          "--max_steps", "5"})),
            0, {"resume      from out/checkpoint-"});
  const auto preview = [&](const Arguments& more) {
    const Ended shown = Temper(With({"data", "preview", kModel, "--json", "--data", "set"}, more));
    return shown.code == 0 ? std::count(shown.out.begin(), shown.out.end(), '\n') : -1;
  };
  EXPECT_EQ(preview({}), 3);
  EXPECT_EQ(preview({"--split", "test"}), 1);
  ExpectEnd(Temper({"eval", kModel, "--data", "set"}), 2,
            {"--data set has the splits test, train: name one (--split test"});
  ExpectEnd(Temper({"eval", kModel, "--data", "set", "--split", "test"}), 0,
            {"set/test-00000-of-00001.parquet: 1 row"});
  ExpectEnd(Temper(Train({"--data", "set", "--split", "dev", "--output_dir", "x"})), 1,
            {"--data set has no split 'validation'"});
}

TEST_F(DataFiles, AParquetBombIsRefusedWithinMemoryAndTime) {
  const std::string text(size_t{60} << 20, 'a');
  const TestPage page{.bytes = Zstd(WithLength(text)), .unpacked = static_cast<int64_t>(text.size()) + 4};
  Spill("d.parquet", ParquetFile({{.pages = {page}, .codec = 6}, {.name = "b", .pages = {page}, .codec = 6}}, 1));
  ASSERT_LT(Slurp("d.parquet").size(), 100'000u);
  const Ended ended = Temper(Train({"--data", "d.parquet"}));
  ExpectEnd(ended, 1, {"d.parquet: row group 0, column 'b': the page at byte ", "write it with smaller pages"});
  EXPECT_LT(ended.peak_rss.v, MiB(150).v);
}

TEST_F(DataFiles, ACompressedFileTrainsAsItsText) {
  Spill("d.jsonl.zst", Zstd(Slurp("d.jsonl")));
  ASSERT_EQ(Temper(Train({"--output_dir", "plain"})).code, 0);
  ExpectEnd(Temper(Train({"--data", "d.jsonl.zst", "--output_dir", "packed"})), 0,
            {"d.jsonl.zst: 60 rows of messages"});
  EXPECT_EQ(Slurp("plain/adapter_model.safetensors"), Slurp("packed/adapter_model.safetensors"));
}

// A packed file's size says nothing of what it takes to read.
TEST_F(DataFiles, APlanUnpacksNoLargeDataUnasked) {
  const std::string rows = Slurp("d.jsonl");
  std::string many;
  while (many.size() < (size_t{17} << 20)) many += rows;
  Spill("many.jsonl.zst", Zstd(many));
  Spill("few.jsonl.zst", Zstd(rows));
  ASSERT_LT(Slurp("many.jsonl.zst").size(), size_t{1} << 20);
  const auto plan = [&](const std::string& data) { return Temper({"plan", "--model", kModel, "--data", data}); };
  ExpectEnd(plan("many.jsonl.zst"), 0, {"add --read_data for its steps and hours: its data is large"});
  const Ended read = plan("few.jsonl.zst");
  EXPECT_EQ(read.err.find("--read_data"), std::string::npos) << read.err;
}

TEST_F(DataFiles, ACutOffFileIsRefusedEvenIfBadRowsAreSkipped) {
  const std::string packed = Zstd(Slurp("d.jsonl"));
  Spill("d.jsonl.zst", packed.substr(0, packed.size() - 5));
  const Ended ended = Temper(Train({"--data", "d.jsonl.zst", "--skip_bad_rows"}));
  ExpectEnd(ended, 1,
            {fmt::format("d.jsonl.zst: the file ends at byte {}, within its zstd data", packed.size() - 5),
             "breaks off in line"});
  EXPECT_FALSE(Has("out/run.yaml")) << "the run began";
}

TEST_F(DataFiles, MemoryIsBoundedByTheLongestRowWhateverAFileUnpacksTo) {
  std::string bomb = Zstd("{\"text\": \"");
  const std::string piece = Zstd(std::string(1 << 20, 'a'));
  for (int mebibyte = 0; mebibyte < 400; ++mebibyte) bomb += piece;
  ASSERT_LT(bomb.size(), 1u << 20);
  Spill("d.jsonl", bomb);
  const Ended ended = Temper(Train({}));
  ExpectEnd(ended, 1, {"d.jsonl line 1: a row longer than 64.00 MiB: split it"});
  EXPECT_LT(ended.peak_rss.v, MiB(300).v);
}

TEST_F(DataFiles, ATableTrainsAndItsBadRowsAreNamed) {
  Spill("d.csv", "prompt,completion\n\"Who\nare you?\",\"I, \"\"me\"\".\"\nWhy?,Because.,So\nHow?,Thus.\n");
  ExpectEnd(Temper(Train({"--data", "d.csv"})), 1,
            {"d.csv line 4: 3 cells where the header has 2 columns", "--skip_bad_rows"});
  ExpectEnd(Temper(Train({"--data", "d.csv", "--skip_bad_rows"})), 0,
            {"d.csv: 3 rows of prompt/completion (detected at row 1 (line 2))", "1 bad row skipped"});
}

TEST_F(DataFiles, MistakesNameTheFileAndTheRemedy) {
  Spill("bad.jsonl", "{\"text\": \"good\"}\n{\"text\": 5}\n");
  Spill("story.txt", "Once.");
  const auto train = [&](const Arguments& data) { return Temper(With(Train({}), data)); };
  ExpectEnd(train({"--data", "d.jsonl", "--eval_data", "bad.jsonl"}), 1, {"bad.jsonl line 2: 'text' should be text"});
  ExpectEnd(train({"--data", "d.jsonl,e.jsonl"}), 1, {"for several files repeat --data"});
  ExpectEnd(train({"--data", "story.txt:max_samples=2"}), 2, {"--data story.txt: max_samples counts rows"});
  Arguments missing = Train({});
  missing.insert(missing.end(), {"--data", "missing.jsonl"});
  ExpectEnd(Temper(missing), 1, {"--data: cannot open missing.jsonl"});
}

// Before the model is compiled and memory reserved. Ready-made tokens need none, to train and to evaluate.
TEST_F(DataFiles, AMissingTokenizerIsToldFirstAndOnlyWhereTheDataNeedsOne) {
  CopyModel("model");
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    std::filesystem::remove(Path("model/" + std::string(file)));
  }
  const Ended refused = Temper(Train({"--model", "model"}));
  ExpectEnd(refused, 1, {"model: no tokenizer: neither tokenizer.json nor tokenizer.model"});
  EXPECT_EQ(refused.err.find("\nmodel  "), std::string::npos) << "compiled:\n" << refused.err;

  std::string rows;
  for (int row = 0; row < 12; ++row) {
    rows += "{\"input_ids\": [";
    for (int k = 0; k < 40; ++k) rows += (k > 0 ? ", " : "") + std::to_string(5 + (7 * row + 3 * k) % 200);
    rows += "]}\n";
  }
  Spill("tokens.jsonl", rows);
  const Arguments tokens = Train({"--model", "model", "--data", "tokens.jsonl", "--max_steps", "2"});
  ExpectEnd(Temper(tokens), 0, {"tokens.jsonl: 12 rows of tokens (input_ids)"});
  EXPECT_TRUE(Has("out/adapter_model.safetensors"));
  ExpectEnd(Temper({"eval", "--model", "out", "--data", "tokens.jsonl"}), 0, {});
  ExpectEnd(Temper(With(tokens, {"--eval_data", "e.jsonl", "--output_dir", "other"})), 1, {"no tokenizer"});
}

}  // namespace
}  // namespace temper::program::data_files_test
