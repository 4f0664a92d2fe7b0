// View: non-owning, trivially copyable access to a tensor in row-major memory. Whoever owns the memory (an arena, a
// buffer, a mapped file) must outlive it; that is why a View never appears in a data structure that outlives a call.
#pragma once

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
    TEMPER_CHECK(static_cast<int64_t>(sizeof(T)) == SizeOf(type.dtype)) << type.ToString();
    return {reinterpret_cast<T*>(data), static_cast<size_t>(type.shape.elements())};
  }
  std::span<std::byte> raw() const { return {data, static_cast<size_t>(type.bytes().v)}; }
};

// A part of a tensor in memory: the box of the whole that begins at `begin` and has the view's shape. A View converts
// to the part that is all of it.
struct PartView {
  View view;
  Shape global, begin;

  PartView() = default;
  PartView(const View& whole) : view(whole), global(whole.type.shape) {  // NOLINT(google-explicit-constructor)
    for (int d = 0; d < global.rank(); ++d) begin.Append(0);
  }
  PartView(const View& v, const Shape& g, const Shape& b) : view(v), global(g), begin(b) {}

  bool is_whole() const { return view.type.shape == global; }
  // The place in the whole, in row-major order, of the first element of row `row` of the part.
  int64_t RowBegin(int64_t row) const {
    return global.rank() < 2 ? (global.rank() == 0 ? 0 : begin[0]) : (begin[0] + row) * global[1] + begin[1];
  }
  // Rows of the part as a matrix; a vector is one row. REQUIRES: rank <= 2.
  int64_t rows() const { return global.rank() < 2 ? 1 : view.type.shape[0]; }
  int64_t columns() const { return view.type.shape.columns(); }
};

}  // namespace temper
