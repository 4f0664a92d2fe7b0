// Lockstep: the graphs of all ranks of a mesh, run by the reference kernels, one node
// of every rank at a time. Collectives are plain loops that follow graph/op.h. Without
// communicator and Program, this checks only Partition and the gradient rules.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/cpu/kernel_twin.h"
#include "graph/graph.h"
#include "tensor/mesh.h"

namespace temper {

class Lockstep {
 public:
  // `source` fills a rank's source values. REQUIRES: one graph per rank, all verified.
  using Source = std::function<TestTensor(int rank, const Value& value)>;
  Lockstep(const Mesh& mesh, const std::vector<Graph>& graphs, const Source& source);

  // Runs all nodes once. An error is a test failure: graphs of different nodes, a kernel that fails.
  void Run();

  // The last value of that name that rank `rank` wrote; nullptr if there is none.
  const TestTensor* Find(int rank, const std::string& name) const;

 private:
  void RunKernels(size_t node);
  void RunCollective(size_t node);
  TestTensor& At(int rank, ValueId id);

  const Mesh mesh_;
  const std::vector<Graph>& graphs_;
  std::vector<std::map<ValueId, TestTensor>> values_;  // per rank, by the value that owns the address
};

}  // namespace temper
