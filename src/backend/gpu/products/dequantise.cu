#include "backend/gpu/products/dequantise.h"

#include <algorithm>
#include <array>

#include "backend/gpu/launch.h"
#include "tensor/int8_rows.h"
#include "tensor/nf4_rows.h"

namespace temper::gpu {
namespace {

constexpr int kEach = 8;  // elements of a row that a thread makes at a time: 16 bytes of bf16

// As the device reads them; those of the host are constants of the compiler.
__device__ const std::array<float, 16> kDeviceNumbers = std::to_array(kNf4Numbers);
__device__ const std::array<float, 256> kDeviceAbsmaxNumbers = kNf4AbsmaxNumbers;

__device__ __forceinline__ float FloatAt(const unsigned char* p) {
  return reinterpret_cast<const Pack<float, 1>*>(p)->x[0];
}

// Both read kEach elements of a row from `column`, a multiple of kEach, on; those behind the row's end are rubbish.
// Places within a row are unsigned, whose quotients by powers of two are shifts.

// tensor/int8_rows.h.
class Int8Reader {
 public:
  explicit Int8Reader(int64_t columns) : row_bytes_(Int8RowBytes(columns)) {}
  __device__ void Begin(Shared<float>) const {}
  __device__ void Read(const unsigned char* rows, int64_t row, unsigned column, Shared<float>,
                       float (&x)[kEach]) const {
    const unsigned char* const begin = rows + row * row_bytes_;
    const float scale = FloatAt(begin + row_bytes_ - 4);
    const Pack<signed char, kEach> q = *reinterpret_cast<const Pack<signed char, kEach>*>(begin + column);
    for (int k = 0; k < kEach; ++k) x[k] = scale * static_cast<float>(q.x[k]);
  }

 private:
  int64_t row_bytes_;
};

// tensor/nf4_rows.h.
class Nf4Reader {
 public:
  explicit Nf4Reader(int64_t columns)
      : columns_(static_cast<unsigned>(columns)),
        row_bytes_(Nf4RowBytes(columns)),
        absmaxes_at_((columns + 1) / 2),
        places_at_(row_bytes_ - Nf4EndBytes(columns)) {}

  // Lanes look up different numbers: in shared memory each lies in a bank of its own.
  __device__ void Begin(Shared<float> numbers) const {
    if (threadIdx.x < 16) numbers[threadIdx.x] = kDeviceNumbers[threadIdx.x];
    __syncthreads();
  }
  __device__ void Read(const unsigned char* rows, int64_t row, unsigned column, Shared<float> numbers,
                       float (&x)[kEach]) const {
    const unsigned char* const begin = rows + row * row_bytes_;
    // The upper half of a byte comes first.
    const uint32_t indices = reinterpret_cast<const Pack<uint32_t, 1>*>(begin + column / 2)->x[0];
    const unsigned from_block = begin[places_at_] + column;  // from where the row's first block begins
    const unsigned block = from_block / kBlock, own = kBlock - from_block % kBlock;  // the rest is in the next block
    const float absmax = Absmax(begin, block);
    const float next = own < kEach && column + own < columns_ ? Absmax(begin, block + 1) : absmax;
    for (unsigned k = 0; k < kEach; ++k) {
      const uint32_t index = indices >> (k / 2 * 8 + (k % 2 == 0 ? 4 : 0)) & 15;
      x[k] = numbers[static_cast<int>(index)] * (k < own ? absmax : next);
    }
  }

 private:
  // Of a block, counted from the row's first.
  __device__ float Absmax(const unsigned char* row, unsigned block) const {
    const unsigned group = (row[places_at_ + 1] + block) / kGroup;
    const unsigned char* const end = row + row_bytes_;
    const float product = kDeviceAbsmaxNumbers[row[absmaxes_at_ + block]] * FloatAt(end - 8 - int64_t{group} * 4);
    return product + FloatAt(end - 4);
  }

  static constexpr unsigned kBlock = kNf4Block, kGroup = kNf4Group;
  unsigned columns_;
  int64_t row_bytes_, absmaxes_at_, places_at_;
};

// A block per row.
template <class Reader>
__global__ void DequantiseRows(Reader reader, const unsigned char* rows, unsigned columns, bf16* values) {
  TEMPER_SHARED(float, scratch, 16);
  reader.Begin(scratch);
  const int64_t row = blockIdx.x;
  for (unsigned column = threadIdx.x * kEach; column < columns; column += blockDim.x * kEach) {
    float x[kEach];
    reader.Read(rows, row, column, scratch, x);
    bf16* const to = values + row * columns + column;
    if (columns % kEach == 0) {
      Store(to, x);
    } else {
      for (unsigned k = 0; k < kEach; ++k) {
        if (column + k < columns) Put(to + k, x[k]);
      }
    }
  }
}

template <class Reader>
Status Launch(const TensorType& matrix, const std::byte* rows, std::byte* values, gpuStream_t stream) {
  const int64_t columns = matrix.shape.columns();
  if (matrix.shape.elements() == 0) return OkStatus();
  TEMPER_CHECK(columns < int64_t{1} << 31) << matrix.ToString();
  constexpr int64_t kUnit = 64;  // lanes of the widest warp
  const int64_t threads = ((columns + kEach - 1) / kEach + kUnit - 1) / kUnit * kUnit;
  return TEMPER_LAUNCH((DequantiseRows<Reader>), static_cast<unsigned>(matrix.shape.rows()),
                       static_cast<unsigned>(std::min<int64_t>(threads, kBlockThreads)), stream, Reader(columns),
                       reinterpret_cast<const unsigned char*>(rows), static_cast<unsigned>(columns),
                       reinterpret_cast<bf16*>(values));
}

}  // namespace

Status Dequantise(const TensorType& matrix, const std::byte* rows, std::byte* values, gpuStream_t stream) {
  if (matrix.dtype == ElementFormat::Nf4()) return Launch<Nf4Reader>(matrix, rows, values, stream);
  TEMPER_CHECK(matrix.dtype == ElementFormat::Int8Rows()) << matrix.ToString();
  return Launch<Int8Reader>(matrix, rows, values, stream);
}

}  // namespace temper::gpu
