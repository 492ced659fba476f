// SPDX-License-Identifier: Apache-2.0
// Signature version 4 of a request to S3:
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "session/store/address.hpp"

namespace eng::store {

// SHA-256 in pieces, and MD5, with which stores name what they have.
class Digest {
 public:
  enum class Kind { sha256, md5 };
  explicit Digest(Kind kind);
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  void add(const void* data, uint64_t bytes);
  std::string hex();  // once, at the end

 private:
  void* context_;
};
std::string sha256_hex(std::string_view text);

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct ToSign {
  std::string method, host, path;  // the path is escaped
  Pairs query = {};                // not escaped; in any order
  Pairs headers = {};              // further ones to sign; names in small letters
  std::string payload_sha256;      // of the body, in hexadecimal digits
};
// "a=b&c=d", escaped, in the order in which it is signed.
std::string query_text(Pairs query);
// The headers to send: those to sign, x-amz-date, x-amz-content-sha256, x-amz-security-token, Authorization.
Pairs signed_headers(const ToSign& request, const Credentials& who, const std::string& region, std::time_t now);

}  // namespace eng::store
