// Instructions on integers and bits (PTX ISA, "Integer Arithmetic", "Extended-Precision", "Logic and Shift").
#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "ptx_decoding.h"
#include "ptx_lanes.h"

namespace temper::ptx {
namespace {

// Modulo 2^64 first: overflow wraps, for any type.
template <class T>
uint64_t Wide(T x) {
  return static_cast<uint64_t>(x);
}
template <class T>
using Double =
    std::conditional_t<sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
                       std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                                          std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wide(a) + Wide(b));
  }
};
struct AddSaturated {
  int32_t operator()(int32_t a, int32_t b) const {
    const int64_t sum = int64_t{a} + b;
    return static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX));
  }
};
struct Subtract {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wide(a) - Wide(b));
  }
};
struct MultiplyLow {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(Wide(a) * Wide(b));
  }
};
struct MultiplyHigh {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Double<T>>(a) * static_cast<Double<T>>(b) >> 8 * sizeof(T));
  }
};
// Of a and b that are half as wide as the result.
struct MultiplyWide {
  template <class T>
  auto operator()(T a, T b) const {
    return static_cast<Double<T>>(a) * static_cast<Double<T>>(b);
  }
};
struct MultiplyAddLow {
  template <class T>
  T operator()(T a, T b, T c) const {
    return static_cast<T>(Wide(a) * Wide(b) + Wide(c));
  }
};
struct MultiplyAddHigh {
  template <class T>
  T operator()(T a, T b, T c) const {
    return static_cast<T>(Wide(MultiplyHigh()(a, b)) + Wide(c));
  }
};
struct MultiplyAddWide {
  template <class T, class C>
  C operator()(T a, T b, C c) const {
    return static_cast<C>(Wide(MultiplyWide()(a, b)) + Wide(c));
  }
};
// Division by 0 gives a machine-specific result: here all bits set.
struct Divide {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~uint64_t{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return static_cast<T>(0 - Wide(a));
    return static_cast<T>(a / b);
  }
};
struct Remainder {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~uint64_t{0});
    if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Least {
  template <class T>
  T operator()(T a, T b) const {
    return a < b ? a : b;
  }
};
struct Most {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};
struct Negate {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(0 - Wide(a));
  }
};
struct Absolute {
  template <class T>
  T operator()(T a) const {
    return a < 0 ? Negate()(a) : a;
  }
};
struct And {
  template <class T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct ShiftLeft {
  template <class T>
  T operator()(T a, uint32_t by) const {
    return by >= 8 * sizeof(T) ? T{0} : static_cast<T>(Wide(a) << by);
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, uint32_t by) const {
    const auto most = static_cast<uint32_t>(8 * sizeof(T) - 1);
    if (std::is_signed_v<T>) return static_cast<T>(a >> (by > most ? most : by));
    return by > most ? T{0} : static_cast<T>(a >> by);
  }
};
template <class F, class T>
void Shift(Warp& warp, const Instruction& i, Mask mask) {
  Binary<F, T, T, uint32_t>(warp, i, mask);
}
struct CountLeadingZeros {
  template <class T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
// `length` bits of a from `at` on, extended by their highest where T is signed.
struct ExtractBits {
  template <class T>
  T operator()(T a, uint32_t at, uint32_t length) const {
    at &= 0xFF, length &= 0xFF;
    constexpr uint32_t kMost = 8 * sizeof(T) - 1;
    const uint64_t bits = Wide(static_cast<std::make_unsigned_t<T>>(a));
    const auto bit = [&](uint32_t k) { return bits >> (k > kMost ? kMost : k) & 1; };
    const uint64_t fill = std::is_signed_v<T> && length > 0 ? bit(at + length - 1) : 0;
    uint64_t d = 0;
    for (uint32_t k = 0; k <= kMost; ++k) d |= (k < length && at + k <= kMost ? bit(at + k) : fill) << k;
    return static_cast<T>(d);
  }
};

// Additions in several words: the condition code carries from one to the next.
enum Carry : int64_t { kSetsCarry = 1, kTakesCarry = 2, kSubtracts = 4, kMultipliesLow = 8, kMultipliesHigh = 16 };
template <class T>
void CarryChain(Warp& warp, const Instruction& i, Mask mask) {
  const auto* a = warp.In<T>(i.a);
  const auto* b = warp.In<T>(i.b);
  const auto* c = warp.In<T>(i.c);
  auto* d = warp.Out<T>(i.d);
  ForLanes(mask, [&](int lane) {
    using U = unsigned __int128;
    const U in = i.number & kTakesCarry ? warp.carry >> lane & 1 : 0;
    U sum;
    if (i.number & kSubtracts) {
      sum = U{a[lane]} - b[lane] - in;
    } else if (i.number & kMultipliesLow) {
      sum = U{static_cast<T>(U{a[lane]} * b[lane])} + c[lane] + in;
    } else if (i.number & kMultipliesHigh) {
      sum = U{static_cast<T>(U{a[lane]} * b[lane] >> 8 * sizeof(T))} + c[lane] + in;
    } else {
      sum = U{a[lane]} + b[lane] + in;
    }
    d[lane] = static_cast<T>(sum);
    if (i.number & kSetsCarry) {
      warp.carry = (warp.carry & ~(Mask{1} << lane)) | static_cast<Mask>(sum >> 8 * sizeof(T) & 1) << lane;
    }
  });
}

// Any function of three bits, given by its table.
void Lookup3(Warp& warp, const Instruction& i, Mask mask) {
  const auto *a = warp.In<uint32_t>(i.a), *b = warp.In<uint32_t>(i.b), *c = warp.In<uint32_t>(i.c);
  auto* d = warp.Out<uint32_t>(i.d);
  ForLanes(mask, [&](int lane) {
    uint32_t result = 0;
    for (int row = 0; row < 8; ++row) {
      if ((i.number >> row & 1) == 0) continue;
      result |= (row & 4 ? a[lane] : ~a[lane]) & (row & 2 ? b[lane] : ~b[lane]) & (row & 1 ? c[lane] : ~c[lane]);
    }
    d[lane] = result;
  });
}

// b:a shifted; left: the upper word of it, right: the lower.
template <bool kLeft, bool kWraps>
struct Funnel {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t by) const {
    by = kWraps ? by & 31 : by > 32 ? 32 : by;
    const uint64_t both = uint64_t{b} << 32 | a;
    return static_cast<uint32_t>(kLeft ? both << by >> 32 : both >> by);
  }
};

// The low bits of a into b: at c, as many as the fourth operand says.
template <class T>
void Insert(Warp& warp, const Instruction& i, Mask mask) {
  const auto *a = warp.In<T>(i.a), *b = warp.In<T>(i.b);
  const auto *at = warp.In<uint32_t>(i.c), *length = warp.In<uint32_t>(i.predicate);
  auto* d = warp.Out<T>(i.d);
  ForLanes(mask, [&](int lane) {
    T result = b[lane];
    for (uint32_t k = 0; k < (length[lane] & 0xFF) && (at[lane] & 0xFF) + k < 8 * sizeof(T); ++k) {
      const uint32_t to = (at[lane] & 0xFF) + k;
      const T one = static_cast<T>(T{1} << to);
      result = static_cast<T>((result & ~one) | (static_cast<T>(a[lane] >> k & 1) << to));
    }
    d[lane] = result;
  });
}

void PredicateLogic(Warp& warp, const Instruction& i, Mask mask) {
  const Mask a = warp.Predicate(i.a), b = i.b.exists() ? warp.Predicate(i.b) : 0;
  const Mask results[] = {a & b, a | b, a ^ b, ~a};
  warp.SetPredicate(i.d, results[i.number], mask);
}

// The permutation of bytes that prmt's selector or mode names.
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t d = 0;
    for (int k = 0; k < 4; ++k) {
      const uint32_t pick = selector >> 4 * k & 0xF;
      uint32_t byte = static_cast<uint32_t>(bytes >> 8 * (pick & 7) & 0xFF);
      if (pick & 8) byte = byte & 0x80 ? 0xFF : 0;
      d |= byte << 8 * k;
    }
    return d;
  }
};

void Take3(Decoding& d, Type type) {
  d.out.d = d.Out(0, type);
  d.out.a = d.In(1, type);
  d.out.b = d.In(2, type);
}

bool DecodeCarry(Decoding& d) {
  const std::string_view name = d.name();
  const bool takes = name == "addc" || name == "subc" || name == "madc";
  if (!takes && name != "add" && name != "sub" && name != "mad") return false;
  const bool sets = d.Take("cc");
  if (!takes && !sets) return false;
  d.out.number = (sets ? int64_t{kSetsCarry} : 0) | (takes ? int64_t{kTakesCarry} : 0);
  if (name.starts_with("sub")) d.out.number |= kSubtracts;
  if (name.starts_with("mad")) d.out.number |= d.Take("hi") ? int64_t{kMultipliesHigh} : int64_t{kMultipliesLow};
  if (d.out.number & kMultipliesLow) d.Require(d.Take("lo"), "lo or hi?");
  const Type type = d.TakeType();
  Take3(d, type);
  d.out.c = name.starts_with("mad") ? d.In(3, type) : d.Constant(0, type.bytes);
  d.Require(type.kind != Kind::kSigned || !(d.out.number & kMultipliesHigh), "a signed product");
  d.out.run = type.bytes == 4 ? &CarryChain<uint32_t> : type.bytes == 8 ? &CarryChain<uint64_t> : nullptr;
  return true;
}

bool DecodeProduct(Decoding& d) {
  const bool adds = d.name() == "mad";
  if (!adds && d.name() != "mul") return false;
  const std::string_view part = d.TakeOneOf({"lo", "hi", "wide"});
  if (part.empty()) return false;
  const Type type = d.TakeType();
  const Type to = part == "wide" ? Type{type.kind, 2 * type.bytes} : type;
  d.out.d = d.Out(0, to);
  d.out.a = d.In(1, type);
  d.out.b = d.In(2, type);
  if (adds) d.out.c = d.In(3, to);
  if (part == "wide") {
    const bool is_signed = type.kind == Kind::kSigned;
    if (type.bytes == 4) {
      d.out.run =
          adds ? is_signed ? &Ternary<MultiplyAddWide, int64_t, int32_t> : &Ternary<MultiplyAddWide, uint64_t, uint32_t>
          : is_signed ? &Binary<MultiplyWide, int64_t, int32_t>
                      : &Binary<MultiplyWide, uint64_t, uint32_t>;
    } else if (type.bytes == 2) {
      d.out.run =
          adds ? is_signed ? &Ternary<MultiplyAddWide, int32_t, int16_t> : &Ternary<MultiplyAddWide, uint32_t, uint16_t>
          : is_signed ? &Binary<MultiplyWide, int32_t, int16_t>
                      : &Binary<MultiplyWide, uint32_t, uint16_t>;
    }
  } else if (part == "lo") {
    d.out.run =
        adds ? TEMPER_PTX_INTEGERS(Ternary, MultiplyAddLow, type) : TEMPER_PTX_INTEGERS(Binary, MultiplyLow, type);
  } else {
    d.out.run =
        adds ? TEMPER_PTX_INTEGERS(Ternary, MultiplyAddHigh, type) : TEMPER_PTX_INTEGERS(Binary, MultiplyHigh, type);
  }
  return true;
}

bool DecodeLogic(Decoding& d) {
  const std::string_view name = d.name();
  const int which = name == "and" ? 0 : name == "or" ? 1 : name == "xor" ? 2 : name == "not" ? 3 : -1;
  if (which < 0) return false;
  const Type type = d.TakeType();
  if (type.kind == Kind::kPredicate) {
    d.out.d = d.Out(0, type);
    d.out.a = d.Predicate(1);
    if (which < 3) d.out.b = d.Predicate(2);
    d.out.number = which;
    d.out.run = PredicateLogic;
    return true;
  }
  d.out.d = d.Out(0, type);
  d.out.a = d.In(1, type);
  if (which < 3) d.out.b = d.In(2, type);
  d.out.run = which == 0   ? TEMPER_PTX_INTEGERS(Binary, And, type)
              : which == 1 ? TEMPER_PTX_INTEGERS(Binary, Or, type)
              : which == 2 ? TEMPER_PTX_INTEGERS(Binary, Xor, type)
                           : TEMPER_PTX_INTEGERS(Unary, Not, type);
  return true;
}

bool DecodeBits(Decoding& d) {
  const std::string_view name = d.name();
  const Type word = {Kind::kBits, 4};
  if (name == "clz") {
    const Type type = d.TakeType();
    d.out.d = d.Out(0, word);
    d.out.a = d.In(1, type);
    d.out.run = type.bytes == 4   ? &Unary<CountLeadingZeros, uint32_t>
                : type.bytes == 8 ? &Unary<CountLeadingZeros, uint32_t, uint64_t>
                                  : nullptr;
    return true;
  }
  if (name == "shl" || name == "shr") {
    const Type type = d.TakeType();
    d.out.d = d.Out(0, type);
    d.out.a = d.In(1, type);
    d.out.b = d.In(2, word);
    d.out.run =
        name == "shl" ? TEMPER_PTX_INTEGERS(Shift, ShiftLeft, type) : TEMPER_PTX_INTEGERS(Shift, ShiftRight, type);
    return true;
  }
  if (name == "shf") {
    const bool left = d.Take("l"), wraps = d.Take("wrap");
    d.Require(left || d.Take("r"), "l or r?");
    d.Require(wraps || d.Take("clamp"), "wrap or clamp?");
    Take3(d, d.TakeType());
    d.out.c = d.In(3, word);
    d.out.run = left ? (wraps ? &Ternary<Funnel<true, true>, uint32_t> : &Ternary<Funnel<true, false>, uint32_t>)
                     : (wraps ? &Ternary<Funnel<false, true>, uint32_t> : &Ternary<Funnel<false, false>, uint32_t>);
    return true;
  }
  if (name == "bfe") {
    const Type type = d.TakeType();
    d.out.d = d.Out(0, type);
    d.out.a = d.In(1, type);
    d.out.b = d.In(2, word);
    d.out.c = d.In(3, word);
    const bool is_signed = type.kind == Kind::kSigned;
    d.out.run = type.bytes == 4 ? (is_signed ? &Ternary<ExtractBits, int32_t, int32_t, uint32_t, uint32_t>
                                             : &Ternary<ExtractBits, uint32_t, uint32_t, uint32_t, uint32_t>)
                                : (is_signed ? &Ternary<ExtractBits, int64_t, int64_t, uint32_t, uint32_t>
                                             : &Ternary<ExtractBits, uint64_t, uint64_t, uint32_t, uint32_t>);
    return true;
  }
  if (name == "bfi") {
    const Type type = d.TakeType();
    Take3(d, type);
    d.out.c = d.In(3, word);
    d.out.predicate = d.In(4, word);
    d.out.run = type.bytes == 8 ? &Insert<uint64_t> : &Insert<uint32_t>;
    return true;
  }
  if (name == "lop3") {
    Take3(d, d.TakeType());
    d.out.c = d.In(3, word);
    d.out.number = d.Integer(4);
    d.out.run = Lookup3;
    return true;
  }
  if (name == "prmt") {
    Take3(d, d.TakeType());
    d.out.c = d.In(3, word);
    d.out.run = &Ternary<Permute, uint32_t>;
    return true;
  }
  return false;
}

}  // namespace

bool DecodeArithmetic(Decoding& d) {
  if (DecodeCarry(d) || DecodeProduct(d) || DecodeLogic(d) || DecodeBits(d)) return true;
  const std::string_view name = d.name();
  const bool unary = name == "neg" || name == "abs";
  if (!unary && name != "add" && name != "sub" && name != "div" && name != "rem" && name != "min" && name != "max") {
    return false;
  }
  const Type type = d.PeekType();
  if (type.kind == Kind::kFloat || type.kind == Kind::kBFloat) return false;
  d.TakeType();
  d.out.d = d.Out(0, type);
  d.out.a = d.In(1, type);
  if (!unary) d.out.b = d.In(2, type);
  if (name == "add" && d.Take("sat")) {
    d.out.run = type == Type{Kind::kSigned, 4} ? &Binary<AddSaturated, int32_t> : nullptr;
  } else {
    d.out.run = name == "add"   ? TEMPER_PTX_INTEGERS(Binary, Add, type)
                : name == "sub" ? TEMPER_PTX_INTEGERS(Binary, Subtract, type)
                : name == "div" ? TEMPER_PTX_INTEGERS(Binary, Divide, type)
                : name == "rem" ? TEMPER_PTX_INTEGERS(Binary, Remainder, type)
                : name == "min" ? TEMPER_PTX_INTEGERS(Binary, Least, type)
                : name == "max" ? TEMPER_PTX_INTEGERS(Binary, Most, type)
                : name == "neg" ? TEMPER_PTX_INTEGERS(Unary, Negate, type)
                                : TEMPER_PTX_INTEGERS(Unary, Absolute, type);
  }
  return true;
}

}  // namespace temper::ptx
