// SPDX-License-Identifier: Apache-2.0
#include "wire.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace nccl {

Wire::Wire(int fd) : fd_(fd) {
  const int on = 1;
  ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) | O_NONBLOCK);
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A machine that vanishes closes nothing.
  ::setsockopt(fd_, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

Wire::~Wire() {
  ::close(fd_);
}

void Wire::put(Frame frame, std::string_view bytes) {
  if (closed_) return;
  if (idle()) out_.clear(), sent_ = 0;
  frame.bytes = bytes.size();
  out_.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  out_.append(bytes);
}

bool Wire::pump() {
  while (!closed_ && !idle()) {
    const ssize_t n = ::send(fd_, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (n > 0)
      sent_ += static_cast<size_t>(n);
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      closed_ = true, out_.clear(), sent_ = 0;
  }
  std::array<char, 65536> part;
  while (in_.size() <= most_ + sizeof(Frame)) {
    const ssize_t n = ::recv(fd_, part.data(), part.size(), 0);
    if (n > 0)
      in_.append(part.data(), static_cast<size_t>(n));
    else if (n == 0 || errno != EINTR)
      return n < 0 && errno == EAGAIN && !closed_;
  }
  return !closed_;
}

bool Wire::next(Frame& frame, std::string& bytes) {
  if (in_.size() < sizeof frame) return false;
  std::memcpy(&frame, in_.data(), sizeof frame);
  if (frame.bytes > most_) throw Error{ENG_UNAVAILABLE, "what came is not from a rank of this run"};
  if (in_.size() - sizeof frame < frame.bytes) return false;
  bytes.assign(in_, sizeof frame, frame.bytes);
  in_.erase(0, sizeof frame + frame.bytes);
  return true;
}

bool idle(const Wires& wires) {
  return std::all_of(wires.begin(), wires.end(), [](const auto& one) { return !one || one->idle(); });
}

std::vector<pollfd> polled(int fd, const Wires& wires) {
  std::vector<pollfd> out = {{fd, POLLIN, 0}};
  for (const auto& one : wires)
    if (one) out.push_back({one->fd(), static_cast<short>(POLLIN | (one->idle() ? 0 : POLLOUT)), 0});
  return out;
}

void wait_for(std::vector<pollfd> fds) {
  ::poll(fds.data(), fds.size(), 50);
}

}  // namespace nccl
