// embedding and its backward. Floor: bytes of the rows that are read and written.
#include "backend/gpu/copy.h"
#include "backend/gpu/faults.h"
#include "tensor/int8_rows.h"

namespace temper::gpu {
namespace {

// The rows [begin, begin + rows) of a table of `whole` rows, and what a token's index is moved by (graph/op.h).
struct TableRows {
  int64_t offset, begin, rows, whole;

  __device__ bool Exists(int64_t index) const { return index + offset >= 0 && index + offset < whole; }
  // The row's place in this part of the table, or -1.
  __device__ int64_t Find(int64_t index) const {
    const int64_t row = index + offset - begin;
    return row >= 0 && row < rows ? row : -1;
  }
};

TableRows RowsOf(const Attributes& a, int64_t rows) {
  return {a.IntOr("offset", 0), a.IntOr("begin", 0), rows, a.IntOr("whole", rows)};
}

Faults::Word FaultOf(const Context& context, const TableRows& rows) {
  return context.faults->Register([whole = rows.whole](int64_t word) {
    return "token " + std::to_string(word - 1) + " of the batch asks for a row outside of an embedding table of " +
           std::to_string(whole) +
           " rows: the tokenizer does not belong to this model, or a sequence is longer than the model has positions";
  });
}

// y[t] = table[row of t], zero where this part has not that row. A block per token.
template <class T, int kCount>
__global__ void EmbeddingRowsOf(const T* table_VD, const int* index_T, TableRows rows, int64_t D, T* y_TD,
                                int64_t* fault) {
  const int64_t t = blockIdx.x, index = index_T[t], row = rows.Find(index);
  if (threadIdx.x == 0 && !rows.Exists(index)) *fault = 1 + t;
  for (int64_t d = int64_t{threadIdx.x} * kCount; d < D; d += int64_t{kBlockThreads} * kCount) {
    float x[kCount] = {};
    if (row >= 0) Load(table_VD + row * D + d, x);
    Store(y_TD + t * D + d, x);
  }
}

// The same of int8 rows (tensor/int8_rows.h) of so many bytes. kCount: 1, or 8 where D is a multiple of it.
template <int kCount>
__global__ void EmbeddingInt8Rows(const signed char* table, int64_t row_bytes, const int* index_T, TableRows rows,
                                  int64_t D, bf16* y_TD, int64_t* fault) {
  const int64_t t = blockIdx.x, index = index_T[t], row = rows.Find(index);
  if (threadIdx.x == 0 && !rows.Exists(index)) *fault = 1 + t;
  const signed char* const from = table + row * row_bytes;
  const float scale = row >= 0 ? reinterpret_cast<const Pack<float, 1>*>(from + row_bytes - 4)->x[0] : 0.0f;
  for (int64_t d = int64_t{threadIdx.x} * kCount; d < D; d += int64_t{kBlockThreads} * kCount) {
    float x[kCount] = {};
    if (row >= 0) {
      const Pack<signed char, kCount> q = *reinterpret_cast<const Pack<signed char, kCount>*>(from + d);
      for (int k = 0; k < kCount; ++k) x[k] = scale * static_cast<float>(q.x[k]);
    }
    Store(y_TD + t * D + d, x);
  }
}

// The block of a row's first token adds up all tokens of that row, in their order: no atomics, the same bits always.
// Costs T / kBlockThreads looks at the indices for each of those tokens.
template <class T>
__global__ void AddUpRows(const T* d_x_TD, const int* index_T, TableRows rows, int64_t tokens, int64_t D,
                          float* d_table_VD, int64_t* fault) {
  TEMPER_SHARED(int, scratch, kMostWarps);
  TEMPER_SHARED(int, same, kBlockThreads);
  const int64_t t = blockIdx.x, index = index_T[t], row = rows.Find(index);
  if (threadIdx.x == 0 && !rows.Exists(index)) *fault = 1 + t;
  if (row < 0) return;  // all threads of the block
  int earlier = 0;
  for (int64_t s = threadIdx.x; s < t; s += kBlockThreads) earlier |= index_T[s] == index;
  if (ReduceBlock<Max, int>(earlier, scratch) != 0) return;
  float* const sum = d_table_VD + row * D;
  for (int64_t begin = t; begin < tokens; begin += kBlockThreads) {
    const int64_t s = begin + threadIdx.x;
    const int mine = s < tokens && index_T[s] == index;
    same[threadIdx.x] = mine;
    if (ReduceBlock<Max, int>(mine, scratch) == 0) continue;
    for (int k = 0; k < kBlockThreads; ++k) {
      if (same[k] == 0) continue;
      const T* const d_x = d_x_TD + (begin + k) * D;
      for (int64_t d = threadIdx.x; d < D; d += kBlockThreads) sum[d] += Get(d_x + d);
    }
    __syncthreads();  // the next tokens overwrite what others still read
  }
}

}  // namespace

namespace {

// Rows that are trained apart from their table have no kernel here yet.
bool ListsRows(const Attributes& a) {
  return a.Has("only") || a.Has("without");
}

std::unique_ptr<Kernel> MakeInt8Embedding(const KernelSpec& spec, const Context& context) {
  const int64_t tokens = spec.inputs[1].shape.elements(), D = spec.inputs[0].shape.columns();
  const TableRows rows = RowsOf(spec.attributes, spec.inputs[0].shape[0]);
  return MakeKernel([=, stream = context.stream, fault = FaultOf(context, rows)](const KernelArgs& args) {
    if (tokens == 0) return OkStatus();
    const auto* const table = In<signed char>(args, 0);
    const int* const index = In<const int>(args, 1);
    bf16* const y = Out<bf16>(args, 0);
    const auto blocks = static_cast<unsigned>(tokens);
    constexpr unsigned kThreads = kBlockThreads;
    const int64_t row_bytes = Int8RowBytes(D);
    return D % 8 == 0 ? TEMPER_LAUNCH((EmbeddingInt8Rows<8>), blocks, kThreads, stream, table, row_bytes, index, rows,
                                      D, y, fault.get())
                      : TEMPER_LAUNCH((EmbeddingInt8Rows<1>), blocks, kThreads, stream, table, row_bytes, index, rows,
                                      D, y, fault.get());
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeEmbedding(const KernelSpec& spec, const Context& context) {
  if (ListsRows(spec.attributes)) return nullptr;
  if (spec.inputs[0].dtype == ElementFormat::Int8Rows()) return MakeInt8Embedding(spec, context);
  if (!IsCompute(spec.inputs[0])) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t tokens = spec.inputs[1].shape.elements(), D = spec.inputs[0].shape.columns();
    const TableRows rows = RowsOf(spec.attributes, spec.inputs[0].shape[0]);
    return MakeKernel([=, stream = context.stream, fault = FaultOf(context, rows)](const KernelArgs& args) {
      if (tokens == 0) return OkStatus();
      const T* const table = In<T>(args, 0);
      const int* const index = In<const int>(args, 1);
      T* const y = Out<T>(args, 0);
      const auto blocks = static_cast<unsigned>(tokens);
      constexpr unsigned kThreads = kBlockThreads;
      return D % kPack<T> == 0 ? TEMPER_LAUNCH((EmbeddingRowsOf<T, kPack<T>>), blocks, kThreads, stream, table, index,
                                               rows, D, y, fault.get())
                               : TEMPER_LAUNCH((EmbeddingRowsOf<T, 1>), blocks, kThreads, stream, table, index, rows, D,
                                               y, fault.get());
    });
  });
}

std::unique_ptr<Kernel> MakeEmbeddingBackward(const KernelSpec& spec, const Context& context) {
  if (ListsRows(spec.attributes)) return nullptr;
  if (!IsCompute(spec.inputs[0])) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int64_t tokens = spec.inputs[1].shape.elements(), D = spec.inputs[0].shape.columns();
    const int64_t n = spec.outputs[0].shape.elements();
    const TableRows rows = RowsOf(spec.attributes, spec.outputs[0].shape[0]);
    const bool acc = spec.attributes.Flag("acc");
    return MakeKernel([=, stream = context.stream, fault = FaultOf(context, rows)](const KernelArgs& args) {
      float* const d_table = Out<float>(args, 0);
      if (!acc) {
        TEMPER_RETURN_IF_ERROR(Clear(d_table, n, stream));
      } else {
        TEMPER_RETURN_IF_ERROR(Copy(args.inputs[2], args.outputs[0], Bytes{n * 4}, stream));
      }
      if (tokens == 0) return OkStatus();
      return TEMPER_LAUNCH((AddUpRows<T>), static_cast<unsigned>(tokens), unsigned{kBlockThreads}, stream,
                           In<T>(args, 0), In<const int>(args, 1), rows, tokens, D, d_table, fault.get());
    });
  });
}

}  // namespace temper::gpu
