// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/signals.hpp"

#include <catch2/catch.hpp>

#include "child.hpp"

using namespace eng;
using test::in_child;

TEST_CASE("signals: the first one asks to stop, the second one exits", "[signals]") {
  for (int first : {SIGINT, SIGTERM, SIGUSR1}) {
    CHECK(in_child([&] {
            const Signals signals;
            if (Signals::pending() != 0) _exit(1);
            raise(SIGHUP);
            if (Signals::pending() != 0) _exit(2);
            raise(first);
            _exit(Signals::pending() == first ? 42 : 3);
          }) == 42);
    for (int second : {SIGINT, SIGTERM}) {
      // A user signal is the scheduler's early warning: what follows it is the first request to stop.
      CHECK(in_child([&] {
              const Signals signals;
              raise(first);
              raise(second);
              _exit(Signals::pending() == first ? 42 : 3);
            }) == (first == SIGUSR1 ? 42 : 128 + second));
    }
    CHECK(in_child([&] {
            const Signals signals;
            raise(first);
            raise(SIGUSR1);
            _exit(Signals::pending() == first ? 42 : 3);
          }) == 42);
  }
  CHECK(in_child([] {
          signal(SIGTERM, SIG_DFL);  // the test program has a handler of its own
          { const Signals signals; }
          raise(SIGTERM);  // as before
        }) == 128 + SIGTERM);
  CHECK(Signals::name(SIGTERM) == "SIGTERM");
}
