#include "backend/gpu/attention/cudnn_graph.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace temper::gpu {
namespace {

constexpr int64_t kOperandAlignment = 16;  // what every kernel of attention asks for; ours are aligned to more
constexpr int64_t kMostConfigs = 16;

}  // namespace

CudnnGraph::~CudnnGraph() {
  for (auto it = descriptors_.rbegin(); it != descriptors_.rend(); ++it) (void)api_.drop(*it);
}

void CudnnGraph::Note(int result, const std::string& what) {
  if (status_.ok() && result != 0) status_ = api_.StatusOf(result, what);
}

CudnnDescriptor CudnnGraph::Make(CudnnKind kind) {
  CudnnDescriptor descriptor = nullptr;
  if (!status_.ok()) return descriptor;
  Note(api_.make(kind, &descriptor), "a descriptor");
  if (descriptor != nullptr) descriptors_.push_back(descriptor);
  return descriptor;
}

void CudnnGraph::Set(CudnnDescriptor descriptor, CudnnAttribute attribute, CudnnElement type, int64_t count,
                     const void* elements) {
  if (!status_.ok()) return;
  Note(api_.set(descriptor, attribute, type, count, elements),
       "attribute " + std::to_string(static_cast<int>(attribute)));
}

void CudnnGraph::Finalize(CudnnDescriptor descriptor, const char* what) {
  if (status_.ok()) Note(api_.finalize(descriptor), what);
}

CudnnGraph::Tensor CudnnGraph::Make(int64_t id, CudnnType type, const Dims& dims, const Dims& strides,
                                    const Tensor* starts, std::optional<CudnnAttribute> kind) {
  const CudnnDescriptor d = Make(CudnnKind::kTensor);
  SetOne(d, CudnnAttribute::kTensorType, CudnnElement::kDataType, type);
  Set(d, CudnnAttribute::kTensorDims, CudnnElement::kInt64, 4, dims.data());
  Set(d, CudnnAttribute::kTensorStrides, CudnnElement::kInt64, 4, strides.data());
  SetOne(d, CudnnAttribute::kTensorId, CudnnElement::kInt64, id);
  SetOne(d, CudnnAttribute::kTensorAlignment, CudnnElement::kInt64, kOperandAlignment);
  if (kind) SetOne(d, *kind, CudnnElement::kBoolean, true);
  if (starts != nullptr) SetDescriptor(d, CudnnAttribute::kTensorRaggedOffsets, starts->descriptor);
  Finalize(d, "a tensor");
  return {d, dims, strides, type};
}

CudnnGraph::Tensor CudnnGraph::InMemory(int64_t id, CudnnType type, const Dims& dims, const Dims& strides,
                                        const Tensor* starts) {
  return Make(id, type, dims, strides, starts, std::nullopt);
}

CudnnGraph::Tensor CudnnGraph::Number(int64_t id) {
  constexpr Dims kOne = {1, 1, 1, 1};
  return Make(id, CudnnType::kF32, kOne, kOne, nullptr, CudnnAttribute::kTensorIsByValue);
}

CudnnGraph::Tensor CudnnGraph::Virtual(CudnnType type, const Dims& dims, bool transposed) {
  const int64_t plane = dims[2] * dims[3];
  const Dims strides = transposed ? Dims{dims[1] * plane, plane, 1, dims[2]} : Dims{dims[1] * plane, plane, dims[3], 1};
  return Virtual(type, dims, strides, nullptr);
}

CudnnGraph::Tensor CudnnGraph::Virtual(CudnnType type, const Dims& dims, const Dims& strides, const Tensor* starts) {
  return Make(next_virtual_++, type, dims, strides, starts, CudnnAttribute::kTensorIsVirtual);
}

void CudnnGraph::Multiply(const Tensor& a, const Tensor& b, const Tensor& c, const Lengths& lengths) {
  const CudnnDescriptor how = Make(CudnnKind::kMatmul), d = Make(CudnnKind::kMatmulOperation);
  SetOne(how, CudnnAttribute::kMatmulMathType, CudnnElement::kDataType, CudnnType::kF32);
  Finalize(how, "a product");
  SetDescriptor(d, CudnnAttribute::kMatmulOf, how);
  SetDescriptor(d, CudnnAttribute::kMatmulA, a.descriptor);
  SetDescriptor(d, CudnnAttribute::kMatmulB, b.descriptor);
  SetDescriptor(d, CudnnAttribute::kMatmulC, c.descriptor);
  for (const auto& [attribute, length] : {std::pair(CudnnAttribute::kMatmulRows, lengths.rows),
                                          std::pair(CudnnAttribute::kMatmulColumns, lengths.columns),
                                          std::pair(CudnnAttribute::kMatmulTerms, lengths.terms)}) {
    if (length != nullptr) SetDescriptor(d, attribute, length->descriptor);
  }
  Finalize(d, "a product");
  operations_.push_back(d);
}

void CudnnGraph::Pointwise(CudnnPointwise mode, const Tensor& x, const Tensor* b, const Tensor& y, const Tensor* t,
                           int64_t axis) {
  const CudnnDescriptor how = Make(CudnnKind::kPointwise), d = Make(CudnnKind::kPointwiseOperation);
  // Conditions are computed as what they are, selections as what they choose from.
  SetOne(how, CudnnAttribute::kPointwiseMode, CudnnElement::kPointwiseMode, mode);
  SetOne(how, CudnnAttribute::kPointwiseMathType, CudnnElement::kDataType,
         y.type == CudnnType::kBf16 ? CudnnType::kF32 : y.type);
  if (axis >= 0) SetOne(how, CudnnAttribute::kPointwiseAxis, CudnnElement::kInt64, axis);
  Finalize(how, "a function");
  SetDescriptor(d, CudnnAttribute::kPointwiseOf, how);
  SetDescriptor(d, CudnnAttribute::kPointwiseX, x.descriptor);
  if (b != nullptr) SetDescriptor(d, CudnnAttribute::kPointwiseB, b->descriptor);
  if (t != nullptr) SetDescriptor(d, CudnnAttribute::kPointwiseT, t->descriptor);
  SetDescriptor(d, CudnnAttribute::kPointwiseY, y.descriptor);
  Finalize(d, "a function");
  operations_.push_back(d);
}

void CudnnGraph::Reduce(CudnnReduction operation, const Tensor& x, const Tensor& y) {
  const CudnnDescriptor how = Make(CudnnKind::kReduction), d = Make(CudnnKind::kReductionOperation);
  SetOne(how, CudnnAttribute::kReductionMathType, CudnnElement::kDataType, CudnnType::kF32);
  SetOne(how, CudnnAttribute::kReductionOperator, CudnnElement::kReductionOperator, operation);
  Finalize(how, "a reduction");
  SetDescriptor(d, CudnnAttribute::kReductionOf, how);
  SetDescriptor(d, CudnnAttribute::kReductionX, x.descriptor);
  SetDescriptor(d, CudnnAttribute::kReductionY, y.descriptor);
  Finalize(d, "a reduction");
  operations_.push_back(d);
}

void CudnnGraph::Reshape(const Tensor& x, const Tensor& y) {
  const CudnnDescriptor d = Make(CudnnKind::kReshapeOperation);
  SetDescriptor(d, CudnnAttribute::kReshapeX, x.descriptor);
  SetDescriptor(d, CudnnAttribute::kReshapeY, y.descriptor);
  Finalize(d, "a transposition");
  operations_.push_back(d);
}

CudnnDescriptor CudnnGraph::Device(CudnnHandle handle, const std::string& json) {
  const CudnnDescriptor d = Make(CudnnKind::kDeviceProperties);
  if (handle != nullptr) {
    SetOne(d, CudnnAttribute::kDeviceHandle, CudnnElement::kHandle, handle);
  } else {
    Set(d, CudnnAttribute::kDeviceJson, CudnnElement::kChar, static_cast<int64_t>(json.size()), json.data());
  }
  Finalize(d, "the device");
  return d;
}

CudnnDescriptor CudnnGraph::OperationGraph() {
  const CudnnDescriptor d = Make(CudnnKind::kOperationGraph);
  Set(d, CudnnAttribute::kGraphOperations, CudnnElement::kDescriptor, static_cast<int64_t>(operations_.size()),
      operations_.data());
  Finalize(d, "the graph of operations");
  return d;
}

bool CudnnGraph::Plan(CudnnDescriptor device, CudnnDescriptor engine_config) {
  const CudnnDescriptor plan = Make(CudnnKind::kPlan);
  SetDescriptor(plan, CudnnAttribute::kPlanEngineConfig, engine_config);
  SetDescriptor(plan, CudnnAttribute::kPlanDevice, device);
  Finalize(plan, "a plan");
  if (!status_.ok()) return false;
  int64_t count = 0, bytes = 0;
  Note(api_.get(plan, CudnnAttribute::kPlanWorkspace, CudnnElement::kInt64, 1, &count, &bytes), "its workspace");
  plan_ = plan;
  workspace_ = {bytes};
  return status_.ok();
}

void CudnnGraph::PlanByHeuristics(CudnnDescriptor device) {
  const CudnnDescriptor graph = OperationGraph(), heuristics = Make(CudnnKind::kHeuristics);
  SetDescriptor(heuristics, CudnnAttribute::kHeuristicsGraph, graph);
  SetOne(heuristics, CudnnAttribute::kHeuristicsMode, CudnnElement::kHeuristicsMode, kCudnnHeuristicsA);
  SetDescriptor(heuristics, CudnnAttribute::kHeuristicsDevice, device);
  Finalize(heuristics, "the choice of an engine");
  std::array<CudnnDescriptor, kMostConfigs> configs = {};
  for (CudnnDescriptor& config : configs) config = Make(CudnnKind::kEngineConfig);
  if (!status_.ok()) return;
  int64_t found = 0;
  Note(api_.get(heuristics, CudnnAttribute::kHeuristicsResults, CudnnElement::kDescriptor, kMostConfigs, &found,
                configs.data()),
       "the choice of an engine");
  for (int64_t i = 0; i < found && status_.ok(); ++i) {
    if (Plan(device, configs[static_cast<size_t>(i)])) return;
    if (status_.code() == StatusCode::kUnsupported && i + 1 < found) status_ = OkStatus();  // the next one may be
  }
  if (status_.ok()) status_ = Unsupported(api_.version + " has no engine of this shape");
}

void CudnnGraph::PlanByEngine(CudnnDescriptor device, int64_t index, std::span<const KnobChoice> knobs) {
  const CudnnDescriptor graph = OperationGraph(), engine = Make(CudnnKind::kEngine);
  SetDescriptor(engine, CudnnAttribute::kEngineGraph, graph);
  SetOne(engine, CudnnAttribute::kEngineIndex, CudnnElement::kInt64, index);
  SetDescriptor(engine, CudnnAttribute::kEngineDevice, device);
  Finalize(engine, "an engine");
  std::vector<CudnnDescriptor> choices;
  for (const KnobChoice& knob : knobs) {
    choices.push_back(Make(CudnnKind::kKnobChoice));
    SetOne(choices.back(), CudnnAttribute::kKnobType, CudnnElement::kKnobType, knob.knob);
    SetOne(choices.back(), CudnnAttribute::kKnobValue, CudnnElement::kInt64, knob.value);
    Finalize(choices.back(), "a choice of an engine's");
  }
  const CudnnDescriptor config = Make(CudnnKind::kEngineConfig);
  SetDescriptor(config, CudnnAttribute::kEngineConfigEngine, engine);
  Set(config, CudnnAttribute::kEngineConfigKnobs, CudnnElement::kDescriptor, static_cast<int64_t>(choices.size()),
      choices.data());
  Finalize(config, "an engine's configuration");
  (void)Plan(device, config);
}

Status CudnnGraph::Run(CudnnHandle handle, std::span<const int64_t> ids, std::span<void* const> addresses,
                       void* workspace) {
  TEMPER_CHECK(plan_ != nullptr && ids.size() == addresses.size());
  CudnnDescriptor pack = nullptr;
  TEMPER_RETURN_IF_ERROR(api_.StatusOf(api_.make(CudnnKind::kVariantPack, &pack), "addresses"));
  const auto count = static_cast<int64_t>(ids.size());
  int result = api_.set(pack, CudnnAttribute::kPackIds, CudnnElement::kInt64, count, ids.data());
  if (result == 0) {
    result = api_.set(pack, CudnnAttribute::kPackPointers, CudnnElement::kPointer, count, addresses.data());
  }
  if (result == 0) result = api_.set(pack, CudnnAttribute::kPackWorkspace, CudnnElement::kPointer, 1, &workspace);
  if (result == 0) result = api_.finalize(pack);
  if (result == 0) result = api_.execute(handle, plan_, pack);
  Status status = api_.StatusOf(result, "a run");
  (void)api_.drop(pack);
  return status;
}

}  // namespace temper::gpu
