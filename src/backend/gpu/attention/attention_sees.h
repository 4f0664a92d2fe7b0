// Which keys a query sees: rows in one piece (attention.cu, attention_backward.cu), or the steps of a ring, whose
// queries and keys are different parts of the rows (attention_step.cu). What tilings of attention ask of it (Sees):
//
//   First(heads, document_start_T, t), End(t)   query t sees keys [First, End). Neither falls as t grows, and neither
//                                               leaves what there is, whatever the data says
//   FirstQuery(s)                               the first query that may see key s or a later one
//   PlaceOf(t), PlaceOfKey(s)                   which token of the whole rows query t is, and key s
//   FirstPlace(heads, document_start_T, t)      query t sees keys whose place is in [FirstPlace, PlaceOf(t)]
#pragma once

#include "backend/gpu/attention/attention_operands.h"
#include "graph/ops/context_attributes.h"

namespace temper::gpu {

// Rows in one piece: a token sees the tokens before it.
struct Causal {
  __device__ int64_t First(const Heads& heads, const int* document_start_T, int64_t t) const {
    return heads.FirstSeen(document_start_T, t);
  }
  __device__ int64_t End(int64_t t) const { return t + 1; }
  __device__ int64_t FirstQuery(int64_t s) const { return s; }
  __device__ int64_t PlaceOf(int64_t t) const { return t; }
  __device__ int64_t PlaceOfKey(int64_t s) const { return s; }
  __device__ int64_t FirstPlace(const Heads& heads, const int* document_start_T, int64_t t) const {
    return heads.FirstSeen(document_start_T, t);
  }
};

// The answers of a ContextPart, in the 32 bits that places have, with one division per question: kernels ask for each
// query of each tile.
class DealtPart {
 public:
  explicit DealtPart(const ContextPart& part)
      : row_(static_cast<int>(part.row)),
        local_row_(static_cast<int>(part.local_row())),
        chunk_(static_cast<int>(part.chunk())),
        begin_(static_cast<int>(part.chunk_begin(0))),
        second_begin_(static_cast<int>(part.chunk_begin(1))) {}  // of whole rows, their end

  __device__ int PlaceOf(int64_t t) const {
    const int local = static_cast<int>(t), before = local / local_row_, within = local - before * local_row_;
    return before * row_ + (within < chunk_ ? begin_ + within : second_begin_ + within - chunk_);
  }
  __device__ int LocalFrom(int place) const {
    const int before = place / row_, within = place - before * row_;
    return before * local_row_ + OfChunk(within - begin_) + OfChunk(within - second_begin_);
  }

 private:
  __device__ int OfChunk(int within) const { return within < 0 ? 0 : within < chunk_ ? within : chunk_; }
  int row_, local_row_, chunk_, begin_, second_begin_;
};

// A rank's queries on the keys of a rank of its context-parallel group. Rows are dealt (tensor/context_part.h): which
// local keys a local query sees follows from both ranks' places.
struct Dealt {
  DealtPart queries, keys;

  __device__ int64_t First(const Heads& heads, const int* document_start_T, int64_t t) const {
    return keys.LocalFrom(static_cast<int>(FirstPlace(heads, document_start_T, t)));
  }
  __device__ int64_t End(int64_t t) const { return keys.LocalFrom(queries.PlaceOf(t) + 1); }
  __device__ int64_t FirstQuery(int64_t s) const { return queries.LocalFrom(keys.PlaceOf(s)); }
  __device__ int64_t PlaceOf(int64_t t) const { return queries.PlaceOf(t); }
  __device__ int64_t PlaceOfKey(int64_t s) const { return keys.PlaceOf(s); }
  __device__ int64_t FirstPlace(const Heads& heads, const int* document_start_T, int64_t t) const {
    const int place = queries.PlaceOf(t);
    int64_t first = document_start_T[t];
    if (heads.window > 0 && first < place - heads.window + 1) first = place - heads.window + 1;
    return first < 0 ? 0 : first > place ? place : first;
  }
};

inline Dealt DealtOf(const Attributes& a) {
  return {DealtPart(ContextPartOf(a, "row")), DealtPart(ContextPartOf(a, "row", "origin"))};
}

}  // namespace temper::gpu
