#include "checkpoint/base_digest.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "format/json.h"
#include "format/quoted.h"

namespace temper {

Result<std::string> DescribeBase(const ModelWeights& base) {
  TEMPER_ASSIGN_OR_RETURN(const std::string digest, base.Digest());
  return fmt::format("{{\"weights\": \"{}\"}}\n", digest);
}

Status CheckBase(const std::string& text, const std::string& where, const ModelWeights& base) {
  TEMPER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where));
  if (!json.is_object()) return Corrupt(where + ": should be a JSON object");
  TEMPER_ASSIGN_OR_RETURN(const std::string then, StringOr(json, "weights", "", where));
  TEMPER_ASSIGN_OR_RETURN(const std::string now, base.Digest());
  if (then == now) return OkStatus();
  return InvalidArgument(
      fmt::format("the weights of {} are not those that the training began with (digest {}, {} says {})", base.path(),
                  now, where, Quoted(then)));
}

}  // namespace temper
