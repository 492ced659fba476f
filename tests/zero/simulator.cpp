// SPDX-License-Identifier: Apache-2.0
#include "simulator.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "core/base/error.hpp"
#include "core/trace/op.hpp"
#include "engine/ops.h"

namespace zero_test {
namespace {

using eng::Id;
using eng::need;

struct Place {
  size_t buffer, first, last;
  explicit Place(const Recorder::Value& v) : buffer(v.buffer), first(v.first), last(v.first + v.count) {}
  bool apart(const Place& o) const { return buffer != o.buffer || last <= o.first || o.last <= first; }
  bool operator==(const Place&) const = default;
};

// Level by level, as ops.h tells it.
float fold(std::vector<float> rows, Fault fault) {
  if (fault == Fault::left_to_right) return std::accumulate(rows.begin() + 1, rows.end(), rows[0]);
  for (size_t m = rows.size(); m > 1; m = (m + 1) / 2)
    for (size_t r = 0; r < m; r += 2) rows[r / 2] = r + 1 < m ? rows[r] + rows[r + 1] : rows[r];
  return rows[0];
}

// The values that member `k` of a group gets from the inputs of all members.
Floats collect(const std::string& op, const std::vector<Floats>& inputs, size_t k, Fault fault) {
  Floats out;
  const size_t members = inputs.size(), count = inputs[0].size();
  if (op == ENG_OP_ALL_GATHER) {
    for (const Floats& in : inputs) out.insert(out.end(), in.begin(), in.end());
  } else if (op == ENG_OP_ALL_TO_ALL) {
    const auto n = static_cast<std::ptrdiff_t>(count / members), at = static_cast<std::ptrdiff_t>(k) * n;
    for (const Floats& in : inputs) out.insert(out.end(), in.begin() + at, in.begin() + at + n);
  } else if (op == ENG_OP_ALL_REDUCE || op == ENG_OP_REDUCE_SCATTER) {
    const size_t n = op == ENG_OP_ALL_REDUCE ? count : count / members, at = op == ENG_OP_ALL_REDUCE ? 0 : k * n;
    for (size_t i = at; i < at + n; ++i) {
      std::vector<float> rows;
      for (const Floats& in : inputs) rows.push_back(in[i]);
      out.push_back(fold(rows, fault));
    }
  } else {
    throw std::runtime_error("no collective " + op);
  }
  return out;
}

// ops.h: which inputs may share memory with the output.
void check_places(const std::string& op, const Recorder& rank, const Recorder::Step& step, size_t member) {
  const Place in(rank.value(step.in)), out(rank.value(step.out));
  if (in.apart(out)) return;
  if (op == ENG_OP_ALL_REDUCE && in == out) return;
  const size_t own = out.first + member * (in.last - in.first);
  need(op == ENG_OP_ALL_GATHER && in.first == own, "{} reads where it writes", op);
}

void run(std::vector<std::unique_ptr<Recorder>>& world, Fault fault) {
  for (size_t k = 0; k < world[0]->steps.size(); ++k) {
    const std::string op = world[0]->steps[k].op->id;
    std::vector<Floats> outs(world.size());
    for (size_t r = 0; r < world.size(); ++r) {
      const Recorder::Step& step = world[r]->steps[k];
      if (op == ENG_OP_FOLD) {
        check_places(op, *world[r], step, 0);
        const Floats x = world[r]->read(step.in);
        const auto m = static_cast<size_t>(step.attrs.i("rows")), n = x.size() / m;
        for (size_t j = 0; j < n; ++j) {
          std::vector<float> rows;
          for (size_t row = 0; row < m; ++row) rows.push_back(x[row * n + j]);
          outs[r].push_back(fold(rows, fault));
        }
        continue;
      }
      const auto& group = world[r]->ranks().group(static_cast<Id>(step.attrs.i("group")));
      std::vector<Floats> inputs;
      size_t own = group.size();
      for (size_t j = 0; j < group.size(); ++j) {
        const Recorder::Step& other = world[group[j]]->steps[k];
        need(world[group[j]]->ranks().group(static_cast<Id>(other.attrs.i("group"))) == group,
             "step {}: ranks {} and {} are in different groups", k, r, group[j]);
        inputs.push_back(world[group[j]]->read(other.in));
        need(inputs[j].size() == inputs[0].size(), "step {}: shapes differ", k);
        if (group[j] == r) own = j;
      }
      need(own < group.size(), "step {}: rank {} is no member of its group", k, r);
      check_places(op, *world[r], step, own);
      outs[r] = collect(op, inputs, own, fault);
    }
    for (size_t r = 0; r < world.size(); ++r) world[r]->write(world[r]->steps[k].out, outs[r]);
  }
}

}  // namespace

Id Recorder::add(Floats data) {
  buffers_.push_back(std::move(data));
  values_.push_back({buffers_.size() - 1, 0, buffers_.back().size()});
  return static_cast<Id>(values_.size());
}

eng_desc Recorder::shape(Id id) {
  return {ENG_F32, 1, {static_cast<int64_t>(value(id).count)}};
}

Id Recorder::slice(Id id, uint64_t first, uint64_t count) {
  const Value v = value(id);
  need(first + count <= v.count, "a slice of {} from {} of {} elements", count, first, v.count);
  values_.push_back({v.buffer, v.first + first, count});
  return static_cast<Id>(values_.size());
}

std::vector<Id> Recorder::emit(const eng::Op& op, std::vector<Id> in, std::vector<Id> out, eng::Attrs attrs) {
  need(in.size() == 1 && out.size() == 1, "{} has one input and one output", op.id);
  if (op.collective) {
    const int64_t group = attrs.i("group");
    need(group >= 1 && group <= static_cast<int64_t>(ranks_.groups.size()), "{}: no group {}", op.id, group);
    attrs.list.push_back({"members", static_cast<int64_t>(ranks_.group(static_cast<Id>(group)).size())});
  }
  const eng_desc from = shape(in[0]);
  std::vector<eng_desc> made;
  const std::string wrong = op.infer({&from, 1}, attrs, made);
  need(wrong.empty(), "{}: {}", op.id, wrong);
  const auto count = static_cast<size_t>(made.at(0).dims[0]);
  if (out[0] == 0) out[0] = add(Floats(count, std::nanf("")));
  need(value(out[0]).count == count, "{} makes {} elements, there is room for {}", op.id, count, value(out[0]).count);
  steps.push_back({&op, in[0], out[0], std::move(attrs)});
  return out;
}

Floats Recorder::read(Id id) const {
  const Value& v = value(id);
  const auto from = buffers_[v.buffer].begin() + static_cast<std::ptrdiff_t>(v.first);
  return {from, from + static_cast<std::ptrdiff_t>(v.count)};
}

void Recorder::write(Id id, const Floats& data) {
  const Value& v = value(id);
  need(data.size() == v.count, "{} elements for {}", data.size(), v.count);
  std::copy(data.begin(), data.end(), buffers_[v.buffer].begin() + static_cast<std::ptrdiff_t>(v.first));
}

World::World(const models::PluginFile& plugin, const std::string& name, uint32_t size, const models::Values& options)
    : table_(plugin.table<eng_axis>(ENG_ZERO_KIND, name)) {
  const models::FakeOptions given(plugin, name, options);
  for (uint32_t r = 0; r < size; ++r) {
    ranks_.push_back(std::make_unique<eng::Ranks>(eng::World{r, size, r, size}));
    eng::RanksBuilder builder(*ranks_[r]);
    eng::Sink sink;
    void* self = nullptr;
    const eng_status s = table_.create(&given, &builder, &self, sink.get());
    if (s == ENG_OK) selves_.push_back(self);
    if (s != ENG_OK)
      for (void* made : selves_) table_.destroy(made);
    sink.check(s, eng::Exit::usage, name);
  }
}

World::~World() {
  for (void* self : selves_) table_.destroy(self);
}

uint32_t World::flags() const {
  uint32_t out = table_.flags;
  eng::Sink sink;
  if (table_.flags_of) sink.check(table_.flags_of(selves_[0], &out, sink.get()), eng::Exit::bug, "flags_of");
  return out;
}

Id World::part(uint32_t rank, int32_t role) const {
  const eng_unit unit = {sizeof(eng_unit), 1, 0, 0, 4096 * size()};
  eng_view view = {sizeof(eng_view), ENG_BF16, 77, 0, 4096 * size()};
  eng::Sink sink;
  sink.check(table_.place(selves_[rank], role == ENG_ROLE_ACT ? nullptr : &unit, role, &view, sink.get()),
             eng::Exit::bug, "place");
  need(view.dtype == ENG_BF16 && view.count == 4096 * size(), "place changed another axis");
  return view.part;
}

Floats World::kept(uint32_t rank, int32_t role, const Floats& whole) const {
  const eng::Part& part = ranks_[rank]->part(this->part(rank, role));
  const auto n = static_cast<std::ptrdiff_t>(whole.size() / part.count);
  const auto from = whole.begin() + static_cast<std::ptrdiff_t>(part.index) * n;
  return {from, from + n};
}

World::Moved World::move(int32_t role, const std::vector<Floats>& src, const std::vector<Id>& from,
                         const std::vector<Id>& to, size_t dst_count, Fault fault, bool in_place) {
  std::vector<std::unique_ptr<Recorder>> world;
  std::vector<Id> dst;
  for (uint32_t r = 0; r < size(); ++r) {
    world.push_back(std::make_unique<Recorder>(*ranks_[r]));
    Recorder& rank = *world.back();
    dst.push_back(rank.add(Floats(dst_count, std::nanf(""))));
    Id source = 0;
    if (in_place) {
      const eng::Part& part = ranks_[r]->part(from[r]);
      source = rank.slice(dst[r], part.index * (dst_count / part.count), dst_count / part.count);
      rank.write(source, src[r]);
    } else {
      source = rank.add(src[r]);
    }
    const eng_view a = {sizeof(eng_view), ENG_F32, from[r], 0, dst_count},
                   b = {sizeof(eng_view), ENG_F32, to[r], 0, dst_count};
    const eng_move m = {sizeof(eng_move), role, 1, 0, source, dst[r], &a, &b, nullptr, 0, 0};
    eng::Sink sink;
    sink.check(table_.move(selves_[r], &rank, &m, sink.get()), eng::Exit::bug, "move");
    rank.check("move");
    need(rank.steps.size() == world[0]->steps.size(), "ranks emit different programs");
    for (size_t k = 0; k < rank.steps.size(); ++k)
      need(rank.steps[k].op == world[0]->steps[k].op, "ranks emit different programs");
  }
  run(world, fault);
  Moved moved;
  for (uint32_t r = 0; r < size(); ++r) {
    moved.dst.push_back(world[r]->read(dst[r]));
    moved.attrs.emplace_back();
    for (const auto& step : world[r]->steps) moved.attrs[r].push_back(step.attrs);
  }
  for (const auto& step : world[0]->steps) {
    const std::string id = step.op->id;
    moved.ops.push_back(id.substr(4, id.size() - 6));
  }
  return moved;
}

World::Moved World::reduce(const std::vector<Floats>& gradients, Fault fault) {
  std::vector<Id> to;
  for (uint32_t r = 0; r < size(); ++r) to.push_back(part(r, ENG_ROLE_GRAD));
  const size_t count = gradients[0].size() / ranks_[0]->part(to[0]).count;
  return move(ENG_ROLE_GRAD, gradients, std::vector<Id>(size(), 0), to, count, fault);
}

World::Moved World::gather(int32_t role, const Floats& whole, bool in_place) {
  std::vector<Floats> parts;
  std::vector<Id> from;
  for (uint32_t r = 0; r < size(); ++r) {
    parts.push_back(kept(r, role, whole));
    from.push_back(part(r, role));
  }
  return move(role, parts, from, std::vector<Id>(size(), 0), whole.size(), Fault::none, in_place);
}

std::string World::refusal(int32_t role, Id from, Id to) {
  Recorder rank(*ranks_[0]);
  const Id src = rank.add(Floats(64)), dst = rank.add(Floats(64));
  const eng_view a = {sizeof(eng_view), ENG_F32, from, 0, 64}, b = {sizeof(eng_view), ENG_F32, to, 0, 64};
  const eng_move m = {sizeof(eng_move), role, 1, 0, src, dst, &a, &b, nullptr, 0, 0};
  eng::Sink sink;
  const eng_status s = table_.move(selves_[0], &rank, &m, sink.get());
  return s == ENG_UNSUPPORTED && rank.steps.empty() ? sink.text() : "status " + std::to_string(s);
}

float tree_sum(const float* rows, size_t m) {
  if (m == 1) return rows[0];
  const size_t half = std::bit_floor(m - 1);
  return tree_sum(rows, half) + tree_sum(rows + half, m - half);
}

Floats tree_sum(const std::vector<Floats>& by_rank) {
  Floats sums;
  for (size_t i = 0; i < by_rank[0].size(); ++i) {
    std::vector<float> rows;
    for (const Floats& rank : by_rank) rows.push_back(rank[i]);
    sums.push_back(tree_sum(rows.data(), rows.size()));
  }
  return sums;
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<Floats> random_gradients(uint32_t ranks, size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Floats> out(ranks, Floats(count));
  for (Floats& rank : out)
    for (float& x : rank) x = normal(random) * std::exp2(normal(random) * 3);
  return out;
}

}  // namespace zero_test
