// libFuzzer target: any bytes as YAML are refused or become a document that can be printed and whose lines are known.
#include <cstdint>
#include <cstdlib>

#include "format/yaml.h"

namespace {

void CheckLines(const temper::OrderedJson& value, const temper::YamlLines& lines) {
  if (lines.line < 1) std::abort();
  const size_t children = value.is_structured() ? value.size() : 0;
  if (lines.children.size() != children) std::abort();
  size_t i = 0;
  for (const auto& child : value) {
    if (!value.is_structured()) break;
    CheckLines(child, lines.children[i++]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto document = temper::ParseYaml({reinterpret_cast<const char*>(data), size}, "f.yaml");
  if (!document.ok()) return document.status().message().empty() ? std::abort(), 0 : 0;
  (void)document->value.dump();
  CheckLines(document->value, document->lines);
  return 0;
}
