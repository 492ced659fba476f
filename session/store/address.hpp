// SPDX-License-Identifier: Apache-2.0
// The place of a store, and who asks: "s3://bucket/prefix", and the standard variables of the environment.
#pragma once

#include <functional>
#include <string>

namespace eng::store {

// getenv, or a table in tests; nullptr for an unset variable.
using Variable = std::function<const char*(const char*)>;

// Read once, kept in memory, and never told to anybody but the signature.
struct Credentials {
  std::string access_key, secret_key, session_token;
};

struct Place {
  std::string bucket, prefix;  // no '/' at the beginning or the end of the prefix
  std::string endpoint;        // "https://s3.eu-central-1.amazonaws.com", "http://127.0.0.1:9000/path"
  std::string region;
  bool in_host = false;  // the bucket's name is a part of the host's, not of the path

  std::string address() const;  // "s3://bucket/prefix"
  std::string host() const;     // with the port, if one is given
  std::string origin() const;   // "https://" + host()
  // The path of a key below the prefix, or of the bucket for nullptr; each byte that needs it is escaped.
  std::string path(const std::string* key) const;
  std::string key(const std::string& below) const;  // the whole key
};

// Throws Error(Exit::usage) for a text that is no address, and Error(Exit::environment) for variables that are missing
// or bad: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN; AWS_REGION or AWS_DEFAULT_REGION;
// AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL.
Place read_place(const std::string& address, const Variable& variable);
Credentials read_credentials(const Variable& variable);

// As RFC 3986 has it: letters, digits and "-._~" stay; '/' too with `slash`.
std::string escaped(std::string_view text, bool slash);

}  // namespace eng::store
