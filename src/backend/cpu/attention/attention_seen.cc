#include "backend/cpu/attention/attention_seen.h"

#include <fmt/core.h>

#include <algorithm>

#include "backend/cpu/attention/attention_tile.h"
#include "graph/named_ops.h"
#include "graph/ops/context_attributes.h"

namespace temper {
namespace {

bool IsStep(Op op) {
  return op == Op::kAttentionStep || op == Op::kAttentionStepBackward;
}

}  // namespace

AttentionTokens::AttentionTokens(const KernelSpec& spec, const TensorType& q, const TensorType& v)
    : step_(IsStep(spec.op)),
      window_(spec.attributes.IntOr("window", 0)),
      queries_(step_ ? ContextPartOf(spec.attributes, "row") : ContextPart{}),
      keys_(step_ ? ContextPartOf(spec.attributes, "row", "origin") : ContextPart{}),
      dims_(AttentionDimsOf(q, v, spec.attributes)) {
  if (step_) dims_.keys = queries_.local_row();
}

Result<int64_t> AttentionTokens::Prepare(const int32_t* document_start, const int32_t* last_T, AttentionUnit* units,
                                         SeenKeys* seen) const {
  TEMPER_CHECK(!step_ || last_T == nullptr);
  return step_ ? PrepareStep(document_start, units, seen) : PrepareDocuments(document_start, last_T, units, seen);
}

Result<int64_t> AttentionTokens::PrepareDocuments(const int32_t* document_start, const int32_t* last_T,
                                                  AttentionUnit* units, SeenKeys* seen) const {
  int64_t n = 0;
  for (int64_t begin = 0; begin < dims_.tokens;) {
    int64_t end = begin + 1;
    while (end < dims_.tokens && document_start[end] == begin) ++end;
    if (document_start[begin] != begin || end - begin > dims_.keys) {
      return Corrupt(
          fmt::format("[attention] token {} says that its document starts at {}; documents are runs of at "
                      "most {} tokens that all name their first",
                      begin, document_start[begin], dims_.keys));
    }
    for (int64_t t = begin; t < end; ++t) {
      const int64_t first = window_ > 0 ? std::max(begin, t - window_ + 1) : begin;
      const int64_t last = last_T == nullptr ? t : last_T[t];
      if (last < t || last >= end || (t > begin && last < seen[t - 1].last)) {
        return Corrupt(fmt::format(
            "[attention] token {} of a document [{}, {}) says that {} is the last token that it sees; that is a token "
            "of its document, itself or a later one, and not before that of the token before",
            t, begin, end, last));
      }
      seen[t] = {static_cast<int32_t>(first), static_cast<int32_t>(last)};
    }
    if (n > 0 && end - units[n - 1].begin <= kAttentionBlock) {
      units[n - 1].end = static_cast<int32_t>(end);
    } else {
      units[n++] = {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
    }
    begin = end;
  }
  std::sort(units, units + n, [](const AttentionUnit& a, const AttentionUnit& b) {
    const int32_t la = a.end - a.begin, lb = b.end - b.begin;
    return la != lb ? la > lb : a.begin < b.begin;
  });
  return n;
}

// A rank's tokens of a row are two chunks in the order of places, so what a query sees of another rank's keys is still
// one run of them. Chunks that causality excludes make empty runs.
Result<int64_t> AttentionTokens::PrepareStep(const int32_t* document_start, AttentionUnit* units,
                                             SeenKeys* seen) const {
  const int64_t length = queries_.local_row(), rows = dims_.tokens / length;
  for (int64_t t = 0; t < dims_.tokens; ++t) {
    const int64_t place = queries_.PlaceOf(t), row = place / queries_.row * queries_.row, start = document_start[t];
    const bool behind = t % length == 0 || start >= document_start[t - 1];
    if (start < row || start > place || !behind) {
      return Corrupt(
          fmt::format("[attention_step] the token at place {} says that its document starts at {}; documents "
                      "follow one another within rows of {} tokens",
                      place, start, queries_.row));
    }
    const int64_t from = window_ > 0 ? std::max(start, place - window_ + 1) : start;
    seen[t] = {static_cast<int32_t>(keys_.LocalFrom(from)), static_cast<int32_t>(keys_.LocalFrom(place + 1) - 1)};
  }
  for (int64_t r = 0; r < rows; ++r) {
    units[r] = {static_cast<int32_t>(r * length), static_cast<int32_t>((r + 1) * length)};
  }
  return rows;
}

}  // namespace temper
