// SPDX-License-Identifier: Apache-2.0
// Ops from plugins (engine/op.h). Once loaded, they are used like all others.

#include <cstring>

#include "core/base/text.hpp"
#include "core/registry/registry.hpp"
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

std::vector<eng_attr> lend(const Attrs& attrs) {
  std::vector<eng_attr> out;
  for (const Attr& a : attrs.list) out.push_back({a.key.c_str(), a.i, a.f});
  return out;
}

eng_call make_call(std::span<const eng_desc> in, std::span<const eng_desc> out, const std::vector<eng_attr>& attrs) {
  return {sizeof(eng_call),
          0,
          static_cast<uint32_t>(in.size()),
          static_cast<uint32_t>(out.size()),
          in.data(),
          out.data(),
          attrs.data(),
          static_cast<uint32_t>(attrs.size()),
          0,
          nullptr};
}

// The object that a plugin's rule gets: forwards its calls to `rule` and keeps the first error. Rule is Gradient or
// Stepping.
template <class Public, class Rule>
struct Head : Public {
  Rule& rule;
  std::vector<eng_attr> attrs;
  eng_status status = ENG_OK;
  std::string error;

  Head(const decltype(Public::api) api, Rule& r) : Public{api}, rule(r), attrs(lend(r.attrs())) {}
  const eng_desc& desc(eng_id id) const {
    if (!id || id > rule.graph().size()) throw Error(Exit::environment, "no such value");
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
    } catch (const std::exception& e) {
      head.status = ENG_INVALID;
      head.error = e.what();
    }
  return decltype(call(head))();
}

template <class Public>
eng_status told(Public* self, eng_error* sink) {
  const auto& head = *static_cast<HeadOf<Public>*>(self);
  return head.status == ENG_OK ? ENG_OK : report(sink, head.status, head.error);
}

template <class Public>
eng_id input(Public* self, uint32_t k) {
  return guarded(self, [&](auto& head) { return head.rule.in(k); });
}

template <class Public>
eng_status shape(Public* self, eng_id value, eng_desc* out, eng_error* sink) {
  guarded(self, [&](auto& head) {
    need(out, "out is NULL");
    *out = head.desc(value);
  });
  return told(self, sink);
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
    if (!find_op(name ? name : "")) throw Error(Exit::environment, fmt::format("unknown op {}", name ? name : ""));
    need(out || !n_out, "the list of outputs is NULL, but its count is {}", n_out);
    const auto inputs = list_of<Id>(in, n_in, "the list of inputs");
    for (Id i : inputs)
      if (i) head.desc(i);
    const auto made = head.rule.emit(name, inputs, {list_of<Attr>(attrs, n_attrs, "the list of attributes")});
    if (made.size() < n_out)
      throw Error(Exit::environment,
                  fmt::format("{} has {} outputs for these inputs, {} were asked for", name, made.size(), n_out));
    std::copy_n(made.begin(), n_out, out);
  });
  return told(self, sink);
}

const eng_gradient_api gradient_api = {
    sizeof(eng_gradient_api),
    ENG_ABI_MINOR,
    told,
    input,
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) { return h.rule.out(k); }); },
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) { return h.rule.d_out(k); }); },
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) { return h.rule.own_d_out(k); }); },
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) -> int32_t { return h.rule.wants(k); }); },
    [](eng_gradient* g, uint32_t k) { return guarded(g, [&](auto& h) { return h.rule.take(k); }); },
    [](eng_gradient* g, uint32_t k, eng_id gradient) {
      guarded(g, [&](auto& h) {
        if (!h.rule.in(k))
          throw Error(Exit::environment, fmt::format("input {} does not exist and gets no gradient", k));
        const eng_desc &is = h.desc(gradient), &of = h.rule.desc(k);
        if (!same(is, of))
          throw Error(Exit::environment, fmt::format("the gradient of input {} is {}, but the input is {}", k,
                                                     describe(is), describe(of)));
        h.rule.give(k, gradient);
      });
    },
    shape,
    attributes,
    emit,
};

const eng_stepping_api stepping_api = {
    sizeof(eng_stepping_api),
    ENG_ABI_MINOR,
    told,
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
        if (k >= h.rule.node().out.size()) throw Error(Exit::environment, fmt::format("output {} does not exist", k));
        h.rule.give(k, value);
      });
    },
    emit,
};

// Calls a plugin's rule.
template <class Public, class Api, class Rule>
void call_rule(eng_status (*theirs)(Public*, eng_error*), const Api& api, Rule& rule, const std::string& where) {
  HeadOf<Public> head(&api, rule);
  Sink sink;
  const eng_status status = theirs(&head, sink.get());
  if (head.status != ENG_OK) throw Error(Exit::environment, where + ": " + head.error);
  sink.check(status, Exit::environment, where);
}

Op adapt(const eng_op& theirs, const std::string& where) {
  Op op{theirs.id, theirs.min_in, theirs.max_in, nullptr};
  op.infer = [infer = theirs.infer](std::span<const eng_desc> in, const Attrs& attrs, std::vector<eng_desc>& out) {
    if (!infer) return std::string("it can only initialise parameters");
    constexpr uint32_t most = 16;
    eng_desc made[most] = {};
    uint32_t n = 0;
    const auto list = lend(attrs);
    const eng_call call = make_call(in, {}, list);
    Sink sink;
    if (const eng_status status = infer(&call, made, most, &n, sink.get()); status != ENG_OK) return sink.text(status);
    if (n < 1 || n > most) return fmt::format("infer gave {} outputs", n);
    out.assign(made, made + n);
    return std::string();
  };
  if (theirs.flops)
    op.flops = [flops = theirs.flops, where](std::span<const eng_desc> in, std::span<const eng_desc> out,
                                             const Attrs& attrs) {
      const auto list = lend(attrs);
      const eng_call call = make_call(in, out, list);
      const double n = flops(&call);
      if (!(n >= 0 && n < 1e30)) throw Error(Exit::environment, fmt::format("{}: flops gave {}", where, n));
      return n;
    };
  for (uint32_t k = 0; k < theirs.n_in_place; ++k) {
    if (theirs.in_place[k].in >= theirs.max_in || theirs.in_place[k].out >= 16)
      throw Error(Exit::environment, fmt::format("{}: in_place names output {} and input {}, but the op has {} inputs",
                                                 where, theirs.in_place[k].out, theirs.in_place[k].in, theirs.max_in));
    op.in_place.push_back({theirs.in_place[k].out, theirs.in_place[k].in, theirs.in_place[k].must != 0});
  }
  if (theirs.grad)
    op.grad = [grad = theirs.grad, where](Gradient& g) { call_rule(grad, gradient_api, g, where + ", gradient"); };
  if (theirs.step)
    op.step = [step = theirs.step, where](Stepping& s) { call_rule(step, stepping_api, s, where + ", step"); };
  if (theirs.flags & ENG_OP_BY_POSITION) op.step = by_position;
  op.sums = theirs.sums;
  if (theirs.flags & ENG_OP_CHEAP) op.rebuild = [](const Node& node) { return node.in; };
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
      if (!id.starts_with(plugin + "."))
        throw Error(Exit::environment, fmt::format("{}: its id must begin with {}.", where, plugin));
      if (printable(id, 1000) != id)
        throw Error(Exit::environment, where + ": its id is not a name, or longer than 1000 bytes");
      if (copy.n_in_place && !copy.in_place)
        throw Error(Exit::environment,
                    fmt::format("{}: in_place is NULL, but its count is {}", where, copy.n_in_place));
      if (copy.min_in > copy.max_in)
        throw Error(Exit::environment, fmt::format("{}: min_in {} > max_in {}", where, copy.min_in, copy.max_in));
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

}  // namespace eng
