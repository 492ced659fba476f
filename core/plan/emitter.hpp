// SPDX-License-Identifier: Apache-2.0
// Appends buffers and actions to a plan; knows nothing of models or policies.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <unordered_map>

#include "core/plan/request.hpp"

namespace eng {

class Emitter;

// Memory for values on their way, piece after piece. As many pieces have some at a time as Emitter::slots says: what
// fills a slot waits for all uses of the piece that had it before, so that layout can give it that memory.
class Slots {
 public:
  explicit Slots(Emitter& emitter) : emit_(emitter) {}
  // A transient buffer for the piece at hand.
  View take(const std::string& name, Line line, const eng_desc& desc, uint32_t place);
  // The next piece takes another slot, if this one has any memory.
  void turn();

 private:
  Emitter& emit_;
  std::deque<std::vector<View>> pieces_ = std::deque<std::vector<View>>(1);  // the last one is at hand
};

class Emitter {
 public:
  // `workspace`: the scratch bytes of a call.
  Emitter(Plan& plan, std::function<uint64_t(const Call&)> workspace, const DeviceTraits& traits = {})
      : plan_(plan), workspace_(std::move(workspace)), traits_(traits) {}

  // Add a buffer. `place`: index into Plan::arenas. `initial`: see Buffer.
  View persistent(const std::string& name, Line line, const eng_desc& desc, bool initial, uint32_t place = 0);
  View transient(const std::string& name, Line line, const eng_desc& desc, uint32_t place = 0);
  void begin_program(const std::string& name) { plan_.programs.push_back({name, {}}); }
  void begin_segment(const std::string& name, uint32_t repeat);
  // A program of one segment.
  void begin_whole(const std::string& name) { begin_program(name), begin_segment(name, 1); }
  // Labels the following actions in dumps and messages.
  void label(Phase phase, const std::string& of = "");
  // Sets the queue of the following actions; returns the previous one. Copies from and to storage have queues of their
  // own all the same; if the device has queues, so have actions that compute in memory of a tier, or copy from or to
  // it.
  Queue on(Queue queue) { return std::exchange(queue_, queue); }
  // The next action waits for all actions of the segment that used this view's buffer.
  void after_users(const View& view);
  // The next action waits for the last action of the computation so far.
  void after_computation() {
    if (computed_) after_.push_back(*computed_);
  }
  // True for a view of a transient buffer on the device.
  bool passes(const View& view) const {
    return view.buffer && !plan_.buffer(view.buffer).persistent && !plan_.buffer(view.buffer).arena;
  }
  void action(const Op& op, std::vector<View> in, std::vector<View> out, Attrs attrs = {});
  void zero(const View& view);
  // Copies a value, in two steps where one does not reach.
  void copy(const View& from, const View& to);
  // Memory at a place for a value on its way, which has a slot of this place.
  View passing(const std::string& name, Line line, const eng_desc& desc, uint32_t place);
  // The number of pieces in transit at a time: two, or three where some come from storage.
  size_t slots() const;
  // The value itself, or a copy of it in memory.
  View in_memory(const View& view, const std::string& name, Line line);
  // The arena of the tier in which a view lies; 0: none.
  uint32_t tier_of(const View& view) const { return plan_.in_tier(view) ? plan_.buffer(view.buffer).arena : 0; }
  // The segment that actions are appended to.
  const Segment& segment() const { return plan_.programs.back().segments.back(); }
  // The queue of collectives: one, so that all ranks run them in one order.
  Queue between_ranks = Queue::compute;
  // From now on, collectives work on copies of their input and output in that arena.
  void stage_collectives(uint32_t arena);

 private:
  View add(Buffer buffer, const eng_desc& desc);
  View staging(Id buffer, const eng_desc& desc);
  Queue queue_of(const Call& call, const View& from, const View& to) const;
  Plan& plan_;
  std::function<uint64_t(const Call&)> workspace_;
  std::unordered_map<std::string, uint32_t> calls_;
  Queue queue_ = Queue::compute;
  std::vector<uint32_t> after_;       // Action::after of the next action
  std::optional<uint32_t> computed_;  // the last action of the segment on the compute queue
  // buffer -> the actions of the segment that read or write it, in their order
  std::unordered_map<Id, std::vector<uint32_t>> users_;
  std::map<uint32_t, Slots> passing_;  // per place
  const DeviceTraits traits_;
  Id sent_ = 0, received_ = 0;  // buffers of stage_collectives
  uint64_t bytes_ = 0;          // of all buffers
};

// n elements in one dimension; of a packed type, the bytes of their chunks.
inline eng_desc flat(int32_t dtype, uint64_t n) {
  if (const uint64_t bytes = eng_packed_bytes(dtype)) return flat(ENG_U8, (n + chunk - 1) / chunk * bytes);
  return make_desc(dtype, {static_cast<int64_t>(n)});
}
// `n` elements of a flat view, from element `first`.
View slice(const View& view, uint64_t first, uint64_t n);
// The elements of `view`, or the first of them, with the dimensions of `desc`. Throws Error(Exit::bug) if `desc` has
// another type or more elements.
View reshape(View view, const eng_desc& desc);

// The extent of a view that the actions of a segment write, from action `first` on.
enum class Written : uint8_t { nothing, some, all };
Written written(const Segment& segment, size_t first, const View& view);

// The builder that optimizers and policies get to emit actions: ids stand for views of the plan.
class EmittingBuilder final : public Builder {
 public:
  EmittingBuilder(Emitter& emitter, const Ranks& ranks, std::string name, Line line = Line::communication)
      : everyone(ranks.data()), emitter_(emitter), ranks_(ranks), name_(std::move(name)), line_(line) {}
  // Adds a view that the plugin may read, and write if `writable`. Returns its id; 0 for an absent view.
  Id add(const View& view, bool writable = false);
  eng_desc shape(Id value) override { return view(value).desc; }
  World world() override { return everyone == 1 ? ranks_.world : ranks_.data_world(); }
  Id slice(Id value, uint64_t first, uint64_t count) override;
  std::vector<Id> emit(const Op& op, std::vector<Id> in, std::vector<Id> out, Attrs attrs) override;

  const View& view(Id id) const;
  Id everyone;                     // the group that it calls `data_group`
  const char* together = nullptr;  // why no collective may be emitted; null: one may

 private:
  uint32_t place_of(const std::vector<View>& inputs) const;
  Emitter& emitter_;
  const Ranks& ranks_;
  std::string name_;
  Line line_;  // of new values
  std::vector<View> views_;
  std::vector<char> writable_;
};

// Calls a plugin's function, which emits through the builder. Throws what went wrong, said by `who`. `unsupported`: how
// it exits if the answer is ENG_UNSUPPORTED.
template <class F, class... Args>
void ask(const std::string& who, const EmittingBuilder& builder, Exit unsupported, F function, Args... args) {
  Sink sink;
  const eng_status status = function(args..., sink.get());
  builder.check(who);
  sink.check(status, status == ENG_UNSUPPORTED ? unsupported : Exit::environment, who);
}

}  // namespace eng
