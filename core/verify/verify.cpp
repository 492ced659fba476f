// SPDX-License-Identifier: Apache-2.0
#include "core/verify/verify.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/error.hpp"
#include "core/base/range_map.hpp"

namespace eng {
namespace {

constexpr uint32_t nobody = UINT32_MAX;

// What is known of one range of addresses while walking a segment.
struct Cell {
  Id owner = 0;  // the buffer whose bytes these are, 0: undefined
  uint32_t writer = nobody;
  std::array<uint32_t, queue_count> readers;
  Cell() { readers.fill(nobody); }
};

class Walk {
 public:
  Walk(const Plan& plan, size_t limit) : plan_(plan), limit_(limit) {}

  // What a buffer keeps between programs is no other buffer's, whether this program reads it again or not.
  void homes() {
    std::vector<RangeMap<Id>> memory;
    for (const Arena& arena : plan_.arenas) memory.emplace_back(arena.total());
    for (bool persistent : {true, false})
      for (Id id = 1; id <= plan_.buffers.size(); ++id) {
        const Buffer& b = plan_.buffer(id);
        if (b.persistent != persistent) continue;
        Id other = 0;
        memory[b.arena].visit(b.offset, b.offset + b.bytes, [&](Id& owner) {
          if (owner) other = owner;
          if (persistent) owner = id;
        });
        if (other && found.size() < limit_)
          found.push_back(
              fmt::format("{} lies on {}, which keeps its bytes between programs", b.name, plan_.buffer(other).name));
      }
  }

  void program(const Program& program) {
    std::vector<RangeMap<Cell>> memory;
    for (const Arena& arena : plan_.arenas) memory.emplace_back(arena.total());
    for (Id id = 1; id <= plan_.buffers.size(); ++id) {
      const Buffer& b = plan_.buffer(id);
      if (b.persistent && b.initial)
        memory[b.arena].visit(b.offset, b.offset + b.bytes, [&](Cell& c) { c.owner = id; });
    }
    for (const Segment& s : program.segments) {
      // Every repetition runs from the state the one before left; two show all that differs.
      for (uint32_t r = 0; r < std::min(s.repeat, 2u); ++r) segment(program, s, memory);
    }
  }

  std::vector<std::string> found;

 private:
  void complain(const Program& p, const Segment& s, uint32_t a, const std::string& text) {
    if (found.size() < limit_)
      found.push_back(fmt::format("{}/{} action {} ({}, {}): {}", p.name, s.name, a,
                                  plan_.calls[s.actions[a].call].op->id, plan_.labels[s.actions[a].block], text));
  }

  // True if action `earlier` is complete before action `a` starts.
  bool before(uint32_t earlier, uint32_t a) const {
    return earlier == nobody || reach_[a][static_cast<size_t>(queue_[earlier])] > place_[earlier];
  }

  void segment(const Program& p, const Segment& s, std::vector<RangeMap<Cell>>& memory) {
    size_t n = s.actions.size();
    reach_.assign(n, {}), place_.assign(n, 0), queue_.assign(n, 0);
    std::array<std::array<uint32_t, queue_count>, queue_count> tail{};
    std::array<uint32_t, queue_count> length{};
    for (auto& m : memory)  // all queues joined at the border: who wrote before no longer matters
      m.visit(0, UINT64_MAX, [](Cell& c) { c.writer = nobody, c.readers.fill(nobody); });
    for (uint32_t a = 0; a < n; ++a) {
      const Action& action = s.actions[a];
      size_t q = static_cast<size_t>(action.queue);
      queue_[a] = static_cast<uint8_t>(q);
      auto reach = tail[q];
      for (uint32_t w : action.waits) {
        if (w >= a) {
          complain(p, s, a, fmt::format("waits for action {}, which comes later", w));
          continue;
        }
        for (size_t k = 0; k < queue_count; ++k) reach[k] = std::max(reach[k], reach_[w][k]);
        reach[queue_[w]] = std::max(reach[queue_[w]], place_[w] + 1);
      }
      reach_[a] = reach;
      place_[a] = length[q]++;
      tail[q] = reach;
      tail[q][q] = length[q];
      for (const View& v : action.in) access(p, s, a, v, false, memory);
      access(p, s, a, action.workspace, true, memory);
      for (const View& v : action.out) access(p, s, a, v, true, memory);
    }
  }

  void access(const Program& p, const Segment& s, uint32_t a, const View& v, bool write,
              std::vector<RangeMap<Cell>>& memory) {
    if (!v.buffer) return;
    const Buffer& b = plan_.buffer(v.buffer);
    uint64_t size = bytes(v.desc), from = b.offset + v.offset;
    if (v.offset + size > b.bytes) complain(p, s, a, fmt::format("{} reaches outside its buffer", b.name));
    if (from + size > plan_.arenas[b.arena].total())
      complain(p, s, a, fmt::format("{} lies outside its arena", b.name));
    bool undefined = false, race = false, clash = false;
    memory[b.arena].visit(from, from + size, [&](Cell& c) {
      if (!write && c.owner != v.buffer) undefined = true;
      if (c.writer != a && !before(c.writer, a)) race = true;
      if (write)
        for (uint32_t r : c.readers)
          if (r != a && !before(r, a)) race = true;
      // Only an op that works in place may write what it reads, and that is one buffer.
      if (write && c.owner != v.buffer && (c.writer == a || c.readers[static_cast<size_t>(s.actions[a].queue)] == a))
        clash = true;
      if (write) {
        c.owner = v.buffer;
        c.writer = a;
        c.readers.fill(nobody);
      } else {
        c.readers[static_cast<size_t>(s.actions[a].queue)] = a;
      }
    });
    if (undefined)
      complain(p, s, a,
               fmt::format("reads {} where it is not written, or where another buffer has taken its bytes", b.name));
    if (clash) complain(p, s, a, fmt::format("{} takes bytes of another buffer that the same action uses", b.name));
    if (race)
      complain(p, s, a,
               fmt::format("{} of {} is not ordered against another queue", write ? "the write" : "the read", b.name));
  }

  const Plan& plan_;
  size_t limit_;
  std::vector<std::array<uint32_t, queue_count>> reach_;
  std::vector<uint32_t> place_;
  std::vector<uint8_t> queue_;
};

}  // namespace

std::vector<std::string> problems(const Plan& plan, size_t limit) {
  Walk walk(plan, limit);
  walk.homes();
  for (const Program& program : plan.programs) walk.program(program);
  return walk.found;
}

void verify(const Plan& plan) {
  auto found = problems(plan);
  if (found.empty()) return;
  std::string text = "the plan is not valid:";
  for (const auto& line : found) text += "\n  " + line;
  throw Error(Exit::bug, text);
}

}  // namespace eng
