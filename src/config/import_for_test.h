// For tests of imports: files of each tool that say what each must, and what is found in the result.
#pragma once

#include <fmt/core.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/project_folder_for_test.h"
#include "config/import.h"
#include "format/json.h"
#include "format/memory_env_for_test.h"

namespace temper::import_test {

// Whether `text` has `word`, not as a part of another name.
inline bool HasWord(const std::string& text, const std::string& word) {
  const auto of_name = [&](size_t i) { return std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_'; };
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    if ((at == 0 || !of_name(at - 1)) && (end == text.size() || !of_name(end))) return true;
  }
  return false;
}

struct Tool {
  ForeignTool tool;
  const char* name;
  std::vector<std::pair<std::string, std::string>> lines;  // of a file that says what each must

  // The result for such a file with `more` lines.
  Result<ImportedRun> Run(const std::string& more, MemoryEnv& env, const ObjectiveRule* as = nullptr) const {
    std::string text = more;
    for (const auto& [name, given] : lines) {
      if (("\n" + more).find("\n" + name + ":") == std::string::npos) text += fmt::format("{}: {}\n", name, given);
    }
    return ImportRun(env, text, "f.yaml", {.tool = tool, .as = as});
  }
  // With another line; an error is its message.
  std::string With(const std::string& key, const std::string& value, MemoryEnv& env) const {
    const auto run = Run(fmt::format("{}: {}\n", key, value), env);
    return run.ok() ? run->yaml : run.status().message();
  }
};

inline std::set<std::string> LinesOf(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.insert(line);
  return lines;
}

inline const Tool kLlamaFactory = {ForeignTool::kLlamaFactory,
                                   "LLaMA-Factory",
                                   {{"model_name_or_path", "m"}, {"dataset", "demo"}, {"dataset_dir", "data"}}};
inline const Tool kAxolotl = {ForeignTool::kAxolotl, "Axolotl", {{"base_model", "m"}, {"datasets", "[d.jsonl]"}}};
inline const Tool kTrl = {ForeignTool::kTrl, "TRL", {{"model_name_or_path", "m"}, {"dataset_name", "d.jsonl"}}};

inline MemoryEnv WithDatasetInfo(const Json& entry) {
  MemoryEnv env;
  env.files["data/dataset_info.json"] = Json{{"demo", entry}}.dump();
  return env;
}

inline Json KnownValues(const char* of) {
  auto tools = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/foreign_names/names.json");
  TEMPER_CHECK(tools.ok()) << tools.status().message();
  return (*tools)[of]["values"];
}

}  // namespace temper::import_test
