// SPDX-License-Identifier: Apache-2.0
// Requests to a hub: redirects, the token, refusals in words, and how long to wait before another try.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "session/hub/names.hpp"
#include "session/hub/transport.hpp"

namespace eng::hub {

// HF_ENDPOINT, or https://huggingface.co. Throws Error(Exit::usage).
std::string endpoint_of_environment();
// HF_TOKEN, or the file that `hf auth login` writes; "" if there is none. Throws Error(Exit::usage) for one that cannot
// be a token.
std::string token_of_environment();
// Seconds of a header Retry-After, a number or a date; nothing if it is neither.
std::optional<double> retry_seconds(const std::string& header);

class Client {
 public:
  static constexpr int most_redirects = 10;
  // `note` takes a line for the user.
  Client(Transport& transport, Place place, std::string token, std::function<void(const std::string&)> note);
  // Follows redirects; the token goes to the endpoint's own origin alone. Returns answers with 200, 206 and 416. Throws
  // as Transport::get, Broken for those that say "later", and Error for all others.
  Answer get(Request request, const Body& body);

 private:
  [[noreturn]] void refuse(const Answer& answer, const std::string& url, bool with_token) const;
  Transport& transport_;
  Place place_;
  std::string token_, home_;
};

// Tries of one download, and the pauses between them.
class Tries {
 public:
  static constexpr int most = 5;               // in a row that bring next to nothing
  static constexpr double longest_wait = 300;  // seconds that a server may ask for
  // `pause`: seconds before the second try; they double with each one.
  Tries(std::function<void(const std::string&)> note, double pause) : note_(std::move(note)), pause_(pause) {}
  // Waits before the next try, or throws Error(Exit::communication) after the last one. `bytes` came with this one.
  void again(const Broken& why, uint64_t bytes, const std::string& command);

 private:
  std::function<void(const std::string&)> note_;
  double pause_;
  int failed_ = 0;
};

}  // namespace eng::hub
