// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>
#include <string>

namespace comm {

// A port of 127.0.0.1, free a moment ago; `holds` keeps it taken.
class Port {
 public:
  explicit Port(bool holds = false) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET, at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    if (::bind(fd, reinterpret_cast<sockaddr*>(&at), size) || ::listen(fd, 1) ||
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size))
      throw std::runtime_error("no port");
    number_ = ntohs(at.sin_port);
    if (holds)
      fd_ = fd;
    else
      ::close(fd);
  }
  ~Port() {
    if (fd_ >= 0) ::close(fd_);
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  std::string text() const { return std::to_string(number_); }

 private:
  int fd_ = -1;
  uint16_t number_;
};

}  // namespace comm
