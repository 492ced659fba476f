// SPDX-License-Identifier: Apache-2.0
#include "core/plan/planner.hpp"

#include "core/plan/blocks.hpp"
#include "core/plan/hooks.hpp"
#include "core/plan/initial.hpp"
#include "core/plan/observe.hpp"
#include "core/plan/prefetch.hpp"
#include "core/plan/prefill.hpp"
#include "core/plan/update.hpp"
#include "core/plan/waits.hpp"
#include "core/trace/stepping.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

// Emits the programs of a step.
class Planner {
 public:
  explicit Planner(const PlanRequest& request)
      : r_(request),
        model_(request.model),
        plan_(blank(request)),
        emit_(plan_, request.workspace, request.traits),
        blocks_(model_, model_.all(), emit_),
        observing_(request, plan_, emit_),
        homes_(request, plan_, emit_),
        exchange_(request, plan_, emit_),
        own_(request, plan_, emit_, homes_),
        moves_(request, plan_, emit_, homes_, own_),
        update_(request, plan_, emit_, homes_, own_, moves_, observing_),
        hooks_(request, plan_, emit_) {
    if (r_.overlap && r_.ranks.world.size > 1) emit_.between_ranks = Queue::comm;
    observing_.start(homes_, exchange_);
    states_of_ = own_.of_blocks;
    for (uint32_t p = 0; p < model_.params.size(); ++p) {
      const size_t u = homes_.unit_of(p);
      weights_.push_back(homes_.leased(u) ? View{} : homes_.parameter(homes_.weight[u].view, p, true));
    }
  }

  Plan make() {
    emit_initial(r_, plan_, emit_, homes_, moves_);
    emit_train();
    if (r_.offload.update_late) {
      emit_.begin_whole(late_update);
      update_.emit_late(0, static_cast<uint32_t>(model_.blocks.size()));
    }
    if (early()) emit_.begin_whole(update_again), update_.emit_again();
    for (uint32_t k = 0; r_.job && k < r_.job->info.programs; ++k)
      emit_.begin_whole(job_program(k)), update_.emit_program(k);
    if (r_.evaluate) emit_eval("eval");
    if (r_.evaluate && !plan_.sites.empty()) emit_eval(eval_with_sites);
    if (r_.logits) emit_logits();
    if (r_.generate) emit_generate();
    return std::move(plan_);
  }

 private:
  static Plan blank(const PlanRequest& request) {
    Plan plan;
    plan.ranks = request.ranks;
    plan.arenas.push_back({request.device, "device", 0, 0, 0});
    if (request.traits.discrete) plan.arenas.push_back({request.device, "pinned", 0, 0, 0});
    plan.first_tier = static_cast<uint32_t>(plan.arenas.size());
    for (const Offload::Tier& tier : request.offload.tiers)
      plan.arenas.push_back({tier.name, tier.storage ? "storage" : "tier", 0, 0, 0});
    if (request.traits.discrete) plan.staging_arena = plan.first_memory();
    plan.accumulate = request.accumulate;
    plan.parameters = request.model.parameter_count();
    plan.labels.push_back({});
    plan.terms = request.model.templates.at(request.model.blocks.back().tmpl).terms;
    plan.row = static_cast<uint32_t>(std::max<size_t>(plan.terms.size(), 1));
    return plan;
  }

  // ---- leases ----------------------------------------------------------------------------------------
  // What micro-batches do before each of these passes over this rank's blocks, in their order: they make the weights
  // that live in parts whole, and convert those that live in another type. Empty if there are none. Outlived by
  // `leases`, those of a segment.
  std::function<void()> lease_weights(std::vector<BlockEmitter::Reads> passes, bool training, Leases& leases) {
    std::erase_if(passes, [this](const auto& pass) { return !model_.owns(pass.block); });
    const Demand demand(model_, homes_, passes);
    const uint64_t limit = moves_.live_limit(), most = demand.most_weights(r_.prefetch);
    if (limit != UINT64_MAX) check_limit(demand, limit);
    // One block's gradients are reduced while the next one's are computed, if there is room for both.
    const size_t turns = r_.overlap && demand.fits(limit, 2) ? 2 : 1;
    if (training && (each() || homes_.place(ENG_ROLE_GRAD, 0))) leases.pace(ENG_ROLE_PARTIAL, {UINT64_MAX, turns});
    leases.pace(ENG_ROLE_WEIGHT, {most});
    if (!most) return {};
    std::vector<uint64_t> room;
    for (uint64_t gradients : demand.gradients(turns)) room.push_back(std::min(most, limit - gradients));
    const auto ahead = std::make_shared<Prefetch>(leases, demand, room, r_.prefetch, [this, &leases](size_t u) {
      moves_.gather(leases, "lease", Line::leases, ENG_ROLE_WEIGHT, u, homes_.weight[u], homes_.computed(u));
    });
    return [this, &leases, needs = std::make_shared<const Demand>(demand), ahead, k = std::make_shared<size_t>(0)] {
      ahead->before(*k);
      for (size_t u : needs->weights((*k)++))
        for (uint32_t p : homes_.unit(u).params)
          weights_[p] = homes_.parameter(leases.find({ENG_ROLE_WEIGHT, u}), p, true);
    };
  }

  void check_limit(const Demand& demand, uint64_t limit) const {
    uint64_t least = 0;
    std::string why;
    const auto needs = [&](uint64_t bytes, auto text) {
      if (bytes > std::exchange(least, std::max(least, bytes))) why = text();
    };
    const std::vector<uint64_t> gradients = demand.gradients(1);
    for (size_t k = 0; k < demand.passes(); ++k) {
      const uint64_t weights = demand.weight_bytes(k, k);
      needs(weights + gradients[k], [&] {
        return fmt::format("one block needs: {} of weights and {} of gradients", format_bytes(double(weights)),
                           format_bytes(double(gradients[k])));
      });
    }
    for (size_t u = 0; u < homes_.units(); ++u)
      needs(homes_.update_lease(u), [&] {
        return fmt::format("the update of {} needs: its gradient, {}", homes_.unit(u).name,
                           format_bytes(double(homes_.update_lease(u))));
      });
    if (limit < least)
      throw Error(Exit::usage, fmt::format("zero.live_limit = {} is less than {}", format_bytes(double(limit)), why),
                  fmt::format("raise it to {} bytes, or leave it out", least));
  }

  // ---- programs --------------------------------------------------------------------------------------
  // Copies the batch to the device: beside the first micro-batch comes what later ones need, and labels beside the
  // forward.
  void copy_batch(int64_t rows) {
    const auto n = static_cast<uint64_t>(model_.micro_batch * model_.sequence_length);
    const auto some = [&](uint64_t first, uint64_t count) {
      for (size_t f = 0; f < exchange_.fields.size(); ++f)
        exchange_.copy_in(slice(plan_.fields[f].view, first * n, count * n),
                          slice(exchange_.fields[f], first * n, count * n));
    };
    some(0, 1);
    if (rows > 1) some(1, static_cast<uint64_t>(rows) - 1);
  }

  // Rows of the batch for this micro-batch: those of a known one lie where they were copied to.
  void get_rows(MicroBatch& batch, bool known, uint32_t micro = 0) {
    for (const View& all : exchange_.fields) {
      const size_t f = batch.fields.size();
      const eng_desc rows = make_desc(model_.fields[f].dtype, {model_.micro_batch, model_.sequence_length});
      batch.fields.push_back(known ? reshape({all.buffer, micro * bytes(rows), all.desc}, rows)
                                   : emit_.transient(model_.fields[f].name, Line::batch, rows));
      if (!known) emit_.action(op(ENG_OP_GET_ROW), {all, plan_.counters}, {batch.fields.back()});
    }
    batch.scalars = plan_.scalars;
    batch.counters = plan_.counters;
    batch.seed = r_.seed;
    batch.weights = &weights_;
    batch.constants = &exchange_.constants;
    batch.states = &states_of_;
  }

  void put(const std::vector<View>& values, const View& to) {
    for (size_t k = 0; k < values.size(); ++k)
      emit_.action(op(ENG_OP_SCALE), {values[k]}, {slice(to, k, 1)}, {{{"factor", 0, 1.0}}});
  }

  // With one rank, or one reduction per step, the first micro-batch writes its gradients where they stay and later ones
  // write aside and are added; what the last one completes is reduced beside its backward. Else every micro-batch
  // writes aside, and what the ranks' sum is goes there.
  bool each() const { return !plan_.ranks.single() && (!r_.reduce_per_step || r_.accumulate == 1); }
  // With one rank the same is done where gradients stay in another type than they are made in.
  bool each(size_t u) const { return each() || (plan_.ranks.single() && !homes_.direct(u)); }

  void micro_batch(bool first, bool last) {
    MicroBatch batch;
    get_rows(batch, first);
    Leases leases = moves_.leases();
    batch.before_pass = lease_weights(blocks_.reads(true), true, leases);
    if (first) batch.before_pass = update_before(blocks_.reads(true), std::move(batch.before_pass));
    OffloadedActivations offloaded(emit_, homes_.place(ENG_ROLE_ACT, 0));
    if (homes_.place(ENG_ROLE_ACT, 0)) batch.offloaded = &offloaded;
    if (last && early()) update_.assume();
    std::vector<View> fresh(homes_.units());
    const eng_desc results = flat(exchange_.losses.desc.dtype, plan_.row);
    const View row = plan_.row > 1 ? emit_.transient("results", Line::step, results) : View{};
    make_gradients(batch, leases, fresh, row, first, last);
    // The first of several leaves nothing that lasts.
    if (!r_.activations.empty() && (!first || r_.accumulate == 1)) hook(batch);
    const std::vector<View> values = blocks_.end(*blocks_.begin(batch));
    emit_.label(Phase::loss);
    if (row.buffer) put(values, row);
    emit_.action(op(ENG_OP_PUT_ROW), {row.buffer ? row : values[0], exchange_.losses, plan_.counters},
                 {exchange_.losses, plan_.counters});
  }

  // `fresh`, per unit: the gradients that the micro-batch makes. `row`: of its results. All arguments outlive its
  // backward.
  void make_gradients(MicroBatch& batch, Leases& leases, std::vector<View>& fresh, const View& row, bool first,
                      bool last) {
    if (observing_.any())
      batch.after_forward = [this, row](uint32_t b, const auto& outputs) { observing_.block(b, outputs, row); };
    batch.gradient = [&, first](uint32_t p) {
      const size_t u = homes_.unit_of(p);
      if (!fresh[u].buffer) {
        const eng_desc desc = flat(homes_.made(u), homes_.unit(u).count);
        if (first && !each(u) && local_grad(u).desc.dtype == desc.dtype)
          fresh[u] = local_grad(u);
        else
          fresh[u] =
              leases.acquire({ENG_ROLE_PARTIAL, u}, "fresh gradient " + homes_.unit(u).name, Line::gradients, desc);
        for (const Range& r : homes_.padding(u)) emit_.zero(slice(fresh[u], r.first, r.count));
      }
      return homes_.parameter(fresh[u], p, true);
    };
    batch.after_backward = [&, first, last](uint32_t block) {
      for (size_t u : homes_.units_of(block)) {
        if (homes_.frozen(u)) continue;
        const bool aside = leases.find({ENG_ROLE_PARTIAL, u}).buffer != 0;
        if (each(u))
          moves_.reduce(u, fresh[u], first);
        else if (aside)
          moves_.accumulate(u, fresh[u], local_grad(u), first);
        if (aside) leases.release({ENG_ROLE_PARTIAL, u});
        if (!each(u) && last && !plan_.ranks.single()) moves_.reduce(u, local_grad(u), true);
        if (last && homes_.early(u)) update_.update_unit(u, ENG_STAGE_UPDATE);
      }
      leases.turn(ENG_ROLE_PARTIAL);
    };
  }

  std::vector<View> stage(StagePart part, const MicroBatch* batch = nullptr) {
    const auto prepare = [this](uint32_t k, MicroBatch& batch, Leases& leases, std::vector<View>& fresh) {
      get_rows(batch, true, k);
      fresh.resize(homes_.units());
      const View row = slice(exchange_.losses, uint64_t{k} * plan_.row, plan_.row);
      make_gradients(batch, leases, fresh, row, k == 0, k + 1 == r_.accumulate);
    };
    const auto lease = [this](const auto& passes, Leases& leases) {
      if (early()) update_.assume();
      return update_before(passes, lease_weights(passes, true, leases));
    };
    return r_.stage({plan_, emit_, homes_, moves_, exchange_.losses, batch, prepare, lease}, part);
  }

  // Before each of these passes: the update that the last step has left, of the blocks up to its own and to those
  // whose weights `lease`, which follows, brings ahead.
  std::function<void()> update_before(const std::vector<BlockEmitter::Reads>& passes, std::function<void()> lease) {
    if (!r_.offload.update_late) return lease;
    std::vector<uint32_t> ends;
    for (const auto& pass : passes) ends.push_back(std::max(ends.empty() ? 0 : ends.back(), pass.block + 1));
    std::replace(ends.begin(), ends.end(), uint32_t{ends.back()}, static_cast<uint32_t>(model_.blocks.size()));
    return [this, ends, at = lease ? static_cast<size_t>(r_.prefetch) : 0, done = 0U, lease]() mutable {
      const uint32_t first = std::exchange(done, ends[std::min(at++, ends.size() - 1)]);
      update_.emit_late(first, done);
      if (lease) lease();
    };
  }

  void hook(MicroBatch& batch) {
    batch.after_node = [this](uint32_t b, size_t n, const auto& outputs) { hooks_.after(b, n, outputs); };
  }

  // This rank's own sum over micro-batches, which is the gradient where there is one rank.
  View local_grad(size_t u) {
    if (plan_.ranks.single()) return homes_.grad[u].view;
    if (local_.empty())
      for (size_t k = 0; k < homes_.units(); ++k)
        local_.push_back(!homes_.trains(k)
                             ? View{}
                             : emit_.transient("own gradient " + homes_.unit(k).name, Line::gradients,
                                               flat(homes_.grad[k].view.desc.dtype, homes_.unit(k).count)));
    return local_[u];
  }

  void emit_train() {
    if (!r_.train) return;
    emit_.begin_program("train");
    emit_.begin_segment("first", 1);
    if (!r_.gradients()) return;  // an empty program
    emit_.label(Phase::begin);
    exchange_.copy_in(plan_.inputs, exchange_.inputs);
    copy_batch(r_.accumulate);
    emit_.action(op(ENG_OP_BEGIN), {exchange_.inputs, plan_.counters}, {plan_.scalars, plan_.counters});
    if (!r_.job) own_.begin();
    // Publishes, in the order of use, the weights that the last update left in parts.
    for (size_t u = 0; u < homes_.units(); ++u)
      if (homes_.publishes_late(u)) moves_.publish(u, UINT64_MAX), plan_.publishes_late = true;
    r_.stage ? void(stage(StagePart::train)) : micro_batch(true, r_.accumulate == 1);
    // The last micro-batch does more than those before it.
    const bool apart = !r_.stage && r_.accumulate > 1 && (early() || !(plan_.ranks.single() || each()));
    const uint32_t rest = r_.stage ? 0 : r_.accumulate - 1 - apart;
    if (rest) emit_.begin_segment("rest", rest), micro_batch(false, false);
    if (apart) emit_.begin_segment("last", 1), micro_batch(false, true);
    if (updates() || !plan_.ranks.single() || r_.traits.discrete || observing_.any()) {
      emit_.begin_segment("update", 1);
      emit_update();
    }
    for (const Segment& s : plan_.programs.back().segments)
      for (const Action& a : s.actions) plan_.flops_per_step += plan_.calls[a.call].flops * s.repeat;
  }

  void gather_losses() {
    if (r_.stage) stage(StagePart::losses);
    if (!plan_.ranks.single()) {
      emit_.label(Phase::losses);
      const View mine = slice(exchange_.losses, 0, static_cast<uint64_t>(count(exchange_.losses.desc)));
      moves_.between_ranks([&] { moves_.collective(ENG_OP_ALL_GATHER, mine, exchange_.all_losses); });
      exchange_.copy_out(exchange_.all_losses, plan_.all_losses);
    }
    exchange_.copy_out(exchange_.losses, plan_.losses);
  }

  void emit_update() {
    observing_.any() ? observing_.gradients() : gather_losses();
    if (updates()) update_.emit();
    if (observing_.any()) observing_.finish(), gather_losses();
    exchange_.copy_out(plan_.scalars, plan_.results);
    exchange_.copy_out(plan_.counters, plan_.host_counters);
  }

  bool early() const { return r_.offload.early_from < model_.blocks.size(); }
  bool updates() const { return r_.optimizer && !r_.job; }

  void emit_eval(const std::string& name) {
    emit_.begin_whole(name);
    emit_.label(Phase::eval);
    copy_batch(1);
    MicroBatch batch;
    get_rows(batch, true);
    const View out = slice(exchange_.losses, 0, std::max<size_t>(plan_.terms.size(), 1));
    if (plan_.terms.empty()) batch.output = out;
    if (name == eval_with_sites) hook(batch);
    Leases leases = moves_.leases();
    batch.before_pass = lease_weights(blocks_.reads(false), false, leases);
    const std::vector<View> values = r_.stage ? stage(StagePart::eval, &batch) : blocks_.forward(batch);
    if (values.empty()) return;  // another stage has the loss
    if (!plan_.terms.empty()) put(values, out);
    exchange_.copy_out(out, slice(plan_.losses, 0, static_cast<uint64_t>(count(out.desc))));
  }

  // The first B x `positions` values that the host gave: of tokens, and for whole sequences of every other field but
  // the labels.
  MicroBatch first_values(int64_t positions) {
    MicroBatch batch;
    batch.fields.resize(exchange_.fields.size());
    const auto n = static_cast<uint64_t>(model_.micro_batch * positions);
    for (size_t f = 0; f < exchange_.fields.size(); ++f) {
      if (f == 1 || (f > 1 && plan_.next_logits.buffer)) continue;
      batch.fields[f] =
          reshape(exchange_.fields[f], make_desc(model_.fields[f].dtype, {model_.micro_batch, positions}));
      exchange_.copy_in(slice(plan_.fields[f].view, 0, n), slice(exchange_.fields[f], 0, n));
    }
    batch.weights = &weights_, batch.constants = &exchange_.constants, batch.states = &states_of_;
    batch.counters = plan_.counters;
    return batch;
  }

  void emit_logits() {
    const Model model = with_logits(model_);
    const Template& head = model.templates.at(model.blocks.back().tmpl);
    const eng_desc& desc = head.graph.value(head.outputs[0]).desc;
    plan_.logits = emit_.persistent("logits", Line::activations, desc, false);
    plan_.tensors.push_back(tensor_at("logits", "activation", plan_.logits));
    emit_forward("logits", model, plan_.logits);
  }

  void emit_forward(const std::string& name, const Model& model, const View& output) {
    emit_.begin_whole(name);
    emit_.label(Phase::begin);
    MicroBatch batch = first_values(model.sequence_length);
    if (plan_.next_logits.buffer) exchange_.copy_in(plan_.host_counters, plan_.counters);
    batch.output = output;
    // The activations of a plan that computes logits alone.
    if (r_.logits && !r_.evaluate)
      batch.after_node = [this](uint32_t b, size_t n, const auto& outputs) {
        const std::vector<uint32_t> nodes = nodes_with_logits(model_.templates.at(model_.blocks[b].tmpl));
        if (n < nodes.size()) hooks_.after(b, nodes[n], outputs);
      };
    const BlockEmitter blocks(model, model.all(), emit_);
    Leases leases = moves_.leases();
    batch.before_pass = lease_weights(blocks.reads(false), false, leases);
    blocks.forward(batch);
  }

  void emit_generate() {
    const Model next = next_positions(model_, 1, true);
    const Template& head = next.templates.at(next.blocks.back().tmpl);
    const auto logits = exchange_.shared("next logits", Line::step, head.graph.value(head.outputs[0]).desc, false);
    plan_.next_logits = logits.host;
    emit_.begin_whole("reset");
    emit_.label(Phase::reset);
    for (size_t b = 0; b < next.blocks.size(); ++b) {
      const std::vector<eng_desc>& all = next.templates.at(next.blocks[b].tmpl).states;
      for (size_t k = states_of_[b].size(); k < all.size(); ++k) {
        const std::string name = fmt::format("state {} of {}", k, next.blocks[b].name);
        states_of_[b].push_back(emit_.persistent(name, Line::cache, all[k], true));
        emit_.zero(states_of_[b].back());
      }
    }
    emit_forward("decode", next, logits.device);
    exchange_.copy_out(logits.device, logits.host);
    for (int64_t n = longest_prefill(model_.micro_batch); n >= least_prefill; n /= 2)
      if (model_.sequence_length > n) emit_forward(prefill_program(n), next_positions(model_, n, false), {});
  }

  const PlanRequest& r_;
  const Model& model_;
  Plan plan_;
  Emitter emit_;
  BlockEmitter blocks_;
  Observing observing_;
  const Homes homes_;
  Exchange exchange_;
  OwnTensors own_;
  Moves moves_;
  Update update_;
  Hooks hooks_;
  std::vector<View> weights_;                 // per parameter, as compute reads it; absent while none is leased
  std::vector<View> local_;                   // per unit: local_grad
  std::vector<std::vector<View>> states_of_;  // per block: those of transforms, then of a running sequence
};

}  // namespace

Plan emit_plan(const PlanRequest& request) {
  Plan plan = Planner(request).make();
  place_waits(plan);
  return plan;
}

}  // namespace eng
