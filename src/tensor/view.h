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

}  // namespace temper
