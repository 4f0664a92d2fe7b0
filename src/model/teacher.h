// Teacher: a frozen model that another one learns from. Its forward pass is part of the other's graphs: it runs first,
// and only its last hidden states reach the loss. Passes see weights and activations like any others: they are planned,
// sharded, gathered, kept in far tiers. Nothing in it is trained, so it has no backward.
#pragma once

#include <string>

#include "graph/graph.h"
#include "model/base_format.h"
#include "model/model.h"

namespace temper {

// Begins the names of all that is the teacher's in a joint graph.
inline constexpr char kTeacherPrefix[] = "teacher.";
inline std::string TeacherName(const std::string& name) {
  return kTeacherPrefix + name;
}
// The name in the teacher's own graph; empty: it is not the teacher's.
std::string NameInTeacher(const std::string& name);

struct Teacher {
  const Model* model = nullptr;  // REQUIRES: outlives this
  BaseFormat base = {};          // how its weights are kept
};

// A teacher's forward pass for the tokens of one kind of micro-batch.
class TeacherPass {
 public:
  // `of_student`: dtype, tokens and rows count.
  TeacherPass(const Teacher& teacher, const ForwardSpec& of_student);

  // Without the head, whose operands these are.
  const Graph& graph() const { return graph_; }
  const HeadOperands& operands() const { return head_; }
  TeacherHead head() const;  // for ObjectiveSettings
  // The student's graph, whose tail reads the sources of this head, behind the teacher's pass. The teacher's blocks are
  // numbered from `student_blocks` on. Inputs of both are one.
  Graph Joined(const Graph& student, int student_blocks) const;

 private:
  HeadOperands head_;
  Graph graph_;
};

}  // namespace temper
