// ClassNames: the classes that a model tells apart, in the order of its logits, as config.json of transformers has
// them: id2label, label2id, num_labels. A class of the data that is a number has its text as its name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace temper {

struct ClassNames {
  std::vector<std::string> names;

  int64_t size() const { return static_cast<int64_t>(names.size()); }
  // Numbers also name the classes that transformers names by itself, LABEL_0 and so on. nullopt: there is none.
  std::optional<int32_t> Find(std::string_view label) const;
  // A list of the names, and back. Error: another text.
  std::string ToJson() const;
  static Result<ClassNames> FromJson(const std::string& text);
  // "cat, dog"; of many the first.
  std::string ToText() const;
  friend bool operator==(const ClassNames&, const ClassNames&) = default;
};

// The most classes of a model.
inline constexpr size_t kMostClasses = 1 << 12;

// In an order that depends on the labels alone: by number if all are whole numbers, else by their bytes.
ClassNames InOrder(std::vector<std::string> labels);

// Whether the config.json is that of a model with a head of classes, a ...ForSequenceClassification.
bool HasClasses(const Json& config);
// As transformers reads them: those of id2label, else num_labels, else two. Errors name `where`.
Result<ClassNames> ReadClasses(const Json& config, const std::string& where);
// Makes it the config.json of `architecture`, with these classes. `pad`: the token that batches are filled with, if the
// file names none.
void WriteClasses(const ClassNames& classes, const std::string& architecture, std::optional<int32_t> pad,
                  OrderedJson* config);

}  // namespace temper
