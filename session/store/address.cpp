// SPDX-License-Identifier: Apache-2.0
#include "session/store/address.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace eng::store {
namespace {

std::string first_of(const Variable& variable, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = variable(name); value && *value) return value;
  return "";
}

bool all_of(std::string_view text, const char* more) {
  return std::all_of(text.begin(), text.end(), [&](unsigned char c) {
    return c < 128 && (std::isalnum(c) || std::string_view(more).find(static_cast<char>(c)) != std::string_view::npos);
  });
}

void check_bucket(const std::string& bucket, const std::string& address) {
  if (bucket.size() >= 3 && bucket.size() <= 63 && all_of(bucket, "-._") &&
      std::isalnum(static_cast<unsigned char>(bucket[0])))
    return;
  throw Error(Exit::usage, fmt::format("`{}` names no bucket", printable(address)),
              "write s3://bucket/prefix; a bucket's name has 3 to 63 letters, digits, '-' and '.'");
}

// Printable, so that it can be a line of a request.
std::string secret(const Variable& variable, const char* name, bool needed) {
  std::string value = first_of(variable, {name});
  while (!value.empty() && std::isspace(static_cast<unsigned char>(value.back()))) value.pop_back();
  if (value.empty() && needed)
    throw Error(Exit::environment, fmt::format("{} is not set, and a store on s3:// needs it", name),
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN for temporary keys");
  if (!std::all_of(value.begin(), value.end(), [](unsigned char c) { return c > 32 && c < 127; }))
    throw Error(Exit::environment, fmt::format("{} has blanks or other characters that no key has", name),
                "copy the key again");
  return value;
}

}  // namespace

std::string escaped(std::string_view text, bool slash) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte < 128 && std::isalnum(byte)) || std::string_view("-._~").find(c) != std::string_view::npos;
    if (plain || (slash && c == '/'))
      out += c;
    else
      out += fmt::format("%{:02X}", byte);
  }
  return out;
}

std::string Place::address() const {
  return fmt::format("s3://{}{}{}", bucket, prefix.empty() ? "" : "/", prefix);
}

std::string Place::host() const {
  const size_t begin = endpoint.find("://") + 3;
  const std::string host = endpoint.substr(begin, endpoint.find('/', begin) - begin);
  return in_host ? bucket + "." + host : host;
}

std::string Place::origin() const {
  return endpoint.substr(0, endpoint.find("://") + 3) + host();
}

std::string Place::key(const std::string& below) const {
  return prefix.empty() ? below : prefix + "/" + below;
}

std::string Place::path(const std::string* below) const {
  const size_t slash = endpoint.find('/', endpoint.find("://") + 3);
  std::string out = slash == endpoint.npos ? "" : endpoint.substr(slash);
  if (!in_host) out += "/" + escaped(bucket, false);
  if (below) out += "/" + escaped(key(*below), true);
  return out.empty() ? "/" : out;
}

Place read_place(const std::string& address, const Variable& variable) {
  Place out;
  const std::string rest = address.substr(std::min<size_t>(5, address.size()));
  const size_t slash = rest.find('/');
  out.bucket = rest.substr(0, slash);
  if (!address.starts_with("s3://")) out.bucket.clear();
  check_bucket(out.bucket, address);
  if (slash != rest.npos) out.prefix = rest.substr(slash + 1);
  while (out.prefix.ends_with('/')) out.prefix.pop_back();
  const bool odd = out.prefix.starts_with('/') || ("/" + out.prefix + "/").find("//") != std::string::npos ||
                   ("/" + out.prefix + "/").find("/./") != std::string::npos ||
                   ("/" + out.prefix + "/").find("/../") != std::string::npos;
  if ((odd && !out.prefix.empty()) || out.prefix.size() > 700 ||
      std::any_of(out.prefix.begin(), out.prefix.end(), [](unsigned char c) { return c < 32 || c == 127; }))
    throw Error(Exit::usage,
                fmt::format("`{}` has a prefix with empty parts, dots or control characters", printable(address)),
                "write s3://bucket/prefix");
  out.region = first_of(variable, {"AWS_REGION", "AWS_DEFAULT_REGION"});
  out.endpoint = first_of(variable, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"});
  if (!all_of(out.region, "-"))
    throw Error(Exit::environment, "AWS_REGION is no name of a region", "for example AWS_REGION=eu-central-1");
  if (out.endpoint.empty()) {
    if (out.region.empty())
      throw Error(Exit::environment, fmt::format("{}: the region of the bucket is not known", printable(address)),
                  "set AWS_REGION, or AWS_ENDPOINT_URL for another store than Amazon's");
    out.endpoint = fmt::format("https://s3.{}.amazonaws.com{}", out.region, out.region.starts_with("cn-") ? ".cn" : "");
    out.in_host = out.bucket.find_first_of("._") == std::string::npos;  // no certificate has more dots
  } else if (out.region.empty()) {
    out.region = "us-east-1";  // which stores take that have none
  }
  while (out.endpoint.ends_with('/')) out.endpoint.pop_back();
  if (out.endpoint.find('@') != std::string::npos)  // it is not printed: it may have a password
    throw Error(Exit::environment, "AWS_ENDPOINT_URL names a user",
                "take the part before `@` away, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  const bool http = out.endpoint.starts_with("https://") || out.endpoint.starts_with("http://");
  if (!http || out.endpoint.find_first_of("?#\\") != std::string::npos || out.endpoint.ends_with(':') ||
      !std::all_of(out.endpoint.begin(), out.endpoint.end(), [](unsigned char c) { return c > 32 && c < 127; }))
    throw Error(Exit::environment,
                fmt::format("AWS_ENDPOINT_URL is no address of a store: `{}`", printable(out.endpoint)),
                "for example AWS_ENDPOINT_URL=https://minio.example.org:9000");
  return out;
}

Credentials read_credentials(const Variable& variable) {
  return {secret(variable, "AWS_ACCESS_KEY_ID", true), secret(variable, "AWS_SECRET_ACCESS_KEY", true),
          secret(variable, "AWS_SESSION_TOKEN", false)};
}

}  // namespace eng::store
