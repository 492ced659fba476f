// SPDX-License-Identifier: Apache-2.0
#include "session/hub/get.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/file.hpp"
#include "session/hub/proof.hpp"
#include "session/hub/store.hpp"
#include "session/report/progress.hpp"

namespace eng::hub {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t large = uint64_t{8} << 20;  // of such a part the record is written at once

// An ETag that names bytes, as If-Range wants it.
bool is_strong(const std::string& etag) {
  return etag.size() > 2 && etag.front() == '"' && etag.back() == '"';
}

// The first byte and the whole size of a Content-Range "bytes 5-9/10"; false for any other text.
bool read_range(const std::string& text, uint64_t& first, std::string& whole) {
  const size_t dash = text.find('-'), slash = text.find('/');
  if (!text.starts_with("bytes ") || dash == text.npos || slash == text.npos || dash < 7 || slash < dash) return false;
  const std::string digits = text.substr(6, dash - 6);
  if (digits.size() > 18 || digits.find_first_not_of("0123456789") != digits.npos) return false;
  first = std::stoull(digits);
  whole = text.substr(slash + 1);
  return true;
}

class Getter {
 public:
  Getter(const Wish& wish, Transport& transport, const Watch& watch)
      : wish_(wish), watch_(watch), client_(transport, wish.place, wish.token, watch.note) {}

  Got get() {
    const Listing listing = list();
    const std::vector<File> files = chosen(listing, wish_.place.kind, wish_.choice);
    commit_ = listing.commit;
    Store store(wish_.to, wish_.place);
    store_ = &store;
    try {
      run(files);
    } catch (...) {
      store.save(commit_);
      throw;
    }
    store.save(commit_);
    if (const auto rest = store.left_over(listing); !rest.empty())
      watch_.note(fmt::format("{} {} of an earlier commit and not of this one: {}{}", rest.size(),
                              rest.size() == 1 ? "file is" : "files are", printable(rest.front(), 120),
                              rest.size() == 1 ? "" : ", ..."));
    return std::move(got_);
  }

 private:
  Listing list() {
    const std::string address = wish_.place.listing();
    for (Tries tries(watch_.note, wish_.pause);;) {
      std::string text;
      try {
        client_.get({address, "", 0, ""}, [&](const Answer&, std::string_view piece) {
          text += piece;
          if (text.size() > longest_listing)
            throw Error(Exit::data, fmt::format("{} sends more than {} MiB", address, longest_listing >> 20));
        });
        return parse_listing(text, address);
      } catch (const Broken& e) {
        tries.again(e, text.size(), wish_.place.command());
      }
    }
  }

  void run(const std::vector<File>& files) {
    got_.commit = commit_;
    uint64_t needed = 0;
    std::vector<const File*> missing;
    for (const File& file : files) {
      const bool there = store_->has(file, commit_);
      got_.files.push_back({file, !there});
      if (there) continue;
      missing.push_back(&file);
      const uint64_t rest = file.size.value_or(0) - std::min(file.size.value_or(0), store_->part_bytes(file, commit_));
      if (rest > largest_file - std::min(needed, largest_file))
        throw Error(Exit::data, "the hub lists files of more than 1 PiB; nothing is downloaded");
      needed += rest;
      progress_.all += file.size.value_or(0);
    }
    std::error_code unknown;
    const fs::space_info space = fs::space(store_->root().inside(), unknown);
    if (!unknown && needed > space.available)
      throw Error(Exit::disk,
                  fmt::format("{} needs {} more, and {} are free in {}", wish_.place.repository, size_text(needed),
                              size_text(space.available), wish_.to.string()),
                  "free space, choose another disk with --to, or fewer files with --include and --exclude");
    progress_.files = missing.size();
    for (const File* file : missing) {
      progress_.file = file->path;
      ++progress_.number;
      download(*file);
      if (saved_ + std::chrono::seconds(2) < Clock::now()) save();
    }
  }

  void save() {
    store_->save(commit_);
    saved_ = Clock::now();
  }

  // Until the file is whole and right.
  void download(const File& file) {
    const uint64_t before = progress_.done;
    Tries tries(watch_.note, wish_.pause);
    bool again = false;  // after a wrong hash
    for (;;) {
      const HeldFolder folder = store_->folder_of(file.path);
      const fs::path part = folder.inside() / part_of(file.path);
      const uint64_t had = store_->part_bytes(file, commit_);
      if (!had) store_->drop_part(file);
      Proof proof(file);
      if (had) proof.add_file(part, had);
      progress_.done = before + had;
      const uint64_t got = got_.bytes;
      try {
        if (!file.size || had < *file.size || !had) receive(file, part, proof, before);
      } catch (const Broken& e) {
        tries.again(e, got_.bytes - got, wish_.place.command());
        continue;
      }
      const std::string problem = proof.problem();
      if (problem.empty()) break;
      store_->drop_part(file);
      if (had && !again) {  // the file had changed between two parts
        watch_.note(fmt::format("{} {}; it is downloaded anew", printable(file.path), problem));
        again = true;
        continue;
      }
      throw Error(Exit::data, fmt::format("{} {}; what came is removed", printable(file.path), problem),
                  "try again. If it stays so, the mirror or a proxy on the way changes files, or the repository is "
                  "damaged");
    }
    store_->finish(file, commit_);
    progress_.done = before + file.size.value_or(0);
  }

  // One request for the rest of the file. Throws as Client::get, and Broken if less comes than the hub lists.
  void receive(const File& file, const fs::path& part, Proof& proof, uint64_t before) {
    const Fd fd = open_regular(part, O_WRONLY | O_CREAT);
    const std::string etag = store_->part_etag(file);
    const uint64_t had = proof.bytes();
    bool begun = false;
    const auto begin = [&](const Answer& answer) {
      begun = true;
      uint64_t first = 0;
      std::string whole;
      if (answer.status == 206) {
        const bool right = read_range(answer.content_range, first, whole) && first == proof.bytes() &&
                           (!file.size || whole == "*" || whole == std::to_string(*file.size));
        const bool same = etag.empty() || answer.etag.empty() || etag == answer.etag || !file.content().empty();
        if (!right || !same) {
          store_->drop_part(file);
          throw Broken(fmt::format("{}: the server continues another file", printable(file.path)));
        }
      } else {
        proof.restart();
        store_->begin_part(file, commit_, answer.etag);
        if (file.size.value_or(large) >= large) save();
      }
      if (::ftruncate(fd, static_cast<off_t>(proof.bytes())) != 0 || ::lseek(fd, 0, SEEK_END) < 0)
        disk_error("write", part, errno);
      progress_.done = before + proof.bytes();
    };
    const std::string address = wish_.place.file(commit_, file.path);
    const Answer answer =
        client_.get({address, "", had, is_strong(etag) ? etag : ""}, [&](const Answer& head, std::string_view piece) {
          if (!begun) begin(head);
          if (file.size && piece.size() > *file.size - proof.bytes()) {
            store_->drop_part(file);
            throw Error(Exit::data, fmt::format("{}: the server sends more than the {} bytes that the hub lists",
                                                printable(file.path), *file.size));
          }
          write(fd, part, piece);
          proof.add(piece.data(), piece.size());
          got_.bytes += piece.size();
          progress_.done = before + proof.bytes();
          watch_.progress(progress_);
        });
    if (answer.status == 416) {
      store_->drop_part(file);
      throw Broken(fmt::format("{}: the server has no bytes after the {} that are here", printable(file.path), had));
    }
    if (!begun) begin(answer);
    if (file.size && proof.bytes() < *file.size)
      throw Broken(fmt::format("{}: {} of {} bytes came", printable(file.path), proof.bytes(), *file.size));
  }

  static void write(int fd, const fs::path& part, std::string_view piece) {
    while (!piece.empty()) {
      const ssize_t n = file_calls().write(fd, piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) disk_error("write", part, n < 0 ? errno : EIO);
      piece.remove_prefix(static_cast<size_t>(n));
    }
  }

  using Clock = std::chrono::steady_clock;
  const Wish& wish_;
  const Watch& watch_;
  Client client_;
  Store* store_ = nullptr;
  std::string commit_;
  Progress progress_;
  Got got_;
  Clock::time_point saved_ = Clock::now();
};

}  // namespace

Got get(const Wish& wish, Transport& transport, const Watch& watch) {
  return Getter(wish, transport, watch).get();
}

}  // namespace eng::hub
