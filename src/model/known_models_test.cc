#include "model/known_models.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "model/families.h"

namespace temper::known_models_test {
namespace {

// The numbers of parameters as their makers publish them, which are those of transformers for these configurations. A
// wrong size of any kind changes them.
const std::map<std::string, int64_t> kParameters = {
    {"llama-2-7b", 6738415616},
    {"llama-2-13b", 13015864320},
    {"llama-2-70b", 68976648192},
    {"llama-3-8b", 8030261248},
    {"llama-3-70b", 70553706496},
    {"llama-3.1-8b", 8030261248},
    {"llama-3.1-70b", 70553706496},
    {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},
    {"llama-3.2-3b", 3212749824},
    {"llama-3.3-70b", 70553706496},
    {"tinyllama-1.1b", 1100048384},
    {"smollm2-135m", 134515008},
    {"smollm2-360m", 361821120},
    {"smollm2-1.7b", 1711376384},
    {"mistral-7b-v0.1", 7241732096},
    {"mistral-7b-v0.3", 7248023552},
    {"mistral-nemo-12b", 12247782400},
    {"mistral-small-24b", 23572403200},
    {"mistral-large-123b", 122610069504},
    {"opt-125m", 125239296},
    {"opt-350m", 331196416},
    {"opt-1.3b", 1315758080},
    {"opt-2.7b", 2651596800},
    {"opt-6.7b", 6658473984},
    {"opt-13b", 12853473280},
    {"opt-30b", 29974540288},
    {"opt-66b", 65719701504},
    {"opt-175b", 174604468224},
    {"phi-3-mini", 3821079552},
    {"phi-3-medium", 13960238080},
    {"phi-4", 14659507200},
    {"phi-4-mini", 3836021760},
    {"qwen2.5-0.5b", 494032768},
    {"qwen2.5-1.5b", 1543714304},
    {"qwen2.5-3b", 3085938688},
    {"qwen2.5-7b", 7615616512},
    {"qwen2.5-14b", 14770033664},
    {"qwen2.5-32b", 32763876352},
    {"qwen2.5-72b", 72706203648},
    {"qwen3-0.6b", 596049920},
    {"qwen3-1.7b", 1720574976},
    {"qwen3-4b", 4022468096},
    {"qwen3-8b", 8190735360},
    {"qwen3-14b", 14768307200},
    {"qwen3-32b", 32762123264},
    {"qwen3-30b-a3b", 30532122624},
    {"gemma-2b", 2506172416},
    {"gemma-7b", 8537680896},
    {"gemma-2-2b", 2614341888},
    {"gemma-2-9b", 9241705984},
    {"gemma-2-27b", 27227128320},
    {"gemma-3-270m", 268098176},
    {"gemma-3-1b", 999885952},
    {"ministral-8b", 8019808256},
    {"smollm3-3b", 3075098624},
    {"olmo-2-1b", 1484916736},
    {"olmo-2-7b", 7298617344},
    {"olmo-2-13b", 13716198400},
    {"olmo-2-32b", 32234279936},
    {"olmo-3-7b", 7298011136},
    {"olmo-3-32b", 32233522176},
    {"glm-4-9b", 9399951360},
    {"glm-4-9b-0414", 9400279040},
    {"glm-4-32b-0414", 32566081536},
    {"granite-3.3-2b", 2533539840},
    {"granite-3.3-8b", 8170864640},
    {"seed-oss-36b", 36151104512},
    {"command-r7b", 8028033024},
    {"command-a", 111057580032},
    {"starcoder2-3b", 3030371328},
    {"starcoder2-7b", 7173923840},
    {"starcoder2-15b", 15957889024},
    {"gpt2", 124439808},
    {"gpt2-medium", 354823168},
    {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},
    {"pythia-70m", 70426624},
    {"pythia-160m", 162322944},
    {"pythia-410m", 405334016},
    {"pythia-1b", 1011781632},
    {"pythia-1.4b", 1414647808},
    {"pythia-2.8b", 2775208960},
    {"pythia-6.9b", 6857302016},
    {"pythia-12b", 11846072320},
    {"gpt-neox-20b", 20554567680},
    {"deepseek-v2-lite", 15706484224},
    {"deepseek-v3", 671026404352},
    {"glm-4.7-flash", 29943390976},
    {"gpt-oss-20b", 20914757184},
    {"gpt-oss-120b", 116829156672},
    {"apertus-8b", 8053338176},
    {"apertus-70b", 70599864480},
    {"bloom-560m", 559214592},
    {"bloom-7b1", 7069016064},
    {"bloom-176b", 176247271424},
    {"mpt-7b", 6649286656},
    {"mpt-30b", 29957200896},
    {"falcon-7b", 6921720704},
    {"falcon-40b", 41303293952},
    {"falcon-rw-1b", 1311625216},
    {"xglm-564m", 564463616},
    {"xglm-7.5b", 7492771840},
    {"phi-1_5", 1418270720},
    {"phi-2", 2779683840},
    {"gpt-j-6b", 6050882784},
    {"codegen-350m-mono", 356712448},
    {"codegen-16b-mono", 16032155648},
    {"gpt-neo-125m", 125198592},
    {"gpt-neo-1.3b", 1315575808},
    {"gpt-neo-2.7b", 2651307520},
    {"exaone-3.5-2.4b", 2405327360},
    {"exaone-4.0-1.2b", 1279391488},
    {"exaone-4.0-32b", 32003216384},
    {"minitron-4b", 4190509056},
    {"nemotron-4-340b", 341029195776},
    {"c4ai-command-r-v01", 34980831232},
    {"c4ai-command-r-plus", 103810674688},
    {"stablelm-3b-4e1t", 2795443200},
    {"stablelm-2-1_6b", 1644515328},
    {"stablelm-2-12b", 12143185920},
    {"afm-4.5b", 4619184640},
    {"hunyuan-7b", 7504568320},
    {"ernie-4.5-0.3b", 360748032},
    {"cwm-32b", 32581097472},
    {"olmo-1b", 1176764416},
    {"olmo-7b", 6888095744},
    {"helium-1-preview-2b", 2172643840},
    {"hyperclovax-seed-think-14b", 14748112896},
    {"persimmon-8b-base", 9397175296},
    {"lfm2-350m", 354483968},
    {"lfm2-700m", 742489344},
    {"lfm2-1.2b", 1170340608},
    {"granite-4.0-h-micro", 3191396096},
    {"granite-4.0-h-tiny", 6939037248},
    {"granite-4.0-h-small", 32207337984},
    {"gemma-4-e2b", 4628569344},
    {"gemma-4-e4b", 7463013376},
    {"gemma-4-12b", 11907350272},
    {"gemma-4-31b", 30697345280},
    {"qwen3.5-9b", 8953803264},
    {"qwen3.5-35b-a3b", 34660610688},
    {"qwen3-235b-a22b", 235093634560},
    {"qwen3-next-80b-a3b", 79674391296},
    {"mixtral-8x7b", 46702792704},
    {"mixtral-8x22b", 140630071296},
    {"glm-4.5-air", 106851586048},
    {"minicpm3-4b", 4073875968},
    {"youtu-llm-2b", 1961560064},
};

TEST(KnownModels, HaveThePublishedNumbersOfParameters) {
  const std::vector<std::string> names = KnownModelNames();
  EXPECT_EQ(names.size(), kParameters.size());
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const auto model = ModelFromConfig(*FindKnownModel(name), name);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const auto published = kParameters.find(name);
    ASSERT_NE(published, kParameters.end());
    EXPECT_EQ(NumParameters(**model), published->second);
  }
}

TEST(KnownModels, AreFoundInAnyCaseAndAMistakeNamesTheNearest) {
  EXPECT_TRUE(FindKnownModel("Llama-3.1-405B"));
  EXPECT_FALSE(FindKnownModel("llama"));
  EXPECT_FALSE(FindKnownModel(""));
  EXPECT_EQ(NearestKnownModel("Llama3.1-405b"), "llama-3.1-405b");
  EXPECT_EQ(NearestKnownModel("out/mine"), "");
}

}  // namespace
}  // namespace temper::known_models_test
