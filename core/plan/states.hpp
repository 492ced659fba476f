// SPDX-License-Identifier: Apache-2.0
// Every state of the step where it lives between uses, and the moves between
// such homes.
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
  // Its parameters keep their values: it has no gradient and no state of the
  // optimizer, and is not published in a step.
  bool frozen(size_t u) const { return r_.train && rules_.frozen(homes_.unit(u).params[0]); }
  const Rules::Rule& rule(size_t u) const { return rules_.of(homes_.unit(u).params[0]); }  // but for the group
  bool alone() const { return plan_.ranks.world.size == 1; }
  // Elements of a unit are of this type.
  static eng_desc flat(int32_t dtype, uint64_t n) { return make_desc(dtype, {static_cast<int64_t>(n)}); }

  std::vector<Home> weight, master, grad;           // per unit
  std::vector<std::vector<Home>> optimizer;         // per state of the optimizer and
                                                    // unit; absent where it has none
  std::vector<std::map<uint32_t, View>> shaped;     // per state of the optimizer: those of parameters that are whole
  std::vector<View> weights;                        // per parameter, as compute reads it; absent while
                                                    // it is in parts
  std::map<uint32_t, std::vector<View>> constants;  // per template

  // Where the weight has another home than the master: takes it there.
  void publish(size_t u);
  // Weights that are brought together from parts can come beside the next
  // step's forward, and not behind the update.
  bool publishes_late(size_t u) const;
  // Leases unit u whole, as `role`, and fills it from its home.
  View gather(Leases& leases, const std::string& what, Line line, int32_t role, size_t u, const Home& home);
  // The sum of all ranks' `own` gradients of a unit, stored, or added to what
  // is there.
  void reduce(size_t u, const View& own, bool store);
  // A collective over all ranks; returns `to`, or what was made in its place.
  View collective(const char* id, const View& from, const View& to);
  // What is emitted inside runs beside the computation.
  template <class F>
  void between_ranks(F emit) {
    const Queue before = emit_.on(r_.overlap && !alone() ? Queue::comm : Queue::compute);
    emit();
    emit_.on(before);
  }

 private:
  eng_unit unit_view(size_t u) const;
  Id part(int32_t role, size_t u) const;
  Home persistent(const std::string& what, Line line, int32_t role, int32_t dtype, size_t u);
  void make_homes(size_t u);
  void make_optimizer();
  Home make_state(size_t state, size_t u);
  void make_step();
  void make_tensors();
  void carry(const std::vector<Move>& way, int32_t role, size_t u, size_t piece, View from, Where at, const View& to);
  template <class Policy>
  void move(const char* who, const Policy& policy, int32_t role, size_t u, size_t piece, const View& from, Id from_part,
            const View& to, Id to_part);

  const PlanRequest& r_;
  const Model& model_;
  Plan& plan_;
  Emitter& emit_;
  const Rules rules_;
  Homes homes_;
};

// Lets a policy emit through a builder; `emit` is given the sink. Throws what
// went wrong, said by `who`.
template <class F>
void ask(const std::string& who, const EmittingBuilder& builder, F emit) {
  Sink sink;
  const eng_status status = emit(sink.get());
  builder.check(who);
  sink.check(status, Exit::environment, who);
}

}  // namespace eng
