// SPDX-License-Identifier: Apache-2.0
#include "session/train/training.hpp"

#include "session/model/caller_loss.hpp"

namespace eng {

TrainingLoop::TrainingLoop(Trainer& trainer, const Config& config, const Data& data, Listener& listener,
                           const Training& options)
    : trainer_(trainer),
      data_(data),
      listener_(listener),
      options_(options),
      eval_every_(data.info().validation_samples ? config.section("train").integer("eval_every") : 0),
      eval_batches_(config.section("train").integer("eval_batches")),
      first_(trainer.step()),
      steps_(config.section("train").integer("steps")),
      save_every_(config.section("checkpoint").integer("every")),
      copy_every_(config.section("checkpoint").integer("memory_every")),
      saves_(!saves_nothing(config.section("checkpoint"))),
      saves_last_(config.section("checkpoint").boolean("last")),
      asynchronous_(config.section("checkpoint").boolean("asynchronous")),
      progression_(config, trainer.facts()),
      after_(trainer, listener, steps_),
      saved_at_(trainer.last_checkpoint().empty() ? -1 : first_),
      started_(SteadyClock::now()) {
  if (eval_every_ && caller_loss(config))
    throw Error(Exit::usage,
                "loss.plugin = \"caller\": nobody computes the loss of an evaluation that is due within a step",
                "remove train.eval_every, and compute the loss of held-out samples from their logits");
  if (!options_.checkpoints.empty()) trainer.save_into(options_.checkpoints);
  if (!options_.copies.empty())
    copies_ = std::make_unique<MemoryCopies>(options_.copies, trainer.peers(), trainer.setup().plan.ranks.world,
                                             trainer.setup().copies);
}

// The data's. It is read while the step before runs, unless that one had another batch.
const Batch& TrainingLoop::next() {
  if (!loader_) loader_.emplace(data_, trainer_.cut(), trainer_.samples());
  return loader_->next();
}

void TrainingLoop::step(const Batch* given) {
  const auto begun = SteadyClock::now();
  if (given) loader_.reset();  // it is a step ahead of the data's position
  const Batch& batch = given ? *given : next();
  const double data_wait = since(begun);
  const bool late = trainer_.step() > first_ && options_.max_seconds && since(started_) > *options_.max_seconds;
  // A single rank checks within its step, if there can be one.
  const bool before = !trainer_.single_rank() || batch.tokens.empty();
  const auto agreed = trainer_.agree(batch, late || (before && options_.stop && options_.stop()));
  trainer_.record(options_.trace ? options_.trace->of(trainer_.step() + 1) : nullptr);
  auto m = agreed.stop ? std::nullopt : trainer_.train(batch, agreed, data_wait, options_.stop);
  trainer_.record(nullptr);
  const int64_t step = trainer_.step();
  bool asked = false;  // for a checkpoint
  if (m) {
    Evaluation evaluation;
    const bool evaluated = due(eval_every_) || (eval_every_ > 0 && step == steps_);
    if (evaluated) m->eval_loss = (evaluation = trainer_.evaluate(eval_batches_)).loss;
    if (evaluated) m->eval_sources = evaluation.sources;
    if (evaluated) progression_.add(step, evaluation.loss);
    listener_.step(*m, since(started_) / static_cast<double>(step - first_) * static_cast<double>(steps_ - step));
    if (evaluated) listener_.evaluated(step, evaluation);
    AfterStep::Asked answer = after_.ask(*m);
    asked = answer.save && saves_;
    ended_ = std::move(answer.stop);
  }
  stopped_ = agreed.stop || (trainer_.single_rank() && step < steps_ && options_.stop && options_.stop());
  end_save(false);
  const bool ends = step == steps_ || !over().empty();
  if (saved_at_ != step &&
      (due(save_every_) || progression_.best() == step || asked || (stopped_ && saves_) || (ends && saves_last_))) {
    begin_save();
    if (!asynchronous_) end_save(true);
  }
  if (copies_ && m && due(copy_every_) && !ends && !stopped_ && trainer_.last_checkpoint() != checkpoint_name(step))
    copy();
}

void TrainingLoop::copy() {
  Progression::Facts facts;
  progression_.write(facts);
  const std::string text = trainer_.copy(*copies_, options_.config_hash, facts);
  if (!text.empty() && trainer_.peers().rank == 0) listener_.alert(trainer_.step(), text);
}

void TrainingLoop::begin_save() {
  if (options_.checkpoints.empty()) return;
  end_save(true);  // only one checkpoint at a time
  listener_.saving();
  Progression::Facts facts;
  progression_.write(facts);
  trainer_.begin_save(options_.config_hash, facts);
  saved_at_ = trainer_.step();
}

void TrainingLoop::end_save(bool wait) {
  auto saved = trainer_.end_save(wait);
  if (!saved) return;
  saved->best = checkpoint_step(saved->path) == progression_.best();
  listener_.saved(*saved);
}

void TrainingLoop::save() {
  if (saved_at_ != trainer_.step()) begin_save();
  end_save(true);
}

Exit TrainingLoop::end() {
  end_save(true);
  if (copies_) copies_->remove();
  return trainer_.step() < steps_ && over().empty() ? Exit::stopped : Exit::done;
}

}  // namespace eng
