// SPDX-License-Identifier: Apache-2.0
// Text for a descriptor that may not take it: a pipe that nobody reads, or a terminal after Ctrl-S.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace eng {

// Takes text without waiting. A thread writes it, and it alone waits for the reader.
//
// A thread, because nothing else is safe for every kind of descriptor. O_NONBLOCK belongs to the open file, which other
// processes share: a shell would lose output after this process. POLLOUT promises nothing for terminals, and for a pipe
// only until another process writes to it.
class Outlet {
 public:
  static constexpr size_t most = size_t{1} << 20;  // bytes that may wait

  // Writes to a duplicate of `fd`. `name` is used in the line about dropped text: "stderr".
  Outlet(int fd, std::string name);
  // Waits like drain(patience), if no drain has given up, then leaves what is not written. A thread that still waits
  // ends with the process.
  ~Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  // Any thread. Text that does not fit is dropped, and so is all later text until everything that waits is written.
  // Then one line says how much was dropped. An error of the descriptor (a closed pipe, a full disk) is ignored.
  void put(std::string_view text) noexcept;
  // Waits until everything is written. Returns false if the descriptor took nothing for so many seconds, or if `stop`
  // returned true; it is called about 50 times a second.
  bool drain(double seconds, const std::function<bool()>& stop = {});

  static constexpr double patience = 2;  // seconds

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace eng
