// YAML as Temper reads it: run.yaml, written by hand and untrusted. One document becomes ordered JSON, its plain
// scalars typed by the core schema of YAML 1.2: null, true, 12, 0x1F, 0o17, 2e-4, .inf; what is quoted stays text, and
// so do the yes, no, on and off of older YAML. Aliases are copied out, within a bound; merge keys ("<<") and own tags
// are refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "format/json.h"

namespace temper {

// A run.yaml is a page; more than this is another kind of file.
constexpr Bytes kMaxYamlText = MiB(1);

// The lines of a document's values, in its shape: children are those of the array's elements or the object's members,
// in their order.
struct YamlLines {
  int line = 0;  // from 1: where the key stands, or, in an array and at the root, the value
  std::vector<YamlLines> children;
};

struct YamlDocument {
  OrderedJson value;  // null for an empty text
  YamlLines lines;

  // Line of the value at a JSON pointer (RFC 6901: "/lora/r", "/data/0"; "" is the root), 0 where there is no such
  // value. What an alias brought in has the lines of the place that it was written at. An edit of `value` may make
  // lines wrong.
  int LineOf(std::string_view pointer) const;
};

// `where` names the document in errors, which read "run.yaml line 7: ...". Errors: kCorrupt for what is not YAML, twice
// the same key, nesting beyond 64 levels, aliases that grow beyond 64 MiB; kUnsupported for YAML that Temper refuses.
Result<YamlDocument> ParseYaml(std::string_view text, const std::string& where);
Result<YamlDocument> ReadYamlFile(Env& env, const std::string& path);

}  // namespace temper
