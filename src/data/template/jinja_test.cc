#include "data/template/jinja.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/env.h"
#include "base/project_folder_for_test.h"

namespace temper::jinja_test {
namespace {

// 2024-07-26 15:04:05, a Friday: the same as in tests/template/environment.py.
RenderOptions Options() {
  RenderOptions options;
  options.now.tm_year = 124;
  options.now.tm_mon = 6;
  options.now.tm_mday = 26;
  options.now.tm_hour = 15;
  options.now.tm_min = 4;
  options.now.tm_sec = 5;
  options.now.tm_wday = 5;
  options.now.tm_yday = 207;
  return options;
}

OrderedJson ReadGoldens(const std::string& name) {
  const std::string path = std::string(kProjectFolder) + "/tests/template/" + name;
  auto text = ReadTextFile(PosixEnv(), path);
  EXPECT_TRUE(text.ok()) << text.status().message();
  auto json = ParseOrderedJson(*text, path);
  EXPECT_TRUE(json.ok()) << json.status().message();
  return *std::move(json);
}

Result<std::string> RenderSource(const std::string& source, const OrderedJson& context,
                                 const RenderOptions& options = Options()) {
  TEMPER_ASSIGN_OR_RETURN(const Template t, Template::Parse(source, "test.jinja"));
  return t.Render(context, options);
}

uint64_t Fnv1a(std::string_view data) {
  uint64_t h = 0xcbf29ce484222325;
  for (unsigned char c : data) h = (h ^ c) * 0x100000001b3;
  return h;
}

TEST(Jinja, RendersEveryCaseAsPythonDoes) {
  const OrderedJson goldens = ReadGoldens("jinja_cases.json");
  int rendered = 0, refused = 0;
  for (const OrderedJson& row : goldens["cases"]) {
    const auto source = row["template"].get<std::string>();
    OrderedJson context = goldens["context"];
    if (row.contains("context")) context.update(row["context"]);
    const Result<std::string> text = RenderSource(source, context);
    if (row.contains("text")) {
      ++rendered;
      EXPECT_TRUE(text.ok()) << source << "\n  " << text.status().message();
      if (text.ok()) {
        EXPECT_EQ(*text, row["text"].get<std::string>()) << source;
      }
      continue;
    }
    ++refused;
    EXPECT_FALSE(text.ok()) << source << "\n  gave " << *text << "\n  jinja2: " << row["error"];
    if (text.ok()) continue;
    EXPECT_EQ(text.status().message().rfind("test.jinja", 0), 0u) << text.status().message();
    if (row.contains("line")) {
      const std::string line = fmt::format("test.jinja, line {}:", row["line"].get<int>());
      EXPECT_EQ(text.status().message().rfind(line, 0), 0u)
          << source << "\n  " << text.status().message() << "\n  jinja2: " << row["error"];
    }
  }
  EXPECT_GT(rendered, 250);
  EXPECT_GT(refused, 150);
}

TEST(Jinja, RendersTheTemplatesOfRealModelsAsPythonDoes) {
  const char* folder = std::getenv("TEMPER_TEST_DATA");
  if (!folder) GTEST_SKIP() << "TEMPER_TEST_DATA is not set";
  const OrderedJson goldens = ReadGoldens("chat_goldens.json");
  int compared = 0;
  for (const OrderedJson& row : goldens["renders"]) {
    const auto template_name = row["template"].get<std::string>(), context_name = row["context"].get<std::string>();
    const std::string path = JoinPath(folder, template_name);
    if (!PosixEnv().IsFile(path)) continue;
    std::string source = *ReadTextFile(PosixEnv(), path);
    if (path.ends_with(".json")) source = (*ParseJson(source, path))["chat_template"].get<std::string>();
    OrderedJson context;
    if (goldens["contexts"].contains(context_name)) {
      context = goldens["contexts"][context_name];
    } else {
      const std::string context_path = JoinPath(folder, context_name);
      if (!PosixEnv().IsFile(context_path)) continue;
      context = *ParseOrderedJson(*ReadTextFile(PosixEnv(), context_path), context_path);
    }
    ++compared;
    const Result<std::string> text = RenderSource(source, context);
    if (row.contains("error")) {
      EXPECT_FALSE(text.ok()) << template_name << " with " << context_name << ", jinja2: " << row["error"];
      continue;
    }
    ASSERT_TRUE(text.ok()) << template_name << " with " << context_name << ": " << text.status().message();
    EXPECT_EQ(text->size(), row["bytes"].get<size_t>()) << template_name << " with " << context_name << ":\n" << *text;
    EXPECT_EQ(fmt::format("{:016x}", Fnv1a(*text)), row["fnv1a"].get<std::string>())
        << template_name << " with " << context_name << ":\n"
        << *text;
  }
  if (compared == 0) GTEST_SKIP() << "no templates in TEMPER_TEST_DATA";
}

TEST(Jinja, ReportsTheOutputOfGenerationBlocks) {
  const auto t =
      Template::Parse("{% for m in ms %}<{{ m.r }}>{% generation %}{{ m.c }}!{% endgeneration %}\n{% endfor %}", "t");
  ASSERT_TRUE(t.ok());
  EXPECT_TRUE(t->has_generation_blocks());
  const OrderedJson context = {{"ms", {{{"r", "é"}, {"c", "one"}}, {{"r", "b"}, {"c", "你"}}}}};
  const auto out = t->RenderWithGenerations(context);
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ(out->text, "<é>one!<b>你!");
  ASSERT_EQ(out->generations.size(), 2u);
  EXPECT_EQ(out->text.substr(out->generations[0].begin, out->generations[0].end - out->generations[0].begin), "one!");
  EXPECT_EQ(out->text.substr(out->generations[1].begin, out->generations[1].end - out->generations[1].begin), "你!");
  EXPECT_FALSE(out->generation_lost);
}

TEST(Jinja, SaysWhenAGenerationBlockCannotBeLocated) {
  const auto t = Template::Parse("{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}", "t");
  ASSERT_TRUE(t.ok());
  const auto out = t->RenderWithGenerations(OrderedJson::object());
  ASSERT_TRUE(out.ok());
  EXPECT_TRUE(out->generation_lost);
  EXPECT_TRUE(out->generations.empty());
}

TEST(Jinja, ErrorsNameTheTemplateAndTheLine) {
  const auto message = [](const std::string& source) { return RenderSource(source, {{"x", 1}}).status().message(); };
  EXPECT_EQ(message("a\n\n{{ y.z }}"), "test.jinja, line 3: 'y' is undefined");
  EXPECT_EQ(message("{% if x %}\n{% for i in x %}{% endfor %}{% endif %}"),
            "test.jinja, line 2: 'int' object is not iterable");
  EXPECT_EQ(message("\n{%- if x %}\n\n{{ raise_exception('only users') }}{% endif %}"),
            "test.jinja, line 4: the template rejects this conversation: only users");
  EXPECT_EQ(message("a\nb {% if x %}\n c"),
            "test.jinja, line 3: Unexpected end of template. Jinja was looking for the following tags: 'elif' or "
            "'else' or 'endif'. The innermost block that needs to be closed is 'if'.");
}

TEST(Jinja, RefusesSourcesThatAreNotUtf8) {
  EXPECT_EQ(Template::Parse("a\xff", "t").status().code(), StatusCode::kCorrupt);
  EXPECT_FALSE(RenderSource("{{ x }}", {{"x", "\xc3"}}).ok());
  EXPECT_FALSE(RenderSource("x", OrderedJson::array()).ok());
}

TEST(Jinja, ErrorsNameUnsupportedFeatures) {
  const OrderedJson context = {{"big", uint64_t{18446744073709551615u}}};
  for (const char* source : {"{{ 2 ** 64 }}", "{{ 9223372036854775807 + 1 }}", "{{ 99999999999999999999 }}",
                             "{% include 'other' %}", "{% autoescape true %}{% endautoescape %}", "{{ big }}"}) {
    const auto text = RenderSource(source, context);
    ASSERT_FALSE(text.ok()) << source;
    EXPECT_EQ(text.status().code(), StatusCode::kUnsupported) << source << ": " << text.status().message();
  }
}

// Each of these would hang, exhaust memory or overflow the stack of an interpreter without bounds.
TEST(Jinja, HostileTemplatesGiveAnError) {
  RenderOptions options = Options();
  options.limits = {.steps = 200'000, .text = MiB(2), .work = MiB(8)};  // smaller than the default, to save time
  const std::string sources[] = {
      // steps
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "{% macro m(n) %}{% for i in range(99999) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endfor %}{% endmacro %}{{ m(9) "
      "}}",
      // memory
      "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{{ 'x' * 9999999999 }}",
      "{{ 'xx' * 9223372036854775807 }}",
      "{{ [1] * 9999999999 }}",
      "{{ '%9999999d' % 1 * 100 }}",
      "{{ '%99999999999d' % 1 }}",
      "{{ '{:999999999}'.format(1) }}",
      "{{ '%.999999999f' % 1.5 }}",
      "{{ 'x' | indent(9999999999, true) }}",
      "{{ ('x' * 9999999).replace('', 'y' * 9999999) }}",
      "{{ ([('x' * 999999)] * 9999) | join }}",
      "{{ 1.5 | round(999999999) | string * 99999999 }}",
      "{% for i in range(99999) %}{% for j in range(99999) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% "
      "endfor %}{% endfor %}",
      // depth of data, and cycles
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}",
      "{% set ns = namespace(x={}) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x].count %}{% endfor %}",
      "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = cycler(ns.x) %}{% endfor %}{{ "
      "ns.x.current.x }}{{ 1 / 0 }}",
      "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
      "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x }}",
      "{% set ns = namespace(x=0) %}{% for i in range(99999) %}{% set ns.x = namespace(x=ns.x) %}{% endfor %}{{ ns }}",
      "{% set a = namespace(v=[1, 1]) %}{% set b = namespace(v=[1, 1]) %}{% for i in range(90) %}{% set a.v = [a.v, "
      "a.v] %}{% set b.v = [b.v, b.v] %}{% endfor %}{{ a.v == b.v }}",
      "{% set a = namespace(v=[1, 1]) %}{% for i in range(90) %}{% set a.v = [a.v, a.v] %}{% endfor %}{{ a.v | tojson "
      "}}",
      "{% set a = namespace(v=(1, 1)) %}{% for i in range(90) %}{% set a.v = (a.v, a.v) %}{% endfor %}{{ {a.v: 1} }}",
      // depth of calls
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% macro a(f) %}{{ f(f) }}{% endmacro %}{{ a(a) }}",
      // depth of source
      "{{ " + std::string(100000, '(') + "1" + std::string(100000, ')') + " }}",
      "{{ " + std::string(100000, '[') + std::string(100000, ']') + " }}",
      "{{ " + std::string(100000, '-') + "1 }}",
      "{{ 1" + std::string(100000, '+') + "1 }}",
  };
  for (const std::string& source : sources) {
    EXPECT_FALSE(RenderSource(source, OrderedJson::object(), options).ok()) << source.substr(0, 200);
  }
}

std::string Repeat(const std::string& piece, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += piece;
  return out;
}

TEST(Jinja, SourcesNestedTooDeeplyGiveAnError) {
  for (const std::string& source :
       {Repeat("{% if 1 %}", 2000) + Repeat("{% endif %}", 2000), Repeat("{% for x in [1] %}", 2000),
        "{% if 1 %}" + Repeat("{% elif 0 %}", 2000) + "{% endif %}", "{{ 1" + Repeat(" + 1", 2000) + " }}",
        "{{ 1" + Repeat(" | abs", 2000) + " }}", "{{ x" + Repeat(".x", 2000) + " }}",
        "{{ x" + Repeat("[0]", 2000) + " }}", "{{ " + Repeat("not ", 2000) + "1 }}",
        "{{ 1" + Repeat(" if 1 else 1", 2000) + " }}", "{{ " + Repeat("{1:", 2000) + "1" + Repeat("}", 2000) + " }}",
        "{{ f" + Repeat("()", 2000) + " }}", "{{ 1" + Repeat(" is odd", 2000) + " }}",
        "{{ " + Repeat("f(", 2000) + Repeat(")", 2000) + " }}",
        "{% set " + Repeat("(", 2000) + "a" + Repeat(")", 2000) + " = 1 %}"}) {
    EXPECT_FALSE(Template::Parse(source, "t").ok()) << source.substr(0, 100);
  }
}

TEST(Jinja, ChainsOfMacrosAreFreedWithoutRecursion) {
  // Every macro is defined inside the call of the previous one and so keeps its scope.
  const char* source =
      "{% set ns = namespace(f=none) %}{% macro start(x) %}{% macro next(x) %}{% endmacro %}{% set ns.f = next %}"
      "{% endmacro %}{{ start(1) }}{% for i in range(50000) %}{% set ns.f = ns.f %}{{ ns.f(1) }}{{ start(ns.f) }}"
      "{% endfor %}done";
  const auto text = RenderSource(source, OrderedJson::object());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, "done");
}

TEST(Jinja, CyclesOfNamespacesAreFreed) {
  const char* source =
      "{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{% set a.m = [a, b] %}"
      "{% macro m() %}{{ m is defined }}{% endmacro %}{% set a.f = m %}{% for x in [1] %}{{ loop.changed([loop]) }}"
      "{% set b.l = loop %}{% endfor %}{{ a.f() }}";
  const auto text = RenderSource(source, OrderedJson::object());
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text, "TrueTrue");  // LeakSanitizer checks the rest
}

TEST(Jinja, TheDefaultLimitsAlsoEndALoop) {
  EXPECT_FALSE(RenderSource("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                            OrderedJson::object())
                   .ok());
  EXPECT_FALSE(RenderSource("{{ [1] * 9999999999 }}", OrderedJson::object()).ok());
}

struct End {
  bool by_budget = false;
  Bytes memory;  // at the peak
};

// Renders `source` in a process of its own.
End EndOf(const std::string& source) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit seconds{20, 20};  // without the budget some would run for hours
    setrlimit(RLIMIT_CPU, &seconds);
    _exit(RenderSource(source, OrderedJson::object()).status().code() == StatusCode::kOutOfMemory ? 0 : 1);
  }
  int status = 0;
  rusage usage{};
  EXPECT_EQ(wait4(child, &status, 0, &usage), child);
  return {WIFEXITED(status) && WEXITSTATUS(status) == 0, KiB(usage.ru_maxrss)};
}

// The budget counts what an operation makes before it makes it. Its limits are those of a second: 0.01 to 0.09 s of an
// idle core were measured for these.
TEST(Jinja, HostileTemplatesAreRefusedByTheirBudgetAndWithin100Megabytes) {
#ifdef TEMPER_SANITIZED
  GTEST_SKIP() << "sanitizers cost memory of their own";
#endif
  const Bytes usual = EndOf("x").memory;
  const std::string doubling = "{% set ns = namespace(s='xy', l=[1]) %}{% for i in range(99) %}";
  for (const std::string& source : {
           std::string("{{ [1] * 1000000000 }}"),
           std::string("{{ [1, 2] * 9223372036854775807 }}"),
           std::string("{{ ('x' * 16000000).split('x') }}"),
           std::string("{{ ('x ' * 8000000).split() }}"),
           std::string("{{ ('\\n' * 16000000).splitlines() }}"),
           std::string("{{ ('x' * 16000000) | list }}"),
           std::string("{{ ('x' * 16000000) | upper | lower | title | capitalize | reverse | list }}"),
           std::string("{% for a in range(30000) %}{% for b in range(30000) %}{% endfor %}{% endfor %}"),
           std::string("{% for a in range(30000) %}{{ range(30000) | list }}{% endfor %}"),
           std::string(
               "{% for a in range(30000) %}{{ range(30000) | map(attribute='x') | list | length }}{% endfor %}"),
           std::string("{% for a in range(99999) %}{{ 'x' * 100000 }}{% endfor %}"),
           std::string("{% for a in range(99999) %}{{ '{:02000,}'.format(1) }}{% endfor %}"),
           std::string("{% for a in range(99999) %}{{ '%.2000f' % 1.5 }}{% endfor %}"),
           std::string("{{ ([('x' * 999999)] * 9999) | join }}"),
           std::string("{{ ([('x' * 999999)] * 99) | join(('y' * 999999)) }}"),
           std::string("{{ ('x' * 999999).join(['y'] * 99999) }}"),
           std::string("{{ ('x' * 999999).join('y' * 99999) }}"),
           std::string("{% for a in range(99999) %}{{ ('xy' * 999999).replace('x', '') | length }}{% endfor %}"),
           doubling + "{% set ns.s = ns.s.replace('x', 'xyxy') %}{% endfor %}",
           doubling + "{% set ns.s = ns.s.replace('', 'x') %}{% endfor %}",
           doubling + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           doubling + "{% set ns.s = ns.s + ns.s %}{% endfor %}",
           doubling + "{% set ns.s = [ns.s, ns.s] | join %}{% endfor %}",
           doubling + "{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}",
           doubling + "{% set ns.l = ns.l + ns.l %}{% endfor %}",
           doubling + "{% set ns.l = ns.l * 2 %}{% endfor %}",
           doubling + "{% set ns.l = [ns.l, ns.l] | sum(start=[]) %}{% endfor %}",
           doubling + "{% set ns.l = (ns.l + ns.l)[::-1] %}{% endfor %}",
           doubling + "{% set ns.l = (ns.l + ns.l) | sort %}{% endfor %}",
           doubling + "{% for j in range(99999) %}{% set ns.l = [{'a': j}] + ns.l %}{% endfor %}{% endfor %}",
           std::string("{% macro m(n) %}{% for i in range(99999) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endfor %}"
                       "{% endmacro %}{{ m(9) }}"),
           std::string("{% set ns = namespace(k=[]) %}{% macro m(f) %}{% macro n() %}{% endmacro %}{% endmacro %}"
                       "{% for i in range(99999) %}{% for j in range(99999) %}{{ m(namespace(a=i)) }}{% endfor %}"
                       "{% endfor %}"),
       }) {
    const End end = EndOf(source);
    EXPECT_TRUE(end.by_budget) << source;
    EXPECT_LT(end.memory - usual, MiB(100)) << source;
  }
}

// The budget grows with the conversation.
TEST(Jinja, LongTextsAreNotRefused) {
  const OrderedJson context = {{"messages", {{{"role", "user"}, {"content", std::string(20 << 20, 'x')}}}}};
  const auto text = RenderSource(
      "{% for m in messages %}{{ '<' + m.role + '>' + m.content.strip().split('</think>')[-1] | trim ~ '\\n' }}{% "
      "endfor %}",
      context);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->size(), (20 << 20) + 7);
}

TEST(Jinja, TheCallerSetsTheLimits) {
  RenderOptions options = Options();
  options.limits.text = Bytes{10};
  EXPECT_TRUE(RenderSource("{{ 'x' * 10 }}", OrderedJson::object(), options).ok());
  EXPECT_FALSE(RenderSource("{{ 'x' * 11 }}", OrderedJson::object(), options).ok());
  EXPECT_FALSE(RenderSource("12345678901", OrderedJson::object(), options).ok());
  options = Options();
  options.limits.steps = 100;
  EXPECT_TRUE(RenderSource("{% for i in range(9) %}{% endfor %}", OrderedJson::object(), options).ok());
  EXPECT_FALSE(RenderSource("{% for i in range(99) %}{% endfor %}", OrderedJson::object(), options).ok());
}

TEST(Jinja, WhatIsPrintedAsNothingIsNamed) {
  const auto undefined = [](const std::string& source) {
    const auto t = Template::Parse(source, "test");
    const auto out = t->RenderWithGenerations({{"a", {{"text", "x"}}}, {"none", nullptr}, {"empty", ""}});
    EXPECT_TRUE(out.ok()) << out.status().message();
    return out->undefined;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(undefined("{{ b }}{{ a.txt }}{{ a.text }}{{ b }}"), (Names{"b", "a.txt"}));
  EXPECT_EQ(undefined("{{ none }}{{ empty }}{% if b %}{{ b }}{% endif %}{{ b | default('') }}"), Names{});
  EXPECT_EQ(undefined("{% generation %}{{ answer }}{% endgeneration %}"), Names{"answer"});
}

}  // namespace
}  // namespace temper::jinja_test
