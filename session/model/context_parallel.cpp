// SPDX-License-Identifier: Apache-2.0
#include "session/model/context_parallel.hpp"

#include <algorithm>
#include <set>

#include "core/base/text.hpp"
#include "engine/ops_attention.h"
#include "engine/ops_fp8.h"
#include "engine/ops_parallel.h"
#include "engine/ops_softcap.h"
#include "session/model/caller_loss.hpp"
#include "session/model/context_values.hpp"

namespace eng {
namespace {

// Ops of the plugins mamba, moe and low_rank (their ops.hpp; plugins/mamba/ssd.hpp, plugins/transform/magnitude.hpp).
constexpr const char *conv_op = "eng.mamba.causal_conv1d/1", *scan_op = "eng.mamba.selective_scan/1",
                     *ssd_op = "eng.mamba.ssd/1", *route_op = "eng.moe.route/1",
                     *sigmoid_route_op = "eng.moe.route_sigmoid/1", *balance_op = "eng.moe.balance/1";

// Ops that compute each position from the same position of their inputs.
const std::set<std::string> position_ops = {ENG_OP_LINEAR,
                                            ENG_OP_LINEAR_RELU,
                                            ENG_OP_FP8_LINEAR,
                                            ENG_OP_EMBEDDING,
                                            ENG_OP_RMS_NORM,
                                            ENG_OP_LAYER_NORM,
                                            ENG_OP_GATED,
                                            ENG_OP_ACTIVATION,
                                            ENG_OP_ADD,
                                            ENG_OP_SCALE,
                                            ENG_OP_CAST,
                                            ENG_OP_RESHAPE,
                                            ENG_OP_TRANSPOSE,
                                            ENG_OP_SPLIT,
                                            ENG_OP_CONCAT,
                                            ENG_OP_GROUP_SUM,
                                            ENG_OP_GROUP_EMBEDDING,
                                            ENG_OP_GROUP_CROSS_ENTROPY,
                                            ENG_OP_GATHER_CHANNELS,
                                            ENG_OP_CROSS_ENTROPY,
                                            ENG_OP_CAPPED_CROSS_ENTROPY,
                                            ENG_OP_LABEL_LOGPROB,
                                            "eng.low_rank.magnitude/1",
                                            "eng.mamba.split/1",
                                            "eng.mamba.join/1",
                                            "eng.mamba.gated_norm/1",
                                            "eng.mamba.gated_squares/1",
                                            "eng.mamba.gated_norm_part/1",
                                            "eng.moe.combine/1",
                                            "eng.moe.gated/1",
                                            "eng.moe.linear/1"};

// Ops of these whose outputs are sums over positions.
const std::set<std::string> loss_ops = {ENG_OP_CROSS_ENTROPY, ENG_OP_CAPPED_CROSS_ENTROPY, ENG_OP_GROUP_CROSS_ENTROPY};

// Divides the positions of one template, which stands for some blocks.
class ContextDivision : ContextValues {
 public:
  ContextDivision(const Model& model, const Ranks& ranks, uint32_t tmpl) : ContextValues(model, ranks, tmpl) {}
  Template divide() {
    for (const Node& node : from_.graph.nodes) emit(node);
    for (Id o : from_.outputs) to_.outputs.push_back(left(o));
    to_.terms = from_.terms;
    for (Term& term : to_.terms) {
      if (held_[term.value] != OwnPart::sum)
        refuse(fmt::format("term {} of the loss is no sum over positions", term.name));
      term.value = of_[term.value];
    }
    for (const auto& [value, group] : from_.summed) to_.summed[of(value)] = group;
    return std::move(to_);
  }

 private:
  static bool is(const Node& node, const char* id) { return node.op->id == std::string(id); }
  static Id input(const Node& node, size_t k) { return k < node.in.size() ? node.in[k] : 0; }

  // A value that the block passes on.
  Id left(Id id) {
    const bool last = from_.tmpl == model_.blocks.back().tmpl;
    if (last && held_[id] != OwnPart::sum) refuse("its loss is no sum over positions");
    if (last || held_[id] == OwnPart::positions) return of(id);
    if ((held_[id] != OwnPart::share && held_[id] != OwnPart::whole) || has_positions(desc(id)))
      refuse("it passes on a value that ranks cannot divide");
    return share(id);
  }

  void emit(const Node& node) {
    const auto any = [&](OwnPart held) {
      return std::any_of(node.in.begin(), node.in.end(), [&](Id i) { return i && held_[i] == held; });
    };
    if (any(OwnPart::sum) || any(OwnPart::hidden)) refuse(fmt::format("{} reads a sum over positions", node.op->id));
    if (done_.count(&node)) return;
    if (is(node, ENG_OP_CONCAT) && node.in.size() == 3 && scan_behind(node) && only_reader(node.out[0])) {
      done_.insert(&node);  // of channels, with the scan
      return;
    }
    if (is(node, ENG_OP_DROPOUT)) return emit_dropout(node);
    if (node.op->random) refuse(fmt::format("{} draws numbers by position, which ranks cannot divide", node.op->id));
    if (is(node, ENG_OP_ATTENTION) || is(node, ENG_OP_ATTENTION_WINDOW)) return emit_attention(node);
    if (is(node, ENG_OP_ROPE)) return emit_rope(node);
    if (is(node, ENG_OP_POSITIONS)) return emit_positions(node);
    if (is(node, conv_op)) return emit_conv(node);
    if (is(node, scan_op)) return emit_scan(node);
    if (is(node, ssd_op)) return emit_ssd(node);
    if (is(node, route_op) || is(node, sigmoid_route_op)) return emit_route(node);
    if (is(node, balance_op)) return emit_balance(node);
    if (any(OwnPart::share)) return emit_share(node);
    if (std::all_of(node.out.begin(), node.out.end(), [&](Id o) { return is_term(o); }) &&
        !position_ops.count(node.op->id))
      return emit_terms(node);
    const bool divided = any(OwnPart::positions) || any(OwnPart::field);
    if (divided && (!position_ops.count(node.op->id) || moves_positions(node)))
      refuse(fmt::format("it cannot divide the positions of {}", node.op->id));
    emit_own(node, node.attrs,
             !divided                      ? OwnPart::whole
             : loss_ops.count(node.op->id) ? OwnPart::sum
                                           : OwnPart::positions);
  }
  bool moves_positions(const Node& node) const {
    if (is(node, ENG_OP_RESHAPE)) return node.attrs.i("keep") < 2;
    if (is(node, ENG_OP_TRANSPOSE)) return std::min(node.attrs.i("a"), node.attrs.i("b")) < 2;
    if (is(node, ENG_OP_SPLIT) || is(node, ENG_OP_CONCAT)) return node.attrs.i("axis") < 2;
    return false;
  }
  // The op on this rank's positions.
  void emit_own(const Node& node, Attrs attrs, OwnPart held, std::vector<Id> in = {}) {
    if (in.empty())
      for (Id i : node.in) in.push_back(own(i));
    const std::vector<Id> out = to_.graph.emit(*node.op, std::move(in), std::move(attrs));
    for (size_t k = 0; k < out.size(); ++k) {
      eng_desc want = desc(node.out[k]);
      const bool right = held != OwnPart::positions || has_positions(want);
      if (held == OwnPart::positions) want.dims[1] = own_length();
      if (!right || !std::equal(want.dims, want.dims + want.ndim, to_.graph.value(out[k]).desc.dims))
        refuse(fmt::format("it cannot divide the positions of {}", node.op->id));
      of_[node.out[k]] = out[k], held_[node.out[k]] = held;
    }
  }
  // The op on all positions of this rank's channels. Its first output has positions; others are for its gradient.
  void emit_channels(const Node& node, std::vector<Id> in, Attrs attrs) {
    const std::vector<Id> out = to_.graph.emit(*node.op, std::move(in), std::move(attrs));
    channels_[node.out[0]] = out[0], held_[node.out[0]] = OwnPart::positions;
    for (size_t k = 1; k < out.size(); ++k) held_[node.out[k]] = OwnPart::hidden;
  }

  // Row t of the table turns position t.
  void emit_rope(const Node& node) {
    if (input(node, 2)) return emit_own(node, node.attrs, OwnPart::positions);
    const Symbol& table = from_.graph.value(node.in[1]);
    if (table.kind != SymbolKind::constant) refuse("the table of eng.rope/1 is no constant");
    Id& rows = own_rows_[table.index];
    if (!rows) rows = constant(own_rows(*from_.constants[table.index]));
    emit_own(node, node.attrs, OwnPart::positions, {own(node.in[0]), rows});
  }
  std::shared_ptr<const Constant> own_rows(const Constant& all) const {
    Constant out{all.desc, {}};
    out.desc.dims[0] = own_length();
    const auto size = static_cast<std::ptrdiff_t>(bytes(out.desc));
    if (!all.data.empty()) out.data.assign(all.data.begin() + index_ * size, all.data.begin() + (index_ + 1) * size);
    return std::make_shared<const Constant>(std::move(out));
  }
  void emit_positions(const Node& node) {
    Attrs attrs = node.attrs;
    for (Attr& a : attrs.list)
      if (a.key == "offset" && !input(node, 3)) a.i += index_ * own_length();
    emit_own(node, std::move(attrs), OwnPart::positions);
  }

  void emit_attention(const Node& node) {
    const int64_t heads = node.attrs.i("heads"), kv_heads = node.attrs.i("kv_heads"), copies = copies_of(kv_heads);
    need_parts(heads, "attention heads");
    const auto repeated = [&](Id id) { return copies == 1 ? channels(id) : groups(own(id), kv_heads, copies); };
    const Id q = channels(node.in[0]), k = repeated(node.in[1]), v = repeated(node.in[2]);
    Attrs attrs = node.attrs;
    for (Attr& a : attrs.list) {
      if (a.key == "heads") a.i = heads / n_;
      if (a.key == "kv_heads") a.i = kv_heads * copies / n_;
    }
    emit_channels(node, {q, k, v, of(input(node, 3))}, std::move(attrs));
  }

  // Some columns of x, and none of the others.
  Id columns(Id id, int64_t first, int64_t count) {
    const int64_t all = desc(id).dims[2], before = first, behind = all - first - count;
    std::vector<int64_t> sizes;
    for (int64_t n : {before, count, behind})
      if (n) sizes.push_back(n);
    std::vector<Id>& all_pieces = columns_[{id, sizes}];
    if (all_pieces.empty()) all_pieces = pieces(own(id), 2, sizes);
    return all_pieces[before ? 1 : 0];
  }
  // The scan of Mamba-2 that reads the convolution's output, or null.
  const Node* scan_behind(const Node& node) const {
    for (const Node& reader : from_.graph.nodes)
      if (is(reader, ssd_op) && reader.in[0] == node.out[0]) return &reader;
    return nullptr;
  }
  // The op that makes a value, and the only one that reads it; null if there is none.
  const Node* maker(Id value) const {
    const auto& nodes = from_.graph.nodes;
    const auto at = std::find_if(nodes.begin(), nodes.end(), [&](const Node& n) { return n.out[0] == value; });
    return at == nodes.end() ? nullptr : &*at;
  }
  const Node* only_reader(Id value) const {
    const Node* out = nullptr;
    for (const Node& reader : from_.graph.nodes)
      if (std::count(reader.in.begin(), reader.in.end(), value) && std::exchange(out, &reader)) return nullptr;
    return out;
  }
  // A convolution of Mamba-2 whose B and C ranks of [parallel] tensor gather behind it: [x | B, C] is cut there. Those
  // of x stay channels until the scan. Of too few columns of B and C each rank has all.
  void emit_conv(const Node& node, const Node& cut) {
    const int64_t inner = desc(cut.out[0]).dims[2], shared = desc(cut.out[1]).dims[2];
    const std::vector<int64_t> sizes = {inner, shared};
    need_parts(inner, "channels of the convolution");
    const std::vector<Id> x = pieces(columns(node.in[0], 0, inner + shared), 2, sizes),
                          w = pieces(of(node.in[1]), 0, sizes);
    const std::vector<Id> bias = input(node, 2) ? pieces(of(node.in[2]), 0, sizes) : std::vector<Id>(2, 0);
    const auto convolved = [&](size_t k, bool divided) {
      const Id in = groups(x[k], 1, divided ? 1 : n_), own_w = divided ? rows(w[k]) : w[k],
               own_bias = divided && bias[k] ? rows(bias[k]) : bias[k];
      return to_.graph.emit(*node.op, {in, own_w, own_bias, of(input(node, 3))}, node.attrs)[0];
    };
    channels_[cut.out[0]] = convolved(0, true);
    if (shared % n_ == 0)
      channels_[cut.out[1]] = convolved(1, true);
    else
      of_[cut.out[1]] = pieces(convolved(1, false), 1, std::vector<int64_t>(n_, own_length()))[index_];
    for (const Id o : cut.out) held_[o] = OwnPart::positions;
    done_.insert(&cut);
  }
  // in: x (B, T, E or more), w (E, 1, K), [bias (E)], [segments].
  void emit_conv(const Node& node) {
    if (const Node* cut = only_reader(node.out[0]); cut && is(*cut, ENG_OP_SPLIT) && cut->out.size() == 2)
      return emit_conv(node, *cut);
    const Id w = of(node.in[1]), bias = of(input(node, 2)), segments = of(input(node, 3));
    const int64_t all = desc(node.in[1]).dims[0];
    if (const Node* reader = scan_behind(node)) {  // of [x | B | C], whose B and C each rank needs of its groups
      const int64_t count = reader->attrs.i("groups"), shared = count * reader->attrs.i("states"),
                    copies = copies_of(count), inner = all - 2 * shared;
      need_parts(desc(reader->in[2]).dims[0], "heads of the scan");
      const std::vector<int64_t> sizes = {inner, shared, shared};
      const std::vector<Id> x = pieces(columns(node.in[0], 0, all), 2, sizes);
      const auto joined = [&](Id param) -> Id {
        if (!param) return 0;
        const std::vector<Id> part = pieces(param, 0, sizes);
        const Id own_x = rows(part[0]), own_b = rows(part[1], count, copies), own_c = rows(part[2], count, copies);
        return made(ENG_OP_CONCAT, {own_x, own_b, own_c}, {{{"axis", 0, 0}}});
      };
      const Id mine = groups(x[0], 1, 1), b = groups(x[1], count, copies), c = groups(x[2], count, copies);
      const Id xbc = made(ENG_OP_CONCAT, {mine, b, c}, {{{"axis", 2, 0}}}), own_w = joined(w), own_bias = joined(bias);
      return emit_channels(node, {xbc, own_w, own_bias, segments}, node.attrs);
    }
    need_parts(all, "channels of the convolution");
    const Id x = groups(columns(node.in[0], 0, all), 1, 1), own_w = rows(w), own_bias = bias ? rows(bias) : 0;
    emit_channels(node, {x, own_w, own_bias, segments}, node.attrs);
  }
  // in: u, delta (B, T, E), a_log, bc (B, T, 2N), d, dt_bias, gate (B, T, E or more), [dt, w: not kept], [segments].
  void emit_scan(const Node& node) {
    const int64_t all = desc(node.in[0]).dims[2], gates = desc(node.in[6]).dims[2];
    need_parts(all, "channels of the scan");
    const Id u = channels(node.in[0]), delta = channels(node.in[1]), bc = groups(own(node.in[3]), 1, n_);
    const Id gate = groups(columns(node.in[6], gates - all, all), 1, 1);
    const Id a_log = rows(of(node.in[2])), d = rows(of(node.in[4])), bias = rows(of(node.in[5]));
    emit_channels(node, {u, delta, a_log, bc, d, bias, gate, 0, 0, of(input(node, 9))}, node.attrs);
  }
  // in: xbc, dt (B, T, H or more), a_log, d, dt_bias (H), [segments].
  void emit_ssd(const Node& node) {
    const int64_t heads = desc(node.in[2]).dims[0], all = desc(node.in[1]).dims[2], count = node.attrs.i("groups");
    need_parts(heads, "heads of the scan");
    Id xbc = channels_[node.in[0]];
    if (const Node* joined = maker(node.in[0]); !xbc && joined && done_.count(joined)) {
      const auto of_groups = [&](Id id) { return groups(own(id), count, copies_of(count)); };
      const Id x = channels(joined->in[0]), b = of_groups(joined->in[1]), c = of_groups(joined->in[2]);
      xbc = made(ENG_OP_CONCAT, {x, b, c}, {{{"axis", 2, 0}}});
    }
    if (!xbc) refuse("eng.mamba.ssd/1 reads something else than its convolution");
    const Id dt = groups(columns(node.in[1], all - heads, heads), 1, 1);
    const Id a_log = rows(of(node.in[2])), d = rows(of(node.in[3])), bias = rows(of(node.in[4]));
    Attrs attrs = node.attrs;
    for (Attr& a : attrs.list)
      if (a.key == "groups") a.i = count * copies_of(count) / n_;
    emit_channels(node, {xbc, dt, a_log, d, bias, of(input(node, 5))}, std::move(attrs));
  }

  // out: weights, experts, order, place (B, T, k), offsets (E + 1), [load (B, 2E + 1), sums over the tokens].
  void emit_route(const Node& node) {
    std::vector<Id> in = {own(node.in[0])};
    if (is(node, sigmoid_route_op)) in.push_back(of(input(node, 1)));
    const std::vector<Id> out = to_.graph.emit(*node.op, std::move(in), node.attrs);
    for (size_t k = 0; k < out.size(); ++k)
      of_[node.out[k]] = out[k], held_[node.out[k]] = k < 4    ? OwnPart::positions
                                                      : k == 4 ? OwnPart::local
                                                               : OwnPart::share;
  }
  // Terms of the loss that are no sums over tokens: all ranks compute them, and each counts its part.
  void emit_balance(const Node& node) {
    const std::vector<Id> out = to_.graph.emit(*node.op, {total(node.in[0])}, node.attrs);
    for (size_t k = 0; k < out.size(); ++k) {
      of_[node.out[k]] = made(ENG_OP_SCALE, {out[k]}, {{{"factor", 0, 1.0 / n_}}});
      held_[node.out[k]] = OwnPart::sum;
    }
  }
  bool is_term(Id value) const {
    if (from_.tmpl != model_.blocks.back().tmpl) return false;
    return std::count(from_.outputs.begin(), from_.outputs.end(), value) ||
           std::any_of(from_.terms.begin(), from_.terms.end(), [&](const Term& t) { return t.value == value; });
  }
  // Terms of numbers of whole sequences, one for each position: all ranks compute them, and each counts its part.
  void emit_terms(const Node& node) {
    std::vector<Id> in;
    for (const Id i : node.in) {
      if (i && desc(i).ndim > 2) refuse(fmt::format("{} reads more than a number for each position", node.op->id));
      in.push_back(whole(i));
    }
    const std::vector<Id> out = to_.graph.emit(*node.op, std::move(in), node.attrs);
    for (size_t k = 0; k < out.size(); ++k) {
      of_[node.out[k]] = made(ENG_OP_SCALE, {out[k]}, {{{"factor", 0, 1.0 / n_}}});
      held_[node.out[k]] = OwnPart::sum;
    }
  }
  // An element is dropped by its number in the whole sequence, in which the other ranks' positions are zeros.
  void emit_dropout(const Node& node) {
    const Id x = own(node.in[0]);
    if (held_[node.in[0]] != OwnPart::positions) refuse("eng.dropout/1 reads a value without positions");
    std::vector<int64_t> sizes;
    const Id all = among_all(x, sizes);
    of_[node.out[0]] = pieces(made(ENG_OP_DROPOUT, {all}, node.attrs), 1, sizes)[index_ ? 1 : 0];
    held_[node.out[0]] = OwnPart::positions;
  }
  void emit_share(const Node& node) {
    const bool scaled = is(node, ENG_OP_SCALE);
    if (!scaled && !is(node, ENG_OP_ADD)) refuse(fmt::format("{} reads a sum over positions", node.op->id));
    held_[node.out[0]] = OwnPart::share;
    if (scaled) {
      of_[node.out[0]] = made(ENG_OP_SCALE, {share(node.in[0])}, node.attrs);
      return;
    }
    const Id a = share(node.in[0]), b = share(node.in[1]);
    of_[node.out[0]] = made(ENG_OP_ADD, {a, b}, node.attrs);
  }

  std::set<const Node*> done_;       // emitted with other ops
  std::map<uint32_t, Id> own_rows_;  // by constant
  std::map<std::pair<Id, std::vector<int64_t>>, std::vector<Id>> columns_;
};

}  // namespace

void check_context(const Config& config, bool reads_more) {
  const auto refuse = [&](const std::string& what) {
    throw Error(
        Exit::usage,
        fmt::format("parallel.context = {} does not work with {}", config.section("parallel").integer("context"), what),
        "remove one of the two");
  };
  if (reads_more) refuse("jobs, or where logits or activations are read: they need whole sequences");
  if (caller_loss(config)) refuse("loss.plugin = \"caller\", which reads whole logits");
}

void divide_sequences(Model& model, const Ranks& ranks) {
  if (ranks.context == 1) return;
  if (model.sequence_length % ranks.context)
    throw Error(Exit::usage,
                fmt::format("parallel.context = {} does not divide train.sequence_length = {}", ranks.context,
                            model.sequence_length),
                fmt::format("train.sequence_length = {}, or another multiple of {}",
                            (model.sequence_length / ranks.context + 1) * ranks.context, ranks.context));
  std::map<uint32_t, Template> divided;
  for (const auto& [number, t] : model.templates)
    divided.emplace(number, ContextDivision(model, ranks, number).divide());
  model.templates = std::move(divided);
}

std::string context_line(const Model& model, const Ranks& ranks) {
  if (ranks.context == 1) return "";
  const uint32_t groups = ranks.row_size();
  return fmt::format("{} ranks have {} of {} positions of a sequence each{}", ranks.context,
                     model.sequence_length / ranks.context, model.sequence_length,
                     groups > 1 ? fmt::format("; {} such groups have sequences of their own", groups) : "");
}

}  // namespace eng
