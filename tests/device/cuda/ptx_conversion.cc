// cvt between types, mov between registers of one width or several (PTX ISA, "Data Movement and Conversion").
#include <cfenv>
#include <cmath>
#include <limits>

#include "ptx_decoding.h"
#include "ptx_floating_point.h"
#include "ptx_lanes.h"

namespace temper::ptx {
namespace {

// Instruction::number of conversions: types, rounding and flags.
enum Flag : int64_t { kFlushes = 1, kSaturates = 2, kRectifies = 4 };
struct Conversion {
  Type to, from;
  int rounding;     // as fesetround takes it
  bool to_integer;  // of a float, to an integral value
  int64_t flags;

  int64_t Packed() const {
    const auto pack = [](Type t) { return static_cast<int64_t>(t.kind) << 4 | t.bytes; };
    return pack(to) | pack(from) << 8 | static_cast<int64_t>(rounding) << 16 | int64_t{to_integer} << 32 | flags << 33;
  }
  static Conversion Unpacked(int64_t x) {
    const auto unpack = [](int64_t t) { return Type{static_cast<Kind>(t >> 4 & 0xF), static_cast<int>(t & 0xF)}; };
    return {unpack(x), unpack(x >> 8), static_cast<int>(x >> 16 & 0xFFFF), (x >> 32 & 1) != 0, x >> 33};
  }
};

bool IsFloat(Type type) {
  return type.kind == Kind::kFloat || type.kind == Kind::kBFloat;
}

// The range of an integer type, and x clamped to it. Out of range a float becomes the nearest value.
int64_t Clamped(double x, Type from, Type to) {
  const bool is_signed = to.kind == Kind::kSigned;
  const int bits = 8 * to.bytes;
  if (x != x) {
    if (from.bytes != 8 && to.bytes != 8) return 0;
    return static_cast<int64_t>(uint64_t{1} << (bits - 1));
  }
  const double end = std::ldexp(1.0, is_signed ? bits - 1 : bits), begin = is_signed ? -end : 0;
  if (x >= end) return static_cast<int64_t>(is_signed ? (uint64_t{1} << (bits - 1)) - 1 : ~uint64_t{0} >> (64 - bits));
  if (x <= begin) return is_signed ? static_cast<int64_t>(~uint64_t{0} << (bits - 1)) : 0;
  return is_signed ? static_cast<int64_t>(x) : static_cast<int64_t>(static_cast<uint64_t>(x));
}

int64_t Limited(int64_t x, Type from, Type to) {
  const bool is_signed = to.kind == Kind::kSigned, from_signed = from.kind == Kind::kSigned;
  const int bits = 8 * to.bytes;
  if (is_signed) {
    const auto most = static_cast<int64_t>((uint64_t{1} << (bits - 1)) - 1);
    if (!from_signed && x < 0) return most;  // a u64 beyond
    return x > most ? most : x < -most - 1 ? -most - 1 : x;
  }
  if (from_signed && x < 0) return 0;
  const uint64_t most = ~uint64_t{0} >> (64 - bits);
  return static_cast<int64_t>(static_cast<uint64_t>(x) > most ? most : static_cast<uint64_t>(x));
}

void LoadFloats(const Warp& warp, const Operand& o, Type type, bool flushes, double (&x)[kLanes]) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (type.kind == Kind::kBFloat) {
      x[lane] = FromBFloat(warp.In<uint16_t>(o)[lane]);
    } else if (type.bytes == 4) {
      const float value = warp.In<float>(o)[lane];
      x[lane] = flushes ? Flushed(value) : value;
    } else {
      x[lane] = warp.In<double>(o)[lane];
    }
  }
}

// Nearly all conversions round to nearest, as it is set anyway.
void Round(int is_set, int mode) {
  if (mode != is_set) std::fesetround(mode);
}

void Convert(Warp& warp, const Instruction& i, Mask mask) {
  const Conversion how = Conversion::Unpacked(i.number);
  const bool flushes = (how.flags & kFlushes) != 0;
  const int before = std::fegetround();
  int64_t integers[kLanes];
  double floats[kLanes];
  if (!IsFloat(how.from)) {
    LoadIntegers(warp, i.a, how.from, integers);
    if (!IsFloat(how.to)) {
      if (how.flags & kSaturates) {
        for (int64_t& x : integers) x = Limited(x, how.from, how.to);
      }
      // A register may be wider than the type: extended as the type says.
      const int shift = 64 - 8 * how.to.bytes;
      for (int64_t& x : integers) {
        const uint64_t top = static_cast<uint64_t>(x) << shift;
        x = how.to.kind == Kind::kSigned ? static_cast<int64_t>(top) >> shift : static_cast<int64_t>(top >> shift);
      }
      return StoreIntegers(warp, i.d, mask, integers);
    }
    Round(before, how.rounding);
    ForLanes(mask, [&](int lane) {
      volatile const int64_t x = integers[lane];
      const bool is_unsigned = how.from.kind != Kind::kSigned;
      if (how.to.bytes == 8) {
        volatile const double y = is_unsigned ? static_cast<double>(static_cast<uint64_t>(x)) : static_cast<double>(x);
        warp.Out<double>(i.d)[lane] = y;
      } else {
        volatile const float y = is_unsigned ? static_cast<float>(static_cast<uint64_t>(x)) : static_cast<float>(x);
        warp.Out<float>(i.d)[lane] = y;
      }
    });
    Round(how.rounding, before);
    return;
  }
  LoadFloats(warp, i.a, how.from, flushes, floats);
  Round(before, how.rounding);
  if (how.to_integer) {
    for (double& x : floats) {
      volatile const double from = x;
      x = std::nearbyint(from);
    }
  }
  if (!IsFloat(how.to)) {
    for (int lane = 0; lane < kLanes; ++lane) integers[lane] = Clamped(floats[lane], how.from, how.to);
    Round(how.rounding, before);
    return StoreIntegers(warp, i.d, mask, integers);
  }
  ForLanes(mask, [&](int lane) {
    volatile const double x = how.flags & kRectifies && floats[lane] < 0 ? 0.0 : floats[lane];
    if (how.to.kind == Kind::kBFloat) {
      warp.Out<uint16_t>(i.d)[lane] = ToBFloat(static_cast<float>(x));
    } else if (how.to.bytes == 8) {
      warp.Out<double>(i.d)[lane] = x;
    } else {
      volatile float y = static_cast<float>(x);
      if (flushes) y = Flushed(y);
      warp.Out<float>(i.d)[lane] =
          how.flags & kSaturates ? Saturated(static_cast<float>(y)) : Canonical(static_cast<float>(y));
    }
  });
  Round(how.rounding, before);
}

// a becomes the upper half, b the lower.
void ConvertPair(Warp& warp, const Instruction& i, Mask mask) {
  const auto *a = warp.In<float>(i.a), *b = warp.In<float>(i.b);
  auto* d = warp.Out<uint32_t>(i.d);
  ForLanes(mask, [&](int lane) { d[lane] = uint32_t{ToBFloat(a[lane])} << 16 | ToBFloat(b[lane]); });
}

template <class T>
void Move(Warp& warp, const Instruction& i, Mask mask) {
  const auto* a = warp.In<T>(i.a);
  auto* d = warp.Out<T>(i.d);
  ForLanes(mask, [&](int lane) { d[lane] = a[lane]; });
}

void MovePredicate(Warp& warp, const Instruction& i, Mask mask) {
  warp.SetPredicate(i.d, i.predicate_negated ? ~warp.Predicate(i.a) : warp.Predicate(i.a), mask);
}

void Pack(Warp& warp, const Instruction& i, Mask mask) {
  const Type element = {Kind::kUnsigned, static_cast<int>(i.number)};
  int64_t whole[kLanes] = {}, part[kLanes];
  for (size_t k = 0; k < i.many.size(); ++k) {
    LoadIntegers(warp, i.many[k], element, part);
    for (int lane = 0; lane < kLanes; ++lane) {
      whole[lane] |= static_cast<int64_t>(static_cast<uint64_t>(part[lane]) << 8 * i.number * static_cast<int64_t>(k));
    }
  }
  StoreIntegers(warp, i.d, mask, whole);
}

void Unpack(Warp& warp, const Instruction& i, Mask mask) {
  int64_t whole[kLanes], part[kLanes];
  LoadIntegers(warp, i.a, {Kind::kUnsigned, i.a.bytes}, whole);
  for (size_t k = 0; k < i.many.size(); ++k) {
    for (int lane = 0; lane < kLanes; ++lane) {
      part[lane] = static_cast<int64_t>(static_cast<uint64_t>(whole[lane]) >> 8 * i.number * static_cast<int64_t>(k));
    }
    StoreIntegers(warp, i.many[k], mask, part);
  }
}

bool DecodeMove(Decoding& d) {
  if (d.name() != "mov") return false;
  const Type type = d.TakeType();
  const int bytes = type.bytes * type.elements;
  using Is = TextOperand::Is;
  if (type.kind == Kind::kPredicate) {
    d.out.d = d.Out(0, type);
    d.out.a = d.Predicate(1);
    d.out.run = MovePredicate;
  } else if (d.operand(0).is == Is::kVector || d.operand(1).is == Is::kVector) {
    const bool unpacks = d.operand(0).is == Is::kVector;
    const auto count = static_cast<int>(d.operand(unpacks ? 0 : 1).of.size());
    d.out.number = bytes / std::max(count, 1);
    d.Elements(unpacks ? 0 : 1, {Kind::kBits, bytes / std::max(count, 1)}, unpacks);
    if (unpacks) {
      d.out.a = d.In(1, type);
    } else {
      d.out.d = d.Out(0, type);
    }
    d.out.run = unpacks ? Unpack : Pack;
  } else {
    d.out.d = d.Out(0, type);
    d.out.a = d.In(1, type);
    d.out.run = bytes == 2 ? &Move<uint16_t> : bytes == 4 ? &Move<uint32_t> : bytes == 8 ? &Move<uint64_t> : nullptr;
  }
  return true;
}

}  // namespace

bool DecodeConversion(Decoding& d) {
  if (DecodeMove(d)) return true;
  if (d.name() != "cvt") return false;
  Conversion how{};
  const std::string_view integral = d.TakeOneOf({"rni", "rzi", "rmi", "rpi"});
  const std::string_view rounding = integral.empty() ? d.TakeOneOf({"rn", "rz", "rm", "rp"}) : integral;
  how.to_integer = !integral.empty();
  how.rounding = rounding.starts_with("rz")   ? FE_TOWARDZERO
                 : rounding.starts_with("rm") ? FE_DOWNWARD
                 : rounding.starts_with("rp") ? FE_UPWARD
                                              : FE_TONEAREST;
  how.flags = (d.Take("ftz") ? int64_t{kFlushes} : 0) | (d.Take("sat") ? int64_t{kSaturates} : 0) |
              (d.Take("relu") ? int64_t{kRectifies} : 0);
  how.to = d.TakeType();
  how.from = d.TakeType();
  if (how.to == Type{Kind::kBFloat, 2, 2}) {
    d.Require(rounding == "rn" && how.flags == 0 && how.from == Type{Kind::kFloat, 4}, "only to nearest, of f32");
    d.out.d = d.Out(0, how.to);
    d.out.a = d.In(1, how.from);
    d.out.b = d.In(2, how.from);
    d.out.run = ConvertPair;
    return true;
  }
  d.Require(how.to.elements == 1 && how.from.elements == 1, "only of single values");
  d.Require(
      !(how.to.kind == Kind::kFloat && how.to.bytes == 2) && !(how.from.kind == Kind::kFloat && how.from.bytes == 2),
      "f16 is not known");
  d.Require(how.to.kind != Kind::kBFloat || (rounding == "rn" && how.from == Type{Kind::kFloat, 4}),
            "only to nearest, of f32");
  d.out.d = d.Out(0, how.to, !IsFloat(how.to));
  d.out.a = d.In(1, how.from, !IsFloat(how.from));
  d.out.number = how.Packed();
  d.out.run = Convert;
  return true;
}

}  // namespace temper::ptx
