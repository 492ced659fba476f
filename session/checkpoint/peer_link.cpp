// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/peer_link.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <list>
#include <random>

#include "session/checkpoint/checkpoint.hpp"
#include "session/stamp.hpp"

namespace eng {
namespace fs = std::filesystem;
namespace {

constexpr size_t received_at_once = 256 << 10, token_digits = 32;

// Before the bytes of a file. All hosts have one byte order, as the ranks' agreement about the engine asks.
struct FileHead {
  uint64_t bytes = 0;
  uint32_t last = 0;
  char subfolder[36] = "", name[80] = "";
};
// The answer to the last file of a subfolder.
struct Kept {
  char subfolder[36] = "";
};

template <size_t N>
void put_text(char (&to)[N], const std::string& text) {
  if (text.size() >= N) throw Error(Exit::bug, text + " is too long a name");
  std::memcpy(to, text.data(), text.size());
}

std::string connection_error(const std::string& what) {
  return fmt::format("{}: {}", what,
                     errno == EAGAIN || errno == EWOULDBLOCK ? "no answer in time" : std::strerror(errno));
}

void send_all(int fd, const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes) {
    const ssize_t n = ::send(fd, from, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw Error(Exit::communication, connection_error("cannot send"));
    from += n, bytes -= static_cast<size_t>(n);
  }
}

void set_timeout(int fd, double seconds) {
  const timeval time = {static_cast<time_t>(std::max(1.0, std::ceil(seconds))), 0};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

struct Addresses {
  explicit Addresses(const std::string& host, const char* port, int kind, int flags = 0) {
    addrinfo hints{};
    hints.ai_socktype = kind, hints.ai_flags = flags;
    if (::getaddrinfo(host.c_str(), port, &hints, &list) != 0) list = nullptr;
  }
  ~Addresses() {
    if (list) ::freeaddrinfo(list);
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  addrinfo* list = nullptr;
};

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

// A rank tells this of itself.
struct HostOfRank {
  std::string host, memory;  // its name; what tells apart two file systems in memory on hosts of one name
  std::string key() const { return host + " " + memory; }
};

// By rank, the number of its host and its number there.
struct HostGrid {
  std::vector<std::vector<uint32_t>> hosts;  // the ranks of each
  explicit HostGrid(const std::vector<std::string>& keys) {
    std::vector<std::string> seen;
    for (uint32_t r = 0; r < keys.size(); ++r) {
      const auto at = std::find(seen.begin(), seen.end(), keys[r]) - seen.begin();
      if (at == static_cast<ptrdiff_t>(seen.size())) seen.push_back(keys[r]), hosts.emplace_back();
      hosts[static_cast<size_t>(at)].push_back(r);
    }
  }
  // The rank that `rank` sends to.
  uint32_t partner(uint32_t rank) const {
    for (size_t h = 0; h < hosts.size(); ++h)
      for (size_t k = 0; k < hosts[h].size(); ++k)
        if (const auto& next = hosts[(h + 1) % hosts.size()]; hosts[h][k] == rank) return next[k % next.size()];
    throw Error(Exit::bug, "a rank has no host");
  }
};

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace

std::string address_towards(const std::string& host) {
  if (host == host_name()) return "127.0.0.1";  // another file system in memory of this machine
  const Addresses found(host, "9", SOCK_DGRAM);
  for (const addrinfo* one = found.list; one; one = one->ai_next) {
    const Fd fd(::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST] = "";
    if (fd >= 0 && ::connect(fd, one->ai_addr, one->ai_addrlen) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 &&
        !is_loopback(text))
      return text;
  }
  return "";
}

// A file that arrives from one rank.
struct PeerLink::Incoming {
  explicit Incoming(int from) : fd(from) {}
  Fd fd;
  std::string hello;  // the token, until it is whole
  bool known = false;
  FileHead head;
  size_t head_bytes = 0;
  uint64_t left = 0;  // bytes of the file
  std::unique_ptr<FileWriter> file;
  fs::path unready, ready;

  // False if the other side is gone, or is no rank of this run.
  bool take(const fs::path& folder, const std::string& token, std::vector<char>& buffer);

 private:
  void begin(const fs::path& folder);
  void finish();
};

bool PeerLink::Incoming::take(const fs::path& folder, const std::string& token, std::vector<char>& buffer) {
  const auto read_some = [&](void* to, size_t most) -> ssize_t {
    for (;;) {
      const ssize_t n = ::recv(fd, to, most, MSG_DONTWAIT);
      if (n >= 0 || errno != EINTR) return n;
    }
  };
  const auto over = [](ssize_t n) { return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK); };
  if (!known) {
    char part[token_digits];
    const ssize_t n = read_some(part, token_digits - hello.size());
    if (n <= 0) return !over(n);
    hello.append(part, static_cast<size_t>(n));
    if (hello.size() < token_digits) return token.starts_with(hello);
    known = hello == token;
    return known;
  }
  if (!file) {
    const ssize_t n = read_some(reinterpret_cast<char*>(&head) + head_bytes, sizeof head - head_bytes);
    if (n <= 0) return !over(n);
    head_bytes += static_cast<size_t>(n);
    if (head_bytes == sizeof head) begin(folder);
    return true;
  }
  const ssize_t n = read_some(buffer.data(), std::min<uint64_t>(buffer.size(), left));
  if (n <= 0) return !over(n);
  file->write(buffer.data(), static_cast<uint64_t>(n));
  left -= static_cast<uint64_t>(n);
  if (!left) finish();
  return true;
}

void PeerLink::Incoming::begin(const fs::path& folder) {
  head.subfolder[sizeof head.subfolder - 1] = head.name[sizeof head.name - 1] = 0;
  if (!checkpoint_step(head.subfolder) || !is_plain_name(head.name) || !head.bytes)
    throw Error(Exit::communication, "a rank sends what is no part of a checkpoint");
  make_directories(folder / head.subfolder);
  ready = folder / head.subfolder / head.name;
  unready = folder / head.subfolder / (temporary_prefix + std::string(head.name));
  file = std::make_unique<FileWriter>(unready, head.bytes);
  left = head.bytes;
}

void PeerLink::Incoming::finish() {
  file.reset();
  fs::rename(unready, ready);
  head_bytes = 0;
  if (!head.last) return;
  Kept kept;
  std::memcpy(kept.subfolder, head.subfolder, sizeof kept.subfolder);
  send_all(fd, &kept, sizeof kept);
}

PeerLink::PeerLink(fs::path folder, std::string token, double timeout)
    : folder_(std::move(folder)),
      token_(std::move(token)),
      timeout_(timeout),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void PeerLink::listen(const std::string& address) {
  const Addresses found(address, "0", SOCK_STREAM, AI_NUMERICHOST | AI_PASSIVE);
  if (!found.list) throw Error(Exit::communication, address + " is no address");
  listener_ = Fd(::socket(found.list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (listener_ < 0 || ::bind(listener_, found.list->ai_addr, found.list->ai_addrlen) != 0 ||
      ::listen(listener_, 16) != 0 || ::getsockname(listener_, reinterpret_cast<sockaddr*>(&own), &size) != 0)
    throw Error(Exit::communication, connection_error("cannot listen at " + address));
  port_ = ntohs(own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&own)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&own)->sin_port);
}

void PeerLink::connect(const std::string& address, uint16_t port, uint32_t rank) {
  const Addresses found(address, std::to_string(port).c_str(), SOCK_STREAM, AI_NUMERICHOST);
  if (!found.list) throw Error(Exit::communication, address + " is no address");
  to_ = Fd(::socket(found.list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set_timeout(to_, std::min(timeout_ > 0 ? timeout_ : 60, 60.0));
  if (to_ < 0 || ::connect(to_, found.list->ai_addr, found.list->ai_addrlen) != 0)
    throw Error(
        Exit::communication,
        connection_error(fmt::format("cannot reach rank {} at {}:{}, to keep a copy there", rank, address, port)),
        "open the ports between the hosts, or remove checkpoint.memory_every");
  set_timeout(to_, timeout_ > 0 ? timeout_ : 600);
  send_all(to_, token_.data(), token_.size());
}

std::unique_ptr<PeerLink> PeerLink::join(const fs::path& folder, const Peers& peers) {
  if (peers.size == 1) return nullptr;
  const auto keys = peers.agree([&] {
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0) disk_error("look at", folder, errno);
    return HostOfRank{host_name(), fmt::format("{}", info.st_dev)}.key();
  });
  const HostGrid grid(keys);
  if (grid.hosts.size() == 1) return nullptr;
  const uint32_t partner = grid.partner(peers.rank);
  const auto host_of = [&](uint32_t rank) { return keys[rank].substr(0, keys[rank].find(' ')); };
  const std::string token = peers.lead(random_token);
  std::unique_ptr<PeerLink> link(new PeerLink(folder, token, peers.timeout));
  link->kept_by_ = fmt::format("rank {} on {}", partner, host_of(partner));
  const auto places = peers.agree([&] {
    // The other hosts reach this one there.
    std::vector<std::string> others;
    for (uint32_t r = 0; r < peers.size; ++r)
      if (keys[r] != keys[peers.rank] && grid.partner(r) == peers.rank) others.push_back(host_of(r));
    others.push_back(host_of(partner));
    if (const char* master = std::getenv("MASTER_ADDR"); master && *master) others.emplace_back(master);
    std::string own;
    for (size_t i = 0; own.empty() && i < others.size(); ++i) own = address_towards(others[i]);
    if (own.empty())
      throw Error(
          Exit::communication,
          fmt::format("checkpoint.memory_every: {} knows no address of {}", host_name(), fmt::join(others, ", ")),
          "set MASTER_ADDR to an address of rank 0's machine on all ranks, or give the hosts names that resolve");
    link->listen(own);
    return fmt::format("{} {}", own, link->port_);
  });
  peers.agree([&] {
    const std::string& at = places[partner];
    const size_t space = at.find(' ');
    link->connect(at.substr(0, space), static_cast<uint16_t>(std::stoi(at.substr(space + 1))), partner);
    return "";
  });
  link->start();
  return link;
}

void PeerLink::start() {
  // Signals are for the other threads.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  sender_ = std::thread([this] { sends(); });
  receiver_ = std::thread([this] { receives(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PeerLink::~PeerLink() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (to_ >= 0) ::shutdown(to_, SHUT_RDWR);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
  if (sender_.joinable()) sender_.join();
  if (receiver_.joinable()) receiver_.join();
}

void PeerLink::send(const std::string& subfolder, std::vector<std::string> files) {
  {
    const std::lock_guard lock(mutex_);
    if (!lost_.empty()) return;
    subfolder_ = subfolder, files_ = std::move(files);
    busy_ = true;
  }
  changed_.notify_all();
}

std::string PeerLink::news() {
  const std::lock_guard lock(mutex_);
  return lost_.empty() || std::exchange(told_, true) ? "" : lost_;
}

void PeerLink::sends() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || busy_; });
    if (ends_) return;
    const std::string subfolder = subfolder_;
    const std::vector<std::string> files = std::exchange(files_, {});
    lock.unlock();
    std::string why;
    try {
      for (const std::string& name : files) send_file(subfolder, name, name == files.back());
      Kept kept;
      ssize_t n = 0;
      while ((n = ::recv(to_, &kept, sizeof kept, MSG_WAITALL)) < 0 && errno == EINTR) {
      }
      if (n != sizeof kept || subfolder != kept.subfolder)
        throw Error(Exit::communication, n < 0 ? connection_error("no answer") : "the connection is closed");
    } catch (const std::exception& e) {
      why = e.what();
    }
    lock.lock();
    if (!why.empty())
      lost_ = fmt::format("its part of {} is not kept by {}: {}; it is kept on its own host only", subfolder, kept_by_,
                          why);
    busy_ = false;
  }
}

void PeerLink::send_file(const std::string& subfolder, const std::string& name, bool last) {
  const Fd file = open_regular(folder_ / subfolder / name, O_RDONLY);
  struct stat info {};
  if (::fstat(file, &info) != 0) disk_error("look at", name, errno);
  FileHead head{static_cast<uint64_t>(info.st_size), last};
  put_text(head.subfolder, subfolder), put_text(head.name, name);
  send_all(to_, &head, sizeof head);
  for (uint64_t left = head.bytes; left;) {
    const ssize_t n = ::sendfile(to_, file, nullptr, std::min<uint64_t>(left, 1 << 20));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || ends_) throw Error(Exit::communication, n < 0 ? connection_error("cannot send") : "it ends early");
    left -= static_cast<uint64_t>(n);
  }
}

void PeerLink::receives() {
  std::vector<char> buffer(received_at_once);
  std::list<Incoming> from;
  while (!ends_) {
    std::vector<pollfd> fds = {{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Incoming& one : from) fds.push_back({one.fd, POLLIN, 0});
    if (::poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR) return;
    size_t k = 2;
    for (auto one = from.begin(); k < fds.size(); ++k) {
      bool there = true;
      try {
        if (fds[k].revents) there = one->take(folder_, token_, buffer);
      } catch (const std::exception&) {  // it is not kept here: the sender learns that from the closed connection
        there = false;
      }
      one = there ? std::next(one) : from.erase(one);
    }
    if (fds[1].revents)
      if (const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC); fd >= 0) from.emplace_back(fd);
  }
}

}  // namespace eng
