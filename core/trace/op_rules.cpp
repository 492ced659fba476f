// SPDX-License-Identifier: Apache-2.0
// Ops as their tables (engine/op.h) say: the standard ones of ops/, and those of plugins. Both are used alike.

#include "core/base/text.hpp"
#include "core/registry/registry.hpp"
#include "core/trace/builder.hpp"
#include "core/trace/gradient.hpp"
#include "core/trace/stepping.hpp"
#include "engine/op.h"

namespace eng {
namespace {

struct PluginOp {
  const eng_op* theirs;
  Op op;
};
std::map<std::string, PluginOp>& known() {
  static std::map<std::string, PluginOp> ops;
  return ops;
}
constexpr uint32_t most_outputs = 16, most_inputs = 64;

// The object that a plugin's rule gets: forwards its calls to `rule` and keeps the first error. Rule is Gradient or
// Stepping.
template <class Public, class Rule>
struct Head : Public {
  Rule& rule;
  std::vector<eng_attr> attrs;
  eng_status status = ENG_OK;
  std::string error;
  Exit exit = Exit::environment;  // of the error

  Head(const decltype(Public::api) api, Rule& r) : Public{api}, rule(r), attrs(lend(r.attrs())) {}
  const eng_desc& desc(eng_id id) const {
    if (!id || id > rule.graph().size()) throw fault("no such value");
    return rule.graph().value(id).desc;
  }
};
template <class Public>
using HeadOf = Head<Public, std::conditional_t<std::is_same_v<Public, eng_gradient>, Gradient, Stepping>>;

// Runs `call` unless an earlier one failed; exceptions become the sticky error.
template <class Public, class F>
auto guarded(Public* self, F call) -> decltype(call(std::declval<HeadOf<Public>&>())) {
  auto& head = *static_cast<HeadOf<Public>*>(self);
  if (head.status == ENG_OK) try {
      return call(head);
    } catch (const Error& e) {
      head.status = ENG_INVALID, head.error = e.what(), head.exit = e.exit();
    } catch (const std::exception& e) {
      head.status = ENG_INVALID, head.error = e.what();
    }
  return decltype(call(head))();
}

template <class Public>
eng_status reported(Public* self, eng_error* sink) {
  const auto& head = *static_cast<HeadOf<Public>*>(self);
  return head.status == ENG_OK ? ENG_OK : report(sink, head.status, head.error);
}

template <class Public>
eng_id input(Public* self, uint32_t k) {
  return guarded(self, [&](auto& head) { return head.rule.in(k); });
}

template <class Public>
uint32_t inputs(Public* self) {
  return guarded(self, [&](auto& head) { return static_cast<uint32_t>(head.rule.node().in.size()); });
}

template <class Public>
eng_status shape(Public* self, eng_id value, eng_desc* out, eng_error* sink) {
  guarded(self, [&](auto& head) {
    need(out, "out is NULL");
    *out = head.desc(value);
  });
  return reported(self, sink);
}

template <class Public>
const eng_attr* attributes(Public* self, uint32_t* n) {
  const auto& attrs = static_cast<HeadOf<Public>*>(self)->attrs;
  if (n) *n = static_cast<uint32_t>(attrs.size());
  return attrs.data();
}

template <class Public>
eng_status emit(Public* self, const char* name, const eng_id* in, uint32_t n_in, eng_id* out, uint32_t n_out,
                const eng_attr* attrs, uint32_t n_attrs, eng_error* sink) {
  guarded(self, [&](auto& head) {
    if (!find_op(name ? name : "")) throw fault("unknown op {}", name ? name : "");
    need(out || !n_out, "the list of outputs is NULL, but its count is {}", n_out);
    const auto inputs = list_of<Id>(in, n_in, "the list of inputs");
    for (Id i : inputs)
      if (i) head.desc(i);
    const auto made = head.rule.emit(name, inputs, {list_of<Attr>(attrs, n_attrs, "the list of attributes")});
    if (made.size() < n_out)
      throw fault("{} has {} outputs for these inputs, {} were asked for", name, made.size(), n_out);
    std::copy_n(made.begin(), n_out, out);
  });
  return reported(self, sink);
}

const eng_gradient_api gradient_api = {
    sizeof(eng_gradient_api),
    ENG_ABI_MINOR,
    reported,
    input,
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) { return h.rule.out(k); }); },
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) { return h.rule.d_out(k); }); },
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) { return h.rule.own_d_out(k); }); },
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) -> int32_t { return h.rule.wants(k); }); },
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) { return h.rule.take(k); }); },
    [](eng_gradient* g, uint32_t k, eng_id gradient) {
      guarded(g, [&](auto& h) {
        if (!h.rule.in(k)) throw fault("input {} does not exist and gets no gradient", k);
        const eng_desc &is = h.desc(gradient), &of = h.rule.desc(k);
        if (!same(is, of))
          throw fault("the gradient of input {} is {}, but the input is {}", k, describe(is), describe(of));
        h.rule.give(k, gradient);
      });
    },
    shape,
    attributes,
    emit,
    [](eng_gradient* g, eng_id value) {
      return guarded(g, [&](auto& h) -> int32_t { return value && (h.desc(value), h.rule.wanted(value)); });
    },
    [](eng_gradient* g, eng_id value) {
      return guarded(g, [&](auto& h) { return value ? (h.desc(value), h.rule.so_far(value)) : Id{0}; });
    },
    [](eng_gradient* g, eng_id value, eng_node* out) {
      return guarded(g, [&](auto& h) -> int32_t {
        need(out, "out is NULL");
        for (const Node& node : h.rule.graph().nodes)
          if (value && std::count(node.out.begin(), node.out.end(), value)) {
            *out = {node.op->id, node.in.data(), node.out.data(), static_cast<uint32_t>(node.in.size()),
                    static_cast<uint32_t>(node.out.size())};
            return 1;
          }
        return 0;
      });
    },
    [](eng_gradient* g) { return guarded(g, [&](auto& h) { return h.rule.scalars(); }); },
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) { return h.rule.weight(k); }); },
    [](eng_gradient* g, uint32_t k, eng_id value) {
      guarded(g, [&](auto& h) {
        const Id out = h.rule.out(k);
        need(out, "output {} does not exist and cannot be replaced", k);
        const eng_desc &is = h.desc(value), &of = h.desc(out);
        need(same(is, of), "what replaces output {} is {}, but the output is {}", k, describe(is), describe(of));
        h.rule.replaces(k, value);
      });
    },
    inputs,
};

const eng_stepping_api stepping_api = {
    sizeof(eng_stepping_api),
    ENG_ABI_MINOR,
    reported,
    input,
    shape,
    attributes,
    [](eng_stepping* s, const eng_desc* desc) {
      return guarded(s, [&](auto& h) {
        const std::string wrong = desc ? wrong_with(*desc) : "is NULL";
        need(wrong.empty(), "a state {}", wrong);
        return h.rule.state(*desc);
      });
    },
    [](eng_stepping* s) { return guarded(s, [&](auto& h) { return h.rule.counters(); }); },
    [](eng_stepping* s, uint32_t k, eng_id value) {
      guarded(s, [&](auto& h) {
        h.desc(value);
        if (k >= h.rule.node().out.size()) throw fault("output {} does not exist", k);
        h.rule.give(k, value);
      });
    },
    emit,
    [](eng_stepping* s, uint32_t k) {
      return guarded(s, [&](auto& h) -> int32_t { return k < h.rule.node().in.size() && h.rule.node().in[k]; });
    },
    inputs,
    [](eng_stepping* s) { return guarded(s, [&](auto& h) { return h.rule.length(); }); },
    [](eng_stepping* s, uint32_t k, eng_desc* out, eng_error* sink) {
      guarded(s, [&](auto& h) {
        need(out, "out is NULL");
        need(k < h.rule.node().in.size() && h.rule.node().in[k], "input {} does not exist", k);
        *out = h.rule.traced(k);
      });
      return reported(s, sink);
    },
};

// "WHERE, RULE: TEXT". `where` is empty for standard ops, whose texts name them.
std::string told_by(const std::string& where, const char* rule, const std::string& text) {
  return where.empty() ? text : fmt::format("{}{}: {}", where, rule, text);
}

// Calls a rule. `unsupported`: the exit code if it cannot serve this use of its op.
template <class Public, class Api, class Rule>
void call_rule(eng_status (*theirs)(Public*, eng_error*), const Api& api, Rule& rule, const std::string& where,
               const char* name, Exit unsupported) {
  HeadOf<Public> head(&api, rule);
  Sink sink;
  const eng_status status = theirs(&head, sink.get());
  if (head.status != ENG_OK) throw Error(head.exit, told_by(where, name, head.error));
  if (status != ENG_OK)
    throw Error(status == ENG_UNSUPPORTED ? unsupported : Exit::environment, told_by(where, name, sink.text(status)));
}

std::vector<eng_desc> descs_of(const Graph& graph, const std::vector<Id>& values) {
  std::vector<eng_desc> out;
  for (Id v : values) out.push_back(v ? graph.value(v).desc : eng_desc{});
  return out;
}

// The answer of eng_op.rebuild as values.
std::vector<Id> rebuilt_from(const eng_op& theirs, const std::string& where, const Graph& graph, const Node& node) {
  const auto in = descs_of(graph, node.in), out = descs_of(graph, node.out);
  const auto list = lend(node.attrs);
  const eng_call call = make_call(in, out, list);
  uint32_t from[most_inputs] = {};
  const uint32_t n = theirs.rebuild(&call, from, most_inputs);
  std::vector<Id> values;
  for (uint32_t k = 0; k < n; ++k) {
    const bool is_output = n <= most_inputs && (from[k] & ENG_OP_OUTPUT);
    const std::vector<Id>& all = is_output ? node.out : node.in;
    const uint32_t at = n <= most_inputs ? from[k] & ~ENG_OP_OUTPUT : n;
    if (at >= all.size()) throw fault("{}: rebuild names what is not there", told_by(where, "", node.op->id));
    values.push_back(all[at]);
  }
  return values;
}

// Refuses what contradicts itself.
void check_op(const eng_op& theirs, const std::string& where) {
  const auto must = [&](bool right, const std::string& why) {
    if (!right) throw fault("{}: {}", where, why);
  };
  must(theirs.in_place || !theirs.n_in_place, fmt::format("in_place is NULL, but its count is {}", theirs.n_in_place));
  must(theirs.indexes || !theirs.n_indexes, fmt::format("indexes is NULL, but its count is {}", theirs.n_indexes));
  must(theirs.min_in <= theirs.max_in, fmt::format("min_in {} > max_in {}", theirs.min_in, theirs.max_in));
  must(theirs.max_in <= most_inputs, fmt::format("max_in is {}, the limit is {}", theirs.max_in, most_inputs));
  for (uint32_t k = 0; k < theirs.n_in_place; ++k)
    must(theirs.in_place[k].in < theirs.max_in && theirs.in_place[k].out < most_outputs,
         fmt::format("in_place names output {} and input {}, but the op has {} inputs", theirs.in_place[k].out,
                     theirs.in_place[k].in, theirs.max_in));
  for (uint32_t k = 0; k < theirs.n_indexes; ++k)
    must(theirs.indexes[k].ids < theirs.max_in && theirs.indexes[k].table < theirs.max_in,
         fmt::format("indexes names inputs {} and {}, but the op has {} inputs", theirs.indexes[k].ids,
                     theirs.indexes[k].table, theirs.max_in));
  must(!(theirs.flags & ENG_OP_FUSED_GRAD) || theirs.grad, "it has ENG_OP_FUSED_GRAD, but grad is NULL");
  must(!theirs.expand || (theirs.infer && !theirs.n_in_place && !(theirs.flags & (ENG_OP_FUSED_GRAD | ENG_OP_RANDOM))),
       "it has expand, which needs infer and excludes in_place, ENG_OP_FUSED_GRAD and ENG_OP_RANDOM");
  must(!(theirs.flags & ENG_OP_RANDOM) || theirs.min_in, "it has ENG_OP_RANDOM, but needs no input");
}

// The values that eng_op.expand emits.
std::vector<Id> expand(const eng_op& theirs, const std::string& where, Builder& builder, const Graph& graph,
                       const std::vector<Id>& in, const std::vector<eng_desc>& out, const Attrs& attrs) {
  const auto given = descs_of(graph, in);
  const auto list = lend(attrs);
  const eng_call call = make_call(given, out, list);
  std::vector<Id> made(out.size(), 0);
  builder.call(where + ", expand", Exit::environment, theirs.expand, &builder, &call, in.data(), made.data());
  return made;
}

Op adapt(const eng_op& theirs, const std::string& where) {
  Op op{theirs.id, theirs.min_in, theirs.max_in, nullptr};
  op.infer = [infer = theirs.infer](std::span<const eng_desc> in, const Attrs& attrs, std::vector<eng_desc>& out) {
    if (!infer) return std::string("it can only initialise parameters");
    eng_desc made[most_outputs] = {};
    uint32_t n = 0;
    const auto list = lend(attrs);
    const eng_call call = make_call(in, {}, list);
    Sink sink;
    if (const eng_status status = infer(&call, made, most_outputs, &n, sink.get()); status != ENG_OK)
      return sink.text(status);
    if (n < 1 || n > most_outputs) return fmt::format("infer gave {} outputs", n);
    out.assign(made, made + n);
    return std::string();
  };
  if (theirs.flops)
    op.flops = [flops = theirs.flops, where](std::span<const eng_desc> in, std::span<const eng_desc> out,
                                             const Attrs& attrs) {
      const auto list = lend(attrs);
      const eng_call call = make_call(in, out, list);
      const double n = flops(&call);
      if (!(n >= 0 && n < 1e30)) throw fault("{}: flops gave {}", where, n);
      return n;
    };
  for (uint32_t k = 0; k < theirs.n_in_place; ++k)
    op.in_place.push_back({theirs.in_place[k].out, theirs.in_place[k].in, theirs.in_place[k].must != 0});
  if (theirs.grad)
    op.grad = [grad = theirs.grad, where](Gradient& g) {
      call_rule(grad, gradient_api, g, where, ", gradient", Exit::environment);
    };
  if (theirs.step)
    op.step = [step = theirs.step, where](Stepping& s) {
      call_rule(step, stepping_api, s, where, ", step", Exit::usage);
    };
  if (theirs.flags & ENG_OP_BY_POSITION) op.step = by_position;
  op.fused_grad = theirs.flags & ENG_OP_FUSED_GRAD;
  op.random = theirs.flags & ENG_OP_RANDOM;
  op.optional = theirs.optional;
  op.sums = theirs.sums;
  op.counts_as = std::max(theirs.counts_as, 1u);
  if (theirs.expand)
    op.expand = [theirs, where](Builder& builder, const Graph& graph, const std::vector<Id>& in,
                                const std::vector<eng_desc>& out,
                                const Attrs& attrs) { return expand(theirs, where, builder, graph, in, out, attrs); };
  op.indexes.assign(theirs.indexes, theirs.indexes + theirs.n_indexes);
  if (theirs.flags & ENG_OP_CHEAP)
    op.rebuild = [theirs, where](const Graph& graph, const Node& node) {
      return theirs.rebuild ? rebuilt_from(theirs, where, graph, node) : node.in;
    };
  return op;
}

// The file whose id the op's id begins with, the longest one; nullptr if there is none.
const Candidate* owner_of(const Registry& registry, const std::string& op) {
  const Candidate* out = nullptr;
  for (const Candidate& c : registry.candidates())
    if (c.refused.empty() && op.starts_with(c.description.id + ".") &&
        (!out || c.description.id.size() > out->description.id.size()))
      out = &c;
  return out;
}

// Calls `visit` for every op that a loaded plugin uses, and for those of the plugins that this loads.
template <class Visit>
void each_used(const Registry& registry, const Visit& visit) {
  for (size_t k = 0; k < registry.loaded().size(); ++k)
    for (const Candidate& user : registry.candidates())
      if (user.refused.empty() && user.description.id == registry.loaded()[k].id)
        for (const std::string& op : user.description.uses) visit(user, op, owner_of(registry, op));
}

}  // namespace

void load_ops(Registry& registry) {
  each_used(registry, [&](const Candidate&, const std::string&, const Candidate* owner) {
    for (const Provided& one : owner ? owner->description.provides : std::vector<Provided>{})
      if (one.kind == ENG_OPS_KIND && one.refused.empty()) registry.table_of<eng_ops>(*owner, one.kind, one.name);
  });
  for (const auto& [from, name] : registry.loaded_providers(ENG_OPS_KIND)) {
    const std::string& plugin = from->description.id;
    const auto table = registry.table_of<eng_ops>(*from, ENG_OPS_KIND, name);
    for (uint32_t k = 0; k < table.count; ++k) {
      const eng_op* theirs = table.ops[k];
      eng_op copy{};
      copy_entry(theirs, copy, fmt::format("plugin {}, op {} of its list", plugin, k));
      const std::string id = copy.id ? copy.id : "", where = fmt::format("plugin {}, op {}", plugin, printable(id));
      if (!id.starts_with(plugin + ".")) throw fault("{}: its id must begin with {}.", where, plugin);
      if (printable(id, 1000) != id)
        throw Error(Exit::environment, where + ": its id is not a name, or longer than 1000 bytes");
      check_op(copy, where);
      const auto [it, fresh] = known().try_emplace(id, PluginOp{theirs, {}});
      if (fresh) it->second.op = adapt(copy, where);
      if (it->second.theirs != theirs)
        throw Error(Exit::environment, where + ": the process has loaded another op with this id");
    }
  }
  each_used(registry, [](const Candidate& user, const std::string& op, const Candidate* owner) {
    if (find_op(op) && (owner || !find_plugin_op(op))) return;  // a standard op has no owner
    throw Error(Exit::environment,
                fmt::format("plugin {} uses the op {}, which {}", user.description.id, op,
                            owner ? owner->path.string() + " does not have" : "no plugin file brings"),
                owner ? "" : "`engine plugins ls --why` lists the files, and why some are refused");
  });
}

const Op* find_plugin_op(const std::string& id) {
  const auto it = known().find(id);
  return it == known().end() ? nullptr : &it->second.op;
}

const Op* find_op(const std::string& id) {
  static const std::map<std::string, Op> standard = [] {
    std::map<std::string, Op> all;
    for (const eng_ops* list : {&standard_ops(), &collectives()})
      for (uint32_t k = 0; k < list->count; ++k) {
        Op& op = all.emplace(list->ops[k]->id, adapt(*list->ops[k], "")).first->second;
        op.collective = list == &collectives();
      }
    return all;
  }();
  const auto it = standard.find(id);
  return it == standard.end() ? find_plugin_op(id) : &it->second;
}

const Op& op(const std::string& id) {
  return *find_op(id);
}

std::vector<eng_attr> lend(const Attrs& attrs) {
  std::vector<eng_attr> out;
  for (const Attr& a : attrs.list) out.push_back({a.key.c_str(), a.i, a.f});
  return out;
}

eng_call make_call(std::span<const eng_desc> in, std::span<const eng_desc> out, const std::vector<eng_attr>& attrs,
                   uint32_t parallel, const eng_device_info* device) {
  const auto number = [](const auto& list) { return static_cast<uint32_t>(list.size()); };
  return {sizeof(eng_call), parallel,     number(in),    number(out), in.data(),
          out.data(),       attrs.data(), number(attrs), 0,           device};
}

int64_t Attrs::i(const std::string& key, int64_t fallback) const {
  for (const auto& a : list)
    if (a.key == key) return a.i;
  return fallback;
}

double Attrs::f(const std::string& key, double fallback) const {
  for (const auto& a : list)
    if (a.key == key) return a.f;
  return fallback;
}

}  // namespace eng
