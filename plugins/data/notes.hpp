// SPDX-License-Identifier: Apache-2.0
// Notes to the user that are no errors.
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "engine/plugin.h"

namespace text_data {

// Set when the plugin is started; nullptr: nobody listens.
inline const eng_host* host = nullptr;

// Once in a process: a run builds tokens, and then opens the same data.
inline void note(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (host && host->log && told.insert(text).second) host->log(host, ENG_LOG_WARNING, text.data(), text.size());
}

}  // namespace text_data
