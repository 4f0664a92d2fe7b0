// Matrix units of Hopper's warpgroups: wgmma (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"). A product
// is done when it is waited for, no sooner, from what lies in shared memory then; each warp does its 16 rows of the 64.
//
// An operand in shared memory is told by a descriptor: where it begins, two strides (all in units of 16 bytes), and a
// swizzle of 128, 64, 32 or no bytes, which exchanges 16-byte chunks by bits of the address itself. By the canonical
// layouts of the ISA, with W the swizzle's bytes (16 without), of bf16:
//   K-major   (row r, column k)  byte (r / 8) stride + (r % 8) W + 2 k, within W; without swizzle (k / 8) leading + ...
//   MN-major  (row r, column k)  byte (r / (W / 2)) leading + (k / 8) stride + (k % 8) W + 2 (r % (W / 2)); without
//             swizzle the strides change places
#include <cstring>

#include "ptx_block.h"
#include "ptx_decoding.h"
#include "ptx_floating_point.h"
#include "ptx_lanes.h"

namespace temper::ptx {
namespace {

constexpr int kWarpRows = 16, kDepth = 16;

// Instruction::number.
enum Flag : int64_t {
  kLeftInRegisters = 1 << 9,  // below it: columns
  kLeftByColumns = 1 << 10,
  kRightByRows = 1 << 11,
  kNegatesLeft = 1 << 12,
  kNegatesRight = 1 << 13,
  kColumns = (1 << 9) - 1,
};

struct Described {
  int64_t begin, leading, stride;
  int swizzle;  // bytes of a row of the pattern: 16 (none), 32, 64, 128
};

bool Read(Warp& warp, uint64_t descriptor, Described& o) {
  const auto field = [&](int bit) { return static_cast<int64_t>(descriptor >> bit & 0x3FFF) << 4; };
  const int mode = static_cast<int>(descriptor >> 62);
  o = {field(0), field(16), field(32), mode == 0 ? 16 : mode == 1 ? 128 : mode == 2 ? 64 : 32};
  if ((descriptor >> 49 & 7) != 0) {
    warp.Fail(0, "has an operand whose pattern begins in its middle (base offset)");
    return false;
  }
  return true;
}

// Element (row, k) of an operand [rows, 16], in f32. Chunks of 16 bytes are looked up once each.
bool Gather(Warp& warp, uint64_t descriptor, bool k_major, int first_row, int rows, float (*to)[kDepth]) {
  Described o;
  if (!Read(warp, descriptor, o)) return false;
  SharedMemory& shared = warp.block().shared();
  const int thread = warp.thread(0);
  const auto chunk = [&](int64_t byte) -> const std::byte* {
    // The pattern follows from the address: bits 4 and up are XORed with bits 7 and up.
    const int64_t address = (o.begin + byte) ^ (((o.begin + byte) >> 7 & (o.swizzle / 16 - 1)) << 4);
    const std::byte* const at = shared.ReadByUnits(address, 16, thread);
    if (at == nullptr) warp.Fail(0, "has " + shared.error());
    return at;
  };
  const int64_t w = o.swizzle;
  for (int a = 0; a < (k_major ? rows : kDepth); ++a) {
    for (int c = 0; c < (k_major ? kDepth : rows) / 8; ++c) {
      int64_t byte = 0;
      if (k_major) {
        const int row = first_row + a;
        byte = row / 8 * o.stride + row % 8 * w + (w == 16 ? c * o.leading : 16 * c);
      } else {
        const int row = first_row + 8 * c, per = static_cast<int>(w / 2);
        byte = w == 16 ? row / 8 * o.stride + a / 8 * o.leading + a % 8 * 16
                       : row / per * o.leading + a / 8 * o.stride + a % 8 * w + row % per * 2;
      }
      const std::byte* const at = chunk(byte);
      if (at == nullptr) return false;
      for (int e = 0; e < 8; ++e) {
        uint16_t bits;
        std::memcpy(&bits, at + 2 * e, 2);
        if (k_major) {
          to[a][8 * c + e] = FromBFloat(bits);
        } else {
          to[8 * c + e][a] = FromBFloat(bits);
        }
      }
    }
  }
  return true;
}

bool Gather(Warp& warp, const Warp::Product& product, float (&left)[kWarpRows][kDepth], float (*right)[kDepth]) {
  const int64_t flags = product.instruction->number;
  const auto columns = static_cast<int>(flags & kColumns);
  if (flags & kLeftInRegisters) {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int r = 0; r < 4; ++r) {
        const uint32_t word = product.a[static_cast<size_t>(4 * lane + r)];
        for (int h = 0; h < 2; ++h) {
          left[lane / 4 + 8 * (r % 2)][2 * (lane % 4) + h + 8 * (r / 2)] =
              FromBFloat(static_cast<uint16_t>(word >> 16 * h));
        }
      }
    }
  } else if (!Gather(warp, product.left, !(flags & kLeftByColumns), warp.index() % 4 * kWarpRows, kWarpRows, left)) {
    return false;
  }
  return Gather(warp, product.right, !(flags & kRightByRows), 0, columns, right);
}

void Finish(Warp& warp, const Warp::Product& product) {
  const int64_t flags = product.instruction->number;
  const auto columns = static_cast<int>(flags & kColumns);
  float left[kWarpRows][kDepth], right[256][kDepth], by_depth[kDepth][256];
  if (!Gather(warp, product, left, right)) return;
  for (int c = 0; c < columns; ++c) {
    for (int k = 0; k < kDepth; ++k) by_depth[k][c] = right[c][k];
  }
  const double sign = ((flags & kNegatesLeft) != 0) != ((flags & kNegatesRight) != 0) ? -1.0 : 1.0;
  for (int row = 0; row < kWarpRows; ++row) {
    for (int c = 0; c < columns; c += 8) {
      double sum[8] = {};  // side by side: the compiler makes vectors of them
      for (int k = 0; k < kDepth; ++k) {
        for (int e = 0; e < 8; ++e) sum[e] += static_cast<double>(left[row][k] * by_depth[k][c + e]);
      }
      for (int e = 0; e < 8; ++e) {
        const int r = 4 * (c / 8) + 2 * (row / 8) + e % 2, lane = 4 * (row % 8) + e / 2;
        float& to = warp.Out<float>(product.instruction->many[static_cast<size_t>(r)])[lane];
        to = CutOff((product.add ? static_cast<double>(to) : 0) + sign * sum[e]);
      }
    }
  }
}

size_t Slot(const Operand& o) {
  return static_cast<size_t>(o.at / 64);
}

void Begin(Warp& warp, const Instruction& i, Mask) {
  Block& block = warp.block();
  const auto columns = static_cast<size_t>(i.number & kColumns);
  const bool left_in_registers = (i.number & kLeftInRegisters) != 0;
  if ((block.threads() / 128 * 4) <= warp.index()) return warp.Fail(0, "is of no whole warpgroup");
  const auto same = [&](const Operand& o) -> uint64_t {
    const uint64_t x = warp.In<uint64_t>(o)[0];
    for (int lane = 1; lane < kLanes; ++lane) {
      if (warp.In<uint64_t>(o)[lane] != x) warp.Fail(lane, "describes another operand than lane 0");
    }
    return x;
  };
  Warp::Product product{&i, left_in_registers ? 0 : same(i.a), same(i.b), {}, false, warp.product_groups, 0};
  const Mask add = i.predicate_negated ? ~warp.Predicate(i.predicate) : warp.Predicate(i.predicate);
  if (add != 0 && add != kAllLanes) return warp.Fail(0, "adds to the sums of some lanes only");
  product.add = add != 0;
  // All warps of the group have the same products in the same order.
  std::vector<Block::Product>& all = block.products(warp.index() / 4);
  const auto ordinal = static_cast<size_t>(warp.products_begun++);
  const Block::Product mine{i.line, product.left, product.right};
  if (ordinal == all.size()) {
    all.push_back(mine);
  } else if (all[ordinal].line != mine.line || all[ordinal].left != mine.left || all[ordinal].right != mine.right) {
    return warp.Fail(0, "has another product than another warp of its group, which has that of line " +
                            std::to_string(all[ordinal].line));
  }
  // Results of arithmetic must be fenced; sums of products of the same shape follow each other without.
  const auto fenced = [&](const Operand& o) {
    if (warp.written_at[Slot(o)] <= warp.fenced_at) return;
    warp.Fail(0, "has a register that was written without wgmma.fence after it");
  };
  for (size_t k = 0; k < columns / 2; ++k) fenced(i.many[k]);
  if (left_in_registers) {
    product.a.resize(4 * kLanes);
    for (size_t r = 0; r < 4; ++r) {
      const Operand& o = i.many[columns / 2 + r];
      fenced(o);
      if (warp.summing[Slot(o)] > 0) warp.Fail(0, "reads a sum that has not been waited for");
      ++warp.reading[Slot(o)];
      for (int lane = 0; lane < kLanes; ++lane)
        product.a[static_cast<size_t>(4 * lane) + r] = warp.In<uint32_t>(o)[lane];
    }
  }
  for (const Warp::Product& other : warp.products) {
    // Registers that two products share must be exactly the same.
    bool shares = false, equal = (other.instruction->number & kColumns) == static_cast<int64_t>(columns);
    for (size_t k = 0; k < columns / 2; ++k) shares |= warp.summing[Slot(i.many[k])] > 0;
    for (size_t k = 0; equal && k < columns / 2; ++k) equal = other.instruction->many[k].at == i.many[k].at;
    if (shares && !equal) {
      bool in_other = false;
      for (size_t k = 0; k < columns / 2; ++k) {
        for (size_t j = 0; j < static_cast<size_t>((other.instruction->number & kColumns) / 2); ++j) {
          in_other |= other.instruction->many[j].at == i.many[k].at;
        }
      }
      if (in_other) return warp.Fail(0, "shares some sums with a product under way");
    }
  }
  if (block.failed()) return;
  // Wrong operands show where the product is issued.
  float left[kWarpRows][kDepth], right[256][kDepth];
  if (!Gather(warp, product, left, right)) return;
  for (size_t k = 0; k < columns / 2; ++k) ++warp.summing[Slot(i.many[k])];
  warp.products.push_back(std::move(product));
}

void FenceRegisters(Warp& warp, const Instruction&, Mask) {
  warp.fenced_at = warp.time;
}

void CloseProducts(Warp& warp, const Instruction&, Mask) {
  ++warp.product_groups;
}

void AwaitProducts(Warp& warp, const Instruction& i, Mask) {
  size_t done = 0;
  for (; done < warp.products.size(); ++done) {
    const Warp::Product& product = warp.products[done];
    if (int64_t{product.group} >= int64_t{warp.product_groups} - i.number) break;
    const auto columns = static_cast<size_t>(product.instruction->number & kColumns);
    Finish(warp, product);
    if (warp.block().failed()) return;
    for (size_t k = 0; k < columns / 2; ++k) --warp.summing[Slot(product.instruction->many[k])];
    for (size_t k = columns / 2; k < product.instruction->many.size(); ++k)
      --warp.reading[Slot(product.instruction->many[k])];
  }
  warp.products.erase(warp.products.begin(), warp.products.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace

bool DecodeWarpgroupUnits(Decoding& d) {
  if (d.name() != "wgmma") return false;
  d.out.flow = Flow::kTogether;
  d.out.asynchronous = true;
  const std::string_view what = d.TakeOneOf({"fence", "commit_group", "wait_group", "mma_async"});
  d.Require(d.Take("sync") && d.Take("aligned"), "only .sync.aligned is known");
  if (what == "fence") d.out.run = FenceRegisters;
  if (what == "commit_group") d.out.run = CloseProducts;
  if (what == "wait_group") {
    d.out.number = d.Integer(0);
    d.out.run = AwaitProducts;
  }
  if (what != "mma_async") return true;
  int columns = 0;
  for (int n = 8; n <= 256; n += 8) {
    if (d.Take("m64n" + std::to_string(n) + "k16")) columns = n;
  }
  d.Require(columns > 0, "another shape");
  const Type f32 = {Kind::kFloat, 4}, bf16 = {Kind::kBFloat, 2}, word = {Kind::kBits, 4}, wide = {Kind::kBits, 8};
  const Type sums = d.TakeType(), left = d.TakeType(), right = d.TakeType();
  d.Require(sums == f32 && left == bf16 && right == bf16, "only f32.bf16.bf16 is known");
  d.Elements(0, f32, true);
  d.Require(d.elements() == columns / 2, "another number of sums");
  const bool left_in_registers = d.operand(1).is == TextOperand::Is::kVector;
  if (left_in_registers) {
    d.Elements(1, word, false);
    d.Require(d.elements() == columns / 2 + 4, "another number of left operands");
  } else {
    d.out.a = d.In(1, wide);
  }
  d.out.b = d.In(2, wide);
  d.out.predicate = d.Predicate(3);
  const int64_t scale_left = d.Integer(4), scale_right = d.Integer(5);
  d.Require((scale_left == 1 || scale_left == -1) && (scale_right == 1 || scale_right == -1), "factors are 1 or -1");
  // An operand in registers has no transposition.
  d.Require(d.operands() == (left_in_registers ? 7 : 8), "another number of operands");
  const bool left_by_columns = !left_in_registers && d.Integer(6) == 1;
  const bool right_by_rows = d.Integer(left_in_registers ? 6 : 7) == 1;
  d.out.number = columns | (left_in_registers ? int64_t{kLeftInRegisters} : 0) |
                 (left_by_columns ? int64_t{kLeftByColumns} : 0) | (right_by_rows ? int64_t{kRightByRows} : 0) |
                 (scale_left < 0 ? int64_t{kNegatesLeft} : 0) | (scale_right < 0 ? int64_t{kNegatesRight} : 0);
  d.out.run = Begin;
  return true;
}

}  // namespace temper::ptx
