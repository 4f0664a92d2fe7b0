#include "config/foreign_names.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/project_folder_for_test.h"
#include "config/foreign_defaults.h"
#include "config/run_options.h"
#include "format/json.h"
#include "nlohmann/json.hpp"

namespace temper::foreign_names_test {
namespace {

TEST(ForeignNames, EveryNameOfEachToolIsKnown) {
  const auto tools = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/foreign_names/names.json");
  ASSERT_TRUE(tools.ok()) << tools.status().message();
  RunConfig config;
  const OptionSet options = RunOptions(config);
  std::set<std::string_view> known;
  for (const ForeignName& name : ForeignNames()) known.insert(name.foreign);
  for (const char* tool : {"LLaMA-Factory", "Axolotl", "TRL", "PEFT"}) {
    const Json& facts = (*tools)[tool];
    std::istringstream list(facts["names"].get<std::string>());
    size_t count = 0;
    for (std::string name; list >> name; ++count) {
      EXPECT_TRUE(known.contains(name) || options.Find(name) || options.IsSection(name) ||
                  options.Find("lora." + name) || known.contains("lora." + name))
          << tool << ": " << name;
    }
    EXPECT_GT(count, 30u) << tool;
  }
}

TEST(ForeignNames, DefaultsOfEachToolAreKnownFromOtherValues) {
  const auto tools = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/foreign_names/names.json");
  ASSERT_TRUE(tools.ok()) << tools.status().message();
  for (const auto& [name, tool] : {std::pair{"LLaMA-Factory", ForeignTool::kLlamaFactory},
                                   {"Axolotl", ForeignTool::kAxolotl},
                                   {"TRL", ForeignTool::kTrl}}) {
    const Json& facts = (*tools)[name];
    EXPECT_GT(facts["defaults"].size(), 50u) << name;
    for (const auto& [key, value] : facts["defaults"].items()) {
      EXPECT_TRUE(IsDefault(tool, key, OrderedJson::parse(value.dump()))) << name << ", " << key << ": " << value;
    }
    for (const auto& [key, values] : facts["values"].items()) {
      for (const Json& value : values) {
        EXPECT_FALSE(IsDefault(tool, key, OrderedJson::parse(value.dump()))) << name << ", " << key << ": " << value;
      }
    }
  }
  EXPECT_TRUE(IsDefault(ForeignTool::kTrl, "eval_strategy", false)) << "a 'no' of YAML 1.1";
}

TEST(ForeignNames, EachLeadsToAnOptionOrAReason) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  std::set<std::pair<std::string_view, ForeignTool>> seen;
  for (const ForeignName& name : ForeignNames()) {
    EXPECT_TRUE(seen.emplace(name.foreign, name.tool).second) << name.foreign << " is there twice";
    EXPECT_TRUE(name.ours.empty() ? !name.note.empty() : options.Find(name.ours) != nullptr) << name.foreign;
    if (options.Find(name.foreign) != nullptr) {
      EXPECT_FALSE(name.values.empty()) << name.foreign << " is one of ours: only its values can differ";
    } else if (name.tool == ForeignTool::kAny) {
      const std::string advice = options.Advice(name.foreign);
      EXPECT_TRUE(advice == name.advice || advice.find(name.ours.empty() ? name.note : name.ours) != advice.npos)
          << name.foreign;
    }
  }
}

// Users of the tools write them on the command line, where there is no file of another tool.
TEST(ForeignNames, SettingsOfPreferencesLeadToTheirTask) {
  RunConfig config;
  const OptionSet options = RunOptions(config);
  for (const auto& [theirs, ours] : {std::pair{"stage", "'task'"},
                                     {"rl", "'task'"},
                                     {"reward-model", "task: reward"},
                                     {"loss_type", "'dpo.loss_type'"},
                                     {"beta", "'dpo.beta'"},
                                     {"pref_beta", "'dpo.beta'"},
                                     {"kto_chosen_weight", "'kto.desirable_weight'"},
                                     {"simpo_gamma", "'simpo.simpo_gamma'"}}) {
    EXPECT_NE(options.Advice(theirs).find(ours), std::string::npos) << theirs << ": " << options.Advice(theirs);
  }
  for (const ForeignName& name : ForeignNames()) {
    EXPECT_EQ(options.Advice(name.foreign).find("the file"), std::string::npos) << name.foreign;
    EXPECT_TRUE(name.advised.empty() || options.Find(name.advised) != nullptr) << name.foreign;
  }
  const OptionSet none({}, ForeignNames());
  EXPECT_EQ(none.Advice("beta").find("dpo"), std::string::npos) << "a command without tasks";
}

}  // namespace
}  // namespace temper::foreign_names_test
