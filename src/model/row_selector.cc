#include "model/row_selector.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "format/quoted.h"

namespace temper {
namespace {

// Of a weight "<module>.weight".
std::string ModuleOfTable(const std::string& weight) {
  return weight.substr(0, weight.rfind('.'));
}

WeightSource RowsOf(const FileTensor& tensor, const std::vector<int64_t>& rows) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const int64_t row : rows) {
    if (!runs.empty() && runs.back().first + runs.back().second == row) {
      ++runs.back().second;
    } else {
      runs.emplace_back(row, 1);
    }
  }
  return WeightSource::Runs(tensor, runs);
}

class RowSelector {
 public:
  RowSelector(const Model& model, std::span<const LoraModule> adapters, std::span<const TrainedCopy> copies,
              const std::string& file)
      : setting_(file.empty() ? "lora.trainable_token_indices" : file + ": trainable_token_indices"),
        in_file_(!file.empty()),
        adapters_(adapters),
        copies_(copies),
        head_(model.modules().back()) {
    for (const WeightDeclaration& w : model.weights()) {
      const bool words = w.shape.rank() == 2 && w.labels.Has(DimLabel::kVocab) && w.labels[0] == DimLabel::kVocab;
      if (!words) continue;
      if (table_ == nullptr) table_ = &w;
      if (w.name == head_.weights.front()) head_table_ = &w;
    }
    classes_ = model.facts().classes > 0;
    if (classes_) head_table_ = nullptr;
  }

  Result<std::vector<TrainedRows>> Select(const LoraConfig::TokenIndices& wanted) const {
    std::vector<TrainedRows> all;
    if (wanted.empty()) return all;
    if (table_ == nullptr) return Refuse("this model has no table of words");
    const bool tied = head_table_ == table_;
    const std::vector<int64_t>*of_table = nullptr, *of_head = nullptr;
    for (const auto& [name, rows] : wanted) {
      const bool is_head = !name.empty() && !classes_ && IsNamed(head_.path, name);
      const bool is_table = name.empty() || IsNamed(ModuleOfTable(table_->name), name);
      if (is_head == is_table) {
        return Refuse(fmt::format("{} is no table of words; this model has {}{}", Quoted(name),
                                  ModuleOfTable(table_->name), classes_ ? "" : " and " + head_.path));
      }
      TEMPER_RETURN_IF_ERROR(CheckRows(rows, is_head ? *head_table_ : *table_));
      const std::vector<int64_t>*& of = is_head ? of_head : of_table;
      if (of != nullptr)
        return Refuse(fmt::format("{} and another name are the same table: list its rows once", Quoted(name)));
      of = &rows;
    }
    // Of tables that are tied, the same rows of both are one.
    const bool together = tied && of_table != nullptr && (of_head == nullptr || *of_head == *of_table);
    if (of_table != nullptr) {
      all.push_back(Rows(*table_, ModuleOfTable(table_->name), *of_table,
                         together || !tied ? TrainedCopy::Readers::kAll : TrainedCopy::Readers::kEmbedding));
    }
    if (of_head != nullptr && !together) {
      all.push_back(
          Rows(*head_table_, head_.path, *of_head, tied ? TrainedCopy::Readers::kHead : TrainedCopy::Readers::kAll));
    }
    for (const TrainedRows& rows : all) TEMPER_RETURN_IF_ERROR(CheckApart(rows));
    return all;
  }

 private:
  Status Refuse(const std::string& why) const {
    return in_file_ ? Unsupported(fmt::format("{}: {}. {}", setting_, why, kMergeWithPeft))
                    : InvalidArgument(fmt::format("{}: {}", setting_, why));
  }

  // As PEFT matches names of modules: the whole path, or its end behind a point.
  static bool IsNamed(const std::string& path, const std::string& name) {
    return path == name || path.ends_with("." + name);
  }

  Status CheckRows(const std::vector<int64_t>& rows, const WeightDeclaration& table) const {
    if (std::ssize(rows) > kMostTokenIndices) {
      return Refuse(
          fmt::format("{} rows are listed, at most {} rows are trained so: train the table in full "
                      "(train_modules)",
                      rows.size(), kMostTokenIndices));
    }
    std::set<int64_t> seen;
    for (const int64_t row : rows) {
      if (row < 0 || row >= table.shape[0]) {
        return Refuse(
            fmt::format("{} is no row of {}, which has 0 to {}: the number of a new token, say, comes with "
                        "add_tokens",
                        row, ModuleOfTable(table.name), table.shape[0] - 1));
      }
      if (!seen.insert(row).second) return Refuse(fmt::format("{} is listed twice: list it once", row));
    }
    return rows.empty() ? Refuse("lists no row") : OkStatus();
  }

  Status CheckApart(const TrainedRows& rows) const {
    for (const TrainedCopy& copy : copies_) {
      if (copy.weight != rows.weight) continue;
      return Refuse(fmt::format("{} is trained in full, too: remove it from {}, or the rows", rows.module,
                                in_file_ ? "modules_to_save" : "train_modules"));
    }
    if (rows.readers == TrainedCopy::Readers::kEmbedding) return OkStatus();
    for (const LoraModule& m : adapters_) {
      if (!m.is_head || m.parts.front().weight != rows.weight) continue;
      return Refuse(
          fmt::format("{} has an adapter, too, and reads the same table: remove it from target_modules, or "
                      "train the table in full",
                      m.path));
    }
    return OkStatus();
  }

  static TrainedRows Rows(const WeightDeclaration& table, const std::string& module, const std::vector<int64_t>& rows,
                          TrainedCopy::Readers readers) {
    const FileTensor& tensor = table.source.tensors().front();
    return {.module = module,
            .weight = table.name,
            .rows = rows,
            .vocabulary = table.shape[0],
            .width = table.shape[1],
            .readers = readers,
            .source = RowsOf(tensor, rows),
            .tensor = tensor.name};
  }

  const std::string setting_;
  const bool in_file_;
  const std::span<const LoraModule> adapters_;
  const std::span<const TrainedCopy> copies_;
  const LinearModule& head_;
  const WeightDeclaration *table_ = nullptr, *head_table_ = nullptr;
  bool classes_ = false;
};

}  // namespace

Result<std::vector<TrainedRows>> SelectRows(const Model& model, const LoraConfig& config,
                                            std::span<const LoraModule> adapters, std::span<const TrainedCopy> copies,
                                            const std::string& file) {
  return RowSelector(model, adapters, copies, file).Select(config.trainable_token_indices);
}

}  // namespace temper
