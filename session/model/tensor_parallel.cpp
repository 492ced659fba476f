// SPDX-License-Identifier: Apache-2.0
#include "session/model/tensor_parallel.hpp"

#include <algorithm>
#include <set>

#include "core/base/text.hpp"
#include "engine/ops_attention.h"
#include "engine/ops_fp8.h"
#include "engine/ops_parallel.h"
#include "session/model/across_ranks.hpp"
#include "session/model/divided_ops.hpp"
#include "session/model/divided_parts.hpp"

namespace eng {
namespace {

constexpr int32_t undivided = -1;  // no dimension of a value is divided

bool is_map(const Node& node) {
  const std::string id = node.op->id;
  return id == ENG_OP_LINEAR || id == ENG_OP_LINEAR_RELU || id == ENG_OP_FP8_LINEAR || id == op_experts;
}

// Divides one template, which stands for some layers.
class Division {
 public:
  Division(Model& model, const Ranks& ranks, uint32_t tmpl, bool kernels)
      : model_(model),
        from_(model.templates.at(tmpl)),
        n_(ranks.tensor),
        index_(ranks.tensor_rank()),
        context_(ranks.context),
        kernels_(kernels),
        group_{{{"group", ranks.tensor_group(), 0}, {"members", int64_t{ranks.tensor}, 0}}},
        divided_(from_.graph.size() + 1, undivided),
        borders_(from_.graph.size() + 1),
        partial_(from_.graph.size() + 1, 0),
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
                            ENG_OP_ADD, ENG_OP_SCALE, ENG_OP_CAST, ENG_OP_RESHAPE, ENG_OP_SPLIT, ENG_OP_CONCAT,
                            ENG_OP_DROPOUT, op_magnitude}) ||
           is_head_norm(node) || divided_op(node.op->id);
  }
  const Node* only_reader(Id value) const {
    const Node* out = nullptr;
    for (const Node& node : from_.graph.nodes)
      for (const Id i : node.in)
        if (i == value && std::exchange(out, &node)) return nullptr;
    return leaves(value) ? nullptr : out;
  }
  // True for the first map of a low-rank path, which a transform added: y = B (scale A x).
  bool begins_path(const Node& node) const {
    if (!is_one_of(node, {ENG_OP_LINEAR}) || parameter(node.in[1]) == SIZE_MAX || !added(node.in[1])) return false;
    const Node* const scaled = only_reader(node.out[0]);
    const Node* const up = scaled && is_one_of(*scaled, {ENG_OP_SCALE}) ? only_reader(scaled->out[0]) : nullptr;
    return up && is_one_of(*up, {ENG_OP_LINEAR}) && up->in[0] == scaled->out[0] && added(up->in[1]);
  }
  bool added(Id id) const {
    return parameter(id) != SIZE_MAX && !model_.params[first().params[parameter(id)]].added_by.empty();
  }
  // True if a node computes its share of a sum from those of its inputs, and leaves the sum to what reads it.
  bool joins(const Node& node) const {
    const auto is_partial = [&](Id i) { return i && partial_[i]; };
    if (is_one_of(node, {ENG_OP_ADD})) return is_partial(node.in[0]) && is_partial(node.in[1]);
    return is_partial(node.in.empty() ? 0 : node.in[0]) &&
           (is_one_of(node, {ENG_OP_SCALE, op_experts_sum}) ||
            (is_one_of(node, {ENG_OP_LINEAR}) && parameter(node.in[1]) != SIZE_MAX &&
             (added(node.in[1]) || !ends_in_maps(node.out[0]))));
  }
  static bool is_head_norm(const Node& node) {
    return is_one_of(node, {ENG_OP_RMS_NORM, ENG_OP_LAYER_NORM}) && node.out.size() < 3;
  }

  // Decides which dimension of a node's outputs is divided, and how its parameters are.
  void choose(const Node& node) {
    if (is_one_of(node, {op_row_norm})) return;  // its weight is not divided yet: `choose_magnitude` does it
    const int32_t d = node.in.empty() || !node.in[0] ? undivided : divided_[node.in[0]];
    if (joins(node)) {
      partial_[node.out[0]] = 1;
      return;
    }
    if (is_map(node)) return choose_map(node, d);
    if (is_one_of(node, {op_magnitude})) return choose_magnitude(node, d);
    const auto is_divided = [&](Id i) { return i && divided_[i] != undivided; };
    if (std::none_of(node.in.begin(), node.in.end(), is_divided)) return;
    if (const DividedOp* rule = divided_op(node.op->id)) return choose_channels(node, *rule);
    for (size_t k = 0; k < node.in.size(); ++k) {
      const bool beside = !node.in[k] || is_beside(node, k);
      if (!beside && divided_[node.in[k]] != d) refuse(fmt::format("{} mixes whole and divided inputs", node.op->id));
      if (beside && is_divided(node.in[k])) refuse(fmt::format("{} has a divided input {}", node.op->id, k));
    }
    if (d == undivided || !passes(node)) refuse(fmt::format("it cannot divide {}", node.op->id));
    divided_[node.out[0]] = divided_by(node, d);
    if (is_one_of(node, {ENG_OP_SPLIT}))
      for (Id o : node.out) divided_[o] = d;
    set_borders(node);
  }
  void set_borders(const Node& node) {
    if (divided_[node.in[0]] != last(node.in[0])) return;  // heads: each is whole
    std::vector<Borders> in;
    for (const Id i : node.in) in.push_back(i ? borders_[i] : Borders{});
    const auto out = borders_behind(from_.graph, node, in);
    if (!out) refuse(fmt::format("{} mixes channels of several ranks", node.op->id));
    for (size_t k = 0; k < node.out.size(); ++k) borders_[node.out[k]] = (*out)[k];
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
    if (is_one_of(node, {ENG_OP_DROPOUT}) && d != last(x)) refuse("it cannot divide " + std::string(node.op->id));
    if (is_one_of(node, {ENG_OP_SPLIT, ENG_OP_CONCAT}) && d == i("axis") && d != last(x))
      refuse(fmt::format("{} is along the dimension that is divided", node.op->id));
    if (!is_one_of(node, {ENG_OP_RESHAPE}) || d < i("keep")) return d;
    if (d == last(x) && keeps_last(from_.graph, node)) return last(node.out[0]);
    if (d != i("keep")) refuse(fmt::format("{} moves the dimension that is divided", node.op->id));
    need_parts(desc(node.out[0]).dims[d], fmt::format("{} heads", desc(node.out[0]).dims[d]));
    return d;
  }
  void choose_map(const Node& node, int32_t d) {
    const bool experts = is_one_of(node, {op_experts});
    const Id x = node.in[0], w = node.in[1], bias = node.in.size() > 2 && !experts ? node.in[2] : 0;
    if (parameter(w) == SIZE_MAX || (bias && parameter(bias) == SIZE_MAX))
      refuse(fmt::format("{} has a weight that is no parameter", node.op->id));
    const eng_desc& shape = desc(w);
    const uint32_t rows = experts ? 1 : 0, columns = rows + 1;
    if (d == last(x)) {
      if (is_one_of(node, {ENG_OP_LINEAR_RELU})) refuse(fmt::format("{} behind another map", node.op->id));
      if (!borders_[x].empty()) refuse(name_of(w) + " has columns of several parts");
      need_parts(shape.dims[columns], fmt::format("the {} columns of {}", shape.dims[columns], name_of(w)));
      partial_[node.out[0]] = 1;
      return cut(w, columns);
    }
    if (d != undivided) refuse(fmt::format("{} has an input that is divided otherwise", node.op->id));
    if (is_routed(node.out[0])) return;  // every rank chooses the experts, and computes what all of them read
    if (begins_path(node)) return;       // all ranks compute its few outputs, and divide the map behind it
    if (!ends_in_maps(node.out[0])) refuse(fmt::format("{} is not one of a pair of maps", name_of(w)));
    const Borders borders = borders_wanted(from_, node.out[0]);
    cut(w, rows, borders);
    if (bias) cut(bias, 0, borders);
    divided_[node.out[0]] = last(node.out[0]), borders_[node.out[0]] = borders;
  }
  bool is_routed(Id value) const {
    return std::any_of(from_.graph.nodes.begin(), from_.graph.nodes.end(), [&](const Node& node) {
      if (!std::count(node.in.begin(), node.in.end(), value)) return false;
      const bool experts = is_one_of(node, {op_experts}) && node.in[0] == value && node.in.size() > 3;
      return experts || is_one_of(node, {op_route, op_route_sigmoid}) ||
             (is_one_of(node, {ENG_OP_ADD, ENG_OP_SCALE, op_magnitude}) && is_routed(node.out[0]));
    });
  }
  void choose_channels(const Node& node, const DividedOp& rule) {
    const auto is_of = [](uint32_t k, std::initializer_list<uint32_t> list) {
      return std::count(list.begin(), list.end(), k) > 0;
    };
    const bool whole = is_one_of(node, {op_gated_norm}) && needs_others(node) && !by_sums(node);
    for (uint32_t k = 0; k < node.in.size(); ++k) {
      const Id x = node.in[k];
      if (x && !is_of(k, rule.rows) && divided_[x] != (is_of(k, rule.channels) ? last(x) : undivided))
        refuse(fmt::format("input {} of {} is divided otherwise", k, node.op->id));
      if (x && is_of(k, rule.rows) && parameter(x) == SIZE_MAX)
        refuse(fmt::format("input {} of {} is no parameter", k, node.op->id));
    }
    set_borders(node);
    for (const uint32_t k : rule.rows)
      if (k < node.in.size() && node.in[k] && !whole) cut(node.in[k], 0, borders_[node.out[0]]);
    for (const Id o : node.out) divided_[o] = last(o);
  }
  // True if some ranks share a group of heads of Mamba-2, so that they read values of each other.
  bool needs_others(const Node& node) const {
    const int64_t groups = node.attrs.i("groups");
    if (!is_one_of(node, {op_ssd, op_gated_norm}) || groups % n_ == 0) return false;
    if (n_ % groups)
      refuse(fmt::format("{} ranks neither divide the {} groups of {}, nor are they a multiple of these", n_, groups,
                         node.op->id));
    return true;
  }
  // True if the ranks exchange only sums of squares for a norm, of which each then has a part.
  bool by_sums(const Node& node) const {
    const eng_desc& x = desc(node.in[0]);
    return kernels_ && x.dims[0] * (x.dims[1] / context_) * node.attrs.i("groups") % n_ == 0;
  }
  // y = z m / norm [+ bias]. Where the rows of the map are divided, so is all of this. Where its columns are, norms are
  // made of sums over the ranks.
  void choose_magnitude(const Node& node, int32_t d) {
    const Id z = node.in[0], m = node.in[1], norm = node.in[2], bias = node.in.size() > 3 ? node.in[3] : 0;
    const auto& nodes = from_.graph.nodes;
    const auto makes = [&](const Node& other) { return other.out[0] == norm; };
    const auto made = std::find_if(nodes.begin(), nodes.end(), makes);
    if (d == undivided && !partial_[z]) return;
    if (made == nodes.end() || !is_one_of(*made, {op_row_norm}) || parameter(m) == SIZE_MAX)
      refuse(fmt::format("{} has lengths of other rows", node.op->id));
    if (d == undivided) {  // partial
      need_parts(count(desc(norm)), fmt::format("the {} elements of {}", count(desc(norm)), name_of(m)));
      norms_.insert(norm);
      return;
    }
    if (d != last(z)) refuse(fmt::format("it cannot divide {}", node.op->id));
    cut(m, 0, borders_[z]);
    if (bias) cut(bias, 0, borders_[z]);
    divided_[norm] = 0, divided_[node.out[0]] = d, borders_[node.out[0]] = borders_[z];
  }
  void cut(Id id, uint32_t dim, const Borders& borders = {}) {
    const eng_desc& whole = desc(id);
    const std::vector<int64_t> parts = parts_of(borders, whole.dims[dim]);
    const auto size = [&](size_t k) {
      return parts.size() == 1 ? fmt::format("the {} rows of {}", parts[k], name_of(id))
                               : fmt::format("the {} rows of part {} of {}", parts[k], k + 1, name_of(id));
    };
    for (size_t k = 0; k < parts.size(); ++k) need_parts(parts[k], size(k));
    const Divided with = divided_in(whole, parts, {dim, index_, n_});
    if (dim > 0 && !with.runs.empty()) refuse(name_of(id) + " has unequal parts of columns");
    Divided& cut = cuts_[parameter(id)];
    if (cut.count > 1 && !alike(cut, with)) refuse(name_of(id) + " is read in two ways");
    cut = with;
  }
  void cut_parameters() {
    for (size_t k = 0; k < cuts_.size(); ++k)
      for (const Block* block : blocks_) {
        Parameter& p = model_.params[block->params[k]];
        const auto users = [&](const Block& b) {
          return std::count(b.params.begin(), b.params.end(), block->params[k]);
        };
        // A block of the reference may have the parameters of the model's, which are divided alike.
        const bool referred = block < model_.blocks.data() + model_.reference_blocks;
        std::ptrdiff_t all = 0, others = 0;
        for (size_t b = 0; b < model_.blocks.size(); ++b)
          ((b < model_.reference_blocks) == referred ? all : others) += users(model_.blocks[b]);
        if (cuts_[k].count == 1 && p.cut.count == 1) continue;
        if (all > 1 || others > 1) refuse(p.name + " is shared with another block");
        const Divided before = std::exchange(p.cut, cuts_[k]);
        if (before.count > 1 ? !alike(before, p.cut) : referred && others > 0)
          refuse(p.name + " is divided otherwise in the reference model");
        if (before.count > 1) continue;
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
  // `shares`: those of sums over the ranks, not the sums.
  std::vector<Id> mapped(const std::vector<Id>& ids, bool shares = false) const {
    std::vector<Id> out;
    for (Id id : ids) {
      const auto sum = shares ? sums_.end() : sums_.find(id);
      out.push_back(sum != sums_.end() ? sum->second : id ? of_[id] : 0);
    }
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
    if (count(desc(value)) % n_)
      refuse(fmt::format("a sum over ranks has {} elements, which {} ranks do not divide", count(desc(value)), n_));
    Id& here = entered_[{value, factor}];
    const Id whole = mapped({value})[0];
    if (!here) here = only ? whole : made(ENG_OP_SCALE, {whole}, {{{"factor", 0, factor}}});
    to_.summed[here] = group_;
    return here;
  }
  void emit(const Node& node) {
    std::vector<Id> in = mapped(node.in, partial_[node.out[0]]);
    Attrs attrs = node.attrs;
    const Id x = node.in.empty() ? 0 : node.in[0];
    if (is_map(node) && divided_[node.out[0]] != undivided) {
      in[0] = entered(x);
    } else if (partial_[node.out[0]]) {
      if (is_map(node) && partial_[x]) in[1] = entered(node.in[1]);
      // Each rank adds its share of the bias, whose gradient is then the sum of the ranks' shares.
      const bool biased = is_map(node) && !is_one_of(node, {op_experts}) && in.size() > 2 && in[2];
      if (biased) in[2] = entered(node.in[2], 1.0 / n_);
    } else if (is_one_of(node, {op_row_norm}) && norms_.count(node.out[0])) {
      attrs.list.push_back({"squares", 1, 0});
      of_[node.out[0]] = made(ENG_OP_GROUP_SUM, {made(op_row_norm, in, attrs)}, group_);
      return;
    } else if (is_one_of(node, {op_magnitude}) && norms_.count(node.in[2])) {
      attrs.list.push_back({"squares", 1, 0});
    } else if (is_one_of(node, {ENG_OP_DROPOUT}) && divided_[x] != undivided) {
      of_[node.out[0]] = across().dropped(of_[x], last(x), attrs);
      return;
    } else if (is_head_norm(node) && divided_[x] == last(x)) {
      of_[node.out[0]] = across().normed(*node.op, in, attrs);
      return;
    } else if (const DividedOp* rule = divided_op(node.op->id); rule && divided_[node.out[0]] != undivided) {
      for (const uint32_t k : rule->shared) in[k] = entered(node.in[k]);
      if (needs_others(node)) {
        const bool scan = is_one_of(node, {op_ssd}), sums = !scan && by_sums(node);
        if (!scan && !sums && attrs.i("groups") > 1) in[2] = entered(node.in[2]);
        of_[node.out[0]] = scan   ? across().scanned(*node.op, in, attrs)
                           : sums ? across().normed_by_sums(in, attrs)
                                  : across().gated_normed(in, attrs);
        return;
      }
      for (Attr& a : attrs.list)
        if (a.key == "groups") a.i /= n_;
    } else if (x && divided_[x] != undivided) {
      for (size_t k = 1; k < in.size(); ++k)
        if (is_head_norm(node) && in[k]) in[k] = entered(node.in[k]);
      for (Attr& a : attrs.list) {
        if (a.key == "heads" || a.key == "kv_heads") a.i /= n_;
        if (is_size_along(divided_[node.out[0]], node, a.key) && a.i > 0) a.i /= n_;
      }
    }
    const std::vector<Id> out = to_.graph.emit(*node.op, std::move(in), std::move(attrs));
    for (size_t k = 0; k < out.size(); ++k) of_[node.out[k]] = out[k];
    if (!partial_[node.out[0]] || !is_read_whole(node.out[0])) return;
    const int64_t all = count(desc(node.out[0]));
    need_parts(all, fmt::format("the {} elements of a sum of {}", all, node.op->id));
    sums_[node.out[0]] = made(ENG_OP_GROUP_SUM, {out[0]}, group_);
  }
  AcrossRanks across() { return {to_, n_, index_, group_}; }
  // True if something reads the sum of which this value is a share.
  bool is_read_whole(Id value) const {
    return leaves(value) || std::any_of(from_.graph.nodes.begin(), from_.graph.nodes.end(), [&](const Node& node) {
             return std::count(node.in.begin(), node.in.end(), value) && !partial_[node.out[0]];
           });
  }
  Model& model_;
  const Template from_;
  const uint32_t n_, index_, context_;
  const bool kernels_;
  const Attrs group_;
  std::vector<const Block*> blocks_;
  std::vector<int32_t> divided_;  // per value: the dimension that is divided
  std::vector<Borders> borders_;  // per value: of the parts along its last dimension
  std::vector<char> partial_;     // per value: it is the sum of what the ranks have
  std::set<Id> norms_;            // lengths of rows of which a rank has some columns
  std::vector<Divided> cuts_;     // per parameter of the template
  Template to_;
  std::vector<Id> of_;     // value of `from_` -> the one that stands for it
  std::map<Id, Id> sums_;  // value of `from_` -> the sum of the ranks' shares
  std::map<std::pair<Id, double>, Id> entered_;
};

}  // namespace

void divide_layers(Model& model, const Ranks& ranks, bool kernels) {
  if (ranks.tensor == 1) return;
  const auto divided = [&] {
    return std::count_if(model.params.begin(), model.params.end(), [](const Parameter& p) { return p.cut.count > 1; });
  };
  const auto before = divided();  // of the vocabulary
  std::set<uint32_t> layers;
  const size_t own = model.reference_blocks;  // in front of them: first the embeddings, last the head, as here
  for (size_t b = 1; b + 1 < model.blocks.size(); ++b)
    if (b != own && b + 1 != own) layers.insert(model.blocks[b].tmpl);
  for (const uint32_t tmpl : layers) {
    Template t = Division(model, ranks, tmpl, kernels).divide();
    model.templates.at(tmpl) = std::move(t);
  }
  if (divided() == before)
    throw Error(Exit::usage,
                fmt::format("parallel.tensor = {}: model {} has no pairs of linear maps that ranks could divide",
                            ranks.tensor, model.plugin),
                "set parallel.tensor = 1");
}

}  // namespace eng
