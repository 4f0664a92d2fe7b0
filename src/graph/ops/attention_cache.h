// The cache of keys and values that attention_cached reads and continues: pages of tokens, whose types the rule, the
// kernels and the model's builder share.
#pragma once

#include "tensor/shape.h"

namespace temper {

inline constexpr int64_t kCachePanel = 32;  // the widest panel of a kernel: pages and values are whole ones
// Tokens of a page. Sequences share whole pages only, and the last page of each is half empty on average; a product
// over a page's values is as deep as this.
inline constexpr int64_t kCachePage = 64;

inline constexpr int64_t CachePagesOf(int64_t context) {
  return (context + kCachePage - 1) / kCachePage;
}
inline constexpr int64_t CachedWidth(int64_t v_head_dim) {
  return (v_head_dim + kCachePanel - 1) / kCachePanel * kCachePanel;
}

inline TensorType KeyCacheType(ElementFormat dtype, int64_t rows, int64_t kv_heads, int64_t head_dim) {
  return {dtype, {rows, kv_heads * head_dim}};
}
inline TensorType ValueCacheType(ElementFormat dtype, int64_t rows, int64_t kv_heads, int64_t v_head_dim) {
  return {dtype, {rows, kv_heads * CachedWidth(v_head_dim)}};
}

}  // namespace temper
