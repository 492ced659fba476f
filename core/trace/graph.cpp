// SPDX-License-Identifier: Apache-2.0
#include "core/trace/graph.hpp"

#include "core/base/error.hpp"

namespace eng {

eng_desc make_desc(int32_t dtype, std::initializer_list<int64_t> dims) {
  eng_desc desc{};
  desc.dtype = dtype;
  for (int64_t d : dims) desc.dims[desc.ndim++] = d;
  return desc;
}

std::vector<Id> Graph::emit(const Op& op, std::vector<Id> in, Attrs attrs) {
  if (in.size() < op.min_in || in.size() > op.max_in)
    throw Error(Exit::environment,
                fmt::format("{} takes {} to {} inputs, {} given", op.id, op.min_in, op.max_in, in.size()));
  std::vector<eng_desc> shapes;
  for (size_t k = 0; k < in.size(); ++k) {
    if (in[k] == 0 && k < op.min_in) throw Error(Exit::environment, fmt::format("{}: input {} is missing", op.id, k));
    shapes.push_back(in[k] ? value(in[k]).desc : eng_desc{});
    if (!count(shapes.back())) throw Error(Exit::environment, fmt::format("{}: input {} has no elements", op.id, k));
  }
  std::vector<eng_desc> out_shapes;
  std::string wrong = op.infer(shapes, attrs, out_shapes);
  if (!wrong.empty()) {
    std::string given;
    for (const auto& s : shapes) given += (given.empty() ? "" : ", ") + (s.dtype ? describe(s) : "absent");
    throw Error(Exit::environment, fmt::format("{}: {} (inputs: {})", op.id, wrong, given));
  }
  Node node{&op, std::move(in), {}, std::move(attrs)};
  for (const auto& desc : out_shapes) node.out.push_back(add({SymbolKind::temp, desc, 0}));
  nodes.push_back(node);
  return node.out;
}

}  // namespace eng
