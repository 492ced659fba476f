// SPDX-License-Identifier: Apache-2.0
#include "core/plan/emitter.hpp"

#include <string_view>

#include "engine/ops.h"

namespace eng {
namespace {

// The bytes of all that tells calls apart: every action asks for one, so it is not text.
std::string key_of(const Call& call) {
  std::string key;
  const auto put = [&](const auto& value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(call.op), put(call.parallel), put(call.on_host), put(call.storage);
  for (const auto* list : {&call.in, &call.out}) {
    put(list->size());
    for (const eng_desc& d : *list) {
      put(d.dtype), put(d.ndim);
      for (uint32_t k = 0; k < std::min<uint32_t>(d.ndim, ENG_MAX_DIMS); ++k) put(d.dims[k]);
    }
  }
  for (const Attr& a : call.attrs.list) key += a.key, key += '\0', put(a.i), put(a.f);
  return key;
}

}  // namespace

View slice(const View& view, uint64_t first, uint64_t n) {
  return {view.buffer, view.offset + first * dtype_size(view.desc.dtype), flat(view.desc.dtype, n)};
}

View reshape(View view, const eng_desc& desc) {
  if (view.desc.dtype != desc.dtype || count(view.desc) < count(desc))
    throw Error(Exit::bug, fmt::format("{} cannot be reshaped to {}", describe(view.desc), describe(desc)));
  view.desc = desc;
  return view;
}

Written written(const Segment& segment, size_t first, const View& view) {
  RangeMap<char> missing(view.offset + bytes(view.desc), 1);
  for (size_t a = first; a < segment.actions.size(); ++a)
    for (const View& out : segment.actions[a].out)
      if (out.buffer == view.buffer)
        missing.visit(out.offset, out.offset + bytes(out.desc), [](char& one) { one = 0; });
  bool some = false, all = true;
  missing.visit(view.offset, view.offset + bytes(view.desc), [&](char one) { some = some || !one, all = all && !one; });
  return all ? Written::all : some ? Written::some : Written::nothing;
}

View Emitter::add(Buffer buffer, const eng_desc& desc) {
  bytes_ += buffer.bytes = bytes(desc);
  if (bytes_ > uint64_t{1} << 62)
    throw Error(Exit::usage, fmt::format("the plan has more than 2^62 bytes, with {} {}", buffer.name, describe(desc)),
                "lower train.micro_batch, train.sequence_length or the sizes of [model]");
  plan_.buffers.push_back(std::move(buffer));
  return {static_cast<Id>(plan_.buffers.size()), 0, desc};
}

View Emitter::persistent(const std::string& name, Line line, const eng_desc& desc, bool initial, uint32_t place) {
  return add({name, line, place, 0, 0, true, initial}, desc);
}

View Emitter::transient(const std::string& name, Line line, const eng_desc& desc, uint32_t place) {
  return add({name, line, place, 0, 0, false, false}, desc);
}

void Emitter::begin_segment(const std::string& name, uint32_t repeat) {
  plan_.programs.back().segments.push_back({name, repeat, {}});
  users_.clear();
  computed_.reset();
}

void Emitter::label(Phase phase, const std::string& of) {
  const Label label{phase, of};
  if (plan_.labels.empty() || plan_.labels.back() != label) plan_.labels.push_back(label);
}

void Emitter::stage_collectives(uint32_t arena) {
  sent_ = persistent("sent to ranks", Line::communication, eng_desc{}, false, arena).buffer;
  received_ = persistent("received from ranks", Line::communication, eng_desc{}, false, arena).buffer;
}

// A view of a staging buffer, which grows to the size of the largest collective.
View Emitter::staging(Id buffer, const eng_desc& desc) {
  plan_.buffer(buffer).bytes = std::max(plan_.buffer(buffer).bytes, bytes(desc));
  return {buffer, 0, desc};
}

void Emitter::action(const Op& op, std::vector<View> in, std::vector<View> out, Attrs attrs) {
  const std::vector<View> target = out;
  const bool staged = op.collective && sent_;
  if (staged) {
    const View sent = staging(sent_, in[0].desc);
    out[0] = staging(received_, out[0].desc);
    action(eng::op(ENG_OP_COPY), {in[0]}, {sent});
    in[0] = sent;
  }
  const View from = in.empty() ? View{} : in[0], to = out.empty() ? View{} : out[0];
  Call call{&op, {}, {}, std::move(attrs)};
  call.storage = plan_.in_storage(from) ? plan_.buffer(from.buffer).arena
                 : plan_.in_storage(to) ? plan_.buffer(to.buffer).arena
                                        : 0;
  call.on_host = !call.storage && plan_.in_tier(to) && (plan_.in_tier(from) || op.id != std::string_view(ENG_OP_COPY));
  const Queue queue = op.collective ? between_ranks : queue_of(call, from, to);
  if (queue != Queue::compute && queue != Queue::host) call.parallel = traits_.overlapped;
  for (const auto& v : in) call.in.push_back(v.desc);
  for (const auto& v : out) call.out.push_back(v.desc);
  auto [it, fresh] = calls_.try_emplace(key_of(call), static_cast<uint32_t>(plan_.calls.size()));
  if (fresh) {
    if (op.flops) call.flops = op.flops(call.in, call.out, call.attrs);
    call.workspace = workspace_ && !call.storage ? workspace_(call) : 0;
    plan_.calls.push_back(std::move(call));
  }
  View scratch;
  if (auto n = static_cast<int64_t>(plan_.calls[it->second].workspace))
    scratch = transient(std::string("workspace ") + op.id, Line::workspace, make_desc(ENG_U8, {n}),
                        plan_.calls[it->second].on_host ? plan_.buffer(out[0].buffer).arena : 0);
  auto& actions = plan_.programs.back().segments.back().actions;
  for (const auto* views : {&in, &out})
    for (const View& v : *views) {
      std::vector<uint32_t>& users = users_[v.buffer];
      if (users.empty() || users.back() != actions.size()) users.push_back(static_cast<uint32_t>(actions.size()));
    }
  const auto label = static_cast<uint32_t>(plan_.labels.size() - 1);
  if (queue == Queue::compute) computed_ = static_cast<uint32_t>(actions.size());
  actions.push_back({it->second, queue, std::move(in), std::move(out), scratch, {}, std::exchange(after_, {}), label});
  if (staged) action(eng::op(ENG_OP_COPY), {staging(received_, target[0].desc)}, target);
}

Queue Emitter::queue_of(const Call& call, const View& from, const View& to) const {
  if (call.storage) return plan_.in_storage(to) ? Queue::write : Queue::read;
  if (!traits_.queues || !(plan_.in_tier(from) || plan_.in_tier(to))) return queue_;
  return call.on_host ? Queue::host : plan_.in_tier(to) ? Queue::d2h : Queue::h2d;
}

size_t Emitter::slots() const {
  for (uint32_t a = plan_.first_tier; a < plan_.arenas.size(); ++a)
    if (plan_.stores(a)) return 3;
  return 2;
}

View Slots::take(const std::string& name, Line line, const eng_desc& desc, uint32_t place) {
  pieces_.back().push_back(emit_.transient(name, line, desc, place));
  if (pieces_.size() > emit_.slots())
    for (const View& old : pieces_.front()) emit_.after_users(old);
  return pieces_.back().back();
}

void Slots::turn() {
  if (!pieces_.back().empty()) pieces_.emplace_back();
  if (pieces_.size() > emit_.slots() + 1) pieces_.pop_front();
}

View Emitter::passing(const std::string& name, Line line, const eng_desc& desc, uint32_t place) {
  Slots& last = passing_.try_emplace(place, *this).first->second;
  last.turn();
  return last.take(name, line, desc, place);
}

void Emitter::copy(const View& from, const View& to) {
  View at = from;
  const uint32_t a = plan_.buffer(from.buffer).arena, b = plan_.buffer(to.buffer).arena;
  if (!plan_.adjacent(a, b)) {
    at = passing("on its way", Line::communication, from.desc, plan_.staging_arena);
    action(op(ENG_OP_COPY), {from}, {at});
  }
  action(op(ENG_OP_COPY), {at}, {to});
}

View Emitter::in_memory(const View& view, const std::string& name, Line line) {
  if (!plan_.in_storage(view)) return view;
  const View here = passing(name, line, view.desc, plan_.staging_arena);
  action(op(ENG_OP_COPY), {view}, {here});
  return here;
}

void Emitter::after_users(const View& view) {
  const auto& users = users_[view.buffer];
  after_.insert(after_.end(), users.begin(), users.end());
}

void Emitter::zero(const View& view) {
  if (!count(view.desc)) return;
  action(op(ENG_OP_INIT_CONSTANT), {}, {view}, {{{"value", 0, 0.0}, {"first", 0, 0.0}}});
}

Id EmittingBuilder::add(const View& view, bool writable) {
  if (!view.buffer) return 0;
  views_.push_back(view);
  writable_.push_back(writable);
  return static_cast<Id>(views_.size());
}

const View& EmittingBuilder::view(Id id) const {
  if (!id || id > views_.size()) throw fault("no such value");
  return views_[id - 1];
}

Id EmittingBuilder::slice(Id value, uint64_t first, uint64_t count) {
  const View& all = view(value);
  const auto n = static_cast<uint64_t>(eng::count(all.desc));
  if (first > n || count > n - first) throw fault("a slice reaches outside its value");
  return add(eng::slice(all, first, count), writable_[value - 1]);
}

// A new value lies where the op computes: beside its first input.
uint32_t EmittingBuilder::place_of(const std::vector<View>& inputs) const {
  for (const View& v : inputs)
    if (v.buffer) return emitter_.tier_of(v);
  return 0;
}

std::vector<Id> EmittingBuilder::emit(const Op& op, std::vector<Id> in, std::vector<Id> out, Attrs attrs) {
  std::vector<View> inputs, outputs;
  std::vector<eng_desc> shapes, made;
  for (Id i : in) {
    inputs.push_back(i ? view(i) : View{});
    shapes.push_back(inputs.back().desc);
  }
  if (in.size() < op.min_in || in.size() > op.max_in) throw fault("{}: wrong number of inputs", op.id);
  for (size_t k = 0; k < op.min_in; ++k)
    if (!in[k] && !(op.optional >> k & 1U)) throw fault("{}: input {} is missing", op.id, k);
  if (op.expand) throw fault("{} is made of other ops: only models can use it", op.id);
  if (op.collective) {
    if (ranks_.world.size == 1) throw fault("{}: there is one rank", op.id);
    const auto group = attrs.i("group");
    if (group < 1 || group > static_cast<int64_t>(ranks_.groups.size()))
      throw fault("{}: there is no group {}", op.id, group);
    if (together) throw fault("it emits {}; {}", op.id, together);
    const Id id = group == data_group ? everyone : static_cast<Id>(group);
    std::erase_if(attrs.list, [](const Attr& a) { return a.key == "group"; });
    attrs.list.insert(attrs.list.begin(), {{"group", id, 0}});
    attrs.list.push_back({"members", static_cast<int64_t>(ranks_.group(id).size()), 0});
  }
  std::string wrong = infer(op, shapes, attrs, made);
  if (!wrong.empty()) throw fault("{}: {}", op.id, wrong);
  out.resize(made.size());
  for (size_t k = 0; k < made.size(); ++k) {
    if (!out[k]) {
      out[k] = add(emitter_.transient(name_, line_, made[k], place_of(inputs)), true);
    } else if (!same(view(out[k]).desc, made[k])) {
      throw fault("{}: output {} is {} and cannot be written into {}", op.id, k, describe(made[k]),
                  describe(view(out[k]).desc));
    } else if (!writable_[out[k] - 1]) {
      throw fault("{}: output {} is a value that may only be read", op.id, k);
    }
    outputs.push_back(view(out[k]));
  }
  for (const InPlace& pair : op.in_place)
    if (pair.must && pair.out < outputs.size() && pair.in < inputs.size() && inputs[pair.in].buffer &&
        (inputs[pair.in].buffer != outputs[pair.out].buffer || inputs[pair.in].offset != outputs[pair.out].offset))
      throw fault("{} works in place: output {} must be input {}", op.id, pair.out, pair.in);
  emitter_.action(op, std::move(inputs), std::move(outputs), std::move(attrs));
  return out;
}

}  // namespace eng
