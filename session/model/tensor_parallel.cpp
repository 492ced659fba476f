// SPDX-License-Identifier: Apache-2.0
#include "session/model/tensor_parallel.hpp"

#include <algorithm>
#include <set>

#include "core/base/text.hpp"
#include "engine/ops_attention.h"
#include "engine/ops_parallel.h"
#include "session/model/caller_loss.hpp"

namespace eng {
namespace {

constexpr int32_t undivided = -1;  // no dimension of a value is divided

bool is_map(const Node& node) {
  return node.op->id == std::string(ENG_OP_LINEAR) || node.op->id == std::string(ENG_OP_LINEAR_RELU);
}
bool is_one_of(const Node& node, std::initializer_list<const char*> ids) {
  return std::any_of(ids.begin(), ids.end(), [&](const char* id) { return node.op->id == std::string(id); });
}

// Divides one template, which stands for some layers.
class Division {
 public:
  Division(Model& model, const Ranks& ranks, uint32_t tmpl)
      : model_(model),
        from_(model.templates.at(tmpl)),
        n_(ranks.tensor),
        index_(ranks.tensor_rank()),
        group_{{{"group", ranks.tensor_group(), 0}, {"members", int64_t{ranks.tensor}, 0}}},
        divided_(from_.graph.size() + 1, undivided),
        cuts_(from_.params.size()),
        of_(from_.graph.size() + 1, 0) {
    for (const Block& block : model.blocks)
      if (block.tmpl == tmpl) blocks_.push_back(&block);
  }
  Template divide() {
    for (const Node& node : from_.graph.nodes) choose(node);
    cut_parameters();
    begin();
    for (const Node& node : from_.graph.nodes) emit(node);
    to_.outputs = mapped(from_.outputs);
    return std::move(to_);
  }

 private:
  const Block& first() const { return *blocks_.front(); }
  std::string where() const { return fmt::format("model {}, block {}", model_.plugin, first().name); }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(Exit::usage, fmt::format("parallel.tensor = {}: {}: {}", n_, where(), what),
                "set parallel.tensor = 1, or choose a model of docs/parallel.md");
  }
  // The number of a parameter in the template; SIZE_MAX for another value.
  size_t parameter(Id id) const {
    const bool is = id && from_.graph.value(id).kind == SymbolKind::param;
    return is ? from_.graph.value(id).index : SIZE_MAX;
  }
  const std::string& name_of(Id id) const { return model_.params[first().params[parameter(id)]].name; }
  const eng_desc& desc(Id id) const { return from_.graph.value(id).desc; }
  int32_t last(Id id) const { return static_cast<int32_t>(desc(id).ndim) - 1; }
  bool leaves(Id id) const { return std::count(from_.outputs.begin(), from_.outputs.end(), id) > 0; }

  // Throws if the ranks do not divide a number of heads, rows or columns.
  void need_parts(int64_t number, const std::string& of_what) const {
    if (number % n_ == 0) return;
    int64_t best = 1;
    for (int64_t k = 1; k < n_; ++k)
      if (number % k == 0) best = k;
    throw Error(Exit::usage, fmt::format("parallel.tensor = {} does not divide {} ({})", n_, of_what, where()),
                fmt::format("set parallel.tensor = {}, or another divisor of {}", best, number));
  }

  // True if all that is made of a value in its channels comes to an end in other maps.
  bool ends_in_maps(Id value) const {
    if (leaves(value)) return false;
    bool read = false;
    for (const Node& node : from_.graph.nodes) {
      if (!std::count(node.in.begin(), node.in.end(), value)) continue;
      read = true;
      if (is_map(node) && node.in[0] == value && node.in[1] != value) continue;
      if (!passes(node)) return false;
      for (size_t k = 0; k < node.out.size(); ++k)
        if ((k == 0 || is_read(node.out[k])) && !ends_in_maps(node.out[k])) return false;
    }
    return read;
  }
  bool is_read(Id value) const {
    const auto reads = [&](const Node& node) { return std::count(node.in.begin(), node.in.end(), value) > 0; };
    return leaves(value) || std::any_of(from_.graph.nodes.begin(), from_.graph.nodes.end(), reads);
  }
  // Ops that compute a part of the heads or channels from the same part of their inputs. `RMS_NORM`: of each head.
  static bool passes(const Node& node) {
    return is_one_of(node, {ENG_OP_ROPE, ENG_OP_ATTENTION, ENG_OP_ATTENTION_WINDOW, ENG_OP_GATED, ENG_OP_ACTIVATION,
                            ENG_OP_ADD, ENG_OP_SCALE, ENG_OP_CAST, ENG_OP_RESHAPE, ENG_OP_SPLIT, ENG_OP_CONCAT}) ||
           is_head_norm(node);
  }
  static bool is_head_norm(const Node& node) {
    return is_one_of(node, {ENG_OP_RMS_NORM, ENG_OP_LAYER_NORM}) && node.out.size() < 3;
  }

  // Decides which dimension of a node's outputs is divided, and how its parameters are.
  void choose(const Node& node) {
    if (find_plugin_op(node.op->id)) refuse(fmt::format("it does not know {}", node.op->id));
    const int32_t d = node.in.empty() || !node.in[0] ? undivided : divided_[node.in[0]];
    if (is_map(node)) return choose_map(node, d);
    const auto is_divided = [&](Id i) { return i && divided_[i] != undivided; };
    if (std::none_of(node.in.begin(), node.in.end(), is_divided)) return;
    for (size_t k = 0; k < node.in.size(); ++k) {
      const bool beside = !node.in[k] || is_beside(node, k);
      if (!beside && divided_[node.in[k]] != d) refuse(fmt::format("{} mixes whole and divided inputs", node.op->id));
      if (beside && is_divided(node.in[k])) refuse(fmt::format("{} has a divided input {}", node.op->id, k));
    }
    if (d == undivided || !passes(node)) refuse(fmt::format("it cannot divide {}", node.op->id));
    divided_[node.out[0]] = divided_by(node, d);
    if (is_one_of(node, {ENG_OP_SPLIT}))
      for (Id o : node.out) divided_[o] = d;
  }
  // An input that all ranks have whole: tables, numbers of tokens, weights of a norm of each head.
  static bool is_beside(const Node& node, size_t k) {
    if (is_one_of(node, {ENG_OP_ROPE}) || is_head_norm(node)) return k > 0;
    return is_one_of(node, {ENG_OP_ATTENTION, ENG_OP_ATTENTION_WINDOW}) && k > 2;
  }
  int32_t divided_by(const Node& node, int32_t d) const {
    const Id x = node.in[0];
    const auto i = [&](const char* key) { return node.attrs.i(key); };
    if (is_one_of(node, {ENG_OP_ROPE})) need_parts(i("heads"), fmt::format("the {} heads of {}", i("heads"), "rope"));
    if (is_one_of(node, {ENG_OP_ATTENTION, ENG_OP_ATTENTION_WINDOW})) {
      need_parts(i("heads"), fmt::format("{} attention heads", i("heads")));
      need_parts(i("kv_heads"), fmt::format("{} heads of keys and values", i("kv_heads")));
    }
    if (is_head_norm(node) && d == last(x))
      refuse(fmt::format("{} is over all channels that are divided", node.op->id));
    if (is_one_of(node, {ENG_OP_SPLIT, ENG_OP_CONCAT}) && d == i("axis"))
      refuse(fmt::format("{} is along the dimension that is divided", node.op->id));
    if (!is_one_of(node, {ENG_OP_RESHAPE}) || d < i("keep")) return d;
    if (d != i("keep")) refuse(fmt::format("{} moves the dimension that is divided", node.op->id));
    need_parts(desc(node.out[0]).dims[d], fmt::format("{} heads", desc(node.out[0]).dims[d]));
    return d;
  }
  void choose_map(const Node& node, int32_t d) {
    const Id x = node.in[0], w = node.in[1], bias = node.in.size() > 2 ? node.in[2] : 0;
    if (parameter(w) == SIZE_MAX || (bias && parameter(bias) == SIZE_MAX))
      refuse(fmt::format("{} has a weight that is no parameter", node.op->id));
    const eng_desc& shape = desc(w);
    if (d == last(x)) {
      if (is_one_of(node, {ENG_OP_LINEAR_RELU})) refuse(fmt::format("{} behind another map", node.op->id));
      need_parts(shape.dims[1], fmt::format("the {} columns of {}", shape.dims[1], name_of(w)));
      need_parts(shape.dims[0], fmt::format("the {} rows of {}", shape.dims[0], name_of(w)));
      return cut(w, 1);
    }
    if (d != undivided) refuse(fmt::format("{} has an input that is divided otherwise", node.op->id));
    if (!ends_in_maps(node.out[0])) refuse(fmt::format("{} is not one of a pair of maps", name_of(w)));
    need_parts(shape.dims[0], fmt::format("the {} rows of {}", shape.dims[0], name_of(w)));
    cut(w, 0);
    if (bias) cut(bias, 0);
    divided_[node.out[0]] = last(node.out[0]);
  }
  void cut(Id id, uint32_t dim) {
    Divided& cut = cuts_[parameter(id)];
    const Divided with{dim, index_, n_};
    if (cut.count > 1 && cut.dim != dim) refuse(name_of(id) + " is read in two ways");
    cut = with;
  }
  void cut_parameters() {
    for (size_t k = 0; k < cuts_.size(); ++k)
      for (const Block* block : blocks_) {
        Parameter& p = model_.params[block->params[k]];
        const auto users = [&](const Block& b) {
          return std::count(b.params.begin(), b.params.end(), block->params[k]);
        };
        std::ptrdiff_t all = 0;
        for (const Block& b : model_.blocks) all += users(b);
        if (cuts_[k].count == 1) continue;
        if (all > 1) refuse(p.name + " is shared with another block");
        p.cut = cuts_[k];
        p.desc.dims[p.cut.dim] /= n_;
      }
  }

  // ---- the new template ------------------------------------------------------------------------------
  void begin() {
    to_.tmpl = from_.tmpl, to_.constants = from_.constants;
    to_.graph.among_ranks = true;
    for (Id id = 1; id <= from_.graph.size(); ++id) {
      Symbol v = from_.graph.value(id);
      if (v.kind == SymbolKind::temp) continue;
      if (const size_t k = parameter(id); k != SIZE_MAX && cuts_[k].count > 1) v.desc.dims[cuts_[k].dim] /= n_;
      of_[id] = to_.graph.add(v);
    }
    to_.params = mapped(from_.params), to_.inputs = mapped(from_.inputs);
    to_.beside = from_.beside ? of_[from_.beside] : 0;
  }
  std::vector<Id> mapped(const std::vector<Id>& ids) const {
    std::vector<Id> out;
    for (Id id : ids) out.push_back(id ? of_[id] : 0);
    return out;
  }
  Id made(const char* id, std::vector<Id> in, Attrs attrs) {
    return to_.graph.emit(op(id), std::move(in), std::move(attrs))[0];
  }
  // A whole value as an input of what is divided: the ranks' gradients of it are summed. `factor`: of the value.
  Id entered(Id value, double factor = 1) {
    const auto reads_whole = [&](const Node& node) {
      return std::count(node.in.begin(), node.in.end(), value) && !(is_map(node) && divided_[node.out[0]] != undivided);
    };
    const auto& nodes = from_.graph.nodes;
    const bool only = from_.graph.value(value).kind == SymbolKind::temp && !leaves(value) &&
                      std::none_of(nodes.begin(), nodes.end(), reads_whole);
    Id& here = entered_[{value, factor}];
    if (!here) here = only ? of_[value] : made(ENG_OP_SCALE, {of_[value]}, {{{"factor", 0, factor}}});
    to_.summed[here] = group_;
    return here;
  }
  void emit(const Node& node) {
    std::vector<Id> in = mapped(node.in);
    Attrs attrs = node.attrs;
    const Id x = node.in.empty() ? 0 : node.in[0];
    if (is_map(node) && divided_[node.out[0]] != undivided) {
      in[0] = entered(x);
    } else if (is_map(node)) {
      // Each rank adds its share of the bias, whose gradient is then the sum of the ranks' shares.
      if (in.size() > 2 && in[2]) in[2] = entered(node.in[2], 1.0 / n_);
      const Id part = made(node.op->id, in, attrs);
      of_[node.out[0]] = made(ENG_OP_GROUP_SUM, {part}, group_);
      return;
    } else if (x && divided_[x] != undivided) {
      for (size_t k = 1; k < in.size(); ++k)
        if (is_head_norm(node) && in[k]) in[k] = entered(node.in[k]);
      for (Attr& a : attrs.list) {
        if (a.key == "heads" || a.key == "kv_heads") a.i /= n_;
        const bool first = is_one_of(node, {ENG_OP_RESHAPE}) && divided_[x] == node.attrs.i("keep");
        if (first && a.key == "dim0" && a.i > 0) a.i /= n_;
      }
    }
    const std::vector<Id> out = to_.graph.emit(*node.op, std::move(in), std::move(attrs));
    for (size_t k = 0; k < out.size(); ++k) of_[node.out[k]] = out[k];
  }

  Model& model_;
  const Template from_;
  const uint32_t n_, index_;
  const Attrs group_;
  std::vector<const Block*> blocks_;
  std::vector<int32_t> divided_;  // per value: the dimension that is divided
  std::vector<Divided> cuts_;     // per parameter of the template
  Template to_;
  std::vector<Id> of_;  // value of `from_` -> the one that stands for it
  std::map<std::pair<Id, double>, Id> entered_;
};

}  // namespace

void check_parallel(const Config& config) {
  const auto refuse = [&](const char* what) {
    throw Error(Exit::usage,
                fmt::format("parallel.tensor = {} does not work with {} yet",
                            config.section("parallel").integer("tensor"), what),
                "remove one of the two");
  };
  if (!config.section("transforms").as<Tables>("list").empty()) refuse("[[transforms]] or [adapter]");
  if (!config.section("observers").as<Tables>("list").empty()) refuse("[[observers]]");
  if (config.section("reference").has("from")) refuse("[reference]");
  if (caller_loss(config)) refuse("loss.plugin = \"caller\"");
}

void divide_layers(Model& model, const Ranks& ranks) {
  if (ranks.tensor == 1) return;
  std::set<uint32_t> layers;
  for (size_t b = 1; b + 1 < model.blocks.size(); ++b) layers.insert(model.blocks[b].tmpl);
  for (const uint32_t tmpl : layers) {
    Template t = Division(model, ranks, tmpl).divide();
    model.templates.at(tmpl) = std::move(t);
  }
  if (std::none_of(model.params.begin(), model.params.end(), [](const Parameter& p) { return p.cut.count > 1; }))
    throw Error(Exit::usage,
                fmt::format("parallel.tensor = {}: model {} has no pairs of linear maps that ranks could divide",
                            ranks.tensor, model.plugin),
                "set parallel.tensor = 1");
}

std::string parallel_line(const Model& model, const Ranks& ranks) {
  if (ranks.tensor == 1) return "";
  size_t tensors = 0;
  int64_t divided = 0, all = 0;
  for (const Parameter& p : model.params) {
    all += count(p.whole());
    if (p.cut.count > 1) ++tensors, divided += count(p.whole());
  }
  return fmt::format("{} ranks divide {} of {} tensors, {} of {} parameters; {} of them with other rows", ranks.tensor,
                     tensors, model.params.size(), divided, all, ranks.data_size());
}

}  // namespace eng
