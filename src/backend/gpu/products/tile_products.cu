#include "backend/gpu/products/tile_products.h"

#include <algorithm>

#include "backend/gpu/launch.h"

namespace temper::gpu {
namespace {

constexpr int kTile = 64;                               // rows and columns of out per block
constexpr int kDepth = 16;                              // of k at a time
constexpr int kEach = 4;                                // rows and columns of out per thread
constexpr int kSide = kTile / kEach;                    // threads along a side: kSide^2 = kBlockThreads
constexpr int kStride = kTile + 1;                      // odd: lanes that read a column meet different banks
constexpr int kLoads = kTile * kDepth / kBlockThreads;  // of each operand, per thread
constexpr int64_t kMostTilesAcross = 65535;             // of a grid's second dim
static_assert(kSide * kSide == kBlockThreads);

struct Product {
  int64_t m, n, k;
  bool a_k_contiguous, b_k_contiguous;
  float scale;
};

// Rows [first, first + kTile) and terms [k_begin, k_begin + kDepth) of x[rows, k], as tile[term, row].
template <class T>
__device__ void LoadPanel(const T* x, int64_t first, int64_t rows, int64_t k_begin, int64_t k, bool k_contiguous,
                          Shared<float> tile) {
  for (int load = 0; load < kLoads; ++load) {
    const int i = static_cast<int>(threadIdx.x) + load * kBlockThreads;
    // Neighbours in the block read neighbours in memory.
    const int row = k_contiguous ? i / kDepth : i % kTile, term = k_contiguous ? i % kDepth : i / kTile;
    const int64_t r = first + row, t = k_begin + term;
    const bool there = r < rows && t < k;
    tile[term * kStride + row] = there ? Get(x + (k_contiguous ? r * k + t : t * rows + r)) : 0.0f;
  }
}

template <class In, class Out>
__global__ void TileProduct(Product p, const In* a, const In* b, const In* bias, const Out* acc, Out* out) {
  TEMPER_SHARED(float, a_tile, kDepth* kStride);
  TEMPER_SHARED(float, b_tile, kDepth* kStride);
  const int64_t m_begin = int64_t{blockIdx.y} * kTile, n_begin = int64_t{blockIdx.x} * kTile;
  const int row = static_cast<int>(threadIdx.x) / kSide, column = static_cast<int>(threadIdx.x) % kSide;
  float sum[kEach][kEach] = {};
  for (int64_t k_begin = 0; k_begin < p.k; k_begin += kDepth) {
    LoadPanel(a, m_begin, p.m, k_begin, p.k, p.a_k_contiguous, a_tile);
    LoadPanel(b, n_begin, p.n, k_begin, p.k, p.b_k_contiguous, b_tile);
    __syncthreads();
    for (int term = 0; term < kDepth; ++term) {
      float x[kEach], y[kEach];
      for (int i = 0; i < kEach; ++i) {
        x[i] = a_tile[term * kStride + row + i * kSide];
        y[i] = b_tile[term * kStride + column + i * kSide];
      }
      for (int i = 0; i < kEach; ++i) {
        for (int j = 0; j < kEach; ++j) sum[i][j] = Fma(x[i], y[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kEach; ++i) {
    for (int j = 0; j < kEach; ++j) {
      const int64_t m = m_begin + row + i * kSide, n = n_begin + column + j * kSide;
      if (m >= p.m || n >= p.n) continue;
      float x = sum[i][j] * p.scale;
      if (bias != nullptr) x += Get(bias + n);
      if (acc != nullptr) x += Get(acc + m * p.n + n);
      Put(out + m * p.n + n, x);
    }
  }
}

template <class In, class Out>
class TileProductKernel final : public MatrixProduct {
 public:
  TileProductKernel(const ProductShape& shape, gpuStream_t stream)
      : product_{shape.m,
                 shape.n,
                 shape.k,
                 shape.a_k_contiguous,
                 shape.b_k_contiguous,
                 static_cast<float>(shape.scale)},
        stream_(stream) {}
  Status Run(const ProductOperands& o) override {
    const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); };
    return TEMPER_LAUNCH((TileProduct<In, Out>), (gpuDim3{tiles(product_.n), tiles(product_.m)}),
                         unsigned{kBlockThreads}, stream_, product_, As<const In>(o.a), As<const In>(o.b),
                         As<const In>(o.bias), As<const Out>(o.acc), reinterpret_cast<Out*>(o.out));
  }

 private:
  template <class T>
  static T* As(const std::byte* p) {
    return reinterpret_cast<T*>(p);
  }
  const Product product_;
  const gpuStream_t stream_;
};

class TileProducts final : public MatrixProducts {
 public:
  explicit TileProducts(gpuStream_t stream) : stream_(stream) {}
  Result<std::unique_ptr<MatrixProduct>> Make(const ProductShape& shape) override {
    for (const DType t : {shape.dtype, shape.out_dtype}) {
      if (t != DType::kF32 && t != DType::kBF16) return Unsupported("a matrix product in " + std::string(ToString(t)));
    }
    if (shape.m > kMostTilesAcross * kTile)
      return Unsupported("a matrix product of " + std::to_string(shape.m) + " rows");
    std::unique_ptr<MatrixProduct> product = MakeMatrixTileProduct(shape, stream_);
    if (product != nullptr) return Result<std::unique_ptr<MatrixProduct>>(std::move(product));
    DispatchFloat(shape.dtype, [&]<class In>() {
      DispatchFloat(shape.out_dtype,
                    [&]<class Out>() { product = std::make_unique<TileProductKernel<In, Out>>(shape, stream_); });
    });
    return Result<std::unique_ptr<MatrixProduct>>(std::move(product));
  }

 private:
  const gpuStream_t stream_;
};

}  // namespace

std::unique_ptr<MatrixProducts> MakeTileProducts(gpuStream_t stream) {
  return std::make_unique<TileProducts>(stream);
}

}  // namespace temper::gpu
