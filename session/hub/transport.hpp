// SPDX-License-Identifier: Apache-2.0
// One HTTP request and its answer. libcurl does it, which is loaded when the first one is made: a command that
// downloads nothing never loads it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace eng::hub {

// Reads at most so many bytes of a body from a place in it; returns how many. It may throw, which ends the transfer.
using Source = std::function<size_t(uint64_t at, char* to, size_t bytes)>;

struct Request {
  std::string url;
  std::string token;     // sent as `Authorization: Bearer`; "": none
  uint64_t from = 0;     // the first byte wanted
  std::string if_range;  // with `from`: the ETag for which it is wanted; "": of any
  std::string method = "GET";
  std::vector<std::string> headers = {};  // more lines, "name: value"
  Source body = {};                       // what is sent
  uint64_t body_bytes = 0;
};

struct Answer {
  int status = 0;
  std::string etag, content_range, retry_after;
  std::string error_code, error_message;  // X-Error-Code, X-Error-Message
  std::string location;                   // of a redirect, absolute
  std::string region;                     // x-amz-bucket-region
  std::string error;                      // the beginning of the body of an answer of 300 and above
};

// Takes a piece of the body of an answer with 200 or 206. It may throw, which ends the transfer.
using Body = std::function<void(const Answer&, std::string_view)>;

// A failure that another try may not have.
struct Broken : std::runtime_error {
  explicit Broken(const std::string& text, std::optional<double> wait = {}) : std::runtime_error(text), wait(wait) {}
  std::optional<double> wait;  // seconds that the server asks for
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Follows no redirect. Throws Broken; Error(Exit::communication) for what no other try mends; what `body` throws; and
  // Error(128 + signal) after a signal.
  // Error(Exit::stopped) where another stop was asked for.
  virtual Answer get(const Request& request, const Body& body) = 0;
  // "https://host:443". Throws Error(Exit::communication) for an address that is not http or https, or names a user.
  virtual std::string origin(const std::string& url) = 0;
};

// `stall`: a connection that brings next to nothing for so many seconds is broken. `stop` ends a transfer; without it a
// signal does. Throws Error(Exit::environment) where libcurl is not there.
std::unique_ptr<Transport> open_transport(double stall, std::function<bool()> stop = {});

}  // namespace eng::hub
