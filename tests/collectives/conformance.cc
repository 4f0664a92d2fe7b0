#include "conformance.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "graph/named_ops.h"
#include "graph/rule.h"
#include "lanes.h"
#include "transfers.h"

namespace temper::collectives {
namespace {

enum class Cut { kEven, kUneven, kSomeEmpty };

struct Case {
  Op op;
  DType dtype = DType::kF32;
  std::vector<Shape> wholes;
  int dim = 0;
  Cut cut = Cut::kEven;
  bool acc = false, in_place = false;
  int threads = 1;
};

std::string ToString(const Case& c) {
  std::string text =
      fmt::format("{} {} dim {} cut {}{}{} threads {}:", ToString(c.op), ToString(c.dtype), c.dim,
                  static_cast<int>(c.cut), c.acc ? " acc" : "", c.in_place ? " in place" : "", c.threads);
  for (const Shape& s : c.wholes) text += " " + s.ToString();
  return text;
}

// How `total` is split over n members.
std::vector<int64_t> Deal(int64_t total, int n, Cut cut) {
  std::vector<int64_t> sizes;
  if (cut == Cut::kEven) {
    for (int m = 0; m < n; ++m) sizes.push_back(PartOf(total, n, m).count);
    return sizes;
  }
  // In proportion to 1, 2, 3, ...; or every second member has none.
  std::vector<int64_t> weights;
  int64_t sum = 0, begin = 0, weight = 0;
  for (int m = 0; m < n; ++m) {
    weights.push_back(cut == Cut::kUneven ? m + 1 : m % 2);
    sum += weights.back();
  }
  if (sum == 0) weights[0] = sum = 1;
  for (int m = 0; m < n; ++m) {
    weight += weights[static_cast<size_t>(m)];
    const int64_t end = total * weight / sum;
    sizes.push_back(end - begin);
    begin = end;
  }
  return sizes;
}

// Element `i` of the tensor number `tensor` that `rank` contributes
// to case `number`: numbers whose sum depends on the order.
double Element(int number, int rank, int tensor, int64_t i) {
  // splitmix64's mixing of a counter that is unique to the element.
  uint64_t x = static_cast<uint64_t>(i) + (static_cast<uint64_t>(number * 5000 + rank) << 40) +
               (static_cast<uint64_t>(tensor) << 24) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  const double unit = static_cast<double>(x >> 40) * 0x1p-24 - 0.5;
  constexpr double kScales[12] = {0x1p-6, 0x1p-5, 0x1p-4, 0x1p-3, 0x1p-2, 0x1p-1, 1, 2, 4, 8, 16, 32};
  return unit * kScales[x % 12];
}

void Put(DType dtype, std::byte* memory, int64_t i, double x) {
  switch (dtype) {
    case DType::kF32:
      reinterpret_cast<float*>(memory)[i] = static_cast<float>(x);
      return;
    case DType::kBF16:
      reinterpret_cast<bf16*>(memory)[i] = ToBF16(static_cast<float>(x));
      return;
    case DType::kF64:
      reinterpret_cast<double*>(memory)[i] = x * (1 + 0x1p-40);
      return;
    case DType::kI32:
      reinterpret_cast<int32_t*>(memory)[i] = static_cast<int32_t>(x * 1e6);
      return;
    default:
      TEMPER_CHECK(false) << ToString(dtype);
  }
}

// The sum of one element's terms by the contract: each host adds up its terms in the order of ranks, then the hosts'
// sums are added in order, then acc; rounded at the end.
template <class Wide, class Load>
Wide SumOfHosts(const std::vector<std::vector<const std::byte*>>& hosts, const std::byte* acc, const Load& load) {
  Wide sum = 0;
  for (size_t h = 0; h < hosts.size(); ++h) {
    Wide here = load(hosts[h][0]);
    for (size_t k = 1; k < hosts[h].size(); ++k) here += load(hosts[h][k]);
    sum = h == 0 ? here : sum + here;
  }
  return acc == nullptr ? sum : sum + load(acc);
}
void PutSum(DType dtype, std::byte* memory, int64_t i, const std::vector<std::vector<const std::byte*>>& hosts,
            const std::byte* acc) {
  if (dtype == DType::kF64) {
    reinterpret_cast<double*>(memory)[i] =
        SumOfHosts<double>(hosts, acc, [](const std::byte* p) { return *reinterpret_cast<const double*>(p); });
    return;
  }
  const float sum = SumOfHosts<float>(hosts, acc, [&](const std::byte* p) {
    return dtype == DType::kF32 ? *reinterpret_cast<const float*>(p) : ToFloat(*reinterpret_cast<const bf16*>(p));
  });
  if (dtype == DType::kF32) {
    reinterpret_cast<float*>(memory)[i] = sum;
  } else {
    reinterpret_cast<bf16*>(memory)[i] = ToBF16(sum);
  }
}

// A tensor on the host, whole or part.
struct Array {
  TensorType type;
  std::vector<std::byte> bytes;
  explicit Array(const TensorType& t) : type(t), bytes(static_cast<size_t>(t.bytes().v)) {}
  int64_t size() const { return SizeOf(type.dtype); }
};

// The slice [begin, begin + count) of dim `dim`.
Array Slice(const Array& whole, int dim, int64_t begin, int64_t count) {
  TensorType type = whole.type;
  type.shape.set_dim(dim, count);
  Array part(type);
  int64_t outer = 1, inner = 1;
  for (int d = 0; d < whole.type.shape.rank(); ++d) {
    if (d < dim) outer *= whole.type.shape[d];
    if (d > dim) inner *= whole.type.shape[d];
  }
  int64_t to = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t k = begin; k < begin + count; ++k) {
      for (int64_t i = 0; i < inner; ++i, ++to) {
        const int64_t from = (o * whole.type.shape[dim] + k) * inner + i;
        std::memcpy(&part.bytes[static_cast<size_t>(to * part.size())],
                    &whole.bytes[static_cast<size_t>(from * part.size())], static_cast<size_t>(part.size()));
      }
    }
  }
  return part;
}

Array Random(const TensorType& type, int number, int rank, int tensor) {
  Array a(type);
  for (int64_t i = 0; i < type.shape.elements(); ++i) {
    Put(type.dtype, a.bytes.data(), i, Element(number, rank, tensor, i));
  }
  return a;
}

// Memory of the arena, each piece between guards.
class Pieces {
 public:
  explicit Pieces(std::span<std::byte> arena) : arena_(arena) {}
  void Reset() { used_ = 0; }
  std::byte* Take(Bytes size) {
    std::memset(arena_.data() + used_, 0x5A, kGuard);
    std::byte* const piece = arena_.data() + used_ + kGuard;
    used_ += kGuard + static_cast<size_t>(AlignUp(size, 64).v);
    TEMPER_CHECK(used_ + kGuard <= arena_.size()) << "the arena is too small";
    std::memset(piece, 0x5A, static_cast<size_t>(AlignUp(size, 64).v) + kGuard);
    ends_.push_back({piece, size.v});
    return piece;
  }
  bool GuardsHold() {
    bool hold = true;
    for (const auto& [piece, size] : ends_) {
      for (int64_t i = 1; i <= static_cast<int64_t>(kGuard); ++i) {
        hold = hold && piece[-i] == std::byte{0x5A} && piece[size + i - 1] == std::byte{0x5A};
      }
    }
    ends_.clear();
    return hold;
  }

 private:
  static constexpr size_t kGuard = 64;
  const std::span<std::byte> arena_;
  size_t used_ = 0;
  std::vector<std::pair<std::byte*, int64_t>> ends_;
};

class Conformance {
 public:
  Conformance(Communicator& communicator, int ranks_per_host, bool acc_apart)
      : communicator_(communicator), ranks_per_host_(ranks_per_host), acc_apart_(acc_apart) {}

  std::vector<std::string> Run() {
    auto arena = communicator_.AllocateArena(MiB(48));
    if (!arena.ok()) return {arena.status().message()};
    arena_ = *arena;
    for (const Mesh& mesh : Meshes()) {
      const auto table = communicator_.Collectives(mesh);
      const std::vector<Axis> axes = mesh.axes().axes();
      for (uint32_t bits = 1; bits < 1u << axes.size(); ++bits) {
        AxisSet group;
        for (size_t i = 0; i < axes.size(); ++i) {
          if (bits >> i & 1) group |= axes[i];
        }
        for (const Case& c : Cases()) {
          if (acc_apart_ && c.acc && c.dtype == DType::kF64) continue;
          // Of meshes of two axes, only groups of ranks that are not neighbours, side by side, get the large tensors.
          const bool large = c.wholes[0].elements() > 1'000'000;
          if (large && axes.size() > 1 && group != AxisSet(axes[0])) continue;
          Check(mesh, group, *table, c);
          if (stop_) return failures_;
        }
        CheckExchange(mesh, group);
      }
    }
    CheckAgreement();
    CheckBytesSent();
    return failures_;
  }

  uint64_t Digest() {
    auto arena = communicator_.AllocateArena(MiB(48));
    TEMPER_CHECK(arena.ok()) << arena.status().message();
    arena_ = *arena;
    Mesh mesh;
    mesh.set_size(Axis::kDp, communicator_.size());
    const auto table = communicator_.Collectives(mesh);
    std::string text;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
      for (const int64_t n : {int64_t{7}, int64_t{100'003}}) {
        const Case c{.op = Op::kAllReduce, .dtype = dtype, .wholes = {{n}}, .threads = 2};
        Check(mesh, Axis::kDp, *table, c);
        text.append(reinterpret_cast<const char*>(last_output_.data()), last_output_.size());
      }
    }
    for (const std::string& f : failures_) text += f;
    return HashName(text);
  }

 private:
  std::vector<Mesh> Meshes() const {
    const int n = communicator_.size();
    std::vector<Mesh> meshes(1);
    meshes[0].set_size(Axis::kFsdp, n);
    for (int k = 2; k < n; ++k) {
      if (n % k != 0) continue;
      meshes.emplace_back();
      meshes.back().set_size(Axis::kDp, n / k);
      meshes.back().set_size(Axis::kTp, k);
    }
    return meshes;
  }

  static std::vector<Case> Cases() {
    std::vector<Case> cases;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64, DType::kI32}) {
      for (const Cut cut : {Cut::kEven, Cut::kUneven, Cut::kSomeEmpty}) {
        for (const int dim : {0, 1}) {
          cases.push_back({.op = Op::kAllGather, .dtype = dtype, .wholes = {{60, 17}}, .dim = dim, .cut = cut});
          if (dtype == DType::kI32) continue;
          for (const bool acc : {false, true}) {
            cases.push_back({.op = Op::kReduceScatter,
                             .dtype = dtype,
                             .wholes = {{13, 120}},
                             .dim = dim,
                             .cut = cut,
                             .acc = acc,
                             .in_place = acc});
          }
        }
      }
      if (dtype == DType::kI32) continue;
      for (const bool in_place : {false, true}) {
        cases.push_back({.op = Op::kAllReduce, .dtype = dtype, .wholes = {{5}, {1}}, .in_place = in_place});
        cases.push_back({.op = Op::kAllReduce, .dtype = dtype, .wholes = {{40, 301}, {3}, {1}}, .in_place = in_place});
      }
    }
    const std::vector<Shape> several = {{8, 33}, {1, 9}, {0, 5}, {64, 1}, {31, 2}};
    for (const Cut cut : {Cut::kEven, Cut::kUneven, Cut::kSomeEmpty}) {
      cases.push_back({.op = Op::kAllGather, .dtype = DType::kBF16, .wholes = several, .cut = cut});
      cases.push_back({.op = Op::kReduceScatter, .wholes = several, .cut = cut, .acc = true});
      cases.push_back({.op = Op::kReduceScatter, .wholes = several, .cut = cut, .acc = true, .in_place = true});
      // Large enough for teams of threads and for messages in pieces.
      cases.push_back({.op = Op::kAllGather, .wholes = {{503, 267}, {77}}, .cut = cut, .threads = 2});
      cases.push_back({.op = Op::kReduceScatter, .wholes = {{503, 267}, {77}}, .cut = cut, .threads = 2});
      cases.push_back({.op = Op::kAllGather, .wholes = {{267, 503}}, .dim = 1, .cut = cut, .threads = 2});
      cases.push_back({.op = Op::kReduceScatter, .wholes = {{267, 503}}, .dim = 1, .cut = cut, .threads = 2});
      cases.push_back({.op = Op::kAllGather, .wholes = {{7, 5, 6, 3}}, .dim = 2, .cut = cut});
      cases.push_back({.op = Op::kReduceScatter, .wholes = {{7, 5, 6, 3}}, .dim = 2, .cut = cut});
    }
    // Large enough to be written around the caches.
    cases.push_back({.op = Op::kAllGather, .dtype = DType::kBF16, .wholes = {{2099, 1031}}, .cut = Cut::kUneven});
    cases.push_back({.op = Op::kAllGather, .wholes = {{1031, 1033}}, .dim = 1, .cut = Cut::kUneven});
    cases.push_back({.op = Op::kAllReduce, .wholes = {{1031, 1033}}, .in_place = true});
    cases.push_back({.op = Op::kAllReduce, .wholes = {{503, 267}, {77}, {0}}, .in_place = true, .threads = 2});
    cases.push_back({.op = Op::kAllReduce, .dtype = DType::kF64, .wholes = std::vector<Shape>(1100, Shape{1})});
    cases.push_back({.op = Op::kAllGather, .wholes = std::vector<Shape>(600, Shape{5, 3})});
    cases.push_back({.op = Op::kAllReduce, .wholes = {{0}}});
    cases.push_back({.op = Op::kShift, .dtype = DType::kBF16, .wholes = {{9, 31}, {0, 5}, {3}}});
    cases.push_back({.op = Op::kShift, .dtype = DType::kI32, .wholes = {{60, 17}}, .threads = 2});
    // Written around the caches, in several messages.
    cases.push_back({.op = Op::kShift, .wholes = {{1031, 1033}, {1}}, .threads = 2});
    cases.push_back({.op = Op::kShift, .dtype = DType::kBF16, .wholes = std::vector<Shape>(600, Shape{5, 3})});
    cases.push_back({.op = Op::kBroadcast, .dtype = DType::kBF16, .wholes = {{9, 31}}});
    cases.push_back({.op = Op::kBroadcast, .wholes = {{9, 31}}, .in_place = true});
    return cases;
  }

  void Fail(const std::string& what) {
    if (failures_.size() < 20) failures_.push_back(what);
  }

  void Check(const Mesh& mesh, AxisSet axes, KernelTable& table, const Case& c) {
    const int rank = communicator_.rank();
    const std::vector<int> group = mesh.Group(axes, rank);
    const int n = static_cast<int>(group.size()), me = mesh.IndexIn(axes, rank);
    if (n < 2) return;
    const int number = ++number_;
    const size_t tensors = c.wholes.size();

    // Hosts in the order of their first members.
    std::vector<size_t> host_of;
    std::vector<int> hosts;
    for (const int member : group) {
      const int host = ranks_per_host_ > 0 ? member / ranks_per_host_ : 0;
      const auto known = std::find(hosts.begin(), hosts.end(), host);
      host_of.push_back(static_cast<size_t>(known - hosts.begin()));
      if (known == hosts.end()) hosts.push_back(host);
    }
    std::vector<std::vector<const std::byte*>> host_terms(hosts.size());

    // The inputs of all members, and the expected outputs of this one.
    std::vector<std::vector<int64_t>> dealt(tensors);
    std::vector<Array> inputs, accs, expected;
    for (size_t t = 0; t < tensors; ++t) {
      const TensorType whole{c.dtype, c.wholes[t]};
      const int tensor = static_cast<int>(t);
      std::vector<int64_t> begins = {0};
      if (c.op == Op::kAllGather || c.op == Op::kReduceScatter) {
        dealt[t] = Deal(whole.shape[c.dim], n, c.cut);
        for (const int64_t count : dealt[t]) begins.push_back(begins.back() + count);
      }
      const auto i = static_cast<size_t>(me);
      if (c.op == Op::kAllGather) {
        const Array all = Random(whole, number, mesh.Group(axes, rank)[0], tensor);
        inputs.push_back(Slice(all, c.dim, begins[i], dealt[t][i]));
        expected.push_back(all);
        continue;
      }
      if (c.op == Op::kBroadcast) {
        inputs.push_back(Random(whole, number, 0, tensor));
        expected.push_back(inputs.back());
        continue;
      }
      if (c.op == Op::kShift) {
        const int before = group[static_cast<size_t>((me + n - 1) % n)];
        inputs.push_back(Random(whole, number, rank, tensor));
        expected.push_back(Random(whole, number, before, tensor));
        continue;
      }
      std::vector<Array> terms;
      for (const int member : group) terms.push_back(Random(whole, number, member, tensor));
      inputs.push_back(terms[i]);
      Array acc(whole);
      if (c.acc) acc = Random(whole, number, 1000 + rank, tensor);
      Array sum(whole);
      for (int64_t e = 0; e < whole.shape.elements(); ++e) {
        const auto at = static_cast<size_t>(e * sum.size());
        for (auto& host : host_terms) host.clear();
        for (size_t m = 0; m < terms.size(); ++m) host_terms[host_of[m]].push_back(&terms[m].bytes[at]);
        if (c.acc && acc_apart_) {
          PutSum(c.dtype, sum.bytes.data(), e, host_terms, nullptr);
          PutSum(c.dtype, sum.bytes.data(), e, {{&sum.bytes[at]}}, &acc.bytes[at]);
        } else {
          PutSum(c.dtype, sum.bytes.data(), e, host_terms, c.acc ? &acc.bytes[at] : nullptr);
        }
      }
      if (c.op == Op::kAllReduce) {
        expected.push_back(sum);
      } else {
        expected.push_back(Slice(sum, c.dim, begins[i], dealt[t][i]));
        if (c.acc) accs.push_back(Slice(acc, c.dim, begins[i], dealt[t][i]));
      }
    }

    KernelSpec spec{.op = c.op, .attributes = {{"axes", axes.ToString()}, {"ranks", int64_t{n}}}, .threads = c.threads};
    for (const Array& a : inputs) spec.inputs.push_back(a.type);
    for (const Array& a : accs) spec.inputs.push_back(a.type);
    for (const Array& a : expected) spec.outputs.push_back(a.type);
    if (c.op == Op::kAllGather || c.op == Op::kReduceScatter) {
      std::vector<double> sizes;
      for (const Array& a : expected) sizes.push_back(static_cast<double>(a.type.shape[c.dim]));
      spec.attributes.Set("dim", int64_t{c.dim});
      spec.attributes.Set("sizes", sizes);
    }
    if (c.op == Op::kReduceScatter) spec.attributes.Set("acc", int64_t{c.acc});
    const auto inferred = InferTypes(spec.op, spec.inputs, spec.attributes);
    TEMPER_CHECK(inferred.ok() && *inferred == spec.outputs) << "a case that the rule refuses: " << ToString(c);
    sent_ += CostOfSpec(spec);

    auto kernel = table.Make(spec);
    if (!kernel.ok()) {
      Fail(ToString(c) + ": " + kernel.status().message());
      stop_ = true;
      return;
    }
    // Twice, like steps: leftovers of a call must not affect the next.
    for (int round = 0; round < 2; ++round) {
      Pieces pieces(arena_);
      std::vector<std::byte*> in, out;
      const auto load = [&](const Array& a) {
        in.push_back(pieces.Take(a.type.bytes()));
        if (!a.bytes.empty()) std::memcpy(in.back(), a.bytes.data(), a.bytes.size());
      };
      for (const Array& a : inputs) load(a);
      for (const Array& a : accs) load(a);
      for (size_t t = 0; t < expected.size(); ++t) {
        const bool over_acc = c.in_place && c.op == Op::kReduceScatter;
        out.push_back(over_acc ? in[inputs.size() + t] : (c.in_place ? in[t] : pieces.Take(expected[t].type.bytes())));
      }
      const Status status = (*kernel)->Run({.inputs = in.data(), .outputs = out.data()});
      if (!status.ok()) {
        Fail(ToString(c) + ": " + status.message());
        stop_ = true;
        return;
      }
      if (round > 0) sent_ += CostOfSpec(spec);
      const std::string where =
          fmt::format("mesh {} over {} rank {}: {}", mesh.ToString(), axes.ToString(), rank, ToString(c));
      for (size_t t = 0; t < expected.size(); ++t) {
        const Array& want = expected[t];
        if (!want.bytes.empty() && std::memcmp(out[t], want.bytes.data(), want.bytes.size()) != 0) {
          size_t at = 0;
          while (out[t][at] == want.bytes[at]) ++at;
          Fail(fmt::format("{}: tensor {} differs first at element {}", where, t,
                           static_cast<int64_t>(at) / want.size()));
        }
        const bool kept = !c.in_place || c.op == Op::kReduceScatter;
        if (kept && !inputs[t].bytes.empty() && std::memcmp(in[t], inputs[t].bytes.data(), inputs[t].bytes.size()) != 0)
          Fail(where + ": an input was changed");
      }
      if (!pieces.GuardsHold()) Fail(where + ": wrote outside the operands");
      last_output_ = expected.back().bytes;
      if (!last_output_.empty()) std::memcpy(last_output_.data(), out.back(), last_output_.size());
    }
  }

  static int64_t CostOfSpec(const KernelSpec& spec) {
    return RuleOf(spec.op).cost(spec.inputs, spec.outputs, spec.attributes).sent.v;
  }

  void CheckExchange(const Mesh& mesh, AxisSet axes) {
    auto exchange = communicator_.MakeExchange(mesh, axes);
    if (!exchange.ok()) return Fail("exchange: " + exchange.status().message());
    const std::vector<int> group = mesh.Group(axes, communicator_.rank());
    if ((*exchange)->size() != static_cast<int>(group.size()) ||
        (*exchange)->index() != mesh.IndexIn(axes, communicator_.rank())) {
      Fail("exchange: its group is another");
    }
    for (const size_t count : {size_t{3}, size_t{0}, size_t{20'000}, size_t{1}}) {
      std::vector<float> mine(count), all(count * group.size());
      for (size_t i = 0; i < count; ++i)
        mine[i] = static_cast<float>(communicator_.rank() * 100'000) + static_cast<float>(i);
      const Status status = (*exchange)->AllGather(mine, all);
      if (!status.ok()) return Fail("exchange: " + status.message());
      sent_ += static_cast<int64_t>(count * sizeof(float) * (group.size() - 1));
      for (size_t m = 0; m < group.size(); ++m) {
        for (size_t i = 0; i < count; ++i) {
          if (all[m * count + i] != static_cast<float>(group[m] * 100'000) + static_cast<float>(i)) {
            return Fail(fmt::format("exchange of {}: member {} gave {}", count, m, all[m * count + i]));
          }
        }
      }
    }
  }

  void CheckAgreement() {
    const int n = communicator_.size(), rank = communicator_.rank();
    const auto ok = [&](const Status& status) {
      if (!status.ok()) Fail(status.message());
      return status.ok();
    };
    for (const size_t count : {size_t{1}, size_t{9000}}) {
      std::vector<double> sums(count), most(count);
      for (size_t i = 0; i < count; ++i) {
        sums[i] = Element(1, rank, 0, static_cast<int64_t>(i));
        most[i] = Element(2, rank, 0, static_cast<int64_t>(i));
      }
      if (!ok(communicator_.AllReduceSum(sums)) || !ok(communicator_.AllReduceMax(most))) return;
      for (size_t i = 0; i < count; ++i) {
        double sum = 0, largest = -INFINITY;
        for (int r = 0; r < n; ++r) {
          sum = r == 0 ? Element(1, r, 0, static_cast<int64_t>(i)) : sum + Element(1, r, 0, static_cast<int64_t>(i));
          largest = std::max(largest, Element(2, r, 0, static_cast<int64_t>(i)));
        }
        if (sums[i] != sum) Fail(fmt::format("sum {} of {}: {} instead of {}", i, count, sums[i], sum));
        if (most[i] != largest) Fail(fmt::format("maximum {} of {}", i, count));
      }
    }
    double nan = rank == n / 2 ? NAN : rank;
    if (ok(communicator_.AllReduceMax({&nan, 1})) && !std::isnan(nan)) Fail("a maximum dropped a NaN");
    for (const size_t count : {size_t{0}, size_t{5}, size_t{100'000}}) {
      for (int root = 0; root < n; ++root) {
        std::vector<std::byte> bytes(count, std::byte{0});
        for (size_t i = 0; i < count && rank == root; ++i)
          bytes[i] = static_cast<std::byte>(i * 7 + static_cast<size_t>(root));
        if (!ok(communicator_.Broadcast(bytes, root))) return;
        for (size_t i = 0; i < count; ++i) {
          if (bytes[i] != static_cast<std::byte>(i * 7 + static_cast<size_t>(root))) {
            return Fail(fmt::format("broadcast of {} bytes from {}", count, root));
          }
        }
      }
    }
    ok(communicator_.Barrier());
  }

  void CheckBytesSent() {
    if (communicator_.bytes_sent().v != sent_) {
      Fail(fmt::format("{} bytes sent; the ops' rules say {}", communicator_.bytes_sent().v, sent_));
    }
  }

  Communicator& communicator_;
  const int ranks_per_host_;
  const bool acc_apart_;
  std::span<std::byte> arena_;
  std::vector<std::string> failures_;
  std::vector<std::byte> last_output_;
  int number_ = 0;
  int64_t sent_ = 0;
  bool stop_ = false;
};

}  // namespace

std::vector<std::string> CheckConformance(Communicator& communicator, int ranks_per_host, bool acc_apart) {
  std::vector<std::string> failures = Conformance(communicator, ranks_per_host, acc_apart).Run();
  if (failures.empty()) failures = CheckTransfers(communicator);
  if (failures.empty()) failures = CheckLanes(communicator);
  return failures;
}

uint64_t DigestOfSums(Communicator& communicator, int ranks_per_host) {
  return Conformance(communicator, ranks_per_host, /*acc_apart=*/false).Digest();
}

}  // namespace temper::collectives
