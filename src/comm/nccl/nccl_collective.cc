#include "comm/nccl/nccl_collective.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "comm/local/collective_plan.h"
#include "graph/named_ops.h"

namespace temper {
namespace {

constexpr Bytes kScratchAlignment{256};

NcclType TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return NcclType::kFloat32;
    case DType::kBF16:
      return NcclType::kBfloat16;
    case DType::kF64:
      return NcclType::kFloat64;
    default:
      TEMPER_CHECK(false) << "a sum of " << ToString(dtype);
      return NcclType::kUint8;
  }
}

size_t Size(int64_t n) {
  return static_cast<size_t>(n);
}

// One group of calls, which NCCL carries out together. Every call between Begin and End must be made on all members.
class Calls {
 public:
  Calls(NcclGroups& groups, const NcclGroup& group, void* stream)
      : groups_(groups), api_(groups.api()), comm_(group.comm), stream_(stream) {}
  Status Begin() {
    TEMPER_ASSIGN_OR_RETURN(inside_, groups_.Enter());
    return groups_.StatusOf(api_.group_start(), "a group of calls");
  }
  // Ends the group also where a call failed: what was begun must be ended.
  Status End() {
    const Status ended = groups_.StatusOf(api_.group_end(), "a group of calls");
    inside_ = {};
    return failed_.ok() ? ended : failed_;
  }
  void AllGather(const std::byte* in, std::byte* out, int64_t bytes) {
    if (bytes > 0) Note(api_.all_gather(in, out, Size(bytes), NcclType::kUint8, comm_, stream_), "all_gather");
  }
  void Broadcast(const std::byte* in, std::byte* out, int64_t bytes, int root) {
    if (bytes > 0) Note(api_.broadcast(in, out, Size(bytes), NcclType::kUint8, root, comm_, stream_), "all_gather");
  }
  void ReduceScatter(const std::byte* in, std::byte* out, int64_t elements, DType dtype) {
    if (elements == 0) return;
    Note(api_.reduce_scatter(in, out, Size(elements), TypeOf(dtype), NcclReduction::kSum, comm_, stream_),
         "reduce_scatter");
  }
  void Reduce(const std::byte* in, std::byte* out, int64_t elements, DType dtype, int root) {
    if (elements == 0) return;
    Note(api_.reduce(in, out, Size(elements), TypeOf(dtype), NcclReduction::kSum, root, comm_, stream_),
         "reduce_scatter");
  }
  void AllReduce(const std::byte* in, std::byte* out, int64_t elements, DType dtype) {
    if (elements == 0) return;
    Note(api_.all_reduce(in, out, Size(elements), TypeOf(dtype), NcclReduction::kSum, comm_, stream_), "all_reduce");
  }
  void Send(const std::byte* in, int64_t bytes, int peer) {
    if (bytes > 0) Note(api_.send(in, Size(bytes), NcclType::kUint8, peer, comm_, stream_), "send");
  }
  void Receive(std::byte* out, int64_t bytes, int peer) {
    if (bytes > 0) Note(api_.receive(out, Size(bytes), NcclType::kUint8, peer, comm_, stream_), "recv");
  }

 private:
  void Note(NcclResult result, const char* what) {
    if (failed_.ok()) failed_ = groups_.StatusOf(result, what);
  }
  NcclGroups& groups_;
  const NcclApi& api_;
  const NcclComm comm_;
  void* const stream_;
  NcclGroups::Inside inside_;
  Status failed_;
};

// One tensor of a collective, and where in the scratch it has room (NcclScratchLayout).
struct Tensor {
  CollectiveTensor shape;
  int64_t packed = -1, sum = -1;
  std::unique_ptr<Kernel> add;  // sum + acc -> part
  int64_t bytes_of(int m) const { return shape.outer * shape.row(m) * shape.element_bytes(); }
  // Where the part of member m begins among parts that lie side by side.
  int64_t offset_of(int m) const {
    return shape.outer * shape.parts[static_cast<size_t>(m)].begin * shape.inner * shape.element_bytes();
  }
  bool even() const {
    return std::all_of(shape.parts.begin(), shape.parts.end(),
                       [&](const Part& part) { return part.count == shape.parts[0].count; });
  }
};

class NcclCollective final : public Kernel {
 public:
  NcclCollective(const NcclContext& context, StreamUse use, const NcclGroup& group, CollectivePlan plan)
      : context_(context),
        use_(use),
        stream_(context.device.StreamFor(use)),
        group_(group),
        op_(plan.op),
        acc_(plan.acc),
        sent_(plan.sent) {
    for (CollectiveTensor& shape : plan.tensors) tensors_.push_back({.shape = std::move(shape)});
  }

  // What it needs beside its operands.
  Status Prepare(const KernelSpec& spec) {
    const NcclScratchLayout layout = NcclScratchOf(spec);
    for (size_t t = 0; t < tensors_.size(); ++t) {
      Tensor& tensor = tensors_[t];
      tensor.packed = layout.packed[t];
      tensor.sum = layout.sum[t];
      if (tensor.sum < 0) continue;
      const TensorType& part = spec.outputs[t];
      TEMPER_ASSIGN_OR_RETURN(tensor.add, context_.device.KernelsFor(use_).Make(
                                              {.op = Op::kAdd, .inputs = {part, part}, .outputs = {part}}));
    }
    return context_.scratch.Reserve(use_, layout.size);
  }

  Status Run(const KernelArgs& args) override {
    context_.sent.fetch_add(sent_.v, std::memory_order_relaxed);
    if (op_ == Op::kReduceScatter) TEMPER_RETURN_IF_ERROR(Pack(args));
    Calls calls(context_.groups, group_, stream_.handle());
    TEMPER_RETURN_IF_ERROR(calls.Begin());
    for (size_t t = 0; t < tensors_.size(); ++t) Call(args, t, calls);
    TEMPER_RETURN_IF_ERROR(calls.End());
    if (op_ == Op::kAllGather) return Unpack(args);
    return acc_ ? Add(args) : OkStatus();
  }
  bool replayable() const override { return false; }

 private:
  std::byte* Scratch(int64_t at) const { return context_.scratch.At(use_) + at; }

  void Call(const KernelArgs& args, size_t t, Calls& calls) const {
    const Tensor& tensor = tensors_[t];
    const std::byte* in = args.inputs[t];
    std::byte* out = args.outputs[t];
    const CollectiveTensor& shape = tensor.shape;
    const int64_t whole = shape.bytes().v, elements = whole / shape.element_bytes();
    switch (op_) {
      case Op::kAllGather:
        if (tensor.packed >= 0) out = Scratch(tensor.packed);
        if (tensor.even()) return calls.AllGather(in, out, tensor.bytes_of(0));
        for (int m = 0; m < group_.size; ++m) calls.Broadcast(in, out + tensor.offset_of(m), tensor.bytes_of(m), m);
        return;
      case Op::kReduceScatter:
        if (tensor.packed >= 0) in = Scratch(tensor.packed);
        if (tensor.sum >= 0) out = Scratch(tensor.sum);
        if (tensor.even()) return calls.ReduceScatter(in, out, elements / group_.size, shape.dtype);
        for (int m = 0; m < group_.size; ++m) {
          calls.Reduce(in + tensor.offset_of(m), out, tensor.bytes_of(m) / shape.element_bytes(), shape.dtype, m);
        }
        return;
      case Op::kAllReduce:
        return calls.AllReduce(in, out, elements, shape.dtype);
      case Op::kShift:
        calls.Send(in, whole, (group_.index + 1) % group_.size);
        calls.Receive(out, whole, (group_.index + group_.size - 1) % group_.size);
        return;
      default:
        TEMPER_CHECK(false) << ToString(op_);
    }
  }

  // Between the whole, where a part is `outer` runs of bytes, and parts that lie side by side.
  Status CopyParts(const Tensor& tensor, std::byte* whole, bool pack) const {
    const CollectiveTensor& shape = tensor.shape;
    const int64_t element = shape.element_bytes();
    for (int m = 0; m < group_.size; ++m) {
      const Bytes width{shape.row(m) * element};
      const Stream::Rows apart = {whole + shape.row_begin(m, 0) * element, {shape.whole * shape.inner * element}};
      const Stream::Rows packed = {Scratch(tensor.packed + tensor.offset_of(m)), width};
      TEMPER_RETURN_IF_ERROR(pack ? stream_.CopyRows(apart, packed, width, shape.outer)
                                  : stream_.CopyRows(packed, apart, width, shape.outer));
    }
    return OkStatus();
  }
  Status Pack(const KernelArgs& args) const {
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (tensors_[t].packed >= 0) TEMPER_RETURN_IF_ERROR(CopyParts(tensors_[t], args.inputs[t], /*pack=*/true));
    }
    return OkStatus();
  }
  Status Unpack(const KernelArgs& args) const {
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (tensors_[t].packed >= 0) TEMPER_RETURN_IF_ERROR(CopyParts(tensors_[t], args.outputs[t], /*pack=*/false));
    }
    return OkStatus();
  }
  Status Add(const KernelArgs& args) const {
    for (size_t t = 0; t < tensors_.size(); ++t) {
      if (tensors_[t].bytes_of(group_.index) == 0) continue;
      std::byte* const terms[] = {Scratch(tensors_[t].sum), args.inputs[tensors_.size() + t]};
      TEMPER_RETURN_IF_ERROR(tensors_[t].add->Run({.inputs = terms, .outputs = args.outputs + t}));
    }
    return OkStatus();
  }

  const NcclContext context_;
  const StreamUse use_;
  Stream& stream_;
  const NcclGroup group_;
  const Op op_;
  const bool acc_;
  const Bytes sent_;
  std::vector<Tensor> tensors_;
};

class NcclTransfer final : public Kernel {
 public:
  NcclTransfer(const NcclContext& context, const KernelSpec& spec, const NcclGroup& pair)
      : context_(context),
        stream_(context.device.StreamFor(StreamOfCollective(spec))),
        pair_(pair),
        sends_(spec.op == Op::kSend),
        bytes_(sends_ ? spec.inputs[0].bytes() : spec.outputs[0].bytes()) {}

  Status Run(const KernelArgs& args) override {
    if (sends_) context_.sent.fetch_add(bytes_.v, std::memory_order_relaxed);
    Calls calls(context_.groups, pair_, stream_.handle());
    TEMPER_RETURN_IF_ERROR(calls.Begin());
    if (sends_) {
      calls.Send(args.inputs[0], bytes_.v, 1 - pair_.index);
    } else {
      calls.Receive(args.outputs[0], bytes_.v, 1 - pair_.index);
    }
    return calls.End();
  }
  bool replayable() const override { return false; }

 private:
  const NcclContext context_;
  Stream& stream_;
  const NcclGroup pair_;
  const bool sends_;
  const Bytes bytes_;
};

// Every rank has the value already.
class NcclBroadcast final : public Kernel {
 public:
  NcclBroadcast(const NcclContext& context, const KernelSpec& spec)
      : stream_(context.device.StreamFor(StreamOfCollective(spec))), bytes_(spec.inputs[0].bytes()) {}
  Status Run(const KernelArgs& args) override {
    if (args.inputs[0] == args.outputs[0]) return OkStatus();
    return stream_.Copy(args.inputs[0], args.outputs[0], bytes_);
  }
  bool replayable() const override { return false; }

 private:
  Stream& stream_;
  const Bytes bytes_;
};

}  // namespace

NcclScratch::~NcclScratch() {
  for (const std::span<std::byte>& memory : memory_) {
    if (memory.data() != nullptr) device_.Release(memory);
  }
}

Status NcclScratch::Reserve(StreamUse use, Bytes size) {
  std::span<std::byte>& memory = memory_[static_cast<size_t>(use)];
  if (size.v <= static_cast<int64_t>(memory.size())) return OkStatus();
  TEMPER_RETURN_IF_ERROR(device_.StreamFor(use).Synchronize());
  if (memory.data() != nullptr) device_.Release(memory);
  memory = {};
  TEMPER_ASSIGN_OR_RETURN(memory, device_.Allocate(size));
  return device_.stream().Synchronize();  // it is zeroed by now
}

NcclScratchLayout NcclScratchOf(const KernelSpec& spec) {
  const size_t tensors = spec.outputs.size();
  NcclScratchLayout layout{.packed = std::vector<int64_t>(tensors, -1), .sum = std::vector<int64_t>(tensors, -1)};
  const auto take = [&](Bytes bytes) {
    const int64_t at = layout.size.v;
    layout.size = AlignUp(layout.size + bytes, kScratchAlignment.v);
    return at;
  };
  const bool gathers = spec.op == Op::kAllGather, scatters = spec.op == Op::kReduceScatter;
  for (size_t t = 0; t < tensors && (gathers || scatters); ++t) {
    const TensorType& whole = gathers ? spec.outputs[t] : spec.inputs[t];
    int64_t outer = 1;
    for (int d = 0; d < static_cast<int>(spec.attributes.Int("dim")); ++d) outer *= whole.shape[d];
    if (outer > 1) layout.packed[t] = take(whole.bytes());
    if (scatters && spec.attributes.Flag("acc")) layout.sum[t] = take(spec.outputs[t].bytes());
  }
  return layout;
}

StreamUse StreamOfCollective(const KernelSpec& spec) {
  if (spec.op == Op::kSend) return StreamUse::kSends;
  if (spec.op == Op::kRecv) return StreamUse::kReceives;
  if (!spec.attributes.Flag("background")) return StreamUse::kCompute;
  return spec.attributes.Flag("soon") ? StreamUse::kSoonCollectives : StreamUse::kCollectives;
}

Result<std::unique_ptr<Kernel>> MakeNcclKernel(const KernelSpec& spec, const NcclContext& context) {
  TEMPER_CHECK(IsCollective(spec.op)) << ToString(spec.op);
  if (spec.op == Op::kBroadcast) return std::unique_ptr<Kernel>(std::make_unique<NcclBroadcast>(context, spec));
  TEMPER_ASSIGN_OR_RETURN(const AxisSet axes, AxisSet::Parse(spec.attributes.String("axes")));
  const Mesh& mesh = context.groups.mesh();
  const int own = mesh.IndexIn(axes, context.groups.rank());
  if (IsTransfer(spec.op)) {
    const int peer = static_cast<int>(spec.attributes.Int("peer"));
    const bool sends = spec.op == Op::kSend;
    TEMPER_ASSIGN_OR_RETURN(const NcclGroup pair, context.groups.Between(axes, sends ? own : peer, sends ? peer : own));
    return std::unique_ptr<Kernel>(std::make_unique<NcclTransfer>(context, spec, pair));
  }
  if (mesh.size(axes) != spec.attributes.Int("ranks")) {
    return InvalidArgument(fmt::format("{} over {} needs {} ranks; mesh {} has {}", ToString(spec.op), axes.ToString(),
                                       spec.attributes.Int("ranks"), mesh.ToString(), mesh.size(axes)));
  }
  const StreamUse use = StreamOfCollective(spec);
  TEMPER_ASSIGN_OR_RETURN(const NcclGroup group, context.groups.Of(axes, use));
  TEMPER_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, context.groups.Gather(axes, OwnPartSizes(spec)));
  TEMPER_ASSIGN_OR_RETURN(CollectivePlan plan, PlanCollective(spec, group.size, sizes));
  auto kernel = std::make_unique<NcclCollective>(context, use, group, std::move(plan));
  TEMPER_RETURN_IF_ERROR(kernel->Prepare(spec));
  return std::unique_ptr<Kernel>(std::move(kernel));
}

}  // namespace temper
