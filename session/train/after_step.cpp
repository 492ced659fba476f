// SPDX-License-Identifier: Apache-2.0
#include "session/train/after_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "session/train/training.hpp"

namespace eng {

AfterStep::AfterStep(Trainer& trainer, Listener& listener, int64_t steps)
    : trainer_(trainer),
      listener_(listener),
      steps_(steps),
      any_(std::any_of(trainer.observers().objects.begin(), trainer.observers().objects.end(),
                       [](const Observer& one) { return one.table.after_step != nullptr; })),
      texts_(trainer) {}

// The answer of rank 0 to the others: the weights are wanted, and another answer follows.
static constexpr const char* wants_weights = "weights";
static constexpr const char* still_asking = "rank 0 was still asking its observers";

AfterStep::Asked AfterStep::ask(const Metrics& metrics) {
  if (!any_) return {};
  for (;;) {
    const std::string said = trainer_.peers().lead(still_asking, [&] {
      const Asked asked = ask_all(metrics);
      return (asked.save ? "+" : "-") + asked.stop;
    });
    if (said != wants_weights) return {said[0] == '+', said.substr(1)};
    texts_.take_weights();
  }
}

// On rank 0, while an observer is asked: the others are in `ask`.
void AfterStep::call_weights() {
  trainer_.peers().lead(still_asking, [] { return std::string(wants_weights); });
  texts_.take_weights();
}

AfterStep::Asked AfterStep::ask_all(const Metrics& m) {
  Asked all;
  const std::vector<Observer>& observers = trainer_.observers().objects;
  for (size_t o = 0; o < observers.size(); ++o) {
    const Observer& one = observers[o];
    if (!one.table.after_step) continue;
    std::vector<eng_observed> numbers;
    for (const Named& number : m.own[o]) numbers.push_back({number.name.c_str(), number.value});
    eng_step_done done{};
    done.struct_size = sizeof done;
    done.step = m.step, done.steps = steps_, done.tokens = m.tokens;
    done.loss = m.loss, done.grad_norm = m.grad_norm, done.learning_rate = m.lr;
    done.eval_loss = m.eval_loss.value_or(NAN);
    done.observed = numbers.data(), done.n_observed = static_cast<uint32_t>(numbers.size());
    done.skipped = m.skipped;
    const std::function<eng_status(const eng_sample*, eng_sampled*, eng_error*)> sample =
        [&](const eng_sample* asked, eng_sampled* out, eng_error* error) {
          return texts_.sample(one.name, trainer_.observers().shown[o].sample_length, asked, out, error,
                               [this] { call_weights(); });
        };
    done.host = const_cast<void*>(static_cast<const void*>(&sample));
    done.sample = [](const eng_step_done* step, const eng_sample* asked, eng_sampled* out, eng_error* error) {
      return (*static_cast<const decltype(sample)*>(step->host))(asked, out, error);
    };
    eng_step_reply reply{};
    reply.struct_size = sizeof reply;
    Sink sink;
    const eng_status status = one.table.after_step(one.self.get(), &done, &reply, sink.get());
    texts_.check();
    sink.check(status, Exit::environment, [&] { return fmt::format("observer {}, after step {}", one.name, m.step); });
    const std::string text = reply.text ? printable(reply.text, 1000) : "";
    all.save = all.save || (reply.flags & ENG_STEP_SAVE);
    if (!(reply.flags & ENG_STEP_STOP)) {
      if (!text.empty()) listener_.alert(m.step, fmt::format("observer {}: {}", one.name, text));
    } else if (all.stop.empty()) {
      all.stop = fmt::format("observer {}: {}", one.name, text.empty() ? "it ends the run" : text);
    }
  }
  return all;
}

}  // namespace eng
