// A stand-in for the cuDNN functions that are used, for tests: it computes what a graph of operations means, one
// operation after the other, in the host's memory and at once. Missing data (rows, columns and terms beyond a
// document's end) is NaN, so that a graph that lets it through shows. It is as strict as cuDNN was observed to be: the
// first engine that it proposes is not available, the backward pass is engine 5 with the choices of its version, and
// addresses must be given for all tensors in memory, and for no others.
//
// Heads of 48 elements have no engine; those of 112 need a GiB of workspace; with 7 heads a run fails.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backend/gpu/attention/cudnn_api.h"
#include "tensor/dtype.h"

namespace {

using namespace temper;
using namespace temper::gpu;

constexpr int kSuccess = 0, kBadParameter = 2000, kNotSupported = 3000, kFailed = 5000;
constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();

int Version() {
  const char* const pretended = std::getenv("TEST_CUDNN_VERSION");
  return pretended != nullptr ? std::atoi(pretended) : 92600;
}

struct Descriptor {
  CudnnKind kind;
  bool finalized = false;
  std::map<CudnnAttribute, std::vector<int64_t>> numbers;  // booleans, types and modes among them
  std::map<CudnnAttribute, std::vector<Descriptor*>> descriptors;
  std::map<CudnnAttribute, std::vector<void*>> pointers;
  std::string json;

  int64_t Number(CudnnAttribute a, int64_t otherwise = -1) const {
    const auto it = numbers.find(a);
    return it == numbers.end() ? otherwise : it->second[0];
  }
  Descriptor* Get(CudnnAttribute a) const {
    const auto it = descriptors.find(a);
    return it == descriptors.end() ? nullptr : it->second[0];
  }
  // Of a tensor.
  int64_t dim(size_t i) const { return numbers.at(CudnnAttribute::kTensorDims)[i]; }
  int64_t stride(size_t i) const { return numbers.at(CudnnAttribute::kTensorStrides)[i]; }
  int64_t id() const { return Number(CudnnAttribute::kTensorId); }
  CudnnType type() const { return static_cast<CudnnType>(Number(CudnnAttribute::kTensorType)); }
  bool is_virtual() const { return Number(CudnnAttribute::kTensorIsVirtual, 0) != 0; }
  bool by_value() const { return Number(CudnnAttribute::kTensorIsByValue, 0) != 0; }
  Descriptor* starts() const { return Get(CudnnAttribute::kTensorRaggedOffsets); }
  int64_t size() const { return dim(0) * dim(1) * dim(2) * dim(3); }
};

const std::vector<CudnnAttribute>& OperandsOf(CudnnKind kind) {
  using A = CudnnAttribute;
  static const std::vector<A> pointwise = {A::kPointwiseX, A::kPointwiseB, A::kPointwiseT, A::kPointwiseY},
                              matmul = {A::kMatmulA,    A::kMatmulB,       A::kMatmulC,
                                        A::kMatmulRows, A::kMatmulColumns, A::kMatmulTerms},
                              reduction = {A::kReductionX, A::kReductionY}, reshape = {A::kReshapeX, A::kReshapeY},
                              none;
  switch (kind) {
    case CudnnKind::kPointwiseOperation:
      return pointwise;
    case CudnnKind::kMatmulOperation:
      return matmul;
    case CudnnKind::kReductionOperation:
      return reduction;
    case CudnnKind::kReshapeOperation:
      return reshape;
    default:
      return none;
  }
}

// The tensors in memory, and numbers.
std::map<int64_t, const Descriptor*> InMemory(const Descriptor& graph) {
  std::map<int64_t, const Descriptor*> found;
  for (const Descriptor* operation : graph.descriptors.at(CudnnAttribute::kGraphOperations)) {
    for (const CudnnAttribute a : OperandsOf(operation->kind)) {
      const Descriptor* const t = operation->Get(a);
      if (t == nullptr || t->is_virtual()) continue;
      found[t->id()] = t;
      if (t->starts() != nullptr) found[t->starts()->id()] = t->starts();
    }
  }
  return found;
}

// Computes a graph's operations in their order; the values of virtual tensors are dense, f32.
class Interpreter {
 public:
  Interpreter(const Descriptor& graph, const std::map<int64_t, void*>& addresses)
      : graph_(graph), addresses_(addresses) {
    for (const Descriptor* operation : graph.descriptors.at(CudnnAttribute::kGraphOperations)) {
      if (const Descriptor* const rows = operation->Get(CudnnAttribute::kMatmulRows)) lengths_ = rows;
      if (operation->kind != CudnnKind::kReductionOperation) continue;
      const Descriptor &x = *operation->Get(CudnnAttribute::kReductionX),
                       &y = *operation->Get(CudnnAttribute::kReductionY);
      // Parts have the places of their sum, spread by the ratio of widths.
      if (x.starts() != nullptr && x.starts() == y.starts()) wider_[&x] = x.stride(2) / y.stride(2);
    }
  }

  int Run() {
    for (const Descriptor* operation : graph_.descriptors.at(CudnnAttribute::kGraphOperations)) {
      const int result = Compute(*operation);
      if (result != kSuccess) return result;
    }
    return kSuccess;
  }

 private:
  using Values = std::vector<float>;

  int64_t LengthOf(int64_t batch) const { return static_cast<const int32_t*>(addresses_.at(lengths_->id()))[batch]; }

  // Calls f(i, element) for existing elements.
  template <class F>
  void ForEach(const Descriptor& t, const F& f) const {
    const bool by_columns = t.dim(3) > 1 && t.stride(3) > t.stride(2);  // tokens are columns
    int64_t i = 0;
    for (int64_t b = 0; b < t.dim(0); ++b) {
      int64_t start = b * t.stride(0);
      if (t.starts() != nullptr) {
        const auto wider = wider_.find(&t);
        start = int64_t{static_cast<const int32_t*>(addresses_.at(t.starts()->id()))[b]} *
                (wider == wider_.end() ? 1 : wider->second);
      }
      for (int64_t h = 0; h < t.dim(1); ++h) {
        for (int64_t r = 0; r < t.dim(2); ++r) {
          for (int64_t c = 0; c < t.dim(3); ++c, ++i) {
            if (t.starts() != nullptr && (by_columns ? c : r) >= LengthOf(b)) continue;
            f(i, start + h * t.stride(1) + r * t.stride(2) + c * t.stride(3));
          }
        }
      }
    }
  }

  Values Read(const Descriptor& t) const {
    if (t.is_virtual()) return values_.at(&t);
    const void* const at = addresses_.at(t.id());
    Values values(static_cast<size_t>(t.size()), kNothing);
    ForEach(t, [&](int64_t i, int64_t element) {
      float& value = values[static_cast<size_t>(i)];
      if (t.type() == CudnnType::kBf16) value = ToFloat(static_cast<const bf16*>(at)[element]);
      if (t.type() == CudnnType::kF32) value = static_cast<const float*>(at)[element];
      if (t.type() == CudnnType::kI32) value = static_cast<float>(static_cast<const int32_t*>(at)[element]);
    });
    return values;
  }

  void Write(const Descriptor& t, Values values) {
    if (t.type() == CudnnType::kBf16) {
      for (float& value : values) value = ToFloat(ToBF16(value));
    }
    if (t.is_virtual()) {
      values_[&t] = std::move(values);
      return;
    }
    void* const at = addresses_.at(t.id());
    ForEach(t, [&](int64_t i, int64_t element) {
      const float value = values[static_cast<size_t>(i)];
      if (t.type() == CudnnType::kBf16) static_cast<bf16*>(at)[element] = ToBF16(value);
      if (t.type() == CudnnType::kF32) static_cast<float*>(at)[element] = value;
    });
  }

  // The place of element i of `t` in a tensor with smaller dims: shared heads, or ones.
  static size_t Place(const Descriptor& t, const Descriptor& smaller, int64_t i) {
    int64_t place[4];
    for (size_t d = 4; d-- > 0; i /= t.dim(d)) place[d] = i % t.dim(d);
    int64_t at = 0;
    for (size_t d = 0; d < 4; ++d) at = at * smaller.dim(d) + place[d] / (t.dim(d) / smaller.dim(d));
    return static_cast<size_t>(at);
  }

  int Compute(const Descriptor& op) {
    switch (op.kind) {
      case CudnnKind::kMatmulOperation:
        return Multiply(op);
      case CudnnKind::kPointwiseOperation:
        return Apply(op);
      case CudnnKind::kReductionOperation:
        return Reduce(op);
      case CudnnKind::kReshapeOperation: {  // an exchange of the last two dims, or none
        const Descriptor &x = *op.Get(CudnnAttribute::kReshapeX), &y = *op.Get(CudnnAttribute::kReshapeY);
        const Values from = Read(x);
        Values to(from.size());
        const int64_t rows = x.dim(2), columns = x.dim(3);
        if (y.dim(2) != columns || y.dim(3) != rows) return kNotSupported;
        for (int64_t i = 0; i < x.size(); ++i) {
          const int64_t plane = i / (rows * columns), r = i / columns % rows, c = i % columns;
          to[static_cast<size_t>((plane * columns + c) * rows + r)] = from[static_cast<size_t>(i)];
        }
        Write(y, std::move(to));
        return kSuccess;
      }
      default:
        return kNotSupported;
    }
  }

  int Multiply(const Descriptor& op) {
    const Descriptor &a = *op.Get(CudnnAttribute::kMatmulA), &b = *op.Get(CudnnAttribute::kMatmulB),
                     &c = *op.Get(CudnnAttribute::kMatmulC);
    const int64_t rows = a.dim(2), terms = a.dim(3), columns = b.dim(3);
    if (b.dim(2) != terms || c.dim(2) != rows || c.dim(3) != columns || a.dim(1) != c.dim(1) ||
        c.dim(1) % b.dim(1) != 0) {
      return kBadParameter;
    }
    const auto most = [&](CudnnAttribute of, int64_t batch, int64_t all) {
      return op.Get(of) == nullptr ? all : std::min(all, LengthOf(batch));
    };
    const Values x = Read(a), y = Read(b);
    Values out(static_cast<size_t>(c.size()), kNothing);
    for (int64_t batch = 0; batch < c.dim(0); ++batch) {
      const int64_t R = most(CudnnAttribute::kMatmulRows, batch, rows),
                    C = most(CudnnAttribute::kMatmulColumns, batch, columns),
                    K = most(CudnnAttribute::kMatmulTerms, batch, terms);
      for (int64_t h = 0; h < c.dim(1); ++h) {
        const float* const px = x.data() + (batch * a.dim(1) + h) * rows * terms;
        const float* const py = y.data() + (batch * b.dim(1) + h / (c.dim(1) / b.dim(1))) * terms * columns;
        float* const po = out.data() + (batch * c.dim(1) + h) * rows * columns;
        for (int64_t r = 0; r < R; ++r) {
          for (int64_t j = 0; j < C; ++j) {
            float sum = 0;
            for (int64_t k = 0; k < K; ++k) sum += px[r * terms + k] * py[k * columns + j];
            po[r * columns + j] = sum;
          }
        }
      }
    }
    Write(c, std::move(out));
    return kSuccess;
  }

  int Apply(const Descriptor& op) {
    const Descriptor& how = *op.Get(CudnnAttribute::kPointwiseOf);
    const Descriptor &x = *op.Get(CudnnAttribute::kPointwiseX), &y = *op.Get(CudnnAttribute::kPointwiseY);
    const Descriptor *const b = op.Get(CudnnAttribute::kPointwiseB), *const t = op.Get(CudnnAttribute::kPointwiseT);
    const auto mode = static_cast<CudnnPointwise>(how.Number(CudnnAttribute::kPointwiseMode));
    const int64_t axis = how.Number(CudnnAttribute::kPointwiseAxis);
    const Values vx = Read(x), vb = b == nullptr ? Values() : Read(*b), vt = t == nullptr ? Values() : Read(*t);
    Values out(static_cast<size_t>(y.size()));
    for (int64_t i = 0; i < y.size(); ++i) {
      const float p = vx[Place(y, x, i)], q = b == nullptr ? 0 : vb[Place(y, *b, i)];
      float& to = out[static_cast<size_t>(i)];
      switch (mode) {
        case CudnnPointwise::kAdd:
          to = p + q;
          break;
        case CudnnPointwise::kMul:
          to = p * q;
          break;
        case CudnnPointwise::kDiv:
          to = p / q;
          break;
        case CudnnPointwise::kSub:
          to = p - q;
          break;
        case CudnnPointwise::kExp:
          to = std::exp(p);
          break;
        case CudnnPointwise::kLog:
          to = std::log(p);
          break;
        case CudnnPointwise::kGreaterOrEqual:
          to = p >= q ? 1 : 0;
          break;
        case CudnnPointwise::kLess:
          to = p < q ? 1 : 0;
          break;
        case CudnnPointwise::kAnd:
          to = p != 0 && q != 0 ? 1 : 0;
          break;
        case CudnnPointwise::kIndex:
          to = static_cast<float>(axis == 3 ? i % y.dim(3) : i / y.dim(3) % y.dim(2));
          break;
        case CudnnPointwise::kSelect:
          to = vt[Place(y, *t, i)] != 0 ? p : q;
          break;
        default:
          return kNotSupported;
      }
    }
    Write(y, std::move(out));
    return kSuccess;
  }

  int Reduce(const Descriptor& op) {
    const Descriptor& how = *op.Get(CudnnAttribute::kReductionOf);
    const Descriptor &x = *op.Get(CudnnAttribute::kReductionX), &y = *op.Get(CudnnAttribute::kReductionY);
    const bool max = how.Number(CudnnAttribute::kReductionOperator) == static_cast<int64_t>(CudnnReduction::kMax);
    const Values from = Read(x);
    Values out(static_cast<size_t>(y.size()), max ? -std::numeric_limits<float>::infinity() : 0.0f);
    for (int64_t i = 0; i < x.size(); ++i) {
      float& to = out[Place(x, y, i)];
      const float value = from[static_cast<size_t>(i)];
      to = max ? std::max(to, value) : to + value;
    }
    Write(y, std::move(out));
    return kSuccess;
  }

  const Descriptor& graph_;
  const std::map<int64_t, void*>& addresses_;
  const Descriptor* lengths_ = nullptr;
  std::map<const Descriptor*, int64_t> wider_;
  std::map<const Descriptor*, Values> values_;
};

// Elements of a head, from the first tensor of rows in memory.
int64_t HeadDimOf(const Descriptor& graph) {
  return InMemory(graph).begin()->second->dim(3);
}

const Descriptor& GraphOf(const Descriptor& plan) {
  return *plan.Get(CudnnAttribute::kPlanEngineConfig)
              ->Get(CudnnAttribute::kEngineConfigEngine)
              ->Get(CudnnAttribute::kEngineGraph);
}

// Whether a configuration's engine is available.
int CheckEngine(const Descriptor& config) {
  const Descriptor* const engine = config.Get(CudnnAttribute::kEngineConfigEngine);
  if (engine == nullptr || engine->Get(CudnnAttribute::kEngineGraph) == nullptr) return kBadParameter;
  if (HeadDimOf(*engine->Get(CudnnAttribute::kEngineGraph)) == 48) return kNotSupported;
  const int64_t index = engine->Number(CudnnAttribute::kEngineIndex);
  if (index == 10) return kSuccess;      // the second that is proposed
  if (index != 5) return kNotSupported;  // the first
  std::map<int64_t, int64_t> knobs;
  const auto choices = config.descriptors.find(CudnnAttribute::kEngineConfigKnobs);
  if (choices != config.descriptors.end()) {
    for (const Descriptor* choice : choices->second) {
      knobs[choice->Number(CudnnAttribute::kKnobType)] = choice->Number(CudnnAttribute::kKnobValue);
    }
  }
  const std::map<int64_t, int64_t> before = {{24, 31}, {14, 2}},
                                   now = {{40, 3}, {41, 2}, {24, 2}, {38, 0}, {27, 0}, {14, 2}};
  return knobs == (Version() < 92300 ? before : now) ? kSuccess : kNotSupported;
}

int Finalize(Descriptor& d) {
  if (d.finalized) return kBadParameter;
  for (const auto& [attribute, given] : d.descriptors) {
    for (const Descriptor* other : given) {
      if (other == nullptr || !other->finalized) return kBadParameter;
    }
  }
  d.finalized = true;
  switch (d.kind) {
    case CudnnKind::kTensor:
      return d.numbers.contains(CudnnAttribute::kTensorDims) && d.numbers.contains(CudnnAttribute::kTensorStrides) &&
                     d.id() >= 0 && d.Number(CudnnAttribute::kTensorAlignment) == 16
                 ? kSuccess
                 : kBadParameter;
    case CudnnKind::kDeviceProperties:
      return d.json.empty() && d.pointers.empty() ? kBadParameter : kSuccess;
    case CudnnKind::kHeuristics:
      return d.Number(CudnnAttribute::kHeuristicsMode) == kCudnnHeuristicsA &&
                     d.Get(CudnnAttribute::kHeuristicsDevice) != nullptr
                 ? kSuccess
                 : kBadParameter;
    case CudnnKind::kPlan:
      if (d.Get(CudnnAttribute::kPlanDevice) == nullptr) return kBadParameter;
      return CheckEngine(*d.Get(CudnnAttribute::kPlanEngineConfig));
    case CudnnKind::kVariantPack:
      return d.numbers.contains(CudnnAttribute::kPackIds) && d.pointers.contains(CudnnAttribute::kPackPointers) &&
                     d.numbers[CudnnAttribute::kPackIds].size() == d.pointers[CudnnAttribute::kPackPointers].size()
                 ? kSuccess
                 : kBadParameter;
    default:
      return kSuccess;
  }
}

}  // namespace

extern "C" {

size_t cudnnGetVersion() {
  return static_cast<size_t>(Version());
}
void cudnnGetLastErrorString(char* message, size_t size) {
  std::snprintf(message, size, "said the library for tests");
}
int cudnnCreate(void** handle) {
  *handle = new int(1);
  return kSuccess;
}
int cudnnDestroy(void* handle) {
  delete static_cast<int*>(handle);
  return kSuccess;
}
int cudnnSetStream(void* handle, void*) {
  return handle != nullptr ? kSuccess : kBadParameter;
}
int cudnnBackendCreateDescriptor(CudnnKind kind, void** descriptor) {
  *descriptor = new Descriptor{.kind = kind};
  return kSuccess;
}
int cudnnBackendDestroyDescriptor(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return kSuccess;
}
int cudnnBackendSetAttribute(void* descriptor, CudnnAttribute attribute, CudnnElement type, int64_t count,
                             const void* elements) {
  auto& d = *static_cast<Descriptor*>(descriptor);
  if (d.finalized || count < 1) return kBadParameter;
  const auto at = [&]<class T>(int64_t i) {
    T value;
    std::memcpy(&value, static_cast<const char*>(elements) + i * int64_t{sizeof(T)}, sizeof(T));
    return value;
  };
  for (int64_t i = 0; i < count; ++i) {
    switch (type) {
      case CudnnElement::kInt64:
        d.numbers[attribute].push_back(at.operator()<int64_t>(i));
        break;
      case CudnnElement::kBoolean:
        d.numbers[attribute].push_back(at.operator()<bool>(i) ? 1 : 0);
        break;
      case CudnnElement::kDescriptor:
        d.descriptors[attribute].push_back(at.operator()<Descriptor*>(i));
        break;
      case CudnnElement::kPointer:
      case CudnnElement::kHandle:
        d.pointers[attribute].push_back(at.operator()<void*>(i));
        break;
      case CudnnElement::kChar:
        d.json.push_back(at.operator()<char>(i));
        break;
      default:
        d.numbers[attribute].push_back(at.operator()<int>(i));
    }
  }
  return kSuccess;
}
int cudnnBackendGetAttribute(void* descriptor, CudnnAttribute attribute, CudnnElement, int64_t wanted, int64_t* count,
                             void* elements) {
  auto& d = *static_cast<Descriptor*>(descriptor);
  if (!d.finalized) return kBadParameter;
  if (attribute == CudnnAttribute::kPlanWorkspace) {
    const int64_t bytes = HeadDimOf(GraphOf(d)) == 112 ? int64_t{1} << 30 : 1024;
    std::memcpy(elements, &bytes, sizeof(bytes));
    *count = 1;
    return kSuccess;
  }
  if (attribute != CudnnAttribute::kHeuristicsResults || wanted < 2) return kBadParameter;
  *count = 2;
  static std::vector<std::unique_ptr<Descriptor>> engines;  // as long as the process
  for (int64_t i = 0; i < 2; ++i) {
    auto* const config = static_cast<Descriptor**>(elements)[i];
    engines.push_back(std::make_unique<Descriptor>(Descriptor{.kind = CudnnKind::kEngine, .finalized = true}));
    engines.back()->numbers[CudnnAttribute::kEngineIndex] = {9 + i};
    engines.back()->descriptors[CudnnAttribute::kEngineGraph] = {d.Get(CudnnAttribute::kHeuristicsGraph)};
    config->descriptors[CudnnAttribute::kEngineConfigEngine] = {engines.back().get()};
    config->finalized = true;
  }
  return kSuccess;
}
int cudnnBackendFinalize(void* descriptor) {
  return Finalize(*static_cast<Descriptor*>(descriptor));
}
int cudnnBackendExecute(void* handle, void* plan, void* pack) {
  auto &p = *static_cast<Descriptor*>(plan), &given = *static_cast<Descriptor*>(pack);
  if (handle == nullptr || !p.finalized || !given.finalized) return kBadParameter;
  const Descriptor& graph = GraphOf(p);
  const std::map<int64_t, const Descriptor*> wanted = InMemory(graph);
  const std::vector<int64_t>& ids = given.numbers[CudnnAttribute::kPackIds];
  std::map<int64_t, void*> addresses;
  for (size_t i = 0; i < ids.size(); ++i) {
    void* const address = given.pointers[CudnnAttribute::kPackPointers][i];
    const auto it = wanted.find(ids[i]);
    if (it == wanted.end() || address == nullptr) return kBadParameter;
    if (!it->second->by_value() && reinterpret_cast<uintptr_t>(address) % 16 != 0) return kBadParameter;
    if (it->second->dim(1) == 7) return kFailed;
    addresses[ids[i]] = address;
  }
  if (addresses.size() != wanted.size()) return kBadParameter;
  const auto workspace = given.pointers.find(CudnnAttribute::kPackWorkspace);
  if (workspace == given.pointers.end() || workspace->second[0] == nullptr) return kBadParameter;
  std::memset(workspace->second[0], 0xFF, 1024);
  return Interpreter(graph, addresses).Run();
}

}  // extern "C"
