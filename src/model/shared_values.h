// SharedValues: what lives across blocks. A part of a block, or what stands before all blocks, publishes values under a
// name; parts of later blocks take them. So run keys and values that blocks share, and what each block adds of its own
// to a token. Gradients need nothing: a value may have any number of readers. A pipeline refuses values that it would
// have to carry past a stage, by name (compile/pipeline/pipeline.h).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/graph.h"

namespace temper {

class SharedValues {
 public:
  // In the place of what an earlier block published under that name.
  void Publish(const std::string& name, std::vector<ValueId> values) { values_[name] = std::move(values); }
  // REQUIRES: a block before this one, or what stands before the blocks, has published it.
  const std::vector<ValueId>& Take(const std::string& name) const {
    const auto it = values_.find(name);
    TEMPER_CHECK(it != values_.end()) << "no earlier block publishes " << name;
    return it->second;
  }

 private:
  std::map<std::string, std::vector<ValueId>> values_;
};

}  // namespace temper
