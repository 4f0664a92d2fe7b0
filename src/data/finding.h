// Finding: something about the data that its user should know before training: how often, and where first.
// FieldFindings: the same for each of the fields that rows or messages have.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace temper {

struct Finding {
  int64_t count = 0;
  std::string first;  // "data.jsonl line 12, message 2"

  void Add(const std::string& where) { Add({1, where}); }
  void Add(const Finding& other);
};

struct FieldFindings {
  // Names come from the data: of so many only the first are told apart, and of a long one only the beginning.
  static constexpr size_t kMostNames = 64, kLongestName = 60;

  std::map<std::string, Finding> by_name;

  void Add(const std::string& name, const std::string& where) { Add(name, Finding{1, where}); }
  void Add(const std::string& name, const Finding& finding);
  void Add(const FieldFindings& other);
  // The few that a line can show, most frequent first.
  std::vector<std::pair<std::string, Finding>> MostFrequent() const;
};

}  // namespace temper
