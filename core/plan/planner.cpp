// SPDX-License-Identifier: Apache-2.0
#include "core/plan/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <set>
#include <utility>

#include "core/base/error.hpp"
#include "core/memory/layout.hpp"
#include "core/plan/blocks.hpp"
#include "core/plan/homes.hpp"
#include "core/plan/leases.hpp"
#include "core/plan/waits.hpp"
#include "core/tensor/dtype.hpp"
#include "core/trace/stepping.hpp"
#include "core/verify/verify.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

// Persistent state of the step, and the emission of its programs.
class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : r_(request),
        model_(request.model),
        ranks_((plan_.ranks = request.ranks)),
        emit_(plan_, request.workspace),
        blocks_(model_, emit_),
        homes_(model_, plan_, request.bucket) {}

  Plan make() {
    plan_.arenas.push_back({r_.device, "device", 0, 0, 0});
    plan_.accumulate = r_.accumulate;
    plan_.parameters = model_.parameter_count();
    plan_.labels.push_back("step");
    make_state();
    emit_init();
    emit_train();
    if (r_.evaluate) emit_eval();
    if (r_.logits) emit_logits();
    if (r_.generate) emit_generate();
    return std::move(plan_);
  }

 private:
  bool alone() const { return ranks_.world.size == 1; }

  // ---- homes -----------------------------------------------------------------------------------------
  static eng_desc flat(int32_t dtype, uint64_t n) { return make_desc(dtype, {static_cast<int64_t>(n)}); }

  eng_unit unit_view(size_t u) const {
    const Unit& unit = homes_.unit(u);
    return {sizeof(eng_unit), static_cast<eng_id>(u + 1), unit.block, unit.flags, unit.count};
  }

  // Where a state lives, as far as sharding says.
  Id part(int32_t role, size_t u) const { return r_.sharding ? r_.sharding->part(role, unit_view(u)) : 0; }

  Home persistent(const char* what, Line line, int32_t role, int32_t dtype, size_t u, bool initial = true) {
    const Id part = this->part(role, u);
    return {emit_.persistent(fmt::format("{} {}", what, homes_.unit(u).name), line, flat(dtype, homes_.count(u, part)),
                             initial),
            part};
  }

  void make_state() {
    for (size_t u = 0; u < homes_.units(); ++u) {
      const eng_unit view = unit_view(u);
      const auto dtype = [&](int32_t role) { return r_.precision.dtype(role, &view); };
      const int32_t weight = dtype(ENG_ROLE_WEIGHT), master = dtype(ENG_ROLE_MASTER), grad = dtype(ENG_ROLE_GRAD);
      if (grad != dtype(ENG_ROLE_PARTIAL))
        throw Error(Exit::environment, "this version needs one dtype for fresh and reduced gradients");
      weight_.push_back(persistent("weight", Line::weights, ENG_ROLE_WEIGHT, weight, u));
      const Home& w = weight_.back();
      const Id kept = part(ENG_ROLE_MASTER, u);
      // Equal homes are one memory, and a part lies inside of a whole: the weight is its own master.
      master_.push_back(master == weight && (kept == w.part || !w.part)
                            ? Home{w.view, kept, kept != w.part}
                            : persistent("master", Line::weights, ENG_ROLE_MASTER, master, u));
      if (!r_.train) continue;
      // Without an update gradients stay for whoever reads them; else they last from the backward to the update.
      const Id reduced = part(ENG_ROLE_GRAD, u);
      const eng_desc desc = flat(grad, homes_.count(u, reduced));
      const std::string name = "gradient " + homes_.unit(u).name;
      grad_.push_back({r_.optimizer ? emit_.transient(name, Line::gradients, desc)
                                    : emit_.persistent(name, Line::gradients, desc, false),
                       reduced});
    }
    if (r_.train && r_.optimizer) make_optimizer_state();
    for (uint32_t p = 0; p < model_.params.size(); ++p) {
      const Home& home = weight_[homes_.unit_of(p)];
      weights_.push_back(home.part ? View{} : homes_.parameter(home.view, p));
    }
    for (const auto& [tmpl, t] : model_.templates) {
      auto& list = constants_[tmpl];
      for (const Constant& c : t.constants) {
        list.push_back(emit_.persistent(fmt::format("constant {} of template {}", list.size(), tmpl), Line::constants,
                                        c.desc, true));
        plan_.constants.push_back(list.back());
        plan_.constant_data.push_back(c.data);
      }
    }
    int64_t a = r_.accumulate, b = model_.micro_batch, t = model_.sequence_length;
    plan_.tokens = emit_.persistent("tokens", Line::batch, make_desc(ENG_I32, {a, b, t}), true);
    plan_.labels_in = emit_.persistent("labels", Line::batch, make_desc(ENG_I32, {a, b, t}), true);
    plan_.inputs = emit_.persistent("inputs", Line::step, make_desc(ENG_F32, {8}), true);
    plan_.counters = emit_.persistent("counters", Line::step, make_desc(ENG_I64, {ENG_C_COUNT}), true);
    plan_.scalars = emit_.persistent("scalars", Line::step, make_desc(ENG_F32, {ENG_S_COUNT}), true);
    // The loss is f32, or f64 where the compute is f64 (gradient checks).
    const Template& head = model_.templates.at(model_.blocks.back().tmpl);
    const int32_t wide = head.graph.value(head.outputs[0]).desc.dtype;
    plan_.losses = emit_.persistent("losses", Line::step, make_desc(wide, {a}), true);
    if (!alone() && r_.train)
      plan_.all_losses =
          emit_.persistent("losses of all ranks", Line::step, flat(wide, uint64_t(a) * ranks_.world.size), false);
    for (uint32_t p = 0; p < model_.params.size(); ++p) {
      const size_t u = homes_.unit_of(p);
      const auto add = [&](const std::string& role, const Home& home) {
        eng_desc desc = model_.params[p].desc;
        desc.dtype = home.view.desc.dtype;
        plan_.tensors.push_back({model_.params[p].name, role, desc, !home.part, homes_.extents(home, p)});
      };
      add("parameter", master_[u]);
      if (r_.train && !r_.optimizer) add("gradient", grad_[u]);
      for (size_t s = 0; s < states_.size(); ++s) add(states_[s].name, state_[s][u]);
    }
  }

  void make_optimizer_state() {
    eng_state states[16];
    uint32_t n = 0;
    Sink sink;
    sink.check(r_.optimizer->table.states(r_.optimizer->self.get(), states, 16, &n, sink.get()), Exit::environment,
               "optimizer " + r_.optimizer->name);
    states_.assign(states, states + n);
    for (const eng_state& s : states_) {
      state_.emplace_back();
      for (size_t u = 0; u < homes_.units(); ++u)
        state_.back().push_back(persistent(s.name, Line::optimizer, ENG_ROLE_STATE, s.dtype, u));
    }
    int64_t columns = 1 + static_cast<int64_t>(r_.optimizer->scalars(1).size());
    plan_.table = emit_.persistent("schedule", Line::step, make_desc(ENG_F32, {r_.steps, columns}), true);
  }

  // ---- moves -----------------------------------------------------------------------------------------
  // Moves between ranks run beside the computation.
  template <class F>
  void between_ranks(F emit) {
    const Queue before = emit_.on(r_.overlap && !alone() ? Queue::comm : Queue::compute);
    emit();
    emit_.on(before);
  }

  // Lets a policy emit through a builder.
  template <class F>
  static void ask(const std::string& who, const EmittingBuilder& builder, F emit) {
    Sink sink;
    eng_status status = emit(sink.get());
    builder.check(who);
    sink.check(status, Exit::environment, who);
  }

  // Has a policy write all of `to` from `from`: piece `piece` of a state of unit u.
  template <class Policy>
  void move(const char* who, const Policy& policy, int32_t role, size_t u, size_t piece, const View& from, Id from_part,
            const View& to, Id to_part) {
    EmittingBuilder builder(emit_, ranks_, "move " + homes_.unit(u).name);
    const auto home = [](const View& v, Id part) {
      return eng_view{sizeof(eng_view), v.desc.dtype, 0, part, static_cast<uint64_t>(count(v.desc))};
    };
    const eng_view source = home(from, from_part), target = home(to, to_part);
    const eng_id src = builder.add(from), dst = builder.add(to);
    const eng_move m{sizeof(eng_move), role,   static_cast<eng_id>(u + 1), static_cast<uint32_t>(piece), src, dst,
                     &source,          &target};
    ask(fmt::format("{} {}", who, policy.name), builder,
        [&](eng_error* error) { return policy.table.move(policy.self.get(), &builder, &m, error); });
  }

  // Where the weight has another home than the master: converted first, then brought together.
  void publish(size_t u) {
    const Home &master = master_[u], &weight = weight_[u];
    const bool convert = master.view.desc.dtype != weight.view.desc.dtype, gather = master.part != weight.part;
    if (!convert && !gather) return;
    emit_.label("publish " + homes_.unit(u).name);
    const auto pieces = homes_.pieces(u, !master.part);
    for (size_t k = 0; k < pieces.size(); ++k) {
      View from = homes_.view(master, pieces[k]);
      if (convert) {
        const View to = homes_.view({weight.view, master.part, gather}, pieces[k]);
        move("precision", r_.precision, ENG_ROLE_WEIGHT, u, k, from, master.part, to, master.part);
        from = to;
      }
      if (gather)
        between_ranks([&] {
          move("zero", *r_.sharding, ENG_ROLE_WEIGHT, u, k, from, master.part, homes_.view(weight, pieces[k]),
               weight.part);
        });
    }
  }

  // What is kept in parts, whole.
  View gather(const char* what, Line line, int32_t role, size_t u, const Home& home) {
    const View whole = emit_.transient(fmt::format("{} {}", what, homes_.unit(u).name), line,
                                       flat(home.view.desc.dtype, homes_.unit(u).count));
    const auto pieces = homes_.pieces(u);
    emit_.label("gather " + homes_.unit(u).name);
    between_ranks([&] {
      for (size_t k = 0; k < pieces.size(); ++k)
        move("zero", *r_.sharding, role, u, k, homes_.view(home, pieces[k]), home.part,
             slice(whole, pieces[k].first, pieces[k].count), 0);
    });
    return whole;
  }

  // The sum of all ranks' `own` gradients of a unit, stored, or added to what is there.
  void reduce(size_t u, const View& own, bool store) {
    const Home& home = grad_[u];
    const auto pieces = homes_.pieces(u);
    emit_.label("reduce " + homes_.unit(u).name);
    between_ranks([&] {
      for (size_t k = 0; k < pieces.size(); ++k) {
        const View to = homes_.view(home, pieces[k]);
        const View sum = store ? to : emit_.transient("reduced " + homes_.unit(u).name, Line::communication, to.desc);
        move("zero", *r_.sharding, ENG_ROLE_GRAD, u, k, slice(own, pieces[k].first, pieces[k].count), 0, sum,
             home.part);
        if (!store) emit_.action(op(ENG_OP_ADD), {to, sum}, {to});
      }
    });
  }

  // ---- leases ----------------------------------------------------------------------------------------
  // The most bytes that fresh gradients take at a time when those of `live` blocks may be on their way: each is there
  // from its first contribution until it is reduced.
  uint64_t fresh_bytes(size_t live) const {
    std::vector<char> made(homes_.units(), 0);
    std::deque<uint64_t> leaving;
    uint64_t here = 0, most = 0;
    for (size_t b = model_.blocks.size(); b-- > 0;) {
      while (leaving.size() >= live) leaving.pop_front();
      for (uint32_t p : model_.blocks[b].params) {
        const size_t u = homes_.unit_of(p);
        if (!std::exchange(made[u], 1)) here += bytes_of(u);
      }
      most = std::max(most, std::accumulate(leaving.begin(), leaving.end(), here));
      uint64_t gone = 0;
      for (size_t u = 0; u < homes_.units(); ++u)
        if (homes_.unit(u).block == b) gone += bytes_of(u);
      here -= gone;
      leaving.push_back(gone);
    }
    return most;
  }
  uint64_t bytes_of(size_t u) const { return homes_.unit(u).count * dtype_size(weight_[u].view.desc.dtype); }

  // Makes the weights that live in parts whole before each pass that reads them. The object lives as long as a segment.
  std::unique_ptr<Leases> lease(MicroBatch& batch, bool training) {
    Uses uses;
    for (const auto& read : blocks_.reads(training)) {
      std::set<size_t> units;
      for (uint32_t p : read)
        if (weight_[homes_.unit_of(p)].part) units.insert(homes_.unit_of(p));
      uses.emplace_back(units.begin(), units.end());
    }
    if (std::all_of(uses.begin(), uses.end(), [](const auto& u) { return u.empty(); })) return nullptr;
    std::vector<uint64_t> bytes;
    for (size_t u = 0; u < homes_.units(); ++u) bytes.push_back(bytes_of(u));
    uint64_t budget = 0;
    if (r_.live_limit) {
      const uint64_t least = lease_bytes(uses, bytes, 0), fresh = training ? fresh_bytes(fresh_limit()) : 0;
      if (r_.live_limit < least + fresh)
        throw Error(
            Exit::usage,
            fmt::format("zero.live_limit = {} is less than one block needs: {} of weights and {} of gradients",
                        format_bytes(double(r_.live_limit)), format_bytes(double(least)), format_bytes(double(fresh))),
            fmt::format("raise it to {} bytes, or leave it out", least + fresh));
      budget = r_.live_limit - fresh;
    }
    auto leases = std::make_unique<Leases>(emit_, uses, bytes, r_.prefetch, budget, [this](size_t u) {
      return gather("lease", Line::leases, ENG_ROLE_WEIGHT, u, weight_[u]);
    });
    batch.before_pass = [this, all = leases.get(), uses, k = size_t{0}]() mutable {
      all->before(k);
      for (size_t u : uses[k])
        for (uint32_t p : homes_.unit(u).params) weights_[p] = homes_.parameter(all->whole(u), p);
      ++k;
    };
    return leases;
  }

  // How many units' fresh gradients may be there at a time: one is reduced while the next is computed.
  size_t fresh_limit() const {
    const bool two = r_.overlap && (!r_.live_limit || 2 * fresh_bytes(2) <= r_.live_limit);  // and as much for leases
    return two ? 2 : 1;
  }

  // ---- programs --------------------------------------------------------------------------------------
  void emit_init() {
    emit_.begin_program("init");
    emit_.begin_segment("init", 1);
    emit_.label("init");
    for (uint32_t p = 0; p < model_.params.size(); ++p) {
      const Parameter& parameter = model_.params[p];
      for (const Extent& extent : homes_.extents(master_[homes_.unit_of(p)], p)) {
        Attrs attrs = parameter.init;
        attrs.list.push_back({"seed", r_.seed, 0});
        attrs.list.push_back({"stream", static_cast<int64_t>(p), 0});
        attrs.list.push_back({"first", static_cast<int64_t>(extent.first), 0});
        emit_.action(op(parameter.init_op), {}, {extent.view}, std::move(attrs));
      }
    }
    for (size_t u = 0; u < homes_.units(); ++u) publish(u);
    // After loading a checkpoint: weights from their masters.
    emit_.begin_program("publish");
    emit_.begin_segment("publish", 1);
    for (size_t u = 0; u < homes_.units(); ++u) publish(u);
  }

  // Rows of the batch for this micro-batch.
  void get_rows(MicroBatch& batch) {
    batch.tokens =
        emit_.transient("tokens", Line::batch, make_desc(ENG_I32, {model_.micro_batch, model_.sequence_length}));
    batch.labels = emit_.transient("labels", Line::batch, batch.tokens.desc);
    emit_.action(op(ENG_OP_GET_ROW), {plan_.tokens, plan_.counters}, {batch.tokens});
    emit_.action(op(ENG_OP_GET_ROW), {plan_.labels_in, plan_.counters}, {batch.labels});
    batch.scalars = plan_.scalars;
    batch.counters = plan_.counters;
    batch.seed = r_.seed;
    batch.weights = &weights_;
    batch.constants = &constants_;
  }

  void put_loss(const View& loss) {
    emit_.label("loss");
    emit_.action(op(ENG_OP_PUT_ROW), {loss, plan_.losses, plan_.counters}, {plan_.losses, plan_.counters});
  }

  // With one rank, or one reduction per step, the first micro-batch writes its gradients where they stay and later ones
  // write aside and are added. Else every micro-batch writes aside, and what the ranks' sum is goes there.
  bool each() const { return !alone() && (!r_.reduce_per_step || r_.accumulate == 1); }

  void micro_batch(bool first) {
    MicroBatch batch;
    get_rows(batch);
    const auto leases = lease(batch, true);
    std::vector<View> fresh(homes_.units());
    std::vector<std::vector<View>> leaving;  // fresh gradients that are being reduced, by block, oldest first
    bool entered = false;                    // this block has fresh gradients of its own
    batch.gradient = [&](uint32_t p) {
      const size_t u = homes_.unit_of(p);
      if (!fresh[u].buffer) {
        const eng_desc desc = flat(grad_[u].view.desc.dtype, homes_.unit(u).count);
        if (first && !each())
          fresh[u] = local_grad(u);
        else
          fresh[u] = emit_.transient("fresh gradient " + homes_.unit(u).name, Line::gradients, desc);
        if (each() && !std::exchange(entered, true) && leaving.size() >= fresh_limit())
          for (const View& v : leaving[leaving.size() - fresh_limit()]) emit_.after_users(v);
        for (const Range& r : homes_.padding(u)) emit_.zero(slice(fresh[u], r.first, r.count));
      }
      return homes_.parameter(fresh[u], p);
    };
    batch.after_backward = [&](uint32_t block) {
      entered = false;
      leaving.emplace_back();
      for (size_t u = 0; u < homes_.units(); ++u) {
        if (homes_.unit(u).block != block) continue;
        if (each()) {
          reduce(u, fresh[u], first);
          leaving.back().push_back(fresh[u]);
        } else if (!first) {
          emit_.action(op(ENG_OP_ADD), {local_grad(u), fresh[u]}, {local_grad(u)});
        }
      }
    };
    put_loss(blocks_.train(batch));
  }

  // This rank's own sum over micro-batches, which is the gradient where there is one rank.
  View local_grad(size_t u) {
    if (alone()) return grad_[u].view;
    if (local_.empty())
      for (size_t k = 0; k < homes_.units(); ++k)
        local_.push_back(emit_.transient("own gradient " + homes_.unit(k).name, Line::gradients,
                                         flat(grad_[k].view.desc.dtype, homes_.unit(k).count)));
    return local_[u];
  }

  void emit_train() {
    if (!r_.train) return;
    emit_.begin_program("train");
    emit_.begin_segment("first", 1);
    emit_.label("begin");
    emit_.action(op(ENG_OP_BEGIN), {plan_.inputs, plan_.counters}, {plan_.scalars, plan_.counters});
    micro_batch(true);
    if (r_.accumulate > 1) {
      emit_.begin_segment("rest", r_.accumulate - 1);
      micro_batch(false);
    }
    if (r_.optimizer || !alone()) {
      emit_.begin_segment("update", 1);
      emit_update();
    }
    for (const Segment& s : plan_.programs.back().segments)
      for (const Action& a : s.actions) plan_.flops_per_step += plan_.calls[a.call].flops * s.repeat;
  }

  void emit_update() {
    if (!alone()) {
      if (!each())
        for (size_t u = homes_.units(); u-- > 0;) reduce(u, local_grad(u), true);
      emit_.label("losses");
      between_ranks([&] { collective(ENG_OP_ALL_GATHER, plan_.losses, plan_.all_losses); });
    }
    if (!r_.optimizer) return;
    const View partials = norm_partials();
    emit_.label("norm");
    emit_.action(op(ENG_OP_FINISH), {partials, plan_.table, plan_.scalars, plan_.counters},
                 {plan_.scalars, plan_.counters}, {{{"max_norm", 0, r_.grad_clip}}});
    const std::vector<Home> reduced = grad_;
    for (size_t u = 0; u < homes_.units(); ++u) {
      // A whole update needs the whole gradient: two units' at a time.
      if (grad_[u].part && !master_[u].part) {
        if (u > 1) emit_.after_users(grad_[u - 2].view);
        grad_[u] = {gather("gradient", Line::gradients, ENG_ROLE_GRAD, u, reduced[u])};
      }
      emit_.label("update " + homes_.unit(u).name);
      update_unit(u);
      publish(u);
    }
  }

  // Over all ranks; returns `to`, or what was made in its place.
  View collective(const char* id, const View& from, const View& to) {
    EmittingBuilder builder(emit_, ranks_, "exchange");
    const Id in = builder.add(from);
    const Id out = builder.emit(op(id), {in}, {builder.add(to)}, {{{"group", 1, 0}}})[0];
    return builder.view(out);
  }

  // The sum of squares of every chunk, in the order of the units. Where gradients live in parts each rank brings its
  // own chunks and zeros for the others': x + 0 is x in any order.
  View norm_partials() {
    emit_.label("norm");
    uint64_t chunks = 0;
    bool parts = false;
    for (size_t u = 0; u < homes_.units(); ++u) chunks += homes_.unit(u).count / chunk, parts = parts || grad_[u].part;
    // Units are padded to a chunk for each rank: every rank can fold as many.
    View partials = emit_.transient("norm partials", Line::step, flat(ENG_F32, chunks));
    if (parts) emit_.zero(partials);
    uint64_t at = 0;
    for (size_t u = 0; u < homes_.units(); at += homes_.unit(u).count / chunk, ++u) {
      const auto& holders = ranks_.group(ranks_.part(grad_[u].part).group);
      // Of several groups that hold all of it, one counts; what everybody holds is the first rank's to bring.
      const bool whole = !grad_[u].part,
                 mine = whole ? !parts || !ranks_.world.rank : std::count(holders.begin(), holders.end(), 0u) > 0;
      if (!mine) continue;
      for (const Range& piece : homes_.pieces(u, whole)) {
        const Range kept = homes_.kept(grad_[u], piece);
        emit_.action(op(ENG_OP_SUM_SQUARES), {homes_.view(grad_[u], piece)},
                     {slice(partials, at + kept.first / chunk, kept.count / chunk)});
      }
    }
    if (!parts) return partials;
    View all = emit_.transient("norm partials", Line::step, partials.desc);
    between_ranks([&] {
      const View own = emit_.transient("norm partials", Line::step, flat(ENG_F32, chunks / ranks_.world.size));
      const View rows = collective(ENG_OP_ALL_TO_ALL, partials, {});
      emit_.action(op(ENG_OP_FOLD), {rows}, {own}, {{{"rows", int64_t{ranks_.world.size}, 0}}});
      collective(ENG_OP_ALL_GATHER, own, all);
    });
    return all;
  }

  // One update per run of parameters with equal flags, padding included, as far as this rank keeps it.
  void update_unit(size_t u) {
    const Unit& unit = homes_.unit(u);
    for (const Range& piece : homes_.pieces(u, !master_[u].part)) {
      const Range kept = homes_.kept(master_[u], piece);
      for (size_t k = 0; k < unit.params.size();) {
        const uint32_t flags = model_.params[unit.params[k]].flags;
        const uint64_t begin = homes_.padded(unit.params[k]).first;
        uint64_t end = begin;
        for (; k < unit.params.size() && model_.params[unit.params[k]].flags == flags; ++k) {
          const Range r = homes_.padded(unit.params[k]);
          end = r.first + r.count;
        }
        const uint64_t first = std::max(begin, kept.first), last = std::min(end, kept.first + kept.count);
        if (first < last) update(u, piece, flags, first - kept.first, last - first);
      }
    }
  }

  // Of what is kept of a piece, n elements from `first`.
  void update(size_t u, const Range& piece, uint32_t flags, uint64_t first, uint64_t n) {
    EmittingBuilder builder(emit_, ranks_, "update " + homes_.unit(u).name);
    const Range kept = homes_.kept(master_[u], piece);
    const auto add = [&](const Home& home) {
      // A state that lives whole beside a master in parts.
      const uint64_t skip = kept.first - homes_.kept(home, piece).first;
      return builder.add(slice(homes_.view(home, piece), skip + first, n));
    };
    std::vector<eng_id> states;
    for (const auto& state : state_) states.push_back(add(state[u]));
    eng_update update{sizeof(eng_update),
                      flags,
                      add(master_[u]),
                      add(grad_[u]),
                      0,
                      builder.add(plan_.scalars),
                      states.data(),
                      static_cast<uint32_t>(states.size()),
                      0};
    ask("optimizer " + r_.optimizer->name, builder, [&](eng_error* error) {
      return r_.optimizer->table.update(r_.optimizer->self.get(), &builder, &update, error);
    });
  }

  void emit_eval() {
    emit_.begin_program("eval");
    emit_.begin_segment("eval", 1);
    emit_.label("eval");
    MicroBatch batch;
    get_rows(batch);
    const auto leases = lease(batch, false);
    put_loss(blocks_.forward(batch));
  }

  // The first `positions` of every row of the tokens that the host gave.
  MicroBatch first_tokens(int64_t positions) const {
    MicroBatch batch;
    batch.tokens = reshape(plan_.tokens, make_desc(ENG_I32, {model_.micro_batch, positions}));
    batch.weights = &weights_;
    batch.constants = &constants_;
    batch.states = &states_of_;
    batch.counters = plan_.counters;
    return batch;
  }

  void emit_logits() {
    const Model model = with_logits(model_);
    const Template& head = model.templates.at(model.blocks.back().tmpl);
    plan_.logits = emit_.persistent("logits", Line::step, head.graph.value(head.outputs[0]).desc, false);
    emit_forward("logits", model, plan_.logits);
  }

  void emit_forward(const char* name, const Model& model, const View& output) {
    emit_.begin_program(name);
    emit_.begin_segment(name, 1);
    MicroBatch batch = first_tokens(model.sequence_length);
    batch.output = output;
    BlockEmitter(model, emit_).forward(batch);
  }

  void emit_generate() {
    const Model next = next_positions(model_, 1, true);
    const Template& head = next.templates.at(next.blocks.back().tmpl);
    plan_.next_logits = emit_.persistent("next logits", Line::step, head.graph.value(head.outputs[0]).desc, false);
    emit_.begin_program("reset");
    emit_.begin_segment("reset", 1);
    emit_.label("reset");
    for (const Block& block : next.blocks) {
      states_of_.emplace_back();
      for (const eng_desc& desc : next.templates.at(block.tmpl).states) {
        states_of_.back().push_back(emit_.persistent(
            fmt::format("state {} of {}", states_of_.back().size(), block.name), Line::cache, desc, true));
        emit_.zero(states_of_.back().back());
      }
    }
    emit_forward("decode", next, plan_.next_logits);
    if (model_.sequence_length > prefill) emit_forward("prefill", next_positions(model_, prefill, false), {});
  }

  const PlanRequest& r_;
  const Model& model_;
  Plan plan_;
  const Ranks& ranks_;
  Emitter emit_;
  BlockEmitter blocks_;
  Homes homes_;
  std::vector<Home> weight_, master_, grad_;  // per unit
  std::vector<View> local_;                   // per unit: local_grad
  std::vector<std::vector<Home>> state_;      // per state and unit
  std::vector<eng_state> states_;
  std::vector<View> weights_;  // per parameter, as compute reads it
  std::map<uint32_t, std::vector<View>> constants_;
  std::vector<std::vector<View>> states_of_;  // per block, of a running sequence
};

}  // namespace

Plan make_plan(const PlanRequest& request) {
  Plan plan = Planner(request).make();
  place_waits(plan);
  place_buffers(plan);
  verify(plan);
  return plan;
}

}  // namespace eng
