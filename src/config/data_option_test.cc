#include "config/data_option.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/scratch_folder.h"
#include "config/command_line.h"
#include "config/option_yaml.h"
#include "config/run_options.h"

namespace temper::data_option_test {
namespace {

struct Settings {
  DataSources data, held_out;
  OptionSet options = OptionSet(
      {{"Data", {DataOption("data", data, "rows", true), DataOption("eval_data", held_out, "rows", false)}}}, {});
  Settings() = default;
  Settings(const Settings&) = delete;

  Status Command(const std::vector<std::string>& arguments) {
    const auto line = ReadCommandLine(arguments, options);
    return line.ok() ? ApplyCommandLine(*line, options) : line.status();
  }
  Status Yaml(std::string_view text) { return ReadYamlOptions(text, "run.yaml", options); }
};

DataSources ReadText(const std::string& text) {
  Settings s;
  EXPECT_TRUE(s.Command({"--data", text}).ok()) << text;
  return s.data;
}

TEST(DataSources, ATextIsAPathWithSettingsBehindItsLastColon) {
  const auto is = [](const std::string& text, const DataSource& wanted) {
    EXPECT_EQ(ReadText(text), DataSources{wanted}) << text;
  };
  is("d.jsonl", {.path = "d.jsonl"});
  is("d.jsonl:passes=0.5", {.path = "d.jsonl", .passes = 0.5});
  is("d.jsonl:max-samples=7,passes=2", {.path = "d.jsonl", .passes = 2, .max_samples = 7});
  // Colons, commas and equals signs of paths.
  is("C:/a,b=c.jsonl", {.path = "C:/a,b=c.jsonl"});
  is("a:b", {.path = "a:b"});
  is("a:b:passes=3", {.path = "a:b", .passes = 3});
  is("run:12:30=x", {.path = "run:12:30=x"});
  is("{path: \"a:b=c\", passes: 3}", {.path = "a:b=c", .passes = 3});
}

TEST(DataSources, ARepeatedOptionAddsFilesAndReplacesThoseOfTheFile) {
  const ScratchFolder folder;
  const std::string yaml = folder / "run.yaml";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), yaml, "data: [old.jsonl, older.jsonl]\neval_data: e.jsonl\n").ok());
  Settings s;
  const auto line = ReadCommandLine(
      std::vector<std::string>{yaml, "--data", "a.jsonl", "--data=b.jsonl:passes=2", "--data", "[c.jsonl, d.jsonl]"},
      s.options);
  ASSERT_TRUE(line.ok());
  const Status status = ReadOptions(PosixEnv(), *line, s.options);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(s.data, (DataSources{{"a.jsonl"}, {"b.jsonl", 2}, {"c.jsonl"}, {"d.jsonl"}}));
  EXPECT_EQ(s.held_out, DataSources{{"e.jsonl"}});
}

// In processor time, which a busy machine hardly changes: with four times the files it would be sixteen times as long.
TEST(DataSources, ManyFilesTakeTimeInProportion) {
  const auto clocks = [](int files) {
    OrderedJson list = OrderedJson::array();
    for (int i = 0; i < files; ++i) list.push_back(fmt::format("rows/of/many/files/{:08}.jsonl", i));
    Settings s;
    const std::clock_t begin = std::clock();
    EXPECT_TRUE(SetFromJson(*s.options.Find("data"), list, "").ok());
    const std::clock_t end = std::clock();
    EXPECT_EQ(s.data.size(), static_cast<size_t>(files));
    return static_cast<double>(end - begin);
  };
  double few = clocks(8'000), many = clocks(32'000);
  for (int i = 0; i < 4; ++i) few = std::min(few, clocks(8'000)), many = std::min(many, clocks(32'000));
  EXPECT_LT(many, 9 * few);
}

TEST(DataSources, YamlTakesAPathAMapOrAListOfThese) {
  for (const std::string text : {"data: [a.jsonl, {path: b.jsonl, passes: 1e-1, max_samples: 5}]\n",
                                 "data:\n- a.jsonl\n- path: b.jsonl\n  passes: 0.1\n  max_samples: 5\n",
                                 "data: [a.jsonl, \"b.jsonl:passes=0.1,max_samples=5\"]\n"}) {
    Settings s;
    const Status status = s.Yaml(text);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(s.data, (DataSources{{"a.jsonl"}, {"b.jsonl", 0.1, 5}})) << text;
    Settings back;
    ASSERT_TRUE(back.Yaml(PrintYamlOptions(s.options)).ok());
    EXPECT_EQ(back.data, s.data);
  }
  Settings one;
  ASSERT_TRUE(one.Yaml("data: {path: \"odd:passes=x\", max_samples: null}\neval_data: null\n").ok());
  EXPECT_EQ(one.data, DataSources{{"odd:passes=x"}});
  EXPECT_TRUE(one.held_out.empty());
  Settings back;
  ASSERT_TRUE(back.Yaml(PrintYamlOptions(one.options)).ok());
  EXPECT_EQ(back.data, one.data);
}

TEST(DataSources, RolesAreOfAllFilesOrOfOne) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const auto read = [&](const std::vector<std::string>& arguments) {
    const auto line = ReadCommandLine(arguments, options);
    return line.ok() ? ApplyCommandLine(*line, options) : line.status();
  };
  ASSERT_TRUE(read({"--roles", "user=customer,assistant=agent", "--roles", "{assistant: [bot, \"my bot\"]}", "--data",
                    "d.jsonl:roles=user=client,assistant=host,passes=2", "--prompt_separator", "\\n## "})
                  .ok());
  EXPECT_EQ(config.data.reading.roles,
            (RowRoles{{"user", "customer"}, {"assistant", "agent"}, {"assistant", "bot"}, {"assistant", "my bot"}}));
  EXPECT_EQ(config.data.data,
            (DataSources{{.path = "d.jsonl", .passes = 2, .roles = {{"user", "client"}, {"assistant", "host"}}}}));
  EXPECT_EQ(config.data.reading.separator, "\n## ");
  const std::string printed = PrintRunConfig(config);
  EXPECT_NE(printed.find("roles: {user: customer, assistant: [agent, bot, \"my bot\"]}"), printed.npos) << printed;
  const auto back = ParseRunConfig(printed, "run.yaml");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->data.reading, config.data.reading);
  EXPECT_EQ(back->data.data, config.data.data);
  EXPECT_EQ(read({"--roles", "usr=a"}).message().substr(0, 71),
            "command line, roles: 'usr' is no role of messages; did you mean 'user'?");
  EXPECT_NE(read({"--roles", "user"}).message().find("roles should be ROLE=NAME,ROLE=NAME or a map"),
            std::string::npos);
  EXPECT_NE(read({"--long_rows", "truncate"}).message().find("split, cut, proportional, drop"), std::string::npos);
}

TEST(DataSources, ColumnsAreOfAllFilesOrOfOne) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const auto read = [&](const std::vector<std::string>& arguments) {
    const auto line = ReadCommandLine(arguments, options);
    return line.ok() ? ApplyCommandLine(*line, options) : line.status();
  };
  ASSERT_TRUE(read({"--columns", "prompt=q,completion=a.text", "--columns", "{system: \"x,y\"}", "--data",
                    "d.jsonl:columns=prompt=frage,messages.role=from,passes=2"})
                  .ok());
  EXPECT_EQ(config.data.reading.columns, (RowColumns{{"prompt", "q"}, {"completion", "a.text"}, {"system", "x,y"}}));
  EXPECT_EQ(
      config.data.data,
      (DataSources{{.path = "d.jsonl", .passes = 2, .columns = {{"prompt", "frage"}, {"messages.role", "from"}}}}));
  const auto back = ParseRunConfig(PrintRunConfig(config), "run.yaml");
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->data.reading.columns, config.data.reading.columns);
  EXPECT_EQ(back->data.data, config.data.data);
  const auto yaml =
      ParseRunConfig("columns: {prompt: q}\ndata: [{path: d, columns: {text: t}}, \"e:columns=text=u\"]", "run.yaml");
  ASSERT_TRUE(yaml.ok()) << yaml.status().message();
  EXPECT_EQ(yaml->data.reading.columns, (RowColumns{{"prompt", "q"}}));
  EXPECT_EQ(yaml->data.data[0].columns, (RowColumns{{"text", "t"}}));
  EXPECT_EQ(yaml->data.data[1].columns, (RowColumns{{"text", "u"}}));
  EXPECT_EQ(read({"--columns", "promt=q"}).message().substr(0, 74),
            "command line, columns: 'promt' is no field of rows; did you mean 'prompt'?");
  EXPECT_EQ(read({"--columns", "prompt"}).message(),
            "command line: columns should be FIELD=COLUMN,FIELD=COLUMN or a map such as {prompt: question, completion: "
            "answer}, but is '\"prompt\"'");
  EXPECT_EQ(read({"--columns", "prompt="}).message(),
            "command line, columns: prompt has no column: write prompt=COLUMN");
}

TEST(DataSources, MistakesAreNamedWithTheirRemedy) {
  const auto error = [](const std::vector<std::string>& arguments) {
    Settings s;
    const Status status = s.Command(arguments);
    EXPECT_FALSE(status.ok());
    EXPECT_TRUE(s.data.size() < 2) << "a refused value changes nothing";
    return status.message();
  };
  EXPECT_EQ(
      error({"--data", "a.jsonl:weight=0.5"}),
      "command line: data: unknown setting 'weight' of a file; its name here is 'passes': how often an epoch sees "
      "each sample of the file, such as 0.5 or 2 (a row's own \"weight\" scales its loss) (for a path that ends so: "
      "{path: \"a.jsonl:weight=0.5\"})");
  EXPECT_EQ(error({"--data", "a.jsonl:max_sample=5"}),
            "command line: data: unknown setting 'max_sample' of a file; did you mean 'max_samples'? (for a path that "
            "ends so: {path: \"a.jsonl:max_sample=5\"})");
  EXPECT_EQ(error({"--data", "a.jsonl:passes=0"}),
            "command line, data: passes should be above 0 and at most 10000, but is 0");
  EXPECT_EQ(error({"--data", "a.jsonl:max_samples=0"}),
            "command line, data: max_samples should be at least 1, but is 0");
  EXPECT_EQ(error({"--data", "a.jsonl:passes=2,passes=2"}), "command line: data: passes is given twice: remove one");
  EXPECT_EQ(error({"--data", "{path: a, max_samples: 2, max-samples: 3}"}),
            "command line: data: max_samples is given twice: remove one");
  EXPECT_EQ(error({"--data", "a.jsonl:passes=2,"}),
            "command line: data: unknown setting '' of a file; --help lists all names (for a path that ends so: {path: "
            "\"a.jsonl:passes=2,\"})");
  EXPECT_EQ(error({"--data", ":passes=2"}), "command line: data has a file without a path");
  EXPECT_EQ(error({"--data", "a.jsonl", "--data", "a.jsonl"}),
            "command line: data names 'a.jsonl' twice: remove one, or give it once with passes=2");
  EXPECT_EQ(error({"--eval_data", "a.jsonl:passes=2"}),
            "command line: eval_data: unknown setting 'passes' of a file; evaluation sees every sample once; remove it "
            "(for a path that ends so: {path: \"a.jsonl:passes=2\"})");
  Settings s;
  EXPECT_EQ(s.Yaml("seed: 3\ndata:\n  - a\n  - [b]\n").message().substr(0, 15), "run.yaml: 2 mis");
  EXPECT_EQ(s.Yaml("data:\n  - a\n  - [b]\n").message(),
            "run.yaml line 1: data should be a path, a map with a path, or a list of these, but is a list in a list");
  EXPECT_EQ(s.Yaml("data: 7\n").message(),
            "run.yaml line 1: data should be a path, a map with a path, or a list of these, but is '7'");
}

// A run may be resumed with its files elsewhere, but not with more or less of them.
TEST(DataSources, TheUseOfFilesIsComparedOnResumeNotTheirPaths) {
  const auto differences = [](const DataSources& a, const DataSources& b) {
    RunConfig first, second;
    first.data.data = a;
    second.data.data = b;
    return Differences(first, second, OnResume::kSame).size();
  };
  EXPECT_EQ(differences({{"a"}, {"b", 2}}, {{"x/a"}, {"x/b", 2}}), 0u);
  EXPECT_EQ(differences({{"a"}}, {{"a", 2}}), 1u);
  EXPECT_EQ(differences({{"a"}}, {{"a", 1, 10}}), 1u);
  EXPECT_EQ(differences({{"a"}, {"b", 2}}, {{"a", 2}, {"b"}}), 1u);
  EXPECT_EQ(differences({{"a"}, {"b"}}, {{"a"}}), 1u);
  EXPECT_EQ(differences({{"a"}}, {{.path = "a", .columns = {{"text", "t"}}}}), 1u);
}

}  // namespace
}  // namespace temper::data_option_test
