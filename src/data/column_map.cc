#include "data/column_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "format/quoted.h"

namespace temper {
namespace {

constexpr size_t kMostShown = 12;

// One step into a value: a key of an object, or a place in a list.
const OrderedJson* Child(const OrderedJson& value, std::string_view name) {
  if (value.is_object()) {
    const auto it = value.find(name);
    return it == value.end() ? nullptr : &*it;
  }
  if (!value.is_array()) return nullptr;
  size_t place = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), place);
  const bool number = error == std::errc() && end == name.data() + name.size();
  return number && place < value.size() ? &value[place] : nullptr;
}

// nullptr if it is not there. A name with dots goes before a way into objects.
const OrderedJson* ValueAt(const OrderedJson& value, std::string_view path) {
  if (const OrderedJson* whole = Child(value, path)) return whole;
  for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1)) {
    const OrderedJson* child = Child(value, path.substr(0, dot));
    if (child == nullptr) continue;
    if (const OrderedJson* found = ValueAt(*child, path.substr(dot + 1))) return found;
  }
  return nullptr;
}

// The key of `object` under which `path` begins.
std::string_view HeadOf(const OrderedJson& object, std::string_view path) {
  for (size_t end = path.size(); end != path.npos && end > 0; end = path.rfind('.', end - 1)) {
    if (object.contains(path.substr(0, end))) return path.substr(0, end);
  }
  return path;
}

void AddNames(const OrderedJson& value, const std::string& before, int depth, std::vector<std::string>& names) {
  constexpr size_t kMostNames = 1000;
  if (depth == 0 || !value.is_object()) return;
  for (const auto& [key, child] : value.items()) {
    if (names.size() >= kMostNames) return;
    names.push_back(before + key);
    AddNames(child, names.back() + ".", depth - 1, names);
  }
}

std::string ShownNames(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostShown); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", Quoted(names[i].substr(0, 40)));
  }
  return text.empty() ? "none" : names.size() > kMostShown ? text + ", ..." : text;
}

}  // namespace

ColumnMap::ColumnMap(RowColumns columns)
    : columns_(std::move(columns)),
      found_(std::make_unique<std::atomic<bool>[]>(columns_.size())),
      in_no_row_(columns_.size(), false) {}

void ColumnMap::ApplyTo(OrderedJson& object, std::string_view list) const {
  std::vector<std::pair<std::string_view, std::optional<OrderedJson>>> fields;
  std::vector<std::string> heads;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const FieldPlace place = PlaceOfField(columns_[i].field);
    if (place.list != list) continue;
    const OrderedJson* value = ValueAt(object, columns_[i].column);
    fields.emplace_back(place.name, value ? std::optional(*value) : std::nullopt);
    if (value == nullptr) continue;
    if (!found_[i].load(std::memory_order_relaxed)) found_[i].store(true, std::memory_order_relaxed);
    heads.emplace_back(HeadOf(object, columns_[i].column));
  }
  for (const std::string& head : heads) object.erase(head);
  for (const auto& [name, value] : fields) object.erase(std::string(name));
  for (auto& [name, value] : fields) {
    if (value) object[std::string(name)] = std::move(*value);
  }
}

void ColumnMap::Apply(OrderedJson& row) const {
  if (columns_.empty()) return;
  const auto each = [&](OrderedJson& list, std::string_view name) {
    for (OrderedJson& element : list) {
      if (element.is_object()) ApplyTo(element, name);
    }
  };
  if (row.is_array()) return each(row, "messages");  // a conversation as a row
  if (!row.is_object()) return;
  ApplyTo(row, "");
  for (const char* name : {"messages", "conversations"}) {
    const auto list = row.find(name);
    if (list != row.end() && list->is_array()) each(*list, name);
  }
}

void ColumnMap::NoteColumns(const OrderedJson& row) {
  if (noted_) return;
  noted_ = true;
  const OrderedJson* list = row.is_array() ? &row : nullptr;
  if (row.is_object()) {
    for (const auto& [key, value] : row.items()) shown_.push_back(key);
    AddNames(row, "", /*depth=*/3, inside_);
    for (const char* name : {"messages", "conversations"}) {
      const std::string* column = FindColumn(columns_, name);
      if (list == nullptr) list = ValueAt(row, column ? *column : name);
    }
  }
  if (list && list->is_array() && !list->empty() && list->front().is_object()) {
    for (const auto& [key, value] : list->front().items()) keys_.push_back(key);
  }
}

void ColumnMap::NoteHeader(const std::vector<std::string>& names) {
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto has = [&](std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); };
    const std::string& column = columns_[i].column;
    if (has(column)) found_[i] = true;
    bool may_lead_there = has(column);
    for (size_t dot = column.find('.'); dot != column.npos; dot = column.find('.', dot + 1)) {
      may_lead_there = may_lead_there || has(std::string_view(column).substr(0, dot));
    }
    in_no_row_[i] = !may_lead_there && PlaceOfField(columns_[i].field).list.empty();
  }
}

bool ColumnMap::found_all() const {
  return std::all_of(found_.get(), found_.get() + columns_.size(), [](const auto& found) { return found.load(); });
}

Status ColumnMap::CheckFound(const std::string& path, std::optional<size_t> rows, bool needed_only) const {
  for (size_t i = 0; i < columns_.size(); ++i) {
    const auto& [field, column] = columns_[i];
    if (found_[i] || (needed_only && !IsNeeded(field) && !in_no_row_[i])) continue;
    const bool of_message = !PlaceOfField(field).list.empty();
    const std::string nearest = NearestName(column, of_message ? keys_ : inside_);
    return InvalidArgument(fmt::format("{}: no {}{} has the column {} (columns: {}={}); the first has {}{}", path,
                                       of_message ? "message" : "row",
                                       rows ? fmt::format(" among the first {}", *rows) : "", Quoted(column), field,
                                       column, ShownNames(of_message ? keys_ : shown_),
                                       nearest.empty() ? "" : fmt::format("; did you mean {}?", Quoted(nearest))));
  }
  return OkStatus();
}

}  // namespace temper
