// The table of rotary embeddings and their application. Floor of rope: bytes of x and y; of the table: its bytes, made
// once per micro-batch.
#include <algorithm>

#include "backend/gpu/launch.h"
#include "graph/ops/rope_table.h"

namespace temper::gpu {
namespace {

// Passed by value: kernel parameters are constant memory. Heads of up to 256 elements.
constexpr int kMostFrequencies = 128;
struct Frequencies {
  double x[kMostFrequencies];
};

// Where a row has its sines and cosines, and by what they are scaled: RopeTableShape, as a kernel has it.
struct TableRow {
  int half;
  bool interleaved;
  double scale, beta, original;
};

// What a table by document has for those of more than `near` tokens (RopeFrequencies): `inv_freq`, or, where `theta` is
// not 0, what follows from it.
struct LongDocuments {
  int64_t near;
  double theta, factor;
  Frequencies inv_freq;

  __device__ double Frequency(int64_t e, int64_t half, double length) const {
    if (theta == 0) return inv_freq.x[e];
    const double n = static_cast<double>(half), growth = factor * length / static_cast<double>(near) - (factor - 1);
    return static_cast<double>(static_cast<float>(pow(theta * pow(growth, n / (n - 1)), -static_cast<double>(e) / n)));
  }
};

// In double, as positions times frequencies lose their fraction in f32 from some thousand on. `length_T` is null where
// the table is not by document.
__global__ void RopeTableElements(const int* position_T, const int* length_T, Frequencies inv_freq,
                                  LongDocuments documents, int64_t tokens, TableRow row, float* table_TR) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= tokens * row.half) return;
  const int64_t t = i / row.half, e = i % row.half, begin = t * 2 * row.half;
  const auto position = static_cast<double>(position_T[t]);
  const bool is_long = length_T != nullptr && length_T[t] > documents.near;
  const double angle = position * (is_long ? documents.Frequency(e, row.half, length_T[t]) : inv_freq.x[e]);
  const double scale = row.beta == 0 ? row.scale : row.scale * (1 + row.beta * log1p(floor(position / row.original)));
  table_TR[begin + (row.interleaved ? 2 * e : e)] = static_cast<float>(scale * cos(angle));
  table_TR[begin + (row.interleaved ? 2 * e + 1 : row.half + e)] = static_cast<float>(scale * sin(angle));
}

// (x0, x1) -> (x0 cos - x1 sin, x1 cos + x0 sin); `sign` -1 rotates back.
template <class T>
struct RotatedHeads {
  const T* x;
  const float* table_TR;
  T* y;
  int64_t heads, E, R;
  float sign;
};

// Element i of x's first halves, of heads that turn whole.
template <class T>
struct Rotate : RotatedHeads<T> {
  template <int kCount>
  __device__ void Run(int64_t i) const {
    const int64_t half = this->R / 2, head = i / half, e = i - head * half, t = head / this->heads;
    const int64_t at = head * this->E + e;
    const float* const table = this->table_TR + t * this->R + e;
    float low[kCount], high[kCount], cos[kCount], sin[kCount];
    Load(this->x + at, low);
    Load(this->x + at + half, high);
    Load(table, cos);
    Load(table + half, sin);
    for (int k = 0; k < kCount; ++k) {
      const float x0 = low[k], x1 = high[k], s = this->sign * sin[k];
      low[k] = x0 * cos[k] - x1 * s;
      high[k] = x1 * cos[k] + x0 * s;
    }
    Store(this->y + at, low);
    Store(this->y + at + half, high);
  }
};

// Element i of x, of which kCount are within one head and on one side of R.
template <class T>
struct RotatePart : RotatedHeads<T> {
  template <int kCount>
  __device__ void Run(int64_t i) const {
    const int64_t half = this->R / 2, head = i / this->E, e = i - head * this->E, t = head / this->heads;
    float a[kCount];
    Load(this->x + i, a);
    if (e >= this->R) return Store(this->y + i, a);
    if (e >= half) return;  // done with its first half
    const float* const table = this->table_TR + t * this->R + e;
    float b[kCount], cos[kCount], sin[kCount];
    Load(this->x + i + half, b);
    Load(table, cos);
    Load(table + half, sin);
    for (int k = 0; k < kCount; ++k) {
      const float x0 = a[k], x1 = b[k], s = this->sign * sin[k];
      a[k] = x0 * cos[k] - x1 * s;
      b[k] = x1 * cos[k] + x0 * s;
    }
    Store(this->y + i, a);
    Store(this->y + i + half, b);
  }
};

// Pair i of x. Reads and writes of neighbours are contiguous.
template <class T>
struct RotatePairs : RotatedHeads<T> {
  template <int kCount>
  __device__ void Run(int64_t i) const {
    for (int k = 0; k < kCount; ++k) {
      const int64_t at = 2 * (i + k), head = at / this->E, e = at - head * this->E, t = head / this->heads;
      const float x0 = Get(this->x + at), x1 = Get(this->x + at + 1);
      float cos = 1, sin = 0;
      if (e < this->R) {
        cos = this->table_TR[t * this->R + e];
        sin = this->sign * this->table_TR[t * this->R + e + 1];
      }
      Put(this->y + at, x0 * cos - x1 * sin);
      Put(this->y + at + 1, x1 * cos + x0 * sin);
    }
  }
};

}  // namespace

std::unique_ptr<Kernel> MakeRopeTable(const KernelSpec& spec, const Context& context) {
  const RopeTableShape shape(spec.attributes);
  const RopeFrequencies given(spec.attributes);
  if (shape.sines_first || shape.shift != 0) return nullptr;
  if (given.inv_freq.size() > kMostFrequencies || spec.outputs[0].dtype != DType::kF32) return nullptr;
  Frequencies inv_freq = {};
  std::copy(given.inv_freq.begin(), given.inv_freq.end(), inv_freq.x);
  LongDocuments documents = {given.near, given.theta, given.factor, {}};
  std::copy(given.long_inv_freq.begin(), given.long_inv_freq.end(), documents.inv_freq.x);
  const bool by_document = given.by_document;
  const int64_t tokens = spec.inputs[0].shape.elements();
  const TableRow row = {static_cast<int>(shape.half), shape.interleaved, shape.scale,
                        shape.original == 0 ? 0 : shape.beta, static_cast<double>(shape.original)};
  return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
    if (tokens * row.half == 0) return OkStatus();
    return TEMPER_LAUNCH(RopeTableElements, BlocksFor(tokens * row.half), unsigned{kBlockThreads}, stream,
                         In<const int>(args, 0), by_document ? In<const int>(args, 1) : nullptr, inv_freq, documents,
                         tokens, row, Out<float>(args, 0));
  });
}

std::unique_ptr<Kernel> MakeRope(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0]) || spec.inputs[1].dtype != DType::kF32) return nullptr;
  if (spec.attributes.IntOr("first", 0) != 0) return nullptr;  // the kernels turn a head's first elements
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t E = spec.attributes.Int("head_dim"), R = spec.inputs[1].shape.columns();
    const int64_t n = spec.inputs[0].shape.elements(), heads = spec.inputs[0].shape.columns() / E, half = R / 2;
    const float sign = spec.attributes.Flag("inverse") ? -1.0f : 1.0f;
    const bool interleaved = spec.attributes.Flag("interleaved");
    return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
      const RotatedHeads<T> of = {In<T>(args, 0), In<float>(args, 1), Out<T>(args, 0), heads, E, R, sign};
      if (interleaved) return Map<1>(n / 2, RotatePairs<T>{of}, stream);
      // Elements that are done at once belong to one half of what turns, or to what does not.
      if (R < E) {
        return half % 4 == 0 && E % 4 == 0 ? Map<4>(n, RotatePart<T>{of}, stream)
                                           : Map<1>(n, RotatePart<T>{of}, stream);
      }
      if (half % kPack<T> == 0) return Map<kPack<T>>(n / 2, Rotate<T>{of}, stream);
      return half % 4 == 0 ? Map<4>(n / 2, Rotate<T>{of}, stream) : Map<1>(n / 2, Rotate<T>{of}, stream);
    });
  });
}

}  // namespace temper::gpu
