// YAML as Temper reads it: run.yaml, written by hand and untrusted. One document becomes
// ordered JSON. Plain scalars are typed by the core schema of YAML 1.2: null, true, 12, 0x1F,
// 0o17, 2e-4, .inf; quoted scalars stay text, and so do the yes, no, on and off of older YAML.
// Aliases are copied out, within a bound; merge keys ("<<") and custom tags are refused.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "format/json.h"

namespace temper {

// A run.yaml is a page; a larger file is something else.
constexpr Bytes kMaxYamlText = MiB(1);

// The lines of a document's values, in the same shape: children are those of the array's elements or the object's
// members, in order.
struct YamlLines {
  int line = 0;  // from 1: of the key, or, in an array and at the root, of the value
  std::vector<YamlLines> children;
};

struct YamlDocument {
  OrderedJson value;  // null for an empty text
  YamlLines lines;

  // Line of the value at a JSON pointer (RFC 6901: "/lora/r", "/data/0"; "" is
  // the root), 0 if there is no such value. A value from an alias has the lines
  // of the place where it was written. Editing `value` may make lines wrong.
  int LineOf(std::string_view pointer) const;
};

// Python's parser, and so the files of many tools, go by YAML 1.1: there plain yes, no, on and off are booleans, too,
// and digits may have underscores between them.
enum class YamlVersion { k12, k11 };

// `where` names the document in errors, which read "run.yaml line 7: ...". Errors: kCorrupt for invalid YAML, a
// duplicate key, nesting beyond 64 levels, aliases that grow beyond 64 MiB; kUnsupported for YAML that Temper refuses.
Result<YamlDocument> ParseYaml(std::string_view text, const std::string& where, YamlVersion version = YamlVersion::k12);
Result<YamlDocument> ReadYamlFile(Env& env, const std::string& path);

}  // namespace temper
