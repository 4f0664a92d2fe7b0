// Exchanges between the lanes of a warp: shfl (PTX ISA).
#include "ptx_decoding.h"
#include "ptx_lanes.h"

namespace temper::ptx {
namespace {

enum class Shuffle : int64_t { kUp, kDown, kButterfly, kIndex };

// By the ISA's pseudocode: c holds a clamp and a mask of lanes that divides the warp into segments.
void Exchange(Warp& warp, const Instruction& i, Mask mask) {
  uint32_t before[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) before[lane] = warp.In<uint32_t>(i.a)[lane];
  const auto *b = warp.In<uint32_t>(i.b), *c = warp.In<uint32_t>(i.c);
  Mask within = 0;
  ForLanes(mask, [&](int lane) {
    const int by = static_cast<int>(b[lane] & 0x1F), clamp = static_cast<int>(c[lane] & 0x1F),
              segment = static_cast<int>(c[lane] >> 8 & 0x1F);
    const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int from = lane;
    bool valid = false;
    switch (static_cast<Shuffle>(i.number)) {
      case Shuffle::kUp:
        from = lane - by, valid = from >= last;
        break;
      case Shuffle::kDown:
        from = lane + by, valid = from <= last;
        break;
      case Shuffle::kButterfly:
        from = lane ^ by, valid = from <= last;
        break;
      case Shuffle::kIndex:
        from = first | (by & ~segment), valid = from <= last;
        break;
    }
    if (!valid) from = lane;
    if ((mask >> from & 1) == 0)
      return warp.Fail(lane, "asks for the value of lane " + std::to_string(from) + ", which is not here");
    warp.Out<uint32_t>(i.d)[lane] = before[from];
    within |= static_cast<Mask>(valid) << lane;
  });
  if (i.d2.exists()) warp.SetPredicate(i.d2, within, mask);
}

}  // namespace

bool DecodeWarpExchange(Decoding& d) {
  const Type word = {Kind::kBits, 4};
  if (d.name() != "shfl") return false;
  d.Require(d.Take("sync"), "only .sync is known");
  const std::string_view how = d.TakeOneOf({"up", "down", "bfly", "idx"});
  d.TakeType();
  d.out.flow = Flow::kTogether;
  d.out.d = d.Out(0, word);
  d.out.d2 = d.SecondOut(0);
  d.out.a = d.In(1, word);
  d.out.b = d.In(2, word);
  d.out.c = d.In(3, word);
  d.out.members = d.In(4, word);
  d.out.number = static_cast<int64_t>(how == "up"     ? Shuffle::kUp
                                      : how == "down" ? Shuffle::kDown
                                      : how == "bfly" ? Shuffle::kButterfly
                                                      : Shuffle::kIndex);
  d.out.run = Exchange;
  return true;
}

}  // namespace temper::ptx
