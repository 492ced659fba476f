// SPDX-License-Identifier: Apache-2.0
// The home of every state of the step: where it lives between uses. And the moves from one home to another.
#pragma once

#include "core/plan/emitter.hpp"
#include "core/plan/homes.hpp"
#include "core/plan/leases.hpp"
#include "core/plan/rules.hpp"

namespace eng {

class States {
 public:
  // Makes the units and all persistent buffers and tensors of the plan.
  States(const PlanRequest& request, Plan& plan, Emitter& emitter);
  const Homes& homes() const { return homes_; }
  const Rules& rules() const { return rules_; }
  // Its parameters are frozen: it has no gradient and no optimizer state, and a step does not publish it.
  bool frozen(size_t u) const { return r_.train && rules_.frozen(homes_.unit(u).params[0]); }
  const Rules::Rule& rule(size_t u) const { return rules_.of(homes_.unit(u).params[0]); }  // but for the group
  // The type in which the model reads a unit's parameters.
  int32_t computed(size_t u) const { return computed_[u]; }
  // The type in which it makes their gradients: sums are made in f32 if the policy asks for that.
  int32_t made(size_t u) const { return partial_[u] == wide(computed_[u]) ? partial_[u] : computed_[u]; }
  // Each use needs a lease: a copy of the weight that is whole, or of the type that compute reads.
  bool leased(size_t u) const { return weight[u].where() != Where{0, 0, computed_[u]}; }
  // The backward writes a unit's gradient directly into its home.
  bool direct(size_t u) const {
    return single_rank() && made(u) == grad[u].view.desc.dtype && made(u) == partial_[u] && !grad[u].place;
  }
  // The weight of what begins at element `first` is its own master.
  bool one(size_t u, uint64_t first) const { return master[u].where(first) == weight[u].where(); }
  // The new weight is the new master, cast to another type or copied to another place: whoever has the new master in
  // memory may write it.
  bool follows(size_t u, uint64_t first) const {
    const Where from = master[u].where(first), to = weight[u].where();
    return from != to && from.part == to.part &&
           (from.dtype == to.dtype || (r_.precision.table.flags & ENG_AXIS_CASTS));
  }
  // The bytes of the whole gradient that the update of a unit leases: where ranks have parts of it, and either all keep
  // the whole master, or the optimizer updates whole parameters.
  uint64_t update_lease(size_t u) const {
    const bool whole = grad[u].part && !frozen(u) && r_.optimizer && (!master[u].part || rule(u).whole);
    return whole ? homes_.unit(u).count * dtype_size(grad[u].view.desc.dtype) : 0;
  }
  bool single_rank() const { return plan_.ranks.data_size() == 1; }
  // The arena in which a role of unit u lives, of what begins at element `first`: [offload].
  uint32_t place(int32_t role, size_t u, uint64_t first = 0) const;
  // n elements in one dimension.
  static eng_desc flat(int32_t dtype, uint64_t n) { return make_desc(dtype, {static_cast<int64_t>(n)}); }

  std::vector<Home> weight, master, grad;           // per unit
  std::vector<std::vector<Home>> optimizer;         // per state of the optimizer and unit; absent where it has none
  std::vector<std::map<uint32_t, View>> shaped;     // per state of the optimizer: those of parameters that are whole
  std::vector<View> weights;                        // per parameter, as compute reads it; absent while none is leased
  std::map<uint32_t, std::vector<View>> constants;  // per template

  // Let policies update their own states at the beginning of a step, and after the norm.
  void begin() { run_hooks(&eng_axis::begin, Phase::begin, true); }
  void refresh() { run_hooks(&eng_axis::update, Phase::update, false); }
  // Makes the new weight from its master where the two have different homes, but for pieces that end at element `first`
  // or before.
  void publish(size_t u, uint64_t first = 0);
  // Weights that ranks gather from their parts may come beside the next step's forward instead of after the update.
  bool publishes_late(size_t u) const;
  // Copies what the host has filled to the device, and results to where the host reads them. Nothing if host and device
  // share one memory.
  void copy_in(const View& host, const View& device) { copy(Queue::h2d, host, device); }
  void copy_out(const View& device, const View& host) { copy(Queue::d2h, device, host); }
  // A buffer on the device, and the memory in which the host fills or reads it.
  struct Shared {
    View device, host;
  };
  Shared shared(const std::string& name, Line line, const eng_desc& desc, bool initial);
  std::vector<View> fields;  // of the batch, on the device; the next ones, too
  View inputs, losses, all_losses;
  // Makes room for `n` values after the rows of the losses.
  void after_losses(uint64_t n);

  // The bytes for leases on the device at a time; UINT64_MAX: no limit.
  uint64_t live_limit() const {
    return r_.live_limit && (!single_rank() || plan_.has_tiers()) ? r_.live_limit : UINT64_MAX;
  }
  // The leases of a segment.
  Leases leases() const {
    Leases leases(emit_);
    leases.limit(live_limit());
    return leases;
  }
  // Leases unit u whole, as `role`, and fills it from its home. `dtype`: of what is leased; 0: that of the home.
  View gather(Leases& leases, const std::string& what, Line line, int32_t role, size_t u, const Home& home,
              int32_t dtype = 0);
  // Sums the `own` gradients of all ranks of a unit, in the dtype of ENG_ROLE_PARTIAL. Stores the sum in the gradient,
  // or adds it to the gradient.
  void reduce(size_t u, const View& own, bool store);
  // Stores this rank's fresh gradient in `own`, or adds it. Both are whole.
  void accumulate(size_t u, const View& fresh, const View& own, bool store) {
    add(u, route(plan_, {0, 0, fresh.desc.dtype}, {0, 0, own.desc.dtype}), fresh, {own}, store);
  }
  // A collective over all ranks. Returns `to`, or a new value if `to` is absent.
  View collective(const char* id, const View& from, const View& to);
  // Puts the actions that `emit` emits on the communication queue, beside the computation.
  template <class F>
  void between_ranks(F emit) {
    const Queue before = emit_.on(r_.overlap && !single_rank() ? Queue::comm : Queue::compute);
    emit();
    emit_.on(before);
  }

 private:
  eng_unit unit_view(size_t u) const;
  Id part(int32_t role, size_t u) const;
  Home persistent(const std::string& what, Line line, int32_t role, int32_t dtype, size_t u, uint32_t per = 1,
                  const Home* weight = nullptr);
  void choose_kept();
  void make_homes(size_t u);
  void make_optimizer();
  eng_desc state_of(size_t state, uint32_t p) const;
  Home make_state(size_t state, size_t u);
  void make_step();
  void copy(Queue queue, const View& from, const View& to);
  void make_tensors();
  void add(size_t u, const std::vector<Move>& way, const View& from, const Home& home, bool store);
  void carry(const std::vector<Move>& way, int32_t role, size_t u, size_t piece, View from, Where at, const View& to);
  void make_own(const Policy& policy);
  void run_hooks(decltype(eng_axis::update) eng_axis::*hook, Phase phase, bool at_begin);
  void move(const Policy& policy, int32_t role, size_t u, size_t piece, const View& from, Id from_part, const View& to,
            Id to_part);

  const PlanRequest& r_;
  const Model& model_;
  Plan& plan_;
  Emitter& emit_;
  const Rules rules_;
  Homes homes_;
  std::vector<int32_t> computed_, partial_;  // per unit: dtypes
  struct Own {
    const Policy* policy;
    std::vector<Policy::State> states;
    std::vector<View> views;
  };
  std::vector<Own> own_;        // of every policy that moves something
  std::vector<View> values_;    // of a job
  std::vector<uint64_t> kept_;  // per unit: the elements whose masters and optimizer states stay; offload.ratio
};

// Lets a policy emit through a builder; `emit` is given the sink. Throws what went wrong, said by `who`. `unsupported`:
// how it exits if the answer is ENG_UNSUPPORTED.
template <class F>
void ask(const std::string& who, const EmittingBuilder& builder, F emit, Exit unsupported = Exit::environment) {
  Sink sink;
  const eng_status status = emit(sink.get());
  builder.check(who);
  sink.check(status, status == ENG_UNSUPPORTED ? unsupported : Exit::environment, who);
}

}  // namespace eng
