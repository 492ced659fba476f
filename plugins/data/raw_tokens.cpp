// SPDX-License-Identifier: Apache-2.0
// Files of ids that do not say what they are, and NumPy's, which say little more.
#include <array>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <vector>

#include "notes.hpp"
#include "script.hpp"
#include "sniff.hpp"
#include "token_parts.hpp"

namespace text_data {
namespace {

// As long as an id fits into 63 bits, the widest type need not be told from its signed twin.
constexpr Dtype dtypes[] = {{"uint8", 1, false}, {"uint16", 2, false}, {"int16", 2, true}, {"uint32", 4, false},
                            {"int32", 4, true},  {"uint64", 8, true},  {"int64", 8, true}};

// Statistics of 16-bit words by their place in a group of four.
struct Words {
  std::array<uint64_t, 4> set{}, large{};  // how many are not zero; are above 3
  std::array<uint16_t, 4> most{};

  void add(std::string_view piece) {
    for (std::size_t i = 0; i + 2 <= piece.size(); i += 2) {
      const auto word = number_at<uint16_t>(piece, i);
      const std::size_t k = i / 2 % 4;
      set[k] += word != 0;
      large[k] += word > 3;
      most[k] = std::max(most[k], word);
    }
  }
  bool enough() const { return set[0] + set[1] + set[2] + set[3] >= 1000; }

  // Most words of the second kind are zero (or at most 3: ids up to 262,143), although those of the first kind are not.
  // Ids of 16 bits do not know whether their place is even.
  static bool empty(uint64_t low, uint64_t high) { return low >= 4 && high <= low / 10; }
  bool wide64() const {
    return empty(set[0], set[2] + set[3]) && (empty(set[0], set[1]) || (most[0] >= 256 && empty(large[0], large[1])));
  }
  bool wide32() const {
    return empty(set[0] + set[2], set[1] + set[3]) ||
           (std::max(most[0], most[2]) >= 256 && empty(large[0] + large[2], large[1] + large[3]));
  }
  bool swapped() const { return empty(set[1] + set[3], set[0] + set[2]); }
};

Words look(const InputFile& file) {
  Words words;
  try {
    file.each_piece(0, file.size(), [&](std::string_view piece) {
      words.add(piece);
      if (words.enough()) throw InputFile::Enough();
    });
  } catch (const InputFile::Enough&) {
  }
  return words;
}

constexpr const char* set_dtype =
    "If it holds token ids and no header, set [data] dtype to their type, such as \"uint16\" or \"uint32\"";

std::string reading_as(const char* dtype) {
  return std::string("; its ids were read as ") + dtype +
         ", because no header says their type: if they have another one, set [data] dtype";
}

const Dtype& prove(const InputFile& file, int64_t vocabulary) {
  if (file.size() % 2 != 0)
    refuse_tokens(file.path(), "has an odd number of bytes: nanoGPT's files hold two per token", ENG_DATA_LOSS);
  const Words words = look(file);
  if (words.swapped())
    refuse_tokens(
        file.path(),
        "has zeros in its even 16-bit numbers, as big-endian ids of 32 or 64 bits have, or numbers of type float32. "
        "Convert it, for example with numpy.fromfile(FILE, \">u4\").astype(\"<u4\").tofile(OTHER). If it is "
        "right as it is, set [data] dtype = \"uint16\"");
  const char* const wide = file.size() % 8 == 0 && words.wide64()   ? "uint64"
                           : file.size() % 4 == 0 && words.wide32() ? "uint32"
                                                                    : nullptr;
  if (wide) {
    note("[data] " + file.path() + " is read as ids of type " + wide +
         ": no header says their type, but the upper parts of all are zero or nearly so. [data] dtype states another");
    return *find_dtype(wide);
  }
  if (words.wide32())
    refuse_tokens(file.path(),
                  "holds ids of 32 or 64 bits, as the zeros between them show, but its " + std::to_string(file.size()) +
                      " bytes are no multiple of 4: it is cut short, or has a header that is not known. If its ids "
                      "have 16 bits, set [data] dtype = \"uint16\"",
                  ENG_DATA_LOSS);
  if (vocabulary > 65536)
    refuse_tokens(
        file.path(),
        "has no header that says the type of its ids, and 16 bits, as in nanoGPT's files, cannot hold those of "
        "a vocabulary of " +
            std::to_string(vocabulary) + ": set [data] dtype, to \"uint16\" if they have 16 bits all the same");
  return *find_dtype("uint16");
}

[[noreturn]] void refuse_array(const InputFile& file, const std::string& what, const char* how) {
  refuse_tokens(file.path(),
                "is a NumPy array " + what + ", not one of token ids in one dimension. In Python, numpy.save(\"" +
                    "ids.npy\", numpy.load(" + shell_word(file.path()) + ")" + how + ") makes one",
                ENG_UNSUPPORTED);
}

}  // namespace

const Dtype* find_dtype(std::string_view name) {
  for (const Dtype& type : dtypes)
    if (name == type.name) return &type;
  return nullptr;
}

bool has_ending(const std::string& path, std::string_view ending) {
  if (path.size() <= ending.size()) return false;
  const std::string_view end = std::string_view(path).substr(path.size() - ending.size());
  return std::equal(end.begin(), end.end(), ending.begin(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  });
}

void open_raw(const InputFile& file, std::string_view begin, const std::string& dtype, int64_t vocabulary,
              TokenFile& out) {
  const std::string& path = file.path();
  const Dtype* type = find_dtype(dtype);
  if (!type) {
    const Content found = sniff_among_ids(begin, begin.size() == file.size());
    using Kind = Content::Kind;
    const bool text = found.kind == Kind::json_lines || found.kind == Kind::json || found.kind == Kind::page;
    constexpr std::size_t few = 16;
    if (text || (found.kind == Kind::text && begin.size() >= few && is_plain_text(begin)))
      refuse_tokens(path, "is " + std::string(text ? found.what : "text") +
                              ", not a file of tokens: set [data] plugin = \"text\". " + set_dtype);
    if (found.kind != Kind::text)
      refuse_tokens(path, refusal(found, path, "") + (found.command.empty() ? ". " : "\n") + set_dtype,
                    ENG_UNSUPPORTED);
    if (!has_ending(path, ".bin"))
      refuse_tokens(path,
                    "is not a file of tokens: it has no header of the engine, llm.c, NeMo, Megatron or NumPy, and does "
                    "not end in .bin, as nanoGPT's do. " +
                        std::string(set_dtype));
    type = &prove(file, vocabulary);
    out.doubt = reading_as(type->name);
  }
  out.format = type == find_dtype("uint16") ? "nanoGPT" : std::string("raw ") + type->name;
  out.width = type->width;
  out.is_signed = type->is_signed;
  if (file.size() % out.width != 0)
    refuse_tokens(path,
                  "has " + std::to_string(file.size()) + " bytes, which is no multiple of the " +
                      std::to_string(out.width) + " bytes of each " + type->name +
                      ": it is cut short, or its ids are of another type than [data] dtype says",
                  ENG_DATA_LOSS);
  out.tokens = file.size() / out.width;
}

void open_numpy(const InputFile& file, std::string_view begin, TokenFile& out) {
  const std::string& path = file.path();
  const bool short_header = begin.size() > 6 && begin[6] == 1;
  const std::size_t at = short_header ? 10 : 12;
  if (begin.size() < at) refuse_tokens(path, "is cut short", ENG_DATA_LOSS);
  const uint64_t length = short_header ? number_at<uint16_t>(begin, 8) : number_at<uint32_t>(begin, 8);
  if (length > begin.size() - at) refuse_tokens(path, "is cut short, or its header is damaged", ENG_DATA_LOSS);
  const std::string_view header = begin.substr(at, length);
  const auto value = [&](std::string_view key) {
    const std::size_t found = header.find("'" + std::string(key) + "':");
    if (found == std::string_view::npos) refuse_tokens(path, "its header is damaged: it has no " + std::string(key));
    std::string_view rest = header.substr(found + key.size() + 3);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return rest;
  };
  const std::string_view descr = value("descr");
  const std::string type(descr.substr(0, std::min<std::size_t>(5, descr.size())));  // with its quotes
  const bool little = type.size() == 5 && type[0] == '\'' && type[4] == '\'' && (type[1] == '<' || type[1] == '|') &&
                      (type[2] == 'u' || type[2] == 'i') && std::strchr("1248", type[3]);
  if (!little) refuse_array(file, "of type " + type.substr(0, 5), ".astype(\"uint32\")");
  std::string_view shape = value("shape");
  shape = shape.substr(0, shape.find(')'));
  std::vector<uint64_t> sizes;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(shape[i])) != 0;
    if (!digit) continue;
    uint64_t n = 0;
    for (; i < shape.size() && std::isdigit(static_cast<unsigned char>(shape[i])) && n < uint64_t{1} << 58; ++i)
      n = n * 10 + static_cast<uint64_t>(shape[i] - '0');
    sizes.push_back(n);
  }
  if (sizes.size() != 1) refuse_array(file, "of " + std::to_string(sizes.size()) + " dimensions", ".reshape(-1)");
  out.format = "NumPy";
  out.width = static_cast<uint32_t>(type[3] - '0');
  out.is_signed = type[2] == 'i' || out.width == 8;
  out.offset = at + length;
  out.tokens = sizes[0];
  if ((file.size() - out.offset) % out.width != 0 || (file.size() - out.offset) / out.width != out.tokens)
    refuse_tokens(path,
                  "its header says " + std::to_string(out.tokens) + " ids, but the file has room for " +
                      std::to_string((file.size() - out.offset) / out.width),
                  ENG_DATA_LOSS);
}

}  // namespace text_data
