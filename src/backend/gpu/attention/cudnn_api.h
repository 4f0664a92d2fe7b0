// The part of cuDNN 9's graph interface (its "backend API") that is used. It is declared here, because neither its
// headers nor the library are needed to build; the library is loaded when a GPU is opened that uses it. Numbers are
// those of cudnn_graph_v9.h, which cuDNN 9 does not change. Host code, which does not depend on CUDA's headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace temper::gpu {

using CudnnHandle = void*;
using CudnnDescriptor = void*;

enum class CudnnKind : int {
  kPointwise = 0,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristics = 4,
  kPlan = 5,
  kKnobChoice = 7,
  kPointwiseOperation = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
  kDeviceProperties = 38,
};

enum class CudnnAttribute : int {
  kPointwiseMode = 0,
  kPointwiseMathType = 1,
  kPointwiseAxis = 9,
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsDevice = 204,
  kEngineConfigEngine = 300,
  kEngineConfigKnobs = 302,
  kPlanEngineConfig = 401,
  kPlanWorkspace = 402,
  kPlanDevice = 407,
  kKnobType = 600,
  kKnobValue = 601,
  kPointwiseOf = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseT = 758,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDims = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kTensorRaggedOffsets = 913,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineDevice = 1307,
  kMatmulMathType = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulOf = 1523,
  kMatmulRows = 1525,     // how many rows of c there are, by batch
  kMatmulColumns = 1526,  // columns of c
  kMatmulTerms = 1527,    // terms of its sums
  kReductionOperator = 1600,
  kReductionMathType = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionOf = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
  kDeviceHandle = 2701,
  kDeviceJson = 2702,
};

// The type of an attribute's elements.
enum class CudnnElement : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kPointer = 6,
  kHeuristicsMode = 8,
  kKnobType = 9,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReductionOperator = 18,
  kChar = 24,
};

enum class CudnnType : int { kF32 = 0, kI32 = 4, kBf16 = 9, kBoolean = 11 };
enum class CudnnPointwise : int {
  kAdd = 0,
  kMul = 1,
  kDiv = 6,
  kSub = 9,
  kExp = 13,
  kLog = 15,
  kGreaterOrEqual = 303,
  kLess = 304,
  kAnd = 400,
  kIndex = 501,   // of an element along an axis
  kSelect = 601,  // x where t, else b
};
enum class CudnnReduction : int { kSum = 0, kMax = 3 };
enum class CudnnKnob : int { kStages = 14, kKernel = 24, kTileCgaM = 27, kStreamK = 38, kTileM = 40, kTileN = 41 };
inline constexpr int kCudnnHeuristicsA = 3;

struct CudnnApi {
  std::string file;     // "libcudnn.so.9"
  size_t number = 0;    // 91900 is 9.19.0
  std::string version;  // "cuDNN 9.19.0"
  // 0 is success.
  size_t (*get_version)();
  void (*last_error)(char* message, size_t size);
  int (*create)(CudnnHandle* handle);
  int (*destroy)(CudnnHandle handle);
  int (*set_stream)(CudnnHandle handle, void* stream);
  int (*make)(CudnnKind kind, CudnnDescriptor* descriptor);
  int (*drop)(CudnnDescriptor descriptor);
  int (*set)(CudnnDescriptor descriptor, CudnnAttribute attribute, CudnnElement type, int64_t count,
             const void* elements);
  int (*get)(CudnnDescriptor descriptor, CudnnAttribute attribute, CudnnElement type, int64_t wanted, int64_t* count,
             void* elements);
  int (*finalize)(CudnnDescriptor descriptor);
  int (*execute)(CudnnHandle handle, CudnnDescriptor plan, CudnnDescriptor pack);

  // kUnsupported if the library says that it has no such thing, with its reason; else kInvalidArgument.
  Status StatusOf(int result, const std::string& what) const;
};

// Loads `library` (empty: libcudnn.so.9) once; it stays loaded. Errors, of one line: it is missing, it lacks a
// function, or it is older than 9.18, the first whose backward pass for packed documents gives the same bits again.
Result<const CudnnApi*> LoadCudnn(const std::string& library = "");

}  // namespace temper::gpu
