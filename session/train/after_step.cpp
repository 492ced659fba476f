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
                       [](const Observer& one) { return one.table.after_step != nullptr; })) {}

AfterStep::Asked AfterStep::ask(const Metrics& metrics) const {
  if (!any_) return {};
  const std::string said = trainer_.peers().lead("rank 0 was still asking its observers", [&] {
    const Asked asked = ask_all(metrics);
    return (asked.save ? "+" : "-") + asked.stop;
  });
  return {said[0] == '+', said.substr(1)};
}

AfterStep::Asked AfterStep::ask_all(const Metrics& m) const {
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
    eng_step_reply reply{};
    reply.struct_size = sizeof reply;
    Sink sink;
    sink.check(one.table.after_step(one.self.get(), &done, &reply, sink.get()), Exit::environment,
               [&] { return fmt::format("observer {}, after step {}", one.name, m.step); });
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
