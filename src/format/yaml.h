// TEMPORARY double of the YAML front until the format branch has it.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "format/json.h"

namespace temper {

struct YamlDocument { std::shared_ptr<OrderedJson> r; std::map<std::string,int> lines; };
Result<YamlDocument> ParseYaml(std::string_view text, const std::string& where);
const OrderedJson& RootOf(const YamlDocument&);
int LineOf(const YamlDocument&, const std::string& pointer);

}  // namespace temper
