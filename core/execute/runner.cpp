// SPDX-License-Identifier: Apache-2.0
#include "core/execute/runner.hpp"

namespace eng {

void Runner::fail(Exit exit, const std::string& text) {
  if (failed_.exchange(true)) return;
  exit_ = exit, failure_ = text;
}

void Runner::launch(const BoundAction& one, const eng_exec& exec) {
  Sink sink;
  const eng_status status = one.kernel->launch(one.record, &exec, sink.get());
  if (status == ENG_OK || failed()) return;
  // A disk that is not available is no missing rank.
  const bool storage = plan_.calls[one.action->call].storage;
  const bool others = (ranks_ && status == ENG_UNAVAILABLE) || plan_.calls[one.action->call].op->collective ||
                      one.action->queue == Queue::comm;
  fail(storage  ? Exit::disk
       : others ? Exit::communication
                : Exit::environment,
       bound_.name(one) + ": " + sink.text(status));
}

}  // namespace eng
