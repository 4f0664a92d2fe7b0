// Instructions that do the same in each lane with the lane's operands: `F` applied to a, b, c gives d.
#pragma once

#include <cstdint>

#include "ptx_program.h"
#include "ptx_warp.h"

namespace temper::ptx {

template <class F, class D, class A = D>
void Unary(Warp& warp, const Instruction& i, Mask mask) {
  const auto* a = warp.In<A>(i.a);
  auto* d = warp.Out<D>(i.d);
  ForLanes(mask, [&](int lane) { d[lane] = static_cast<D>(F()(static_cast<A>(a[lane]))); });
}

template <class F, class D, class A = D, class B = A>
void Binary(Warp& warp, const Instruction& i, Mask mask) {
  const auto* a = warp.In<A>(i.a);
  const auto* b = warp.In<B>(i.b);
  auto* d = warp.Out<D>(i.d);
  ForLanes(mask, [&](int lane) { d[lane] = static_cast<D>(F()(static_cast<A>(a[lane]), static_cast<B>(b[lane]))); });
}

template <class F, class D, class A = D, class B = A, class C = D>
void Ternary(Warp& warp, const Instruction& i, Mask mask) {
  const auto* a = warp.In<A>(i.a);
  const auto* b = warp.In<B>(i.b);
  const auto* c = warp.In<C>(i.c);
  auto* d = warp.Out<D>(i.d);
  ForLanes(mask, [&](int lane) {
    d[lane] = static_cast<D>(F()(static_cast<A>(a[lane]), static_cast<B>(b[lane]), static_cast<C>(c[lane])));
  });
}

// The low `type.bytes` of each lane of `o`, extended as the type says.
inline void LoadIntegers(const Warp& warp, const Operand& o, Type type, int64_t (&x)[kLanes]) {
  switch (o.bytes) {
    case 2:
      for (int lane = 0; lane < kLanes; ++lane) x[lane] = warp.In<uint16_t>(o)[lane];
      break;
    case 4:
      for (int lane = 0; lane < kLanes; ++lane) x[lane] = warp.In<uint32_t>(o)[lane];
      break;
    default:
      for (int lane = 0; lane < kLanes; ++lane) x[lane] = static_cast<int64_t>(warp.In<uint64_t>(o)[lane]);
  }
  const int shift = 64 - 8 * type.bytes;
  if (type.kind == Kind::kSigned) {
    for (int64_t& lane : x) lane = static_cast<int64_t>(static_cast<uint64_t>(lane) << shift) >> shift;
  } else {
    for (int64_t& lane : x) lane = static_cast<int64_t>(static_cast<uint64_t>(lane) << shift >> shift);
  }
}

// Into registers of any width: excess bits are cut off.
inline void StoreIntegers(Warp& warp, const Operand& o, Mask mask, const int64_t (&x)[kLanes]) {
  switch (o.bytes) {
    case 2:
      return ForLanes(mask, [&](int lane) { warp.Out<uint16_t>(o)[lane] = static_cast<uint16_t>(x[lane]); });
    case 4:
      return ForLanes(mask, [&](int lane) { warp.Out<uint32_t>(o)[lane] = static_cast<uint32_t>(x[lane]); });
    case 8:
      return ForLanes(mask, [&](int lane) { warp.Out<uint64_t>(o)[lane] = static_cast<uint64_t>(x[lane]); });
    default:
      return;  // _
  }
}

// The handler for integers of `type`; nullptr for 8 bits and for other types. Signs matter with kSigns.
#define TEMPER_PTX_INTEGERS(Shape, F, type)                                                                    \
  ((type).elements != 1                                           ? nullptr                                    \
   : (type).kind == Kind::kSigned                                 ? ((type).bytes == 2   ? &Shape<F, int16_t>  \
                                                                     : (type).bytes == 4 ? &Shape<F, int32_t>  \
                                                                     : (type).bytes == 8 ? &Shape<F, int64_t>  \
                                                                                         : Handler{nullptr})   \
   : (type).kind == Kind::kUnsigned || (type).kind == Kind::kBits ? ((type).bytes == 2   ? &Shape<F, uint16_t> \
                                                                     : (type).bytes == 4 ? &Shape<F, uint32_t> \
                                                                     : (type).bytes == 8 ? &Shape<F, uint64_t> \
                                                                                         : Handler{nullptr})   \
                                                                  : Handler{nullptr})

}  // namespace temper::ptx
