// SPDX-License-Identifier: Apache-2.0
#include "session/store/s3.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

#include "core/base/text.hpp"
#include "session/clock.hpp"
#include "session/file.hpp"
#include "session/hub/client.hpp"
#include "session/ranks/signals.hpp"
#include "session/store/requests.hpp"
#include "session/store/xml.hpp"

namespace eng::store {
namespace {

namespace fs = std::filesystem;

uint64_t number(const std::string& text, const char* what) {
  uint64_t out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || *end || text.empty())
    throw Error(Exit::data, fmt::format("the store's answer has `{}` as {}", printable(text), what));
  return out;
}

std::string without_quotes(std::string etag) {
  std::erase(etag, '"');
  return etag;
}

// Counts the pages of a list, and what is in them.
class Pages {
 public:
  void add(size_t entries) {
    if (++pages_ > 100'000 || (entries_ += entries) > 10'000'000)
      throw Error(Exit::data, "the store's list has no end", "give the run a prefix of its own");
  }

 private:
  size_t pages_ = 0, entries_ = 0;
};

// A range of an open file.
struct Piece {
  int file;
  uint64_t first, bytes;
  size_t read(uint64_t at, char* to, size_t n) const {
    for (;;) {
      const ssize_t got = ::pread(file, to, std::min<uint64_t>(n, bytes - at), static_cast<off_t>(first + at));
      if (got > 0) return static_cast<size_t>(got);
      if (got < 0 && errno == EINTR) continue;
      throw Error(Exit::disk,
                  fmt::format("cannot read what is copied: {}", got < 0 ? std::strerror(errno) : "it ends early"));
    }
  }
  std::string digest(Digest::Kind kind) const {
    Digest out(kind);
    std::vector<char> buffer(std::min<uint64_t>(bytes, 1 << 20));
    for (uint64_t at = 0; at < bytes;) {
      const size_t n = read(at, buffer.data(), buffer.size());
      out.add(buffer.data(), n);
      at += n;
    }
    return out.hex();
  }
};

std::vector<Piece> pieces_of(int file, uint64_t bytes) {
  std::vector<Piece> out;
  for (uint64_t at = 0, n = part_size(bytes); at < bytes; at += n) out.push_back({file, at, std::min(n, bytes - at)});
  if (out.empty()) out.push_back({file, 0, 0});
  return out;
}

// The name that stores give to an object that was sent so; those that encrypt with keys of their own do not.
std::string etag_of(const std::vector<Piece>& pieces) {
  if (pieces.size() == 1) return pieces[0].digest(Digest::Kind::md5);
  Digest all(Digest::Kind::md5);
  for (const Piece& piece : pieces) {
    const std::string hex = piece.digest(Digest::Kind::md5);
    std::string raw;
    for (size_t k = 0; k < hex.size(); k += 2) raw += static_cast<char>(std::stoi(hex.substr(k, 2), nullptr, 16));
    all.add(raw.data(), raw.size());
  }
  return fmt::format("{}-{}", all.hex(), pieces.size());
}

class S3 final : public ObjectStore {
 public:
  S3(const std::string& address, const Variable& variable, double stall)
      : requests_(read_place(address, variable), read_credentials(variable), stall),
        address_(requests_.place().address()) {}

  const std::string& address() const override { return address_; }
  void stop_when(std::function<bool()> stop) override { requests_.stop_when(std::move(stop)); }

  std::vector<Object> list(const std::string& below) override {
    std::vector<Object> out;
    for (Listed& one : listed(below)) out.push_back({std::move(one.key), one.bytes});
    return out;
  }

  void put(const std::string& key, int file, uint64_t bytes) override {
    const std::vector<Piece> pieces = pieces_of(file, bytes);
    std::string before;  // the ETag of what is there under this key
    for (const Listed& there : listed(key)) {
      if (there.key != key) continue;
      if (there.bytes == bytes && there.etag == etag_of(pieces)) return;
      before = there.etag;
    }
    if (pieces.size() == 1) {
      send(key, {}, pieces[0]);
      return;
    }
    const std::string upload = begun_upload(key);
    std::map<uint64_t, Listed> sent = parts_of(key, upload);
    std::string parts;
    for (size_t k = 0; k < pieces.size(); ++k) {
      const auto there = sent.find(k + 1);
      const bool has = there != sent.end() && there->second.bytes == pieces[k].bytes &&
                       there->second.etag == pieces[k].digest(Digest::Kind::md5);
      const std::string etag =
          has ? there->second.etag
              : without_quotes(send(key, {{"partNumber", std::to_string(k + 1)}, {"uploadId", upload}}, pieces[k]));
      parts += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>\"{}\"</ETag></Part>", k + 1, xml_text(etag));
    }
    finish(key, upload, "<CompleteMultipartUpload>" + parts + "</CompleteMultipartUpload>", bytes, before);
  }

  void put_text(const std::string& key, const std::string& text) override {
    requests_.ask({"PUT", &key, {}, {}, text});
  }

  std::string get_text(const std::string& key, uint64_t limit) override {
    return requests_.ask({"GET", &key}, limit).body;
  }

  void get(const Object& object, const fs::path& file, const std::function<void(uint64_t)>& progress) override {
    const Fd fd = open_regular(file, O_WRONLY | O_CREAT);
    uint64_t had = static_cast<uint64_t>(std::max<off_t>(0, ::lseek(fd, 0, SEEK_END)));
    if (had > object.bytes) had = 0;
    const auto write = [&](std::string_view piece) {
      if (piece.size() > object.bytes - had)
        throw Error(Exit::data, fmt::format("{}/{}: more than the {} bytes that the store lists come", address_,
                                            object.key, object.bytes));
      while (!piece.empty()) {
        const ssize_t n = file_calls().write(fd, piece.data(), piece.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) disk_error("write", file, n < 0 ? errno : EIO, object.bytes - had);
        piece.remove_prefix(static_cast<size_t>(n));
        had += static_cast<uint64_t>(n);
      }
      if (progress) progress(had);
    };
    // Each try goes on from the bytes that are there.
    requests_.again([&] {
      if (::ftruncate(fd, static_cast<off_t>(had)) != 0 || ::lseek(fd, 0, SEEK_END) < 0)
        disk_error("write", file, errno);
      if (had < object.bytes || !had) requests_.receive(object.key, had, write);
      if (had < object.bytes)
        throw hub::Broken(fmt::format("{}/{}: {} of {} bytes came", address_, object.key, had, object.bytes));
    });
    if (file_calls().sync(fd) != 0) disk_error("write", file, errno);
  }

  void remove(const std::string& key) override { requests_.ask({"DELETE", &key}); }

  void abandon(const std::string& below, const std::function<bool(const std::string&)>& unwanted) override {
    for (const auto& [key, upload] : uploads(below))
      if (unwanted(key)) requests_.ask({"DELETE", &key, {{"uploadId", upload}}});
  }

 private:
  struct Listed {
    std::string key;
    uint64_t bytes = 0;
    std::string etag;
  };

  // The key below the address, of a whole one; nothing for that of another place.
  std::optional<std::string> below_prefix(const std::string& key) const {
    const std::string& prefix = requests_.place().prefix;
    if (prefix.empty()) return key;
    if (!key.starts_with(prefix + "/")) return std::nullopt;
    return key.substr(prefix.size() + 1);
  }

  // An answer that has this element outermost.
  std::string read(const Asked& asked, const char* root) {
    std::string xml = requests_.ask(asked, longest_answer).body;
    if (!has_root(xml, root)) requests_.no_store(fmt::format("no <{}> in the answer to {}", root, asked.method));
    return xml;
  }

  std::vector<Listed> listed(const std::string& below) {
    std::vector<Listed> out;
    std::string next;
    Pages pages;
    do {
      Pairs query = {{"list-type", "2"}, {"prefix", requests_.place().key(below)}};
      if (!next.empty()) query.emplace_back("continuation-token", next);
      const std::string xml = read({"GET", nullptr, query}, "ListBucketResult");
      const auto contents = elements(xml, "Contents");
      pages.add(contents.size());
      for (const std::string_view one : contents)
        if (const auto key = below_prefix(text_of(one, "Key")))
          out.push_back({*key, number(text_of(one, "Size"), "a size"), without_quotes(text_of(one, "ETag"))});
      const std::string before = next;
      next = text_of(xml, "IsTruncated") == "true" ? text_of(xml, "NextContinuationToken") : "";
      if (!next.empty() && next == before) throw Error(Exit::data, "the store's list has no end");
    } while (!next.empty());
    return out;
  }

  // Keys and numbers of what was begun to be sent in parts.
  std::vector<std::pair<std::string, std::string>> uploads(const std::string& below) {
    std::vector<std::pair<std::string, std::string>> out;
    std::string key_marker, upload_marker;
    Pages pages;
    for (bool more = true; more;) {
      Pairs query = {{"uploads", ""}, {"prefix", requests_.place().key(below)}};
      if (!key_marker.empty())
        query.insert(query.end(), {{"key-marker", key_marker}, {"upload-id-marker", upload_marker}});
      const std::string xml = read({"GET", nullptr, query}, "ListMultipartUploadsResult");
      const auto begun = elements(xml, "Upload");
      pages.add(begun.size());
      for (const std::string_view one : begun)
        if (const auto key = below_prefix(text_of(one, "Key"))) out.emplace_back(*key, text_of(one, "UploadId"));
      more = text_of(xml, "IsTruncated") == "true" && text_of(xml, "NextKeyMarker") != key_marker;
      key_marker = text_of(xml, "NextKeyMarker"), upload_marker = text_of(xml, "NextUploadIdMarker");
    }
    return out;
  }

  // The one that an interrupted call has begun, or a new one.
  std::string begun_upload(const std::string& key) {
    std::string found;
    for (const auto& [other, upload] : uploads(key))
      if (other == key) found = upload;
    if (!found.empty()) return found;
    const std::string xml = read({"POST", &key, {{"uploads", ""}}}, "InitiateMultipartUploadResult");
    const std::string upload = text_of(xml, "UploadId");
    if (upload.empty()) throw Error(Exit::data, "the store gives an object in parts no UploadId");
    return upload;
  }
  std::map<uint64_t, Listed> parts_of(const std::string& key, const std::string& upload) {
    std::map<uint64_t, Listed> out;
    std::string marker;
    Pages pages;
    for (bool more = true; more;) {
      Pairs query = {{"uploadId", upload}};
      if (!marker.empty()) query.emplace_back("part-number-marker", marker);
      const std::string xml = read({"GET", &key, query}, "ListPartsResult");
      const auto parts = elements(xml, "Part");
      pages.add(parts.size());
      for (const std::string_view one : parts)
        out[number(text_of(one, "PartNumber"), "a part")] = {key, number(text_of(one, "Size"), "a size"),
                                                             without_quotes(text_of(one, "ETag"))};
      more = text_of(xml, "IsTruncated") == "true" && text_of(xml, "NextPartNumberMarker") != marker;
      marker = text_of(xml, "NextPartNumberMarker");
    }
    return out;
  }

  // The ETag.
  std::string send(const std::string& key, const Pairs& query, const Piece& piece) {
    Asked asked{"PUT", &key, query};
    asked.source = [piece](uint64_t at, char* to, size_t n) { return piece.read(at, to, n); };
    asked.source_bytes = piece.bytes;
    asked.source_sha256 = piece.digest(Digest::Kind::sha256);
    return requests_.ask(asked).etag;
  }

  // An answer may be lost, and the next try then finds no such upload. It may also be 200 with an error in it, which
  // another try mends. `before`: the ETag of what was there under this key.
  void finish(const std::string& key, const std::string& upload, const std::string& parts, uint64_t bytes,
              const std::string& before) {
    std::string why;
    try {
      return requests_.again([&] {
        const std::string xml = requests_.ask({"POST", &key, {{"uploadId", upload}}, {}, parts}, longest_answer).body;
        if (has_root(xml, "CompleteMultipartUploadResult")) return;
        const bool error = has_root(xml, "Error");
        throw hub::Broken(error ? fmt::format("POST HTTP 200 {}: {}", printable(text_of(xml, "Code"), 300),
                                              printable(text_of(xml, "Message"), 300))
                                : "POST HTTP 200 without <CompleteMultipartUploadResult>");
      });
    } catch (const Error& e) {
      if (e.exit() != Exit::data && e.exit() != Exit::communication) throw;
      why = e.what();
    }
    for (const Listed& there : listed(key))
      if (there.key == key && there.bytes == bytes && there.etag != before) return;
    throw Error(Exit::communication, fmt::format("{}/{} was sent in parts, but is not there: {}", address_, key, why));
  }

  Requests requests_;
  const std::string address_;
};

}  // namespace

uint64_t part_size(uint64_t bytes) {
  constexpr uint64_t step = 1 << 20;
  const uint64_t least = (bytes + most_parts - 1) / most_parts;
  return std::max(part_bytes, (least + step - 1) / step * step);
}

std::unique_ptr<ObjectStore> open_store(const std::string& address, const Variable& variable, double stall) {
  return std::make_unique<S3>(address, variable, stall);
}

std::unique_ptr<ObjectStore> open_store(const std::string& address, double stall) {
  return open_store(
      address, [](const char* name) -> const char* { return std::getenv(name); }, stall);
}

}  // namespace eng::store
