// Instructions that compare and select (PTX ISA, "Comparison and Selection").
#include "ptx_decoding.h"
#include "ptx_floating_point.h"
#include "ptx_lanes.h"

namespace temper::ptx {
namespace {

struct Equal {
  template <class T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {  // false with NaN
  template <class T>
  bool operator()(T a, T b) const {
    return a < b || a > b;
  }
};
struct Less {
  template <class T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <class T>
  bool operator()(T a, T b) const {
    return a >= b;
  }
};
struct Numbers {
  template <class T>
  bool operator()(T a, T b) const {
    return a == a && b == b;
  }
};
// True with NaN: the negation of a comparison that is false with it.
template <class F>
struct Not {
  template <class T>
  bool operator()(T a, T b) const {
    return !F()(a, b);
  }
};

// Instruction::number.
enum Combine : int64_t { kPlain = 0, kAnd = 1, kOr = 2, kXor = 3, kCombine = 3, kFlushes = 4 };

template <class F, class T>
void Compare(Warp& warp, const Instruction& i, Mask mask) {
  const auto* a = warp.In<T>(i.a);
  const auto* b = warp.In<T>(i.b);
  Mask holds = 0;
  if constexpr (std::is_floating_point_v<T>) {
    const bool flushes = (i.number & kFlushes) != 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      const T x = flushes ? Flushed(a[lane]) : a[lane], y = flushes ? Flushed(b[lane]) : b[lane];
      holds |= static_cast<Mask>(F()(x, y)) << lane;
    }
  } else {
    for (int lane = 0; lane < kLanes; ++lane) holds |= static_cast<Mask>(F()(T{a[lane]}, T{b[lane]})) << lane;
  }
  Mask fails = ~holds;
  if (const int64_t combine = i.number & kCombine; combine != kPlain) {
    Mask c = warp.Predicate(i.predicate);
    if (i.predicate_negated) c = ~c;
    holds = combine == kAnd ? holds & c : combine == kOr ? holds | c : holds ^ c;
    fails = combine == kAnd ? fails & c : combine == kOr ? fails | c : fails ^ c;
  }
  warp.SetPredicate(i.d, holds, mask);
  warp.SetPredicate(i.d2, fails, mask);
}

template <class F>
Handler CompareOf(Type type) {
  if (type.elements != 1) return nullptr;
  if (type.kind == Kind::kFloat)
    return type.bytes == 4 ? &Compare<F, float> : type.bytes == 8 ? &Compare<F, double> : nullptr;
  return TEMPER_PTX_INTEGERS(Compare, F, type);
}

Handler Comparison(std::string_view name, Type type) {
  const bool is_float = type.kind == Kind::kFloat;
  if (name == "eq") return CompareOf<Equal>(type);
  if (name == "ne") return CompareOf<NotEqual>(type);
  if (name == "lt" || name == "lo") return CompareOf<Less>(type);
  if (name == "le" || name == "ls") return CompareOf<LessOrEqual>(type);
  if (name == "gt" || name == "hi") return CompareOf<Greater>(type);
  if (name == "ge" || name == "hs") return CompareOf<GreaterOrEqual>(type);
  if (!is_float) return nullptr;
  if (name == "equ") return CompareOf<Not<NotEqual>>(type);
  if (name == "neu") return CompareOf<Not<Equal>>(type);
  if (name == "ltu") return CompareOf<Not<GreaterOrEqual>>(type);
  if (name == "leu") return CompareOf<Not<Greater>>(type);
  if (name == "gtu") return CompareOf<Not<LessOrEqual>>(type);
  if (name == "geu") return CompareOf<Not<Less>>(type);
  if (name == "num") return CompareOf<Numbers>(type);
  if (name == "nan") return CompareOf<Not<Numbers>>(type);
  return nullptr;
}

template <class T>
void Select(Warp& warp, const Instruction& i, Mask mask) {
  const auto* a = warp.In<T>(i.a);
  const auto* b = warp.In<T>(i.b);
  auto* d = warp.Out<T>(i.d);
  Mask first = warp.Predicate(i.predicate);
  if (i.predicate_negated) first = ~first;
  ForLanes(mask, [&](int lane) { d[lane] = first >> lane & 1 ? a[lane] : b[lane]; });
}

}  // namespace

bool DecodeComparison(Decoding& d) {
  if (d.name() == "selp") {
    const Type type = d.TakeType();
    d.out.d = d.Out(0, type);
    d.out.a = d.In(1, type);
    d.out.b = d.In(2, type);
    d.out.predicate = d.Predicate(3);
    const int bytes = type.bytes * type.elements;
    d.out.run = bytes == 2   ? &Select<uint16_t>
                : bytes == 4 ? &Select<uint32_t>
                : bytes == 8 ? &Select<uint64_t>
                             : nullptr;
    return true;
  }
  if (d.name() != "setp") return false;
  const std::string_view comparison = d.TakeOneOf({"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ",
                                                   "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
  const std::string_view combine = d.TakeOneOf({"and", "or", "xor"});
  d.out.number = combine == "and" ? kAnd : combine == "or" ? kOr : combine == "xor" ? kXor : kPlain;
  if (d.Take("ftz")) d.out.number |= kFlushes;
  const Type type = d.TakeType();
  d.out.d = d.Out(0, {Kind::kPredicate, 0});
  d.out.d2 = d.SecondOut(0);
  d.out.a = d.In(1, type);
  d.out.b = d.In(2, type);
  if (!combine.empty()) d.out.predicate = d.Predicate(3);
  d.out.run = Comparison(comparison, type);
  return true;
}

}  // namespace temper::ptx
