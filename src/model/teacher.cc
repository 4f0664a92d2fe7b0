#include "model/teacher.h"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"

namespace temper {

std::string NameInTeacher(const std::string& name) {
  return name.starts_with(kTeacherPrefix) ? name.substr(std::string_view(kTeacherPrefix).size()) : std::string();
}

TeacherPass::TeacherPass(const Teacher& teacher, const ForwardSpec& of_student) {
  graph_ = teacher.model->Forward(
      {.dtype = of_student.dtype, .tokens = of_student.tokens, .row = of_student.row, .bare_head = &head_});
  KeepBaseAs(teacher.base, teacher.model->modules(), &graph_);
}

TeacherHead TeacherPass::head() const {
  return {.width = graph_.value(head_.x_TD).type.shape[1], .bias = head_.bias_V != kNoValue, .softcap = head_.softcap};
}

namespace {

// Copies graphs behind each other into one.
class Joiner {
 public:
  // Ids of the copies, by those of `from`. `name`: of a value in the joint graph. `stands_for`: values that are there
  // already, by the names of sources that stand for them.
  template <class Name>
  std::vector<ValueId> Append(const Graph& from, const Name& name,
                              const std::map<std::string, ValueId, std::less<>>& stands_for, int first_block) {
    std::vector<ValueId> ids(static_cast<size_t>(from.num_values()), kNoValue);
    for (ValueId id = 0; id < from.num_values(); ++id) {
      Value value = from.value(id);
      ValueId& copy = ids[static_cast<size_t>(id)];
      if (const auto known = stands_for.find(value.name); known != stands_for.end()) {
        TEMPER_CHECK(joint_.value(known->second).type == value.type)
            << value.name << " is " << value.type.ToString() << ", the teacher's "
            << joint_.value(known->second).type.ToString();
        copy = known->second;
        continue;
      }
      const bool shared = value.role == Role::kInput || value.role == Role::kConstant;
      if (shared) {
        const auto [it, fresh] = shared_.try_emplace(value.name, kNoValue);
        if (fresh) it->second = joint_.AddValue(std::move(value));
        copy = it->second;
        continue;
      }
      value.name = name(value);
      copy = joint_.AddValue(std::move(value));
    }
    for (Node node : from.nodes()) {
      for (ValueId& id : node.inputs) id = ids[static_cast<size_t>(id)];
      for (ValueId& id : node.outputs) id = ids[static_cast<size_t>(id)];
      if (node.block >= 0) node.block += first_block;
      joint_.AddNode(std::move(node));
    }
    for (const LossRoot& root : from.roots()) {
      const ValueId seed = root.seed == kNoValue ? kNoValue : ids[static_cast<size_t>(root.seed)];
      joint_.roots().push_back({ids[static_cast<size_t>(root.loss)], seed});
    }
    return ids;
  }
  Graph Take() { return std::move(joint_); }

 private:
  Graph joint_;
  std::map<std::string, ValueId> shared_;  // inputs and constants, by name
};

}  // namespace

Graph TeacherPass::Joined(const Graph& student, int student_blocks) const {
  Joiner joiner;
  const std::vector<ValueId> ids = joiner.Append(
      graph_, [](const Value& v) { return TeacherName(v.name); }, {}, student_blocks);
  std::map<std::string, ValueId, std::less<>> stands_for = {{kTeacherHidden, ids[static_cast<size_t>(head_.x_TD)]},
                                                            {kTeacherHeadWeight, ids[static_cast<size_t>(head_.w_VD)]}};
  if (head_.bias_V != kNoValue) stands_for[kTeacherHeadBias] = ids[static_cast<size_t>(head_.bias_V)];
  joiner.Append(
      student, [](const Value& v) { return v.name; }, stands_for, /*first_block=*/0);
  return joiner.Take();
}

}  // namespace temper
