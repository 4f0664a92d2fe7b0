// The loops of collectives: copies of parts and sums of terms, divided among a team of threads. A thread's share
// depends only on sizes and affects no bit of a result.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/team.h"
#include "comm/local/collective_plan.h"

namespace temper {

// Calls body(thread, team) on each thread of a team; on this thread alone if there is little to do.
template <class Body>
void ForTeam(int threads, Bytes bytes, const Body& body) {
  constexpr int64_t kWorthATeam = 256 << 10;  // per thread
  RunTeam(bytes.v < kWorthATeam * threads ? 1 : threads, [&](TeamMember self) { body(self.index, self.size); });
}

// Calls body(o, begin, count) for a thread's share of `outer` rows of `row` elements: some of the rows, or, of a single
// row, a range that begins at a cache line.
template <class Body>
void ForShare(int64_t outer, int64_t row, int64_t element_bytes, int team, int thread, const Body& body) {
  if (row == 0) return;
  if (outer == 1) {
    const int64_t per_line = 64 / element_bytes;
    const Part lines = PartOf((row + per_line - 1) / per_line, team, thread);
    const int64_t begin = std::min(lines.begin * per_line, row);
    const int64_t end = std::min((lines.begin + lines.count) * per_line, row);
    if (begin < end) body(int64_t{0}, begin, end - begin);
    return;
  }
  const Part share = PartOf(outer, team, thread);
  for (int64_t o = share.begin; o < share.begin + share.count; ++o) body(o, int64_t{0}, row);
}

// From this size on a gathered tensor is written around the caches: it would push out more than the next kernel finds
// in them, and an ordinary store first reads what it overwrites (glibc's memcpy does the same, for single copies of 24
// MiB).
inline constexpr Bytes kStreamFrom = MiB(4);

inline void StreamBytes(std::byte* to, const std::byte* from, int64_t n) {
  const int64_t head = std::min((16 - static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % 16)) % 16, n);
  std::memcpy(to, from, static_cast<size_t>(head));
  int64_t i = head;
  for (; i + 64 <= n; i += 64) {
    for (int64_t k = i; k < i + 64; k += 16) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + k));
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + k), bytes);
    }
  }
  std::memcpy(to + i, from + i, static_cast<size_t>(n - i));
}

// Copies a thread's share of member m's part to its place in the whole tensor at `out`. `from` is the part, or with
// `from_whole` a tensor that has it in the same place.
inline void CopyPart(const CollectiveTensor& tensor, int m, const std::byte* from, bool from_whole, std::byte* out,
                     bool stream, int thread, int team) {
  const int64_t size = tensor.element_bytes();
  ForShare(tensor.outer, tensor.row(m), size, team, thread, [&](int64_t o, int64_t begin, int64_t n) {
    const int64_t to = (tensor.row_begin(m, o) + begin) * size;
    const int64_t at = from_whole ? to : (o * tensor.row(m) + begin) * size;
    if (stream) {
      StreamBytes(out + to, from + at, n * size);
    } else {
      std::memcpy(out + to, from + at, static_cast<size_t>(n * size));
    }
  });
  if (stream) _mm_sfence();
}

// A thread's share of a tensor of which every member has one of its own.
inline void CopyWhole(const CollectiveTensor& tensor, const std::byte* from, std::byte* out, bool stream, int thread,
                      int team) {
  const int64_t size = tensor.element_bytes();
  ForShare(1, tensor.outer * tensor.whole * tensor.inner, size, team, thread, [&](int64_t, int64_t begin, int64_t n) {
    if (stream) {
      StreamBytes(out + begin * size, from + begin * size, n * size);
    } else {
      std::memcpy(out + begin * size, from + begin * size, static_cast<size_t>(n * size));
    }
  });
  if (stream) _mm_sfence();
}

}  // namespace temper
