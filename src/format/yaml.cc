#include "format/yaml.h"
#include <yaml-cpp/yaml.h>
#include <charconv>
#include <nlohmann/json.hpp>
namespace temper {
namespace {
OrderedJson Conv(const YAML::Node& n, const std::string& at, YamlDocument& d) {
  d.lines[at] = n.Mark().line + 1;
  if (n.IsMap()) { OrderedJson o = OrderedJson::object(); for (auto kv : n) { auto k = kv.first.as<std::string>(); o[k] = Conv(kv.second, at + "/" + k, d); d.lines[at + "/" + k] = kv.first.Mark().line + 1; } return o; }
  if (n.IsSequence()) { OrderedJson a = OrderedJson::array(); int i = 0; for (auto e : n) a.push_back(Conv(e, at + "/" + std::to_string(i++), d)); return a; }
  if (n.IsNull()) return nullptr;
  std::string s = n.Scalar();
  if (n.Tag() == "!") return s;
  if (s == "true") return true;
  if (s == "false") return false;
  if (s == "null" || s == "~" || s.empty()) return nullptr;
  int64_t i; auto r = std::from_chars(s.data(), s.data() + s.size(), i);
  if (r.ec == std::errc() && r.ptr == s.data() + s.size()) return i;
  double f; auto q = std::from_chars(s.data(), s.data() + s.size(), f);
  if (q.ec == std::errc() && q.ptr == s.data() + s.size() && std::isdigit(s.back())) return f;
  return s;
}
}
Result<YamlDocument> ParseYaml(std::string_view text, const std::string& where) {
  try { YamlDocument d; d.r = std::make_shared<OrderedJson>(Conv(YAML::Load(std::string(text)), "", d)); return d; }
  catch (const std::exception& e) { return Corrupt(where + ": " + e.what()); }
}
const OrderedJson& RootOf(const YamlDocument& d) { return *d.r; }
int LineOf(const YamlDocument& d, const std::string& p) { auto it = d.lines.find(p); return it == d.lines.end() ? 0 : it->second; }
}
