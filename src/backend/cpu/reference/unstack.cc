// The matrices that one matrix holds, one after the other in its rows or in turn in its columns; and the way back.
#include "backend/cpu/reference/call.h"

namespace temper::reference {
namespace {

// Where element [e, o, i] of a stack lies in the matrix, which has E experts.
int64_t PlaceOf(const Shape& stack, int64_t E, bool interleaved, int64_t e, int64_t o, int64_t i) {
  const int64_t O = stack[1], I = stack[2];
  return interleaved ? (o * I + i) * E + e : (e * O + o) * I + i;
}

}  // namespace

Status Unstack(const Call& call) {
  const Operand w = call.In(0), stack = call.Out(0);
  const Shape& shape = stack.type().shape;
  const bool interleaved = call.attributes().Flag("interleaved");
  const int64_t E = call.attributes().Int("matrices"), first = call.attributes().IntOr("begin", 0);
  int64_t at = 0;
  for (int64_t e = 0; e < shape[0]; ++e) {
    for (int64_t o = 0; o < shape[1]; ++o) {
      for (int64_t i = 0; i < shape[2]; ++i) stack.Store(at++, w[PlaceOf(shape, E, interleaved, first + e, o, i)]);
    }
  }
  return OkStatus();
}

Status UnstackBackward(const Call& call) {
  const Operand d_stack = call.In(0), d_w = call.Out(0);
  const Shape& shape = d_stack.type().shape;
  const bool interleaved = call.attributes().Flag("interleaved"), acc = call.attributes().Flag("acc");
  const int64_t E = call.attributes().IntOr("whole", shape[0]), first = call.attributes().IntOr("begin", 0);
  for (int64_t place = 0; place < d_w.elements(); ++place) d_w.Store(place, acc ? call.In(1)[place] : 0);
  int64_t at = 0;
  for (int64_t e = 0; e < shape[0]; ++e) {
    for (int64_t o = 0; o < shape[1]; ++o) {
      for (int64_t i = 0; i < shape[2]; ++i) {
        const int64_t place = PlaceOf(shape, E, interleaved, first + e, o, i);
        d_w.Store(place, (acc ? call.In(1)[place] : 0) + d_stack[at++]);
      }
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
