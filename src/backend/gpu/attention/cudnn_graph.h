// An operation graph of cuDNN's, and the plan that the library makes of it: descriptors in the order that the library
// requires, all kept until the graph is destroyed. Errors are remembered: after the first every call does nothing, and
// status() returns it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/attention/cudnn_api.h"
#include "base/units.h"

namespace temper::gpu {

class CudnnGraph {
 public:
  using Dims = std::array<int64_t, 4>;  // batch, head, row, column
  explicit CudnnGraph(const CudnnApi& api) : api_(api) {}
  CudnnGraph(const CudnnGraph&) = delete;
  CudnnGraph& operator=(const CudnnGraph&) = delete;
  ~CudnnGraph();
  const Status& status() const { return status_; }

  struct Tensor {
    CudnnDescriptor descriptor = nullptr;
    Dims dims = {}, strides = {};  // in elements
    CudnnType type = CudnnType::kF32;
  };
  // In memory, at the address that Run gives for `id`, 16-byte aligned. `starts`: where each of the batch begins, in
  // elements, instead of the first stride; nullopt: a stride.
  Tensor InMemory(int64_t id, CudnnType type, const Dims& dims, const Dims& strides, const Tensor* starts = nullptr);
  // A number in the host's memory, at Run's address.
  Tensor Number(int64_t id);
  // Not in memory: rows are contiguous, or columns if `transposed`.
  Tensor Virtual(CudnnType type, const Dims& dims, bool transposed = false);
  Tensor Virtual(CudnnType type, const Dims& dims, const Dims& strides, const Tensor* starts);

  // c = a b, of which only the first lengths[batch] rows, columns or terms exist, if given.
  struct Lengths {
    const Tensor *rows = nullptr, *columns = nullptr, *terms = nullptr;
  };
  void Multiply(const Tensor& a, const Tensor& b, const Tensor& c, const Lengths& lengths);
  void Pointwise(CudnnPointwise mode, const Tensor& x, const Tensor* b, const Tensor& y, const Tensor* t = nullptr,
                 int64_t axis = -1);
  void Reduce(CudnnReduction operation, const Tensor& x, const Tensor& y);
  void Reshape(const Tensor& x, const Tensor& y);

  // For a device: that of `handle`, or, if that is nullptr, the one that `json` describes.
  CudnnDescriptor Device(CudnnHandle handle, const std::string& json);
  // The plan of the first available engine among those that the library's heuristics find.
  void PlanByHeuristics(CudnnDescriptor device);
  struct KnobChoice {
    CudnnKnob knob;
    int64_t value;
  };
  void PlanByEngine(CudnnDescriptor device, int64_t engine, std::span<const KnobChoice> knobs);
  // REQUIRES: a plan was made.
  Bytes workspace() const { return workspace_; }
  Status Run(CudnnHandle handle, std::span<const int64_t> ids, std::span<void* const> addresses, void* workspace);

 private:
  CudnnDescriptor Make(CudnnKind kind);  // the graph's
  Tensor Make(int64_t id, CudnnType type, const Dims& dims, const Dims& strides, const Tensor* starts,
              std::optional<CudnnAttribute> kind);
  void Set(CudnnDescriptor descriptor, CudnnAttribute attribute, CudnnElement type, int64_t count,
           const void* elements);
  template <class T>
  void SetOne(CudnnDescriptor descriptor, CudnnAttribute attribute, CudnnElement type, T value) {
    Set(descriptor, attribute, type, 1, &value);
  }
  void SetDescriptor(CudnnDescriptor descriptor, CudnnAttribute attribute, CudnnDescriptor value) {
    SetOne(descriptor, attribute, CudnnElement::kDescriptor, value);
  }
  void Finalize(CudnnDescriptor descriptor, const char* what);
  void Note(int result, const std::string& what);
  CudnnDescriptor OperationGraph();
  bool Plan(CudnnDescriptor device, CudnnDescriptor engine_config);

  const CudnnApi& api_;
  Status status_ = OkStatus();
  std::vector<CudnnDescriptor> descriptors_;  // in the order in which they were made
  std::vector<CudnnDescriptor> operations_;
  int64_t next_virtual_ = 1000;
  CudnnDescriptor plan_ = nullptr;
  Bytes workspace_;
};

}  // namespace temper::gpu
