// SPDX-License-Identifier: Apache-2.0
// Frames over a stream socket that never blocks. One thread reads; what is put waits in memory until it is taken.
#pragma once

#include <poll.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "../common/error.hpp"

namespace nccl {

using common::Error;

enum class Kind : uint32_t {
  hello,    // a rank to rank 0: who it is
  refused,  // its answer, if that cannot be
  welcome,  // or this, when all have come: who is who
  part,     // what a rank gives to the exchange
  all,      // what all gave
  ask,      // where are you? `tag` is the number of the question
  answer,
  gone,  // the sender gives up: why
  lost,  // another rank is gone: a text for people
  bye    // the sender leaves, as all do
};

constexpr uint32_t everyone = UINT32_MAX;

// All ranks run the same build on machines of one byte order: their agreement about versions comes later.
struct Frame {
  Kind kind = Kind::bye;
  uint32_t from = 0, to = 0, tag = 0;
  uint64_t bytes = 0;  // that follow
};

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
// Empty if the bytes are not those of a T.
template <class T>
std::optional<T> value_of(std::string_view bytes) {
  T value;
  if (bytes.size() != sizeof value) return {};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

class Wire {
 public:
  explicit Wire(int fd);  // takes the socket
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int fd() const { return fd_; }
  void put(Frame frame, std::string_view bytes);
  bool idle() const { return sent_ == out_.size(); }
  // The other side is a rank, which may send more than it says of itself first.
  void trust() { most_ = uint64_t{1} << 40; }
  // Sends and receives what can be without waiting. False if the other side has closed, or is no rank of ours.
  bool pump();
  // The next whole frame that came.
  bool next(Frame& frame, std::string& bytes);

 private:
  int fd_;
  std::string out_, in_;
  size_t sent_ = 0;
  uint64_t most_ = 4096;  // bytes of a frame: more does not come from a rank
  bool closed_ = false;
};

using Wires = std::vector<std::unique_ptr<Wire>>;  // some may be NULL

// True if nothing is left to be sent.
bool idle(const Wires& wires);
// The descriptors that can be waited for: `fd`, or -1, and all of the wires.
std::vector<pollfd> polled(int fd, const Wires& wires);
// Until one of them can do something, for at most 50 ms.
void wait_for(std::vector<pollfd> fds);

}  // namespace nccl
