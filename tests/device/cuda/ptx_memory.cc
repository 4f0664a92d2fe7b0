// Loads, stores, addresses, copies that run beside the arithmetic (cp.async), fences (PTX ISA, "Data Movement").
#include "ptx_memory.h"

#include <algorithm>
#include <cstring>

#include "ptx_block.h"
#include "ptx_decoding.h"
#include "ptx_lanes.h"

namespace temper::ptx {
namespace {

std::string Hex(uint64_t address) {
  char text[20];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

std::byte* InShared(Warp& warp, int lane, uint64_t address, int64_t bytes, bool writes) {
  SharedMemory& shared = warp.block().shared();
  const int thread = warp.thread(lane);
  std::byte* const at = writes ? shared.Write(static_cast<int64_t>(address), bytes, thread)
                               : shared.Read(static_cast<int64_t>(address), bytes, thread);
  if (at == nullptr) warp.Fail(lane, "does " + shared.error());
  return at;
}

std::byte* InLocal(Warp& warp, int lane, uint64_t address, int64_t bytes) {
  if (address > static_cast<uint64_t>(warp.local_bytes()) ||
      static_cast<int64_t>(address) + bytes > warp.local_bytes() || address % static_cast<uint64_t>(bytes) != 0) {
    warp.Fail(lane, "does an access to " + std::to_string(bytes) + " bytes at byte " + std::to_string(address) +
                        " of its " + std::to_string(warp.local_bytes()) + " bytes of local memory");
    return nullptr;
  }
  return warp.Local(lane) + address;
}

std::byte* InGlobal(Warp& warp, int lane, uint64_t address, int64_t bytes) {
  if (address % static_cast<uint64_t>(bytes) != 0) {
    warp.Fail(lane, "does an access to " + std::to_string(bytes) + " bytes of global memory at " + Hex(address) +
                        ", which is not aligned to them");
    return nullptr;
  }
  std::byte* const at = warp.block().Global(address, bytes);
  if (at == nullptr) {
    warp.Fail(lane, "does an access to " + std::to_string(bytes) + " bytes of global memory at " + Hex(address) +
                        ", which is not allocated");
  }
  return at;
}

template <class T>
void LoadElement(Warp& warp, const Operand& to, Mask mask, std::byte* const (&at)[kLanes], size_t offset) {
  switch (to.bytes) {
    case 2:
      return ForLanes(mask, [&](int lane) {
        T x;
        std::memcpy(&x, at[lane] + offset, sizeof x);
        warp.Out<uint16_t>(to)[lane] = static_cast<uint16_t>(x);
      });
    case 4:
      return ForLanes(mask, [&](int lane) {
        T x;
        std::memcpy(&x, at[lane] + offset, sizeof x);
        warp.Out<uint32_t>(to)[lane] = static_cast<uint32_t>(x);
      });
    case 8:
      return ForLanes(mask, [&](int lane) {
        T x;
        std::memcpy(&x, at[lane] + offset, sizeof x);
        warp.Out<uint64_t>(to)[lane] = static_cast<uint64_t>(x);
      });
    default:
      return;
  }
}

// T: the type in memory, which a wider register extends by its sign.
template <class T>
void Load(Warp& warp, const Instruction& i, Mask mask) {
  uint64_t addresses[kLanes];
  std::byte* at[kLanes];
  Addresses(warp, i.a, i.number, addresses);
  if (!Locate(warp, i.space, addresses, mask, static_cast<int64_t>(sizeof(T) * i.many.size()), false, at)) return;
  for (size_t k = 0; k < i.many.size(); ++k) LoadElement<T>(warp, i.many[k], mask, at, k * sizeof(T));
}

template <class T, class R>
void StoreElement(Warp& warp, const Operand& from, Mask mask, std::byte* const (&at)[kLanes], size_t offset) {
  const auto* lanes = warp.In<R>(from);
  ForLanes(mask, [&](int lane) {
    const T x = static_cast<T>(lanes[lane]);
    std::memcpy(at[lane] + offset, &x, sizeof x);
  });
}

template <class T>
void Store(Warp& warp, const Instruction& i, Mask mask) {
  uint64_t addresses[kLanes];
  std::byte* at[kLanes];
  Addresses(warp, i.a, i.number, addresses);
  if (!Locate(warp, i.space, addresses, mask, static_cast<int64_t>(sizeof(T) * i.many.size()), true, at)) return;
  for (size_t k = 0; k < i.many.size(); ++k) {
    const Operand& from = i.many[k];
    if (from.bytes == 1) StoreElement<T, uint8_t>(warp, from, mask, at, k * sizeof(T));
    if (from.bytes == 2) StoreElement<T, uint16_t>(warp, from, mask, at, k * sizeof(T));
    if (from.bytes == 4) StoreElement<T, uint32_t>(warp, from, mask, at, k * sizeof(T));
    if (from.bytes == 8) StoreElement<T, uint64_t>(warp, from, mask, at, k * sizeof(T));
  }
}

// Between generic addresses and those of one space.
void AddToAddress(Warp& warp, const Instruction& i, Mask mask) {
  int64_t x[kLanes];
  LoadIntegers(warp, i.a, {Kind::kUnsigned, i.a.bytes}, x);
  for (int64_t& lane : x) lane += i.number;
  StoreIntegers(warp, i.d, mask, x);
}

void CopyBeside(Warp& warp, const Instruction& i, Mask mask) {
  uint64_t to[kLanes], from[kLanes];
  Addresses(warp, i.a, i.number, to);
  Addresses(warp, i.b, i.added, from);
  const int bytes = i.access_bytes;
  ForLanes(mask, [&](int lane) {
    if (warp.block().failed()) return;
    int read = bytes;
    if (i.c.exists()) {
      read = static_cast<int>(std::min<uint32_t>(warp.In<uint32_t>(i.c)[lane], static_cast<uint32_t>(bytes)));
    } else if (i.predicate.exists()) {
      const Mask ignored = i.predicate_negated ? ~warp.Predicate(i.predicate) : warp.Predicate(i.predicate);
      if (ignored >> lane & 1) read = 0;
    }
    if (from[lane] % static_cast<uint64_t>(bytes) != 0) {
      return warp.Fail(
          lane, "copies from " + Hex(from[lane]) + ", which is not aligned to " + std::to_string(bytes) + " bytes");
    }
    if (read > 0 && warp.block().Global(from[lane], read) == nullptr) {
      return warp.Fail(lane, "copies from " + Hex(from[lane]) + ", which is not allocated");
    }
    SharedMemory& shared = warp.block().shared();
    if (!shared.BeginCopy(static_cast<int64_t>(to[lane]), bytes, warp.thread(lane))) {
      return warp.Fail(lane, "does " + shared.error());
    }
    warp.copies.push_back({lane, static_cast<int64_t>(to[lane]), from[lane], bytes, read, warp.copy_groups[lane]});
  });
}

void CloseCopies(Warp& warp, const Instruction&, Mask mask) {
  ForLanes(mask, [&](int lane) { ++warp.copy_groups[lane]; });
}

// All but the last `number` groups; below 0: also those in no group yet.
void AwaitCopies(Warp& warp, const Instruction& i, Mask mask) {
  const auto arrives = [&](const Warp::Copy& copy) {
    if ((mask >> copy.lane & 1) == 0) return false;
    return i.number < 0 || int64_t{copy.group} < int64_t{warp.copy_groups[copy.lane]} - i.number;
  };
  SharedMemory& shared = warp.block().shared();
  size_t kept = 0;
  for (const Warp::Copy& copy : warp.copies) {
    if (!arrives(copy)) {
      warp.copies[kept++] = copy;
      continue;
    }
    shared.EndCopy(copy.to, copy.bytes);
    std::byte* const to = InShared(warp, copy.lane, static_cast<uint64_t>(copy.to), copy.bytes, true);
    if (to == nullptr) return;
    const std::byte* const from = copy.read > 0 ? warp.block().Global(copy.from, copy.read) : nullptr;
    if (from != nullptr) std::memcpy(to, from, static_cast<size_t>(copy.read));
    std::fill(to + copy.read, to + copy.bytes, std::byte{0});
  }
  warp.copies.resize(kept);
}

void FenceForUnits(Warp& warp, const Instruction&, Mask mask) {
  ForLanes(mask, [&](int lane) { warp.block().shared().Fence(warp.thread(lane)); });
}

Space TakeSpace(Decoding& d) {
  const std::string_view name =
      d.TakeOneOf({"global", "shared", "shared::cta", "local", "const", "param", "param::entry", "param::func"});
  if (name == "global" || name == "const") return Space::kGlobal;
  if (name.starts_with("shared")) return Space::kShared;
  if (name == "local") return Space::kLocal;
  if (name.starts_with("param")) return Space::kParam;
  return Space::kGeneric;
}

void TakeHints(Decoding& d) {
  d.TakeOneOf({"weak", "volatile", "relaxed", "acquire", "release"});
  d.TakeOneOf({"cta", "cluster", "gpu", "sys"});
  d.TakeOneOf({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  d.Take("nc");
  d.TakeOneOf({"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"});
  d.TakeOneOf({"L2::64B", "L2::128B", "L2::256B"});
  d.Take("L2::cache_hint");  // the policy is the last operand
}

bool DecodeAccess(Decoding& d) {
  const bool loads = d.name() == "ld";
  if (!loads && d.name() != "st") return false;
  TakeHints(d);
  d.out.space = TakeSpace(d);
  const std::string_view vector = d.TakeOneOf({"v2", "v4", "v8"});
  const Type type = d.TakeType();
  const int bytes = type.bytes * type.elements;
  const int address = loads ? 1 : 0, data = loads ? 0 : 1;
  d.Address(address, d.out.a);
  const Variable* const variable = d.operand(address).variable;
  if (d.out.space == Space::kParam && variable != nullptr && variable->space == Space::kLocal)
    d.out.space = Space::kLocal;
  d.Elements(data, type, loads, true);
  d.Require(d.elements() == (vector.empty()   ? 1
                             : vector == "v2" ? 2
                             : vector == "v4" ? 4
                                              : 8),
            "another number of elements");
  d.out.access_bytes = static_cast<uint8_t>(bytes);
  const bool is_signed = type.kind == Kind::kSigned;
  if (loads) {
    d.out.run = bytes == 1   ? (is_signed ? &Load<int8_t> : &Load<uint8_t>)
                : bytes == 2 ? (is_signed ? &Load<int16_t> : &Load<uint16_t>)
                : bytes == 4 ? (is_signed ? &Load<int32_t> : &Load<uint32_t>)
                : bytes == 8 ? &Load<uint64_t>
                             : nullptr;
  } else {
    d.out.run = bytes == 1   ? &Store<uint8_t>
                : bytes == 2 ? &Store<uint16_t>
                : bytes == 4 ? &Store<uint32_t>
                : bytes == 8 ? &Store<uint64_t>
                             : nullptr;
  }
  return true;
}

bool DecodeCopy(Decoding& d) {
  if (d.name() != "cp") return false;
  d.Require(d.Take("async"), "only cp.async is known");
  if (d.Take("commit_group")) {
    d.out.run = CloseCopies;
    return true;
  }
  if (d.Take("wait_all")) {
    d.out.number = -1;
    d.out.run = AwaitCopies;
    return true;
  }
  if (d.Take("wait_group")) {
    d.out.number = d.Integer(0);
    d.out.run = AwaitCopies;
    return true;
  }
  const bool cg = d.Take("cg");
  d.Require(cg || d.Take("ca"), "ca or cg?");
  d.Require((d.Take("shared") || d.Take("shared::cta")) && d.Take("global"), "only from global to shared memory");
  d.TakeOneOf({"L2::64B", "L2::128B", "L2::256B"});
  d.Address(1, d.out.b);
  d.out.added = d.out.number;
  d.out.number = 0;
  d.Address(0, d.out.a);
  const int64_t bytes = d.Integer(2);
  d.Require(bytes == 16 || (!cg && (bytes == 4 || bytes == 8)), "a size that there is not");
  d.out.access_bytes = static_cast<uint8_t>(bytes);
  if (d.operands() > 3) {
    const TextOperand& o = d.operand(3);
    if (o.is == TextOperand::Is::kRegister && o.reg.type.kind == Kind::kPredicate) {
      d.out.predicate = d.Predicate(3);
    } else {
      d.out.c = d.In(3, {Kind::kBits, 4});
    }
  }
  d.out.run = CopyBeside;
  return true;
}

}  // namespace

void Addresses(const Warp& warp, const Operand& base, int64_t added, uint64_t (&addresses)[kLanes]) {
  if (base.bytes == 4) {
    for (int lane = 0; lane < kLanes; ++lane) {
      addresses[lane] = static_cast<uint32_t>(warp.In<uint32_t>(base)[lane] + static_cast<uint32_t>(added));
    }
  } else {
    for (int lane = 0; lane < kLanes; ++lane)
      addresses[lane] = warp.In<uint64_t>(base)[lane] + static_cast<uint64_t>(added);
  }
}

bool Locate(Warp& warp, Space space, const uint64_t (&addresses)[kLanes], Mask mask, int64_t bytes, bool writes,
            std::byte* (&at)[kLanes]) {
  if (space == Space::kGlobal) {
    // Usually all lanes are within one allocation.
    uint64_t least = ~uint64_t{0}, most = 0, all = 0;
    ForLanes(mask, [&](int lane) {
      least = std::min(least, addresses[lane]), most = std::max(most, addresses[lane]), all |= addresses[lane];
    });
    if (all % static_cast<uint64_t>(bytes) == 0 && most - least < uint64_t{1} << 40) {
      std::byte* const first = warp.block().Global(least, static_cast<int64_t>(most - least) + bytes);
      if (first != nullptr) {
        ForLanes(mask, [&](int lane) { at[lane] = first + (addresses[lane] - least); });
        return true;
      }
    }
  }
  if (space == Space::kShared && !writes) {
    SharedMemory& shared = warp.block().shared();
    const int lane = shared.ReadByWarp(addresses, mask, bytes, warp.thread(0), at);
    if (lane >= 0) warp.Fail(lane, "does " + shared.error());
    return lane < 0;
  }
  for (Mask left = mask; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    const uint64_t address = addresses[lane];
    switch (space) {
      case Space::kShared:
        at[lane] = InShared(warp, lane, address, bytes, writes);
        break;
      case Space::kLocal:
        at[lane] = InLocal(warp, lane, address, bytes);
        break;
      case Space::kParam: {
        const std::span<const std::byte> parameters = warp.block().parameters();
        if (writes || address + static_cast<uint64_t>(bytes) > parameters.size()) {
          warp.Fail(lane, "does an access beyond the kernel's parameters");
          return false;
        }
        at[lane] = const_cast<std::byte*>(parameters.data()) + address;
        break;
      }
      case Space::kGeneric:
        at[lane] = (address & kWindow) == kSharedWindow  ? InShared(warp, lane, address - kSharedWindow, bytes, writes)
                   : (address & kWindow) == kLocalWindow ? InLocal(warp, lane, address - kLocalWindow, bytes)
                                                         : InGlobal(warp, lane, address, bytes);
        break;
      default:
        at[lane] = InGlobal(warp, lane, address, bytes);
    }
    if (at[lane] == nullptr) return false;
  }
  return true;
}

bool DecodeMemory(Decoding& d) {
  if (DecodeAccess(d) || DecodeCopy(d)) return true;
  if (d.name() == "cvta") {
    const bool to = d.Take("to");
    const Space space = TakeSpace(d);
    const Type type = d.TakeType();
    d.out.d = d.Out(0, type);
    d.out.a = d.In(1, type);
    const uint64_t window = space == Space::kShared ? kSharedWindow : space == Space::kLocal ? kLocalWindow : 0;
    d.out.number = static_cast<int64_t>(to ? 0 - window : window);
    d.out.run = AddToAddress;
    return true;
  }
  if (d.name() == "fence" && d.Take("proxy")) {
    d.Require(d.Take("async") || d.Take("async::generic"), "only .async is known");
    d.TakeOneOf({"shared::cta", "global", "shared::cluster"});
    d.out.run = FenceForUnits;
    return true;
  }
  return false;
}

}  // namespace temper::ptx
