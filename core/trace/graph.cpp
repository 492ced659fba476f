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

std::string wrong_with(const eng_desc& desc) try {
  constexpr int64_t most = int64_t{1} << 40;
  for (uint32_t k = 0; k < desc.ndim && desc.ndim <= ENG_MAX_DIMS; ++k)
    if (desc.dims[k] < 0 || desc.dims[k] > most)
      return fmt::format("has a dimension out of range (0 to 2^40): {}", describe(desc));
  byte_count(desc);
  return "";
} catch (const Error& e) {
  return fmt::format("is invalid: {}", e.what());
}

std::string infer(const Op& op, std::span<const eng_desc> in, const Attrs& attrs, std::vector<eng_desc>& out) {
  std::string wrong = op.infer(in, attrs, out);
  for (size_t k = 0; k < out.size() && wrong.empty(); ++k)
    if (wrong = wrong_with(out[k]); !wrong.empty()) wrong = fmt::format("output {} {}", k, wrong);
  return wrong;
}

std::vector<eng_desc> Graph::outputs(const Op& op, const std::vector<Id>& in, const Attrs& attrs) const {
  if (in.size() < op.min_in || in.size() > op.max_in)
    throw fault("{} takes {} to {} inputs, {} given", op.id, op.min_in, op.max_in, in.size());
  if (op.collective && !among_ranks) throw fault("{} is a collective: models cannot use it", op.id);
  if (!op.max_in) throw fault("{} can only initialise parameters", op.id);
  std::vector<eng_desc> shapes;
  for (size_t k = 0; k < in.size(); ++k) {
    if (in[k] == 0 && k < op.min_in && !(op.optional >> k & 1U)) throw fault("{}: input {} is missing", op.id, k);
    shapes.push_back(in[k] ? value(in[k]).desc : eng_desc{});
    if (!count(shapes.back())) throw fault("{}: input {} has no elements", op.id, k);
  }
  std::vector<eng_desc> out_shapes;
  std::string wrong = infer(op, shapes, attrs, out_shapes);
  if (!wrong.empty()) {
    std::string given;
    for (const auto& s : shapes) given += (given.empty() ? "" : ", ") + (s.dtype ? describe(s) : "absent");
    throw fault("{}: {} (inputs: {})", op.id, wrong, given);
  }
  return out_shapes;
}

std::vector<Id> Graph::emit(const Op& op, std::vector<Id> in, Attrs attrs) {
  const std::vector<eng_desc> out_shapes = outputs(op, in, attrs);
  Node node{&op, std::move(in), {}, std::move(attrs)};
  for (const auto& desc : out_shapes) node.out.push_back(add({SymbolKind::temp, desc, 0}));
  nodes.push_back(node);
  return node.out;
}

}  // namespace eng
