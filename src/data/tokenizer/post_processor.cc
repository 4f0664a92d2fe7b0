#include "data/tokenizer/post_processor.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace temper {
namespace {

constexpr size_t kMaxSteps = 8, kMaxParts = 64;  // real files have two and five

Result<int32_t> TokenId(const Json& json, const std::string& where) {
  if (!json.is_number_integer() || json.get<int64_t>() < 0 || json.get<int64_t>() > kMaxTokenId) {
    return Corrupt(where + ": the post_processor has an id that is not a token id");
  }
  return static_cast<int32_t>(json.get<int64_t>());
}

}  // namespace

PostProcessor PostProcessor::Around(std::optional<int32_t> before, std::optional<int32_t> after) {
  PostProcessor made;
  if (!before && !after) return made;
  Template parts(2);
  if (before) parts[0].push_back(*before);
  if (after) parts[1].push_back(*after);
  made.steps_.push_back(std::move(parts));
  return made;
}

Result<PostProcessor> PostProcessor::FromJson(const Json& json, const std::string& where) {
  PostProcessor made;
  TEMPER_RETURN_IF_ERROR(Collect(json, made.steps_, where));
  return made;
}

Status PostProcessor::Collect(const Json& json, std::vector<Template>& out, const std::string& where) {
  if (json.is_null()) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(json, "type", "", where));
  if (type == "ByteLevel") return OkStatus();  // changes offsets, not ids
  if (type == "Sequence") {
    const auto it = json.find("processors");
    if (it == json.end() || !it->is_array()) return Corrupt(where + ": a Sequence post-processor without 'processors'");
    for (const Json& step : *it) TEMPER_RETURN_IF_ERROR(Collect(step, out, where));
    return OkStatus();
  }
  if (out.size() == kMaxSteps) return Corrupt(fmt::format("{}: more than {} post-processors", where, kMaxSteps));
  if (type == "TemplateProcessing") {
    TEMPER_ASSIGN_OR_RETURN(Template parts, TemplateFromJson(json, where));
    out.push_back(std::move(parts));
    return OkStatus();
  }
  if (type == "RobertaProcessing" || type == "BertProcessing") {  // cls TEXT sep, each [spelling, id]
    Template parts(2);
    for (const int i : {0, 1}) {
      const auto it = json.find(i == 0 ? "cls" : "sep");
      if (it == json.end() || !it->is_array() || it->size() != 2) {
        return Corrupt(fmt::format("{}: {} without 'cls' and 'sep'", where, type));
      }
      TEMPER_ASSIGN_OR_RETURN(const int32_t id, TokenId((*it)[1], where));
      parts[i].push_back(id);
    }
    out.push_back(std::move(parts));
    return OkStatus();
  }
  return Unsupported(
      fmt::format("{}: the post-processor '{}' is not supported (Sequence, TemplateProcessing, ByteLevel, "
                  "RobertaProcessing, BertProcessing are)",
                  where, type));
}

Result<PostProcessor::Template> PostProcessor::TemplateFromJson(const Json& json, const std::string& where) {
  const auto single = json.find("single");
  if (single == json.end() || !single->is_array()) return Corrupt(where + ": TemplateProcessing without 'single'");
  if (single->size() > kMaxParts) return Corrupt(fmt::format("{}: a template of {} parts", where, single->size()));
  Template parts(1);
  for (const Json& piece : *single) {
    if (piece.is_object() && piece.contains("Sequence")) {
      TEMPER_ASSIGN_OR_RETURN(const std::string which, StringOr(piece["Sequence"], "id", "", where));
      if (which != "A") return Corrupt(where + ": the template of a single text uses a second one");
      parts.emplace_back();
      continue;
    }
    if (!piece.is_object() || !piece.contains("SpecialToken")) {
      return Corrupt(where + ": a template's parts are {\"SpecialToken\": ...} or {\"Sequence\": ...}");
    }
    TEMPER_ASSIGN_OR_RETURN(const std::string name, StringOr(piece["SpecialToken"], "id", "", where));
    const auto tokens = json.find("special_tokens");
    const bool known = tokens != json.end() && tokens->is_object() && tokens->contains(name) &&
                       (*tokens)[name].is_object() && (*tokens)[name].contains("ids") &&
                       (*tokens)[name]["ids"].is_array();
    if (!known) return Corrupt(fmt::format("{}: the template uses '{}', which its special_tokens lack", where, name));
    const Json& ids = (*tokens)[name]["ids"];
    if (ids.size() > kMaxParts) return Corrupt(fmt::format("{}: '{}' stands for {} ids", where, name, ids.size()));
    for (const Json& id : ids) {
      TEMPER_ASSIGN_OR_RETURN(const int32_t one, TokenId(id, where));
      parts.back().push_back(one);
    }
  }
  // The text at most once: Hugging Face's templates never repeat
  // it, and over several steps it would grow without bound.
  if (parts.size() > 2) return Unsupported(where + ": a template that repeats the text");
  return parts;
}

std::vector<int32_t> PostProcessor::Apply(std::vector<int32_t> ids) const {
  for (const Template& parts : steps_) {
    std::vector<int32_t> out = parts[0];
    if (parts.size() == 2) {
      out.insert(out.end(), ids.begin(), ids.end());
      out.insert(out.end(), parts[1].begin(), parts[1].end());
    }
    ids = std::move(out);
  }
  return ids;
}

std::vector<int32_t> PostProcessor::ids() const {
  std::vector<int32_t> all;
  for (const Template& parts : steps_) {
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace temper
