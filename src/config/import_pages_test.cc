// The tables of settings in docs/howto/from_*.md say what `temper import` does.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/project_folder_for_test.h"
#include "config/foreign_names.h"
#include "config/import_for_test.h"
#include "config/option_yaml.h"
#include "config/run_options.h"

namespace temper::import_test::import_pages_test {
namespace {

struct Page {
  const char* file;
  Tool tool;
  std::vector<std::string> needed;  // lines that some settings need to mean something
};

// `theirs`: a line of the tool's file. `ours`: the lines of run.yaml that it becomes, or names of options that it is
// about; empty where it needs none.
struct Row {
  std::string theirs;
  std::vector<std::string> ours;
};

std::string NameIn(const std::string& line) {
  return line.substr(0, line.find(':'));
}

// The code at the beginning of a cell: `a`, `b`.
std::vector<std::string> CodeOf(std::string_view cell) {
  std::vector<std::string> code;
  while (cell.starts_with('`')) {
    const size_t end = cell.find('`', 1);
    if (end == cell.npos) break;
    code.emplace_back(cell.substr(1, end - 1));
    cell.remove_prefix(end + 1);
    cell.remove_prefix(cell.starts_with(", ") ? 2 : 0);
  }
  return code;
}

std::string PageText(const char* file) {
  const auto text = ReadTextFile(PosixEnv(), std::string(kProjectFolder) + "/docs/howto/" + file, MiB(1));
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : "";
}

// From a heading to the next.
std::string SectionOf(const std::string& page, const std::string& title) {
  const size_t begin = page.find("\n## " + title + "\n");
  if (begin == page.npos) return "";
  return page.substr(begin, page.find("\n## ", begin + 1) - begin);
}

// The rows of tables whose first cell begins with code.
std::vector<Row> RowsOf(const std::string& section) {
  std::istringstream lines(section);
  std::vector<Row> rows;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    const size_t bar = line.find(" | ");
    rows.push_back({CodeOf(line.substr(2, bar - 2)).at(0), CodeOf(std::string_view(line).substr(bar + 3))});
  }
  return rows;
}

// The value of an option after reading `yaml`.
std::string ValueAfter(const std::string& yaml, const std::string& name) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  const Status read = ReadYamlOptions(yaml, "run.yaml", options);
  EXPECT_TRUE(read.ok()) << read.message();
  const Option* const option = options.Find(name);
  if (option == nullptr) return "no option " + name;
  return ValueAsYaml(*option);
}

const std::array<Page, 3>& Pages() {
  static const std::array<Page, 3> kPages = {{
      {"from_llama_factory.md", kLlamaFactory, {"val_size: 0.1"}},
      {"from_axolotl.md", kAxolotl, {"adapter: lora", "val_set_size: 0.1"}},
      {"from_trl.md", kTrl, {"use_peft: true"}},
  }};
  return kPages;
}

TEST(ImportPages, EverySettingOfTheirTablesBecomesWhatTheySay) {
  const std::array<std::string_view, 1> templates = {"llama3"};
  for (const Page& page : Pages()) {
    MemoryEnv env;
    const auto import = [&](const std::string& line) {
      std::string recipe = line + "\n";
      const auto add = [&](const std::string& other) {
        if (NameIn(other) != NameIn(line)) recipe += other + "\n";
      };
      for (const auto& [name, given] : page.tool.lines) add(name + ": " + given);
      for (const std::string& other : page.needed) add(other);
      return ImportRun(env, recipe, "f.yaml", {.tool = page.tool.tool, .templates = templates});
    };
    const auto usual = import("seed: 42");
    ASSERT_TRUE(usual.ok()) << usual.status().message();
    const std::vector<Row> rows = RowsOf(SectionOf(PageText(page.file), "Settings"));
    EXPECT_GE(rows.size(), 15u) << page.file;
    for (const Row& row : rows) {
      SCOPED_TRACE(std::string(page.file) + ": " + row.theirs);
      const std::string theirs = NameIn(row.theirs);
      const auto run = import(row.theirs);
      ASSERT_TRUE(run.ok()) << run.status().message();
      for (const std::string& ours : row.ours) {
        const std::string name = NameIn(ours);
        if (name == ours) {  // without a value: what the name is about
          const auto& names = ForeignNames();
          EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const ForeignName& known) {
            return known.foreign == theirs && known.ours == name &&
                   (known.tool == ForeignTool::kAny || known.tool == page.tool.tool);
          })) << ours;
          continue;
        }
        const std::string value = ValueAfter(run->yaml, name);
        EXPECT_EQ(value, ValueAfter(ours, name)) << run->yaml;
        // The line is there because of the setting.
        const std::set<std::string> without = LinesOf(usual->yaml), with = LinesOf(run->yaml);
        EXPECT_TRUE(std::any_of(with.begin(), with.end(), [&](const std::string& line) {
          return !without.contains(line) && !line.starts_with('#') && HasWord(line, theirs);
        })) << run->yaml;
      }
      if (!row.ours.empty()) continue;
      for (const std::string& lost : run->lost) EXPECT_FALSE(HasWord(lost, theirs)) << lost;
      EXPECT_TRUE(std::any_of(run->needless.begin(), run->needless.end(), [&](const std::string& sentence) {
        return HasWord(sentence, theirs);
      })) << run->yaml;
    }
  }
}

TEST(ImportPages, NamesThatAreTheSameAreOptionsHereAndSettingsThere) {
  const auto tools = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/foreign_names/names.json");
  ASSERT_TRUE(tools.ok()) << tools.status().message();
  RunConfig config;
  const OptionSet options = RunOptions(config);
  for (const Page& page : Pages()) {
    std::set<std::string> theirs;
    std::istringstream names((*tools)[page.tool.name]["names"].get<std::string>());
    for (std::string name; names >> name;) theirs.insert(name);
    const std::string text = PageText(page.file);
    const size_t begin = text.find("\nThese have the same name");
    ASSERT_NE(begin, text.npos) << page.file;
    const std::string paragraph = text.substr(begin, text.find("\n\n", begin) - begin);
    size_t count = 0;
    for (size_t at = paragraph.find('`'); at != paragraph.npos; at = paragraph.find('`', at + 1), ++count) {
      const size_t end = paragraph.find('`', at + 1);
      const std::string name = paragraph.substr(at + 1, end - at - 1);
      EXPECT_NE(options.Find(name), nullptr) << page.file << ": " << name;
      EXPECT_TRUE(theirs.contains(name)) << page.file << ": " << name;
      at = end;
    }
    EXPECT_GE(count, 10u) << page.file;
  }
}

TEST(ImportPages, TablesForToolsWithoutImportNameOptions) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  for (const char* tool : {"torchtune", "ms-swift"}) {
    size_t count = 0;
    for (const Row& row : RowsOf(SectionOf(PageText("from_torchtune_ms_swift.md"), tool))) {
      for (const std::string& ours : row.ours) {
        if (ours.starts_with("temper ") || ours.starts_with("hf ")) continue;  // of the table of commands
        EXPECT_NE(options.Find(NameIn(ours)), nullptr) << tool << ": " << ours;
        ++count;
      }
    }
    EXPECT_GE(count, 15u) << tool;
  }
}

}  // namespace
}  // namespace temper::import_test::import_pages_test
