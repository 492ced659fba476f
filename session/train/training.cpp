// SPDX-License-Identifier: Apache-2.0
#include "session/train/training.hpp"

#include "session/train/loader.hpp"

namespace eng {
Exit run_training(Trainer& trainer, const Config& config, const Data& data, Listener& listener,
                  const Training& options) {
  const Section &train = config.section("train"), &checkpoint = config.section("checkpoint");
  const int64_t eval_every = data.info().validation_samples ? train.integer("eval_every") : 0,
                eval_batches = train.integer("eval_batches"), first = trainer.step(), steps = train.integer("steps"),
                save_every = checkpoint.integer("every");
  const bool asynchronous = checkpoint.boolean("asynchronous");
  int64_t saved_at = trainer.last_checkpoint().empty() ? -1 : first;
  Loader loader(data, trainer.cut(), trainer.samples());
  trainer.save_into(options.checkpoints);
  const auto started = SteadyClock::now();
  const auto due = [&](int64_t every) { return every > 0 && trainer.step() % every == 0; };
  const auto end_save = [&](bool wait) {
    if (const auto saved = trainer.end_save(wait)) listener.saved(*saved);
  };
  for (bool stopped = false; trainer.step() < steps && !stopped;) {
    const auto begun = SteadyClock::now();
    const Batch& batch = loader.next();
    const double data_wait = since(begun);
    const bool late = trainer.step() > first && options.max_seconds && since(started) > *options.max_seconds;
    // A single rank also checks within its step.
    const auto agreed = trainer.agree(batch, late || (!trainer.alone() && options.stop && options.stop()));
    trainer.record(options.trace ? options.trace->of(trainer.step() + 1) : nullptr);
    auto m = agreed.stop ? std::nullopt : trainer.train(batch, agreed, data_wait, options.stop);
    trainer.record(nullptr);
    const int64_t step = trainer.step();
    if (m) {
      Evaluation evaluation;
      const bool evaluated = due(eval_every) || (eval_every > 0 && step == steps);
      if (evaluated) m->eval_loss = (evaluation = trainer.evaluate(eval_batches)).loss;
      listener.step(*m, since(started) / static_cast<double>(step - first) * static_cast<double>(steps - step));
      if (evaluated) listener.evaluated(step, evaluation);
    }
    stopped = agreed.stop || (trainer.alone() && step < steps && options.stop && options.stop());
    end_save(false);
    if (saved_at != step && (due(save_every) || stopped || step == steps)) {
      end_save(true);  // only one checkpoint at a time
      listener.saving();
      trainer.begin_save(options.config_hash);
      saved_at = step;
      if (!asynchronous) end_save(true);
    }
  }
  end_save(true);
  return trainer.step() < steps ? Exit::stopped : Exit::done;
}

}  // namespace eng
