// SPDX-License-Identifier: Apache-2.0
#include "core/verify/verify.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/range.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

constexpr uint32_t nobody = UINT32_MAX;

// The order that queues and waits alone guarantee: per action, how many actions of each queue have ended when it has,
// including itself. Shares no code with the pass that placed the waits.
class Ends {
 public:
  explicit Ends(const Segment& segment) : actions_(segment.actions), known_(actions_.size()) {
    std::array<uint32_t, queue_count> last;
    last.fill(nobody);
    for (uint32_t a = 0; a < actions_.size(); ++a) {
      const auto join = [&](uint32_t b) {
        for (size_t q = 0; q < queue_count && b < a; ++q) known_[a][q] = std::max(known_[a][q], known_[b][q]);
      };
      join(last[queue(a)]);
      for (uint32_t w : actions_[a].waits) join(w);
      ++known_[a][queue(a)];
      last[queue(a)] = a;
    }
  }
  // True if `b` has always ended when `a` starts; a != b.
  bool ordered(uint32_t b, uint32_t a) const { return known_[a][queue(b)] >= known_[b][queue(b)]; }

 private:
  size_t queue(uint32_t a) const { return static_cast<size_t>(actions_[a].queue); }
  const std::vector<Action>& actions_;
  std::vector<std::array<uint32_t, queue_count>> known_;
};

// The state of a range of addresses while walking a program.
struct Cell {
  Id owner = 0;                               // the buffer that was written here last; 0: undefined bytes
  uint32_t writer = nobody;                   // the last action that wrote it
  std::array<uint32_t, queue_count> readers;  // per queue: the last action that read it since
  Cell() { readers.fill(nobody); }
};

class Walk {
 public:
  Walk(const Plan& plan, size_t limit) : plan_(plan), limit_(limit) {}

  // True if every buffer is in an arena of the plan; otherwise the other checks cannot run.
  bool placed() {
    for (const Buffer& b : plan_.buffers)
      if (b.arena >= plan_.arenas.size())
        add(fmt::format("{} is in arena {}, but the plan has {}", b.name, b.arena, plan_.arenas.size()));
    return found.empty();
  }

  // No buffer overlaps a persistent one, even if no program reads that again.
  void homes() {
    std::vector<RangeMap<Id>> memory = blank<Id>();
    for (bool persistent : {true, false})
      for (Id id = 1; id <= plan_.buffers.size(); ++id) {
        const Buffer& b = plan_.buffer(id);
        if (b.persistent != persistent) continue;
        Id other = 0;
        memory[b.arena].visit(b.offset, b.offset + b.bytes, [&](Id& owner) {
          if (owner) other = owner;
          if (persistent) owner = id;
        });
        if (other)
          add(fmt::format("{} overlaps {}, which keeps its bytes between programs", b.name, plan_.buffer(other).name));
      }
  }

  void program(const Program& program) {
    program_ = &program;
    memory_ = blank<Cell>();
    for (Id id = 1; id <= plan_.buffers.size(); ++id) {
      const Buffer& b = plan_.buffer(id);
      if (b.persistent && b.initial)
        memory_[b.arena].visit(b.offset, b.offset + b.bytes, [&](Cell& c) { c.owner = id; });
    }
    // A repetition starts from the state that the previous one left, so two of them cover every case.
    for (const Segment& s : program.segments)
      for (uint32_t r = 0; r < std::min(s.repeat, 2u); ++r) segment(s);
  }

  std::vector<std::string> found;

 private:
  template <class T>
  std::vector<RangeMap<T>> blank() const {
    std::vector<RangeMap<T>> memory;
    for (const Arena& arena : plan_.arenas) memory.emplace_back(arena.total());
    return memory;
  }

  void add(std::string text) {
    if (found.size() < limit_) found.push_back(std::move(text));
  }

  void complain(uint32_t a, const std::string& text) {
    const Action& action = segment_->actions[a];
    add(fmt::format("{}/{} action {} ({}, {}): {}", program_->name, segment_->name, a, plan_.calls[action.call].op->id,
                    plan_.labels[action.label].text(), text));
  }

  void segment(const Segment& s) {
    segment_ = &s;
    ends_.emplace(s);
    std::map<int64_t, uint32_t> collective;  // group -> its last collective so far
    for (auto& m : memory_)                  // all queues join between segments: earlier accesses cannot race
      m.visit(0, UINT64_MAX, [](Cell& c) { c.writer = nobody, c.readers.fill(nobody); });
    for (uint32_t a = 0; a < s.actions.size(); ++a) {
      const Action& action = s.actions[a];
      for (uint32_t w : action.waits)
        if (w >= a) complain(a, fmt::format("waits for action {}, which comes later", w));
      for (const View& v : action.in) access(a, v, false);
      access(a, action.workspace, true);
      for (const View& v : action.out) access(a, v, true);
      in_place(a);
      in_one_memory(a);
      const Call& call = plan_.calls[action.call];
      if (!call.op->collective) continue;
      auto [last, first] = collective.try_emplace(call.attrs.i("group"), a);
      if (!first && !ends_->ordered(last->second, a))
        complain(a, fmt::format(
                        "its order among the collectives of group {} is undefined: nothing orders it after action {}",
                        last->first, last->second));
      last->second = a;
    }
  }

  // An action may write bytes that it reads only if its op lists the pair in `in_place` and both views are the same
  // bytes; a collective's output may also surround its input. Its outputs must not overlap.
  void in_place(uint32_t a) {
    const Action& action = segment_->actions[a];
    const Op& op = *plan_.calls[action.call].op;
    const auto end = [](const View& v) { return v.offset + bytes(v.desc); };
    const auto apart = [&](const View& x, const View& y) {
      return !x.buffer || x.buffer != y.buffer || end(x) <= y.offset || end(y) <= x.offset;
    };
    for (uint32_t o = 0; o < action.out.size(); ++o) {
      const View& out = action.out[o];
      bool right = true;
      std::string help;
      for (uint32_t k = 0; k < o; ++k) right = right && apart(action.out[k], out);
      for (uint32_t i = 0; i < action.in.size(); ++i) {
        const View& in = action.in[i];
        if (apart(in, out)) continue;
        const bool listed = std::any_of(op.in_place.begin(), op.in_place.end(),
                                        [&](const InPlace& pair) { return pair.out == o && pair.in == i; });
        right = right && listed &&
                (op.collective ? in.offset >= out.offset && end(in) <= end(out)
                               : in.offset == out.offset && end(in) == end(out));
        if (!listed)
          help = fmt::format("; in_place of the op must list output {} and input {} (eng_op, engine/op.h)", o, i);
      }
      if (!right)
        complain(a, plan_.buffer(out.buffer).name + " is written where the same action also reads or writes it" + help);
    }
  }

  // An action computes on the device or in memory of tiers; only a copy goes from one to the other, and from and to
  // storage.
  void in_one_memory(uint32_t a) {
    const Action& action = segment_->actions[a];
    const Call& call = plan_.calls[action.call];
    if (!plan_.has_tiers()) return;
    if (call.op->id == std::string_view(ENG_OP_COPY) && !call.on_host) {
      const uint32_t from = plan_.buffer(action.in[0].buffer).arena, to = plan_.buffer(action.out[0].buffer).arena;
      if (!plan_.adjacent(from, to)) complain(a, fmt::format("no copy goes from arena {} to arena {}", from, to));
      if (call.storage != (plan_.stores(from) ? from : plan_.stores(to) ? to : 0))
        complain(a, fmt::format("is not the copy of the storage that it touches ({})", call.storage));
      return;
    }
    for (const auto* views : {&action.in, &action.out})
      for (const View& v : *views)
        if (v.buffer && (plan_.in_tier(v) != call.on_host || plan_.in_storage(v)))
          complain(a, fmt::format("computes on the {}, but {} is in arena {}", call.on_host ? "host" : "device",
                                  plan_.buffer(v.buffer).name, plan_.buffer(v.buffer).arena));
  }

  // True if action `other` may still run when `a` starts.
  bool races(uint32_t other, uint32_t a) const { return other != nobody && other != a && !ends_->ordered(other, a); }

  void access(uint32_t a, const View& v, bool write) {
    if (!v.buffer) return;
    const Buffer& b = plan_.buffer(v.buffer);
    const size_t queue = static_cast<size_t>(segment_->actions[a].queue);
    const uint64_t size = bytes(v.desc), from = b.offset + v.offset;
    if (v.offset + size > b.bytes) complain(a, b.name + " reaches outside its buffer");
    if (from + size > plan_.arenas[b.arena].total())
      complain(a, fmt::format("{} lies outside its arena {}", b.name, b.arena));
    bool undefined = false, race = false, clash = false;
    memory_[b.arena].visit(from, from + size, [&](Cell& c) {
      race = race || races(c.writer, a);
      if (!write) {
        undefined = undefined || c.owner != v.buffer;
        c.readers[queue] = a;
        return;
      }
      for (uint32_t r : c.readers) race = race || races(r, a);
      clash = clash || (c.owner != v.buffer && (c.writer == a || c.readers[queue] == a));
      c = Cell();
      c.owner = v.buffer;
      c.writer = a;
    });
    if (undefined)
      complain(a, "reads " + b.name + " where it is not written, or where another buffer has overwritten it");
    if (clash) complain(a, b.name + " overwrites another buffer that the same action uses");
    if (race)
      complain(a, fmt::format("the {} of {} is not ordered against another queue", write ? "write" : "read", b.name));
  }

  const Plan& plan_;
  size_t limit_;
  const Program* program_ = nullptr;  // being walked
  const Segment* segment_ = nullptr;
  std::optional<Ends> ends_;
  std::vector<RangeMap<Cell>> memory_;  // per arena
};

}  // namespace

std::vector<std::string> problems(const Plan& plan, size_t limit) {
  Walk walk(plan, limit);
  if (!walk.placed()) return walk.found;
  walk.homes();
  for (const Program& program : plan.programs) walk.program(program);
  return walk.found;
}

void verify(const Plan& plan) {
  auto found = problems(plan);
  if (found.empty()) return;
  throw Error(Exit::bug, fmt::format("the plan is not valid:\n  {}", fmt::join(found, "\n  ")));
}

}  // namespace eng
