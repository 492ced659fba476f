// SPDX-License-Identifier: Apache-2.0
#include "template.hpp"

#include <algorithm>

#include "parser.hpp"
#include "run.hpp"

namespace jinja {
namespace {

// Filters and tests that a template names but that do not exist are found before it runs.
void check(const Node& node, std::vector<std::string>& names, bool& marks) {
  if (node.kind == Node::Kind::filter && !text_filter(node.text) && !list_filter(node.text))
    throw Error(node.line, node.column, "there is no filter `" + node.text + "`");
  if (node.kind == Node::Kind::test && !check_named(node.text))
    throw Error(node.line, node.column, "there is no test `" + node.text + "`");
  if (node.kind == Node::Kind::name) names.push_back(node.text);
  marks = marks || node.kind == Node::Kind::generation;
  for (const NodePtr& part : node.parts)
    if (part) check(*part, names, marks);
  for (const auto& named : node.named) check(*named.second, names, marks);
  for (const NodePtr& target : node.targets) check(*target, names, marks);
  for (const Body& body : node.bodies)
    for (const NodePtr& part : body) check(*part, names, marks);
}

}  // namespace

Template::Template(std::string_view source) {
  if (source.size() > Limits::template_bytes) throw Error(1, 1, "the template is longer than 1 MiB, the limit");
  body_ = Parser(tokens_of(source)).whole();
  for (const NodePtr& node : body_) check(*node, names_, marks_);
  std::sort(names_.begin(), names_.end());
}

Template::Template(Template&&) noexcept = default;
Template::~Template() = default;

bool Template::uses(std::string_view name) const {
  return std::binary_search(names_.begin(), names_.end(), name);
}

Rendered Template::render(const std::vector<std::pair<std::string, Value>>& variables, const std::optional<Date>& date,
                          const Limits& limits) const {
  Run run(variables, date, limits);
  run.whole(body_);
  return run.finish();
}

}  // namespace jinja
