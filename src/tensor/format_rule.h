// FormatRule: what a quantised format is, said once. The rule is in the file of the format's arithmetic (int8_rows.cc,
// ...) and has a line in format_list.inc; plans, loading, exports, messages and twins look it up. The other place that
// knows a format is that of its fast readers (backend/cpu/formats).
//
// Thread rule: rules are constants; their functions may be called from any thread at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "tensor/element_format.h"
#include "tensor/format_run.h"

namespace temper {

// Makes rows of the numbers of one matrix [rows, columns]. Some formats first look at all rows, in order.
class RowMaker {
 public:
  virtual ~RowMaker() = default;
  // `row` has all columns. False: an element is not finite.
  virtual bool Look(int64_t /*row*/, std::span<const float> /*x*/) { return true; }
  // Writes columns [begin, begin + columns) of a row. `x` is the whole row, or of formats with FormatRule::makes_parts
  // these columns alone. False: an element is not finite. REQUIRES: out has row_bytes(columns) bytes.
  virtual bool Write(int64_t row, std::span<const float> x, int64_t begin, int64_t columns, std::byte* out) = 0;
};

// A key of quantization_config in config.json, and the JSON text of the one value that is read.
struct FormatKey {
  std::string_view key, value;
  bool may_miss = false;  // the value is then its default
};

// How a model's files hold weights in the format.
struct StoredFormat {
  std::string_view method;          // quant_method of quantization_config
  std::span<const FormatKey> keys;  // and what else it has
  bool of_experts = false;          // experts are stored so, not linear modules
  bool leaves_experts = false;      // linear modules are, and stacks of experts stay numbers
  bool stays_in_exports = false;    // where nothing changes a weight; else exports have the numbers
  bool trains_in_full = false;      // what is saved then does not say that it is in this format

  // Formats whose files have the elements of a matrix under its name, row after row, and scales beside them, are read
  // by format/scaled_tensor.h. (Others have a class of their own there, and none of the rest.)
  std::string_view elements = {};                 // their type in files: "F8_E4M3"
  std::span<const std::string_view> scales = {};  // endings, of which files have one: the weight's name + "_scale_inv"
  int64_t block_rows = 0, block_columns = 0;      // that share a scale
  // Writes columns [begin, begin + columns) of a row whose elements and scales are given, the scales from that of
  // column `begin` on. False: one of them is no number.
  bool (*write_row)(std::span<const std::byte> elements, std::span<const float> scales, int64_t begin,
                    std::byte* out) = nullptr;
};

struct FormatRule {
  std::string_view name;   // in options, plans, programs: "nf4"
  std::string_view title;  // in messages: "NF4"
  int64_t (*row_bytes)(int64_t columns);
  int elements_in_byte = 1;
  // The first run of [begin, end) of a row. REQUIRES: begin is a multiple of elements_in_byte, and less than end.
  FormatRun (*run)(const std::byte* row, int64_t columns, int64_t begin, int64_t end);
  // The numbers of [begin, end), as kernels compute with them: the readable twin of their readers.
  void (*numbers)(const std::byte* row, int64_t columns, int64_t begin, int64_t end, bf16* out);
  // Null: only files make it.
  std::unique_ptr<RowMaker> (*maker)(int64_t rows, int64_t columns) = nullptr;
  bool looks = false;                    // its maker has to Look at all rows first
  bool makes_parts = false;              // see RowMaker::Write
  const StoredFormat* stored = nullptr;  // null: no files have it
  bool of_embeddings = false;            // token embeddings and heads may be kept so
  bool on_gpus = false;                  // GPUs have readers of it
};

// All, in the order of format_list.inc.
std::span<const FormatRule* const> FormatRules();

// REQUIRES: the format is quantised.
const FormatRule& RuleOf(ElementFormat format);
// Which line of format_list.inc its rule is: tables of kernels are by it. REQUIRES: the format is quantised.
int FormatIndex(ElementFormat format);
// Whether runs may train weights in full whose files have this format (StoredFormat::trains_in_full).
// REQUIRES: the format is quantised.
bool TrainsInFull(ElementFormat format);
// The inverse of RuleOf. REQUIRES: the rule is in format_list.inc.
ElementFormat FormatWith(const FormatRule& rule);

}  // namespace temper
