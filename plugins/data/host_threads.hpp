// SPDX-License-Identifier: Apache-2.0
// Work on the host's threads (engine/threads.h).
#pragma once

#include "engine/threads.h"
#include "failure.hpp"

namespace text_data {

// Set when the plugin is started; nullptr: this host has none, and all is done on the calling thread.
inline const eng_threads* host_threads = nullptr;

// Calls f(i) for i = 0 .. n - 1, several at a time. Throws what f threw for the lowest i. Each i that was begun is done
// when this returns.
template <class F>
void each_of(uint64_t n, const F& f) {
  const auto work = [](void* data, uint64_t begin, uint64_t end, eng_error* error) -> eng_status {
    return guarded(error, [&] {
      for (uint64_t i = begin; i < end; ++i) (*static_cast<const F*>(data))(i);
    });
  };
  Said said;
  void* const data = const_cast<F*>(&f);
  const eng_status status =
      host_threads ? host_threads->run(host_threads, 0, n, 1, work, data, &said.sink) : work(data, 0, n, &said.sink);
  if (status != ENG_OK) throw Failure(status, said.text);
}

}  // namespace text_data
