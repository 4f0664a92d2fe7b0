#include "checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "format/memory_env_for_test.h"

namespace temper::manifest_test {
namespace {

Manifest Sample() {
  Manifest m;
  m.kind = CheckpointKind::kFull;
  m.state = {.step = 12, .total_steps = 90, .sampler = {18446744073709551615u, 1, 5}, .tokens = 4096};
  m.state.best_eval_loss = 0.1;
  m.state.eval_loss = 2.0000000000000004;
  m.state.best_step = 3;
  m.state.data_fingerprint = "f00";
  m.state.eval_fingerprint = "ba7";
  m.state.extra = {{"note", "any \"text\"\n"}};
  m.identity = {"0123456789abcdef", {{"eval", "00ff"}}, {{"threads", 2}, {"isa", "avx2"}}, {{"chunk", 512}}};
  m.files = {{"run.yaml", {11}, "00000000000000aa", false}, {"state.safetensors", {900}, "00000000000000bb", true}};
  m.tensors = {{"a", {DType::kF32, {3, 4}}, {{"state.safetensors", "a", {0, 0}, {3, 4}, "00000000000000cc"}}},
               {"b", {DType::kF32, {}}, {{"state.safetensors", "x", {}, {}, "00000000000000dd"}}}};
  return m;
}

TEST(Manifest, ReadsBackWhatItWrote) {
  const std::string text = FormatManifest(Sample());
  const auto m = ParseManifest(text, "m");
  ASSERT_TRUE(m.ok()) << m.status().message();
  EXPECT_EQ(m->kind, CheckpointKind::kFull);
  EXPECT_EQ(m->state, Sample().state);
  EXPECT_EQ(m->identity, Sample().identity);
  ASSERT_EQ(m->tensors.size(), 2u);
  EXPECT_EQ(m->Find("b")->slices[0].stored_as, "x");
  EXPECT_EQ(m->Find("c"), nullptr);
  EXPECT_EQ(FormatManifest(*m), text);
}

// So manifests of AdamW are what they were before there was another.
TEST(Manifest, NamesTheOptimizerUnlessItIsAdamw) {
  EXPECT_EQ(FormatManifest(Sample()).find("optimizer"), std::string::npos);
  EXPECT_EQ(ParseManifest(FormatManifest(Sample()), "m")->optimizer, "adamw");
  Manifest m = Sample();
  m.optimizer = "sgd";
  EXPECT_EQ(ParseManifest(FormatManifest(m), "m")->optimizer, "sgd");
}

TEST(Manifest, NamesTheKindOfATensorThatIsNotOfTheCheckpoints) {
  EXPECT_EQ(FormatManifest(Sample()).find(R"("kind":"full","name")"), std::string::npos);
  Manifest m = Sample();
  m.kind = CheckpointKind::kLora;
  m.tensors[1].kind = "full";
  const auto read = ParseManifest(FormatManifest(m), "m");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->tensors[0].kind, "");
  EXPECT_EQ(read->tensors[1].kind, "full");
  m.tensors[1].kind = "half";
  EXPECT_EQ(ParseManifest(FormatManifest(m), "m").status().code(), StatusCode::kCorrupt);
}

TEST(Manifest, EveryChangedByteIsFound) {
  const std::string text = FormatManifest(Sample());
  for (size_t i = 0; i < text.size(); ++i) {
    for (const int bit : {0, 3, 6}) {
      std::string changed = text;
      changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
      EXPECT_FALSE(ParseManifest(changed, "m").ok()) << "byte " << i << " as " << changed[i];
    }
  }
}

TEST(Manifest, EveryCutIsFound) {
  const std::string text = FormatManifest(Sample());
  for (size_t n = 0; n < text.size(); ++n) EXPECT_FALSE(ParseManifest(text.substr(0, n), "m").ok()) << n << " bytes";
}

TEST(Manifest, AnotherVersionIsNamed) {
  std::string text = FormatManifest(Sample());
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 2");
  const auto m = ParseManifest(text, "x/manifest.json");
  ASSERT_EQ(m.status().code(), StatusCode::kUnsupported);
  EXPECT_NE(m.status().message().find("version 2"), std::string::npos) << m.status().message();
}

// A manifest with a valid checksum is still not trusted: another program may have written it.
TEST(Manifest, RefusesWhatLeadsOutOfTheFolder) {
  for (const char* name : {"../state.safetensors", "/etc/passwd", ".hidden", ""}) {
    Manifest m = Sample();
    m.files[1].name = name;
    m.tensors.clear();
    EXPECT_EQ(ParseManifest(FormatManifest(m), "m").status().code(), StatusCode::kCorrupt) << name;
  }
  Manifest m = Sample();
  m.tensors[0].slices[0].file = "other.safetensors";
  EXPECT_EQ(ParseManifest(FormatManifest(m), "m").status().code(), StatusCode::kCorrupt);
}

TEST(Manifest, OfAllFoldersOnlyThatOfChatTemplatesHasFiles) {
  const auto with = [](const std::string& name) {
    Manifest m = Sample();
    m.files.push_back({name, {5}, "00000000000000dd"});
    std::sort(m.files.begin(), m.files.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return ParseManifest(FormatManifest(m), "m").status();
  };
  EXPECT_TRUE(with("additional_chat_templates/tool_use.jinja").ok());
  EXPECT_FALSE(with(std::string("x\0.jinja", 8)).ok());
  for (const char* name : {"additional_chat_templates/../x.jinja", "additional_chat_templates/.x.jinja",
                           "additional_chat_templates/a/x.jinja", "additional_chat_templates/x.txt", "other/x.jinja",
                           "additional_chat_templates/", ".x.jinja", "a\\b.jinja"}) {
    EXPECT_NE(with(name).message().find("not a plain file name"), std::string::npos) << name;
  }
}

TEST(Manifest, SlicesMakeUpTheTensorExactly) {
  const auto parse = [](std::vector<std::pair<Shape, Shape>> boxes) {  // begin and shape, of f32[6, 4]
    Manifest m = Sample();
    m.tensors[0].type.shape = {6, 4};
    m.tensors[0].slices.clear();
    for (const auto& [begin, shape] : boxes) {
      m.tensors[0].slices.push_back({"state.safetensors", "a", begin, shape, "00000000000000cc"});
    }
    const auto parsed = ParseManifest(FormatManifest(m), "m");
    if (parsed.ok()) {
      EXPECT_EQ(FormatManifest(*parsed), FormatManifest(m));
    }
    return parsed.status().code();
  };
  for (const auto& good : std::vector<std::vector<std::pair<Shape, Shape>>>{
           {{{0, 0}, {6, 4}}},
           {{{3, 0}, {3, 4}}, {{0, 0}, {3, 4}}},
           {{{0, 0}, {6, 1}}, {{0, 1}, {6, 3}}},
           {{{0, 0}, {4, 3}}, {{0, 3}, {4, 1}}, {{4, 0}, {2, 2}}, {{4, 2}, {2, 2}}}}) {
    EXPECT_EQ(parse(good), StatusCode::kOk);
  }
  for (const auto& bad : std::vector<std::vector<std::pair<Shape, Shape>>>{
           {},                                                         // nothing
           {{{0, 0}, {3, 4}}},                                         // the lower half is missing
           {{{0, 0}, {3, 4}}, {{0, 0}, {3, 4}}},                       // twice the same half
           {{{0, 0}, {3, 4}}, {{2, 0}, {3, 4}}},                       // overlapping, and a gap
           {{{0, 0}, {3, 4}}, {{4, 0}, {3, 4}}},                       // beyond the end
           {{{0, 0}, {6, 4}}, {{0, 0}, {0, 4}}},                       // an empty one
           {{{0}, {24}}},                                              // of another rank
           {{{0, 0}, {4, 6}}},                                         // of as many elements
           {{{0, 0}, {3, 4}}, {{3, 0}, {3, 2}}, {{2, 2}, {3, 2}}}}) {  // the right number, in the wrong place
    EXPECT_EQ(parse(bad), StatusCode::kCorrupt);
  }
}

TEST(Manifest, RefusesUnsortedAndRepeatedNames) {
  Manifest m = Sample();
  std::swap(m.tensors[0], m.tensors[1]);
  EXPECT_FALSE(ParseManifest(FormatManifest(m), "m").ok());
  m.tensors[1] = m.tensors[0];
  EXPECT_FALSE(ParseManifest(FormatManifest(m), "m").ok());
}

TEST(Manifest, SecondsAreNotPartOfIt) {
  Manifest m = Sample();
  const std::string text = FormatManifest(m);
  m.seconds = 99;
  EXPECT_EQ(FormatManifest(m), text);
  MemoryEnv env;
  env.files["c/manifest.json"] = text;
  EXPECT_EQ(ReadManifest(env, "c")->seconds, 0);
  env.files["c/clock.json"] = "{\"seconds\": 12.5}\n";
  EXPECT_EQ(ReadManifest(env, "c")->seconds, 12.5);
  env.files["c/clock.json"] = "no clock";
  EXPECT_EQ(ReadManifest(env, "c")->seconds, 0);
}

TEST(RunIdentity, DifferencesAreNamed) {
  const RunIdentity saved = Sample().identity;
  EXPECT_EQ(DescribeDifferences(saved, saved), "");
  RunIdentity now = saved;
  now.environment["threads"] = 4;
  now.environment.erase("isa");
  now.program_hash = "fe";
  EXPECT_EQ(DescribeDifferences(saved, now), "isa \"avx2\" -> null; threads 2 -> 4; program 0123456789abcdef -> fe");
  now = saved;
  now.other_programs["eval"] = "fe";
  EXPECT_EQ(DescribeDifferences(saved, now), "program eval 00ff -> fe");
  now.other_programs.clear();
  EXPECT_EQ(DescribeDifferences(now, saved), "") << "an older Temper saved none";
}

}  // namespace
}  // namespace temper::manifest_test
