#include "format/yaml.h"

#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>

#include "format/memory_env_for_test.h"

namespace temper::yaml_test {
namespace {

OrderedJson Parsed(const std::string& text) {
  auto document = ParseYaml(text, "run.yaml");
  EXPECT_TRUE(document.ok()) << document.status().message();
  return document.ok() ? document->value : OrderedJson("error");
}

void ExpectRefused(const std::string& text, const std::string& where, const std::string& fragment) {
  const auto document = ParseYaml(text, "run.yaml");
  ASSERT_FALSE(document.ok()) << text << " gave " << document->value;
  const std::string message = document.status().message();
  EXPECT_TRUE(message.starts_with(where)) << message;
  EXPECT_NE(message.find(fragment), std::string::npos) << "'" << fragment << "' is not in: " << message;
  EXPECT_LT(message.size(), 400u) << message;
}

TEST(Yaml, ReadsAConfigurationInItsOrder) {
  EXPECT_EQ(Parsed(R"(# a run
model: meta-llama/Llama-3.2-1B   # the base
learning_rate: 2e-4
lora:
  r: 16
  target_modules: [q_proj, v_proj]
  dropout: 0.05
data:
  - train.jsonl
  - "more data.jsonl"
packing: true
resume: ~
system: |
  You are a pirate.
  Speak so.
note: >-
  one
  line
)")
                .dump(),
            R"({"model":"meta-llama/Llama-3.2-1B","learning_rate":0.0002,"lora":{"r":16,)"
            R"("target_modules":["q_proj","v_proj"],"dropout":0.05},"data":["train.jsonl","more data.jsonl"],)"
            R"("packing":true,"resume":null,"system":"You are a pirate.\nSpeak so.\n","note":"one line"})");
}

// Example 10.9 ("Core Tag Resolution") of the YAML 1.2.2 specification.
TEST(Yaml, TypesScalarsAsTheSpecificationsExample) {
  const OrderedJson j = Parsed(R"(A null: null
Also a null: # Empty
Not a null: ""
Booleans: [ true, True, false, FALSE ]
Integers: [ 0, 0o7, 0x3A, -19 ]
Floats: [
  0., -0.0, .5, +12e03, -2E+05 ]
Also floats: [
  .inf, -.Inf, +.INF, .NAN ])");
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(j["A null"].is_null());
  EXPECT_TRUE(j["Also a null"].is_null());
  EXPECT_EQ(j["Not a null"], "");
  EXPECT_EQ(j["Booleans"].dump(), "[true,true,false,false]");
  EXPECT_EQ(j["Integers"].dump(), "[0,7,58,-19]");
  EXPECT_EQ(j["Floats"].dump(), "[0.0,-0.0,0.5,12000.0,-200000.0]");
  EXPECT_EQ(j["Also floats"][0].get<double>(), inf);
  EXPECT_EQ(j["Also floats"][1].get<double>(), -inf);
  EXPECT_EQ(j["Also floats"][2].get<double>(), inf);
  EXPECT_TRUE(std::isnan(j["Also floats"][3].get<double>()));
}

TEST(Yaml, TypesEachPlainScalarAndNoQuotedOne) {
  const struct {
    std::string text;
    OrderedJson value;
  } kCases[] = {
      {"1e-4", 1e-4},
      {"2E-4", 2e-4},
      {"1.e3", 1000.0},
      {"5e5", 5e5},
      {"+7", 7},
      {"007", 7},
      {"-0", 0},
      {"9223372036854775807", INT64_MAX},
      {"-9223372036854775808", INT64_MIN},
      {"18446744073709551615", UINT64_MAX},
      {"0xff", 255},
      // Text, whatever older YAML or other languages make of it.
      {"yes", "yes"},
      {"no", "no"},
      {"on", "on"},
      {"Off", "Off"},
      {"y", "y"},
      {"tRue", "tRue"},
      {"nULL", "nULL"},
      {"1_000", "1_000"},
      {"1,000", "1,000"},
      {"12:30", "12:30"},
      {"2024-01-01", "2024-01-01"},
      {"0xZZ", "0xZZ"},
      {"0x", "0x"},
      {"-0x10", "-0x10"},
      {"0o8", "0o8"},
      {"0b1", "0b1"},
      {"1e", "1e"},
      {"1e+", "1e+"},
      {"e5", "e5"},
      {".", "."},
      {"+", "+"},
      {"-.", "-."},
      {"1.2.3", "1.2.3"},
      {"1 2", "1 2"},
      {"inf", "inf"},
      {"nan", "nan"},
      {"+.nan", "+.nan"},
      {"5GB", "5GB"},
      {"é", "é"},
  };
  for (const auto& c : kCases) {
    const OrderedJson j = Parsed("v: " + c.text);
    EXPECT_EQ(j["v"], c.value) << c.text;
    EXPECT_EQ(j["v"].type() == OrderedJson::value_t::string, c.value.is_string()) << c.text << " is " << j["v"];
    EXPECT_EQ(j["v"].is_number_float(), c.value.is_number_float()) << c.text;
    for (const char* quote : {"\"", "'"}) EXPECT_EQ(Parsed("v: " + (quote + c.text) + quote)["v"], c.text);
  }
  EXPECT_EQ(Parsed("v: \"true\"")["v"], "true");
  EXPECT_EQ(Parsed("v: 'null'")["v"], "null");
  EXPECT_EQ(Parsed("v: |\n  12\n")["v"], "12\n");
}

TEST(Yaml, KnownTagsSetTheType) {
  EXPECT_EQ(Parsed("v: !!str 12")["v"], "12");
  EXPECT_EQ(Parsed("v: ! 12")["v"], "12");
  EXPECT_EQ(Parsed("v: !!int \"12\"")["v"], 12);
  EXPECT_EQ(Parsed("v: !!float 1").dump(), R"({"v":1.0})");
  EXPECT_EQ(Parsed("v: !!bool \"true\"")["v"], true);
  EXPECT_TRUE(Parsed("v: !!null \"\"")["v"].is_null());
  EXPECT_EQ(Parsed("!!map {a: !!seq [1]}").dump(), R"({"a":[1]})");
  ExpectRefused("v: 1\nw: !!int x", "run.yaml line 2:", "'x' is tagged !!int but is not one");
  ExpectRefused("v: !!int 1.5", "run.yaml line 1:", "tagged !!int");
  ExpectRefused("v: !!python/object:os.system x", "run.yaml line 1:", "python/object");
  ExpectRefused("v: !Mine {a: 1}", "run.yaml line 1:", "tag '!Mine'");
  ExpectRefused("v: !!map [1]", "run.yaml line 1:", "tag");
}

TEST(Yaml, ErrorsNameTheLine) {
  ExpectRefused("a: 1\nb: [1, 2\nc: 3\n", "run.yaml line ", "not valid YAML");
  ExpectRefused("a: 1\n\tb: 2\n", "run.yaml line 2:", "a tab indents the line: YAML takes spaces only");
  ExpectRefused("lora:\n  \tr: 2\n", "run.yaml line 2:", "a tab indents the line");
  for (const char* open : {"\"", "'"}) {
    for (const char* end : {"", "\n", " ", "\n\n", "x", "\n x\n"}) {
      ExpectRefused("a: 1\nb: " + std::string(open) + "open" + end, "run.yaml line ", "not valid YAML");
    }
  }
  ExpectRefused("a: 1\nb: *nowhere\n", "run.yaml line 2:", "anchor");
  ExpectRefused("a: 1\nb: 99999999999999999999\n", "run.yaml line 2:", "does not fit a 64-bit number");
  ExpectRefused("a: 1e999\n", "run.yaml line 1:", "does not fit");
  ExpectRefused("a: -9223372036854775809\n", "run.yaml line 1:", "does not fit");
  ExpectRefused("a: 1\n: 2\n", "run.yaml line 2:", "key is empty or null");
  ExpectRefused("a: 1\nnull: 2\n", "run.yaml line 2:", "key is empty or null");
  ExpectRefused("a: 1\n? [x, y]\n: 2\n", "run.yaml line 2:", "a key must be plain text");
  ExpectRefused("a: &x 1\n*x : 2\n", "run.yaml line 2:", "alias stands where a key");
  ExpectRefused("a: &x {b: 1}\nc:\n  <<: *x\n", "run.yaml line 3:", "merge keys");
  ExpectRefused("a: 1\n---\nb: 2\n", "run.yaml", "more than one YAML document");
  ExpectRefused("a: 1\nb: \xFF\n", "run.yaml line 2:", "not UTF-8");
  ExpectRefused("a: \xED\xA0\x80\n", "run.yaml line 1:", "not UTF-8");
  ExpectRefused(std::string("a: 1\nb: 2\0c", 11), "run.yaml line 2:", "not UTF-8");
  for (const char* escape : {"\\0", "\\x00", "\\N", "\\_"}) {
    ExpectRefused("a: 1\nb: \"" + std::string(escape) + "\"\n", "run.yaml line 2:", "escape");
    ExpectRefused("a: 1\n\"" + std::string(escape) + "\": 1\n", "run.yaml line 2:", "escape");
  }
  ExpectRefused("\xFF\xFE" + std::string("a\0:\0", 4), "run.yaml line 1:", "not UTF-8");
}

// What the parser says of these is "end of map not found" or "illegal map value", mostly of another line.
TEST(Yaml, SyntaxErrorsSayWhatIsProbablyMeant) {
  ExpectRefused("model: m\noutput_dir:o2\nlearning_rate 1e-4\n",
                "run.yaml line 2:", "'output_dir:o2': a key needs ': ' behind it, with a space");
  ExpectRefused("model: m\noutput_dir:o2\n\n# lr\nlearning_rate: 1e-4\n", "run.yaml line 2:", "with a space");
  ExpectRefused("model: m\nlearning_rate 1e-4\nseed: 1\n",
                "run.yaml line 2:", "'learning_rate 1e-4': a key needs ': ' behind it");
  ExpectRefused("model: m\nseed=1\ndata: d\n", "run.yaml line 2:", "'seed=1': a key needs ': ' behind it");
  ExpectRefused(
      "lora:\n  r: 8\n   alpha: 16\n", "run.yaml line 3:",
      "'alpha: 16': the line is indented by 3 spaces, line 2 by 2: keys of one section stand below each other");
  ExpectRefused("lora:\n  r: 8\n alpha: 16\n", "run.yaml line 3:", "indented by 1 space, line 2 by 2");
  ExpectRefused("text: a: b\n", "run.yaml line 1:", "'text: a: b': a value that holds ': ' needs quotes");
  ExpectRefused("a: 1\nb: [1, 2\nc: 3\n", "run.yaml line 2:", "'b: [1, 2': the bracket [ is not closed");
  ExpectRefused("a: \"open\n", "run.yaml line 1:", "the quote \" is not closed");
  ExpectRefused("model: @m\n", "run.yaml line 1:", "a value that begins with '@' needs quotes");
}

TEST(Yaml, ADuplicateKeyIsAnErrorThatNamesBothLines) {
  ExpectRefused("lr: 1\nlora:\n  r: 8\n  alpha: 16\n  r: 16\n",
                "run.yaml line 5:", "'r' appears twice; the first is in line 3");
  ExpectRefused("{a: 1, \"a\": 2}", "run.yaml line 1:", "twice");
  EXPECT_EQ(Parsed("a: {r: 1}\nb: {r: 2}\n").dump(), R"({"a":{"r":1},"b":{"r":2}})");
}

TEST(Yaml, KnowsTheLineOfEveryValue) {
  auto document = ParseYaml(R"(# comment

model: x
lora:
  r: 16
  target_modules:
    - q_proj
    -
      v_proj
data: [a,
       b]
a/b: {m~n: 1}
text: |
  one
last:
  9
copy: &c {k: [1]}
again: *c
)",
                            "run.yaml");
  ASSERT_TRUE(document.ok()) << document.status().message();
  const std::pair<const char*, int> kLines[] = {
      {"", 3},
      {"/model", 3},
      {"/lora", 4},
      {"/lora/r", 5},
      {"/lora/target_modules", 6},
      {"/lora/target_modules/0", 7},
      {"/lora/target_modules/1", 9},
      {"/data/0", 10},
      {"/data/1", 11},
      {"/a~1b", 12},
      {"/a~1b/m~0n", 12},
      {"/text", 13},
      {"/last", 15},
      {"/copy/k/0", 17},
      {"/again", 18},
      {"/again/k/0", 17},
      // Nothing there.
      {"/absent", 0},
      {"/data/2", 0},
      {"/data/-1", 0},
      {"/data/x", 0},
      {"/data/", 0},
      {"/model/x", 0},
      {"model", 0},
      {"/lora/r/", 0},
  };
  for (const auto& [pointer, line] : kLines) EXPECT_EQ(document->LineOf(pointer), line) << pointer;
}

TEST(Yaml, CopiesAliasesOut) {
  EXPECT_EQ(Parsed("a: &x [1, {b: 2}]\nc: *x\nd: [*x, *x]\n").dump(),
            R"({"a":[1,{"b":2}],"c":[1,{"b":2}],"d":[[1,{"b":2}],[1,{"b":2}]]})");
  EXPECT_EQ(Parsed("a: &x 1\nb: &x 2\nc: *x\n").dump(), R"({"a":1,"b":2,"c":2})");
  EXPECT_TRUE(Parsed("a: &x\nb: *x\n")["b"].is_null());
  ExpectRefused("a: &x [1, *x]\n", "run.yaml line 1:", "inside the value that it names");
}

TEST(Yaml, HostileDocumentsEndSoonAndSmall) {
  const std::clock_t start = std::clock();  // of this process: a busy machine takes nothing of it
  std::string laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n";
  for (int i = 1; i < 12; ++i) {
    std::string item = "*a" + std::to_string(i - 1);
    laughs += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + item;
    for (int k = 0; k < 8; ++k) laughs += ", " + item;
    laughs += "]\n";
  }
  ExpectRefused(laughs, "run.yaml line ", "aliases make the document larger than 64.00 MiB");

  std::string long_copies = "a: &a '" + std::string(500'000, 'x') + "'\nb: [";
  for (int i = 0; i < 100'000; ++i) long_copies += "*a,";
  ExpectRefused(long_copies + "]", "run.yaml line 2:", "aliases");

  for (const char* open : {"[", "{a: ", "- ", "? ", "a: [", "&a [", "!!seq ["}) {
    std::string deep;
    while (deep.size() < 200'000) deep += open;
    ExpectRefused(deep, "run.yaml line ", "");
  }
  ExpectRefused(std::string(65, '[') + std::string(65, ']'), "run.yaml line 1:", "nested deeper than 64 levels");
  EXPECT_TRUE(ParseYaml(std::string(64, '[') + std::string(64, ']'), "fine.yaml").ok());
  ExpectRefused(std::string(kMaxYamlText.v + 1, ' '), "run.yaml has ", "more than the 1.00 MiB");

  // The largest flat documents there can be, keys and values, are fine.
  std::string keys, values = "[";
  for (int i = 0; keys.size() < 1'000'000; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  while (values.size() < 1'000'000) values += "1,";
  EXPECT_GT(Parsed(keys).size(), 90'000u);
  EXPECT_GT(Parsed(values + "]").size(), 490'000u);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 60.0);  // a second or two; minutes under a sanitizer would still mean O(n^2)
}

TEST(Yaml, AnEmptyDocumentIsNull) {
  for (const char* text : {"", "\n", "# nothing\n", "---\n", "~"}) EXPECT_TRUE(Parsed(text).is_null()) << text;
  EXPECT_EQ(ParseYaml("", "run.yaml")->LineOf(""), 1);
}

TEST(Yaml, TheEndOfTheTextEndsTheDocument) {
  EXPECT_EQ(Parsed("a: 1\n...\n").dump(), R"({"a":1})");
  EXPECT_EQ(Parsed("a: 1\n...").dump(), R"({"a":1})");
  EXPECT_EQ(Parsed("a: b # c").dump(), R"({"a":"b"})");
  EXPECT_EQ(Parsed("a: |+\n  x\n\n").dump(), R"({"a":"x\n\n"})");
  EXPECT_EQ(Parsed("a: |-\n  x\n").dump(), R"({"a":"x"})");
  EXPECT_EQ(Parsed("a: 'x'").dump(), R"({"a":"x"})");
  EXPECT_EQ(Parsed("%YAML 1.2\n---\na: 1\n").dump(), R"({"a":1})");
}

TEST(Yaml, ReadsFilesWithAnyLineEndAndAByteOrderMark) {
  MemoryEnv env;
  env.files["run.yaml"] =
      "\xEF\xBB\xBF"
      "a: 1\r\nb: x\r\n";
  auto document = ReadYamlFile(env, "run.yaml");
  ASSERT_TRUE(document.ok()) << document.status().message();
  EXPECT_EQ(document->value.dump(), R"({"a":1,"b":"x"})");
  EXPECT_EQ(document->LineOf("/b"), 2);
  EXPECT_EQ(ReadYamlFile(env, "absent.yaml").status().code(), StatusCode::kNotFound);
}

// As PyYAML's safe_load.
TEST(Yaml, OfVersion11HasYesAndNoAndUnderscoresInNumbers) {
  const char* const text = "[yes, No, ON, off, 'yes', y, n, 1_000, -2_0.5, _1, 1_a, 2e-4]";
  const auto old = ParseYaml(text, "f.yaml", YamlVersion::k11), now = ParseYaml(text, "f.yaml");
  ASSERT_TRUE(old.ok() && now.ok());
  EXPECT_EQ(old->value,
            OrderedJson::parse(R"([true, false, true, false, "yes", "y", "n", 1000, -20.5, "_1", "1_a", 2e-4])"));
  EXPECT_EQ(now->value,
            OrderedJson::parse(R"(["yes", "No", "ON", "off", "yes", "y", "n", "1_000", "-2_0.5", "_1", "1_a", 2e-4])"));
}

}  // namespace
}  // namespace temper::yaml_test
