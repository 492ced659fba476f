// SPDX-License-Identifier: Apache-2.0
// eng.documents/1: a file has the same documents whenever it is read, and a damaged one is refused with a text.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "engine/documents.h"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

// One call of `read`: a file in memory as its input, and what it puts.
struct OneReading {
  std::string path;
  std::string_view content;
  bool seeks = true;
  uint64_t most_puts = UINT64_MAX, most_reads = UINT64_MAX;  // the call after that many fails

  uint64_t at = 0, puts = 0, reads = 0;
  std::vector<std::string> documents = {};
  uint64_t first_part = 0;
  std::vector<std::pair<uint64_t, size_t>> parts = {};  // each with the documents before it
  bool open = false;                                    // inside of the last document
  bool stopped = false;                                 // a call failed
  std::string wrong = {};
  eng_documents_seen seen{sizeof(eng_documents_seen), 0, 0, 0};
  eng_status status = ENG_OK;
  std::string text = {};

  void run(const eng_documents& table, void* self) {
    const eng_documents_in in = {
        sizeof in, 0, this, path.c_str(), seeks ? content.size() : 0, read, seeks ? seek : nullptr, first_part};
    const eng_documents_out out = {sizeof out, 0, this, put, part};
    Sink sink;
    status = table.read(self, &in, &out, &seen, sink.get());
    text = sink.text();
    if (!wrong.empty()) throw Broken(wrong);
    if (stopped && status == ENG_OK) throw Broken("read returns ENG_OK although a function of the source failed");
    if (status == ENG_OK && open) throw Broken("read returns inside of a document: its last call has ENG_TEXT_MORE");
    if (status != ENG_OK && text.empty()) throw Broken(fmt::format("it fails with status {} and no text", status));
  }

 private:
  // True if the call is refused.
  bool refused(const char* call, uint64_t number, uint64_t most) {
    if (stopped) wrong = fmt::format("it calls {} after a function of the source failed", call);
    stopped = stopped || number > most;
    return stopped;
  }
  static eng_status read(const eng_documents_in* self, void* out, uint64_t capacity, uint64_t* got, eng_error* error) {
    auto& me = *static_cast<OneReading*>(self->data);
    if ((!out && capacity) || !got) me.wrong = "it calls read with out or got NULL";
    if (me.refused("read", ++me.reads, me.most_reads) || !got)
      return report(error, ENG_DATA_LOSS, "the file cannot be read any more");
    *got = std::min<uint64_t>(capacity, me.content.size() - me.at);
    if (*got) std::memcpy(out, me.content.data() + me.at, *got);
    me.at += *got;
    return ENG_OK;
  }
  static eng_status seek(const eng_documents_in* self, uint64_t offset, eng_error* error) {
    auto& me = *static_cast<OneReading*>(self->data);
    if (me.stopped) me.wrong = "it calls seek after a function of the source failed";
    if (offset > me.content.size()) return report(error, ENG_OUT_OF_RANGE, "beyond the end of the file");
    me.at = offset;
    return ENG_OK;
  }
  static eng_status put(const eng_documents_out* self, const char* text, uint64_t size, uint32_t flags,
                        eng_error* error) {
    auto& me = *static_cast<OneReading*>(self->data);
    if (!text && size) me.wrong = "it puts a text that is NULL";
    if (flags & ~ENG_TEXT_MORE) me.wrong = fmt::format("it puts a text with flags {:#x}", flags);
    if (me.refused("put", ++me.puts, me.most_puts) || (!text && size))
      return report(error, ENG_UNAVAILABLE, "no more is wanted");
    if (!me.open && (size || !(flags & ENG_TEXT_MORE))) me.documents.emplace_back();
    if (size) me.documents.back().append(text, size);
    me.open = (flags & ENG_TEXT_MORE) && (me.open || size);
    return ENG_OK;
  }
  static eng_status part(const eng_documents_out* self, uint64_t number, eng_error* error) {
    auto& me = *static_cast<OneReading*>(self->data);
    if (me.open) me.wrong = fmt::format("it begins part {} inside of a document", number);
    if (number <= (me.parts.empty() ? 0 : me.parts.back().first))
      me.wrong = fmt::format("it begins part {} after part {}", number, me.parts.empty() ? 0 : me.parts.back().first);
    if (me.refused("part", 0, 0)) return report(error, ENG_UNAVAILABLE, "no more is wanted");
    me.parts.emplace_back(number, me.documents.size());
    return ENG_OK;
  }
};

class MadeFormat {
 public:
  MadeFormat(const eng_documents& table, const Section& section) : table_(table) {
    const Watched options(section);
    Sink sink;
    check_made(table.create(options.get(), &self_, sink.get()), sink, options.misuse());
    made_ = true;
  }
  ~MadeFormat() {
    if (made_) table_.destroy(self_);
  }
  MadeFormat(const MadeFormat&) = delete;
  MadeFormat& operator=(const MadeFormat&) = delete;
  OneReading read(OneReading how) const {
    how.run(table_, self_);
    return how;
  }

 private:
  const eng_documents& table_;
  void* self_ = nullptr;
  bool made_ = false;
};

// `content` with one fault.
std::string damaged(const std::string& content, Random& random) {
  std::string out = content;
  const auto place = [&] { return static_cast<size_t>(pick(random, 0, static_cast<int64_t>(content.size()) - 1)); };
  switch (pick(random, 0, 2)) {
    case 0:
      return out.substr(0, place());
    case 1:
      return out.insert(place(), static_cast<size_t>(pick(random, 1, 20)), '\xff');
    default:
      for (int64_t n = pick(random, 1, 8); n > 0; --n) out[place()] = static_cast<char>(pick(random, 0, 255));
      return out;
  }
}

}  // namespace

void test_documents(const Subject& s, Sheet& sheet) {
  eng_documents table{};
  Section section;
  std::unique_ptr<MadeFormat> format;
  OneReading whole;
  std::string content;
  const bool made = sheet.check("create, read", [&] {
    table = s.table<eng_documents>();
    section = s.section();
    format = std::make_unique<MadeFormat>(table, section);
    for (const std::string& given : s.given)
      if (given.starts_with("file=")) whole.path = std::filesystem::absolute(given.substr(5)).string();
    if (whole.path.empty()) throw Untested("there is no file to read: give file=PATH, a file of this format");
    std::ifstream in(whole.path, std::ios::binary);
    content.assign(std::istreambuf_iterator<char>(in), {});
    if (!in.is_open() || content.empty()) throw Untested(whole.path + " is empty or cannot be read: give file=PATH");
    whole.content = content;
    whole = format->read(whole);
    if (whole.status != ENG_OK)
      throw Untested(fmt::format("it refuses {}: {}; give file=PATH, a file of this format", whole.path, whole.text));
    size_t bytes = 0;
    for (const std::string& one : whole.documents) bytes += one.size();
    return fmt::format("{} documents of {} bytes; {} rows left out", whole.documents.size(), bytes,
                       whole.seen.left_out);
  });
  if (!made) return;
  const OneReading again{whole.path, content};
  const auto same = [&](const OneReading& other, const char* when) {
    if (other.status != ENG_OK) throw Broken(fmt::format("{}, it refuses the file: {}", when, other.text));
    if (other.documents != whole.documents) throw Broken(fmt::format("{}, the file has other documents", when));
    if (other.seen.left_out != whole.seen.left_out || other.seen.wrong != whole.seen.wrong)
      throw Broken(fmt::format("{}, it left out or found wrong another number", when));
  };
  sheet.check("the same documents again, and of another object", [&] {
    same(format->read(again), "when it is read again");
    same(MadeFormat(table, section).read(again), "read by another object");
    same(format->read(again), "after another object was destroyed");
    return "";
  });
  sheet.check("an interrupted reading goes on at each part", [&] {
    for (const auto& [number, before] : whole.parts) {
      OneReading rest = again;
      rest.first_part = number;
      rest = format->read(rest);
      if (rest.status != ENG_OK)
        throw Broken(fmt::format("from part {} on, it refuses the file: {}", number, rest.text));
      if (rest.documents !=
          std::vector(whole.documents.begin() + static_cast<std::ptrdiff_t>(before), whole.documents.end()))
        throw Broken(fmt::format("from part {} on, it has other documents than the rest of the file", number));
    }
    return fmt::format("{} parts behind the first one", whole.parts.size());
  });
  sheet.check("a compressed file, in which nothing can be sought", [&] {
    OneReading packed = again;
    packed.seeks = false;
    packed = format->read(packed);
    if (packed.status == ENG_UNSUPPORTED) return "it refuses: " + packed.text;
    same(packed, "without seek");
    return std::string("the same documents");
  });
  sheet.check("it ends where the source wants no more", [&] {
    Random random = s.random("ends");
    for (int k = 0; k < 10 * s.rounds; ++k) {
      OneReading put = again, read = again;
      put.most_puts = static_cast<uint64_t>(pick(random, 0, std::min<int64_t>(static_cast<int64_t>(whole.puts), 1000)));
      read.most_reads =
          static_cast<uint64_t>(pick(random, 0, std::min<int64_t>(static_cast<int64_t>(whole.reads), 1000)));
      format->read(put), format->read(read);
    }
    same(format->read(again), "after it was stopped");
    return fmt::format("{} calls of put, {} of read", whole.puts, whole.reads);
  });
  sheet.check("damaged files", [&] {
    Random random = s.random("damage");
    const int tries = 50 * s.rounds;
    int refused = 0;
    for (int k = 0; k < tries; ++k) {
      const std::string bytes = damaged(content, random);
      refused += format->read({whole.path, bytes, k % 2 == 0}).status != ENG_OK;
    }
    same(format->read(again), "after damaged files");
    return fmt::format("{} of {} are refused", refused, tries);
  });
  sheet.check("several files at a time", [&] {
    std::vector<std::string> wrong(3);
    std::vector<std::thread> threads;
    for (std::string& text : wrong)
      threads.emplace_back([&] {
        try {
          for (int k = 0; k < 5; ++k) same(format->read(again), "on several threads");
        } catch (const std::exception& e) {
          text = e.what();
        }
      });
    for (std::thread& t : threads) t.join();
    for (const std::string& text : wrong)
      if (!text.empty()) throw Broken(text);
    return "3 threads, one object";
  });
}

}  // namespace eng::plugin_test
