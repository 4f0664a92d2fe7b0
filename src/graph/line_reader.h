// LineReader: the cursor with which the text forms of Graph and Program are read back. Every method returns false if
// the line holds something else, and may then leave the cursor anywhere; nothing throws. Sizes are bounded so that no
// sum or product that the ops' rules make of them overflows.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/attributes.h"
#include "tensor/packable.h"
#include "tensor/shape.h"
#include "tensor/sharding.h"
#include "tensor/tier.h"

namespace temper {

class LineReader {
 public:
  // Elements of one tensor: 2^40 are 2 TiB of bf16. Rules multiply them by at most 2^23 (threads, padding, element
  // size).
  static constexpr int64_t kMaxElements = int64_t{1} << 40;

  explicit LineReader(std::string_view line) : rest_(line) {}

  bool Eat(std::string_view token) {
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool Word(std::string_view* out) {
    const size_t n = std::min(rest_.find_first_of(" "), rest_.size());
    *out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return n > 0;
  }
  template <class Int>
  bool Number(Int* out) {
    const auto r = std::from_chars(rest_.data(), rest_.data() + rest_.size(), *out);
    rest_.remove_prefix(static_cast<size_t>(r.ptr - rest_.data()));
    return r.ec == std::errc();
  }
  bool Quoted(std::string* out) {
    if (!Eat("\"")) return false;
    const size_t n = rest_.find('"');
    if (n == rest_.npos) return false;
    *out = std::string(rest_.substr(0, n));
    rest_.remove_prefix(n + 1);
    return true;
  }
  bool Type(TensorType* out) {
    const size_t n = rest_.find('[');
    if (n == rest_.npos) return false;
    std::string_view format = rest_.substr(0, n);
    std::optional<ElementLayout> layout = ElementLayout::kRowMajor;
    if (const size_t point = format.find('.'); point != format.npos) {
      layout = ParseElementLayout(format.substr(point + 1));
      if (layout == ElementLayout::kRowMajor) return false;
      format = format.substr(0, point);
    }
    const auto dtype = ParseElementFormat(format);
    if (!dtype.ok() || !layout) return false;
    rest_.remove_prefix(n);
    *out = TensorType{*dtype, {}, *layout};
    return Sizes(&out->shape) && (!out->packed() || IsPackable(*out));
  }
  // "[2048, 768]". A size may be 0: a rank's part of a tensor with fewer rows than there are ranks.
  bool Sizes(Shape* out) {
    *out = {};
    if (!Eat("[")) return false;
    int64_t elements = 1;  // of the sizes that are not 0
    while (!Eat("]")) {
      int64_t d = 0;
      if (out->rank() > 0 && !Eat(", ")) return false;
      if (out->rank() == Shape::kMaxRank || !Number(&d) || d < 0 || d > kMaxElements / elements) return false;
      elements *= std::max<int64_t>(d, 1);
      out->Append(d);
    }
    return true;
  }
  bool ReadTier(Tier* out) {
    std::string_view word;
    if (!Word(&word) || !ParseTier(word)) return false;
    *out = *ParseTier(word);
    return true;
  }
  // Text of Shard::ToString.
  bool ReadShard(Shard* out) {
    return Eat(" of=") && Sizes(&out->global) && Eat(" at=") && Sizes(&out->begin) && Eat(" split=") &&
           Axes(&out->split) && Eat(" partial=") && Axes(&out->partial);
  }
  bool IdList(std::vector<int>* out) {
    if (!Eat("(")) return false;
    while (!Eat(")")) {
      int id = 0;
      if (!out->empty() && !Eat(", ")) return false;
      if (!Eat("%") || !Number(&id)) return false;
      out->push_back(id);
    }
    return true;
  }
  bool Braced(Attributes* out) {
    const size_t n = rest_.find('}');
    if (n == rest_.npos) return false;
    Result<Attributes> attributes = Attributes::Parse(rest_.substr(0, n + 1));
    if (!attributes.ok()) return false;
    *out = std::move(*attributes);
    rest_.remove_prefix(n + 1);
    return true;
  }
  bool Axes(AxisSet* out) {
    const size_t n = std::min(rest_.find(' '), rest_.size());
    const auto axes = AxisSet::Parse(rest_.substr(0, n));
    if (!axes.ok()) return false;
    *out = *axes;
    rest_.remove_prefix(n);
    return true;
  }
  bool AtEnd() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace temper
