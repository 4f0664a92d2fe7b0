// View: non-owning, trivially copyable access to a tensor in row-major memory. The owner of the memory (an arena, a
// buffer, a mapped file) must outlive it, so a View never appears in a data structure that outlives a call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include "tensor/shape.h"

namespace temper {

struct View {
  std::byte* data = nullptr;
  TensorType type;

  template <class T>
  std::span<T> as() const {
    TEMPER_CHECK(static_cast<int64_t>(sizeof(T)) == SizeOf(type.dtype) && !type.packed()) << type.ToString();
    return {reinterpret_cast<T*>(data), static_cast<size_t>(type.shape.elements())};
  }
  std::span<std::byte> raw() const { return {data, static_cast<size_t>(type.bytes().v)}; }
};

// A part of a tensor in memory: the box of the whole that begins at `begin` and has the view's shape. A View converts
// to the part that covers all of it.
struct PartView {
  View view;
  Shape global, begin;

  PartView() = default;
  PartView(const View& whole) : view(whole), global(whole.type.shape) {  // NOLINT(google-explicit-constructor)
    for (int d = 0; d < global.rank(); ++d) begin.Append(0);
  }
  PartView(const View& v, const Shape& g, const Shape& b) : view(v), global(g), begin(b) {}

  bool is_whole() const { return view.type.shape == global; }
  // Rows of the part as a matrix: all dims but the last. A vector is one row.
  int64_t rows() const { return view.type.shape.rows(); }
  int64_t columns() const { return view.type.shape.columns(); }
  // The place in the whole, in row-major order, of the first element of row `row` of the part.
  int64_t RowBegin(int64_t row) const {
    const int last = global.rank() - 1;
    if (last < 0) return 0;
    int64_t at = begin[last], stride = global[last];
    for (int d = last - 1; d >= 0; --d) {
      const int64_t size = d > 0 ? std::max<int64_t>(view.type.shape[d], 1) : row + 1;
      at += (begin[d] + row % size) * stride;
      row /= size;
      stride *= global[d];
    }
    return at;
  }
  // Rows whose elements follow each other in the whole, from every multiple of so many on: those of the dims up to the
  // innermost one that is cut, and of the dims before it while they have one index.
  int64_t run_rows() const {
    int64_t rows = 1;
    bool cut = false;  // a dim further in is not whole
    for (int d = global.rank(); d-- > 0;) {
      if (cut && view.type.shape[d] != 1) break;
      cut |= view.type.shape[d] != global[d];
      if (d + 1 < global.rank()) rows *= view.type.shape[d];
    }
    return rows;
  }
  // Whether its elements are contiguous in the whole.
  bool is_one_run() const { return run_rows() == rows(); }
};

}  // namespace temper
