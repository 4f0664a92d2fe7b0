#include "format/class_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr std::string_view kSuffix = "ForSequenceClassification", kUnnamed = "LABEL_";

// Of a whole number as it is printed: no leading zeros, no plus.
std::optional<int64_t> NumberOf(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || fmt::format("{}", number) != text) return {};
  return number;
}

// transformers' ways of learning from labels. Those that are not here would make other numbers.
Status CheckProblem(const Json& config, const std::string& where) {
  const auto problem = config.find("problem_type");
  if (problem == config.end() || problem->is_null() || *problem == "single_label_classification") return OkStatus();
  const auto labels = config.find("num_labels");
  const bool one = labels != config.end() && *labels == 1;
  if (*problem == "regression" && one) return OkStatus();
  return Unsupported(fmt::format(
      "{}: problem_type is {}, but each text has one class here (single_label_classification), or one reward", where,
      DumpJson(*problem).substr(0, 40)));
}

std::string Unnamed(size_t id) {
  return fmt::format("{}{}", kUnnamed, id);
}

}  // namespace

std::optional<int32_t> ClassNames::Find(std::string_view label) const {
  const auto named = std::find(names.begin(), names.end(), label);
  if (named != names.end()) return static_cast<int32_t>(named - names.begin());
  const auto number = NumberOf(label);
  if (!number || *number < 0 || *number >= size()) return {};
  if (names[static_cast<size_t>(*number)] != Unnamed(static_cast<size_t>(*number))) return {};
  return static_cast<int32_t>(*number);
}

std::string ClassNames::ToJson() const {
  return DumpJson(Json(names));
}

Result<ClassNames> ClassNames::FromJson(const std::string& text) {
  TEMPER_ASSIGN_OR_RETURN(const Json list, ParseJson(text, "names of classes"));
  ClassNames classes;
  for (const Json& name : list) {
    if (!name.is_string()) return Corrupt("names of classes: should be texts");
    classes.names.push_back(name.get<std::string>());
  }
  return classes;
}

std::string ClassNames::ToText() const {
  constexpr size_t kShown = 12;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) shown.push_back(Quoted(names[i].substr(0, 40)));
  return fmt::format("{}{}", fmt::join(shown, ", "), names.size() > kShown ? ", ..." : "");
}

ClassNames InOrder(std::vector<std::string> labels) {
  const bool numbers = std::all_of(labels.begin(), labels.end(), [](const auto& l) { return NumberOf(l).has_value(); });
  std::sort(labels.begin(), labels.end(),
            [&](const std::string& a, const std::string& b) { return numbers ? *NumberOf(a) < *NumberOf(b) : a < b; });
  return {std::move(labels)};
}

bool HasClasses(const Json& config) {
  const auto list = config.find("architectures");
  return list != config.end() && list->is_array() && !list->empty() && list->front().is_string() &&
         list->front().get_ref<const std::string&>().ends_with(kSuffix);
}

Result<ClassNames> ReadClasses(const Json& config, const std::string& where) {
  ClassNames classes;
  TEMPER_RETURN_IF_ERROR(CheckProblem(config, where));
  const auto names = config.find("id2label");
  if (names == config.end() || names->is_null()) {
    TEMPER_ASSIGN_OR_RETURN(const int64_t count, IntOr(config, "num_labels", 2, where));
    if (count < 1 || count > static_cast<int64_t>(kMostClasses)) {
      return Corrupt(fmt::format("{}: num_labels is {}, should be 1 to {}", where, count, kMostClasses));
    }
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) classes.names.push_back(Unnamed(i));
    return classes;
  }
  const Status bad = Corrupt(fmt::format(
      "{}: id2label should have a name for each class, as in {{\"0\": \"no\", \"1\": \"yes\"}}, no name twice", where));
  if (!names->is_object() || names->empty() || names->size() > kMostClasses) return bad;
  std::set<std::string> known;
  for (size_t i = 0; i < names->size(); ++i) {
    const auto name = names->find(fmt::format("{}", i));
    if (name == names->end()) return bad;
    classes.names.push_back(name->is_string() ? name->get<std::string>() : DumpJson(*name));
    if (!known.insert(classes.names.back()).second) return bad;
  }
  return classes;
}

void WriteClasses(const ClassNames& classes, const std::string& architecture, std::optional<int32_t> pad,
                  OrderedJson* config) {
  OrderedJson& c = *config;
  OrderedJson names = OrderedJson::object(), ids = OrderedJson::object();
  for (size_t i = 0; i < classes.names.size(); ++i) {
    names[fmt::format("{}", i)] = classes.names[i];
    ids[classes.names[i]] = i;
  }
  c["architectures"] = OrderedJson::array({architecture});
  c["id2label"] = std::move(names);
  c["label2id"] = std::move(ids);
  c["num_labels"] = classes.size();
  c.erase("problem_type");  // transformers finds it out
  if (pad && (!c.contains("pad_token_id") || c["pad_token_id"].is_null())) c["pad_token_id"] = *pad;
}

}  // namespace temper
