// SPDX-License-Identifier: Apache-2.0
#include "session/gguf/export.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "session/checkpoint/checkpoint.hpp"
#include "session/checkpoint/convert.hpp"
#include "session/file.hpp"
#include "session/gguf/values.hpp"

namespace eng {
namespace {

namespace fs = std::filesystem;

// A check makes the names of so many ids. Those behind the tokenizer's own differ by their number alone.
constexpr int64_t most_checked_ids = int64_t{1} << 20;

// Rows that lie in each group of rows of the model, from `first` on.
struct Piece {
  uint64_t first, count;
};

// A tensor of the file, and how it is made of those of the model.
struct Placed {
  GgufTensor tensor;
  Arranged made;
  // Rows of a head; and those of its first rows of which the first and the second half alternate. 0: they stay.
  uint64_t head = 0, turned = 0;
  uint64_t groups = 0;        // of rows of the model; 0: all rows, in their order
  std::vector<Piece> pieces;  // of each group; the file has them one after the other, each of all groups
  bool negative_exp = false, plus_one = false;
  std::vector<std::pair<uint64_t, double>> scales;  // elements, one after the other, and their factor; none: all stay
};

bool any_names(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& p) { return names_tensor(p, name); });
}

// Only matrices, and those of experts, are stored in a smaller type. In q8_0, rows consist of whole blocks; f16 holds
// the others.
GgufType type_of(const GgufModel& gguf, const GgufTensor& t, GgufType wanted) {
  if (t.shape.size() < 2 || !t.name.ends_with(".weight") || any_names(gguf.f32, t.name)) return GgufType::f32;
  const bool blocks = static_cast<uint64_t>(t.shape.back()) % gguf_block == 0;
  return wanted == GgufType::q8_0 && !blocks ? GgufType::f16 : wanted;
}

uint64_t whole_value(const GgufValue& value, const Section& model, const std::string& key) {
  const Value found = gguf_value(value, model, key);
  const auto* whole = std::get_if<int64_t>(&found);
  if (!whole || *whole < 1)
    throw Error(Exit::usage, fmt::format("`{}` of [provides.gguf] is not a whole number above 0", key),
                "correct the plugin's description");
  return static_cast<uint64_t>(*whole);
}

void remove_middle(std::vector<int64_t>& shape, const std::string& own, const std::string& where) {
  if (shape.size() != 3 || shape[1] != 1)
    refuse(where, fmt::format("`{}` is {}, and not [rows, 1, columns]", own, shape_text(shape)));
  shape.erase(shape.begin() + 1);
}

// All but the name and the rows.
void finish_place(Placed& one, const std::string& own, const GgufModel& gguf, const Section& model, GgufType type,
                  const std::string& where) {
  std::vector<int64_t>& shape = one.tensor.shape;
  const std::string& name = one.tensor.name;
  if (any_names(gguf.squeeze, name)) remove_middle(shape, own, where);
  for (const auto& [pattern, heads] : gguf.interleave)
    if (names_tensor(pattern, name)) {
      const uint64_t count = whole_value(heads, model, pattern), rows = static_cast<uint64_t>(shape[0]);
      if (rows % (2 * count) != 0)
        refuse(where,
               fmt::format("`{}` is {}: its rows do not make {} heads of two halves", own, shape_text(shape), count));
      one.head = one.turned = rows / count;
      const auto dimensions = std::find_if(gguf.keys.begin(), gguf.keys.end(),
                                           [](const auto& key) { return key.first == "rope.dimension_count"; });
      if (dimensions != gguf.keys.end())
        one.turned = std::min(one.head, whole_value(dimensions->second, model, dimensions->first));
    }
  for (const auto& [pattern, rows] : gguf.rows)
    if (names_tensor(pattern, name)) {
      const auto count = static_cast<int64_t>(whole_value(rows, model, pattern));
      if (shape.size() != 1 || shape[0] % count != 0)
        refuse(where, fmt::format("`{}` is {}: it does not make {} equal rows", own, shape_text(shape), count));
      shape = {count, shape[0] / count};
    }
  for (const auto& [pattern, parts] : gguf.scale) {
    if (!names_tensor(pattern, name)) continue;
    const auto all = static_cast<uint64_t>(element_count(shape, own)), rows = static_cast<uint64_t>(shape[0]);
    uint64_t sum = 0;
    for (const GgufScale& part : parts) {
      const uint64_t count = part.rows.empty() ? rows : whole_value(part.rows, model, pattern);
      sum += count;
      one.scales.emplace_back(count * (all / rows), gguf_factor(part.by, model, pattern));
    }
    if (sum != rows)
      refuse(where, fmt::format("`{}` is {}: its rows are not the {} of 'scale'", own, shape_text(shape), sum));
  }
  one.negative_exp = any_names(gguf.negative_exp, name);
  one.plus_one = any_names(gguf.plus_one, name);
  one.tensor.type = type_of(gguf, one.tensor, type);
  one.tensor.bytes = gguf_bytes(one.tensor.type, element_count(shape, own));
}

// The tensors that are made of parts of each group of rows; none if no rule is about this one.
std::vector<Placed> place_groups(const Placed& whole, const std::string& own, const GgufModel& gguf,
                                 const Section& model, const std::string& where) {
  std::vector<Placed> out;
  for (const GgufGrouped& rule : gguf.grouped) {
    const std::string front = own.substr(0, own.rfind('.')), last = own.substr(front.size());
    const auto texts = texts_at_stars(rule.from, front);
    if (!texts) continue;
    std::vector<uint64_t> heads;
    uint64_t all = 0;
    for (const GgufValue& part : rule.parts) all += heads.emplace_back(whole_value(part, model, rule.from));
    const uint64_t groups = whole_value(rule.groups, model, rule.from),
                   rows = static_cast<uint64_t>(whole.made.shape[0]);
    if (rows % (groups * all) != 0)
      refuse(where, fmt::format("`{}` is {}: its rows do not make {} groups of {} heads", own,
                                shape_text(whole.made.shape), groups, all));
    const uint64_t head = rows / (groups * all);
    Placed one = whole;
    one.groups = groups;
    uint64_t first = 0, kept = 0;
    for (size_t k = 0; k < heads.size(); ++k) {
      one.pieces.push_back({first * head, heads[k] * head});
      first += heads[k], kept += heads[k];
      if (rule.to.size() == 1 && k + 1 < heads.size()) continue;
      one.tensor.name = with_texts(rule.to[rule.to.size() == 1 ? 0 : k], *texts) + last;
      one.tensor.shape[0] = static_cast<int64_t>(groups * kept * head);
      out.push_back(one);
      one.pieces.clear(), kept = 0;
    }
  }
  return out;
}

std::vector<Placed> place_tensors(const std::vector<TensorShape>& shapes, const GgufModel& gguf, const Section& model,
                                  GgufType type, const std::string& where) {
  const Arrangement arranged = arrange(shapes, gguf.arrangement, where, "provides.gguf");
  std::vector<Placed> out;
  for (size_t k = 0; k < arranged.files.size(); ++k) {
    Placed whole;
    whole.tensor.shape = arranged.files[k].shape, whole.made = arranged.from_model[k];
    // Here a tensor that is not joined with others still has the model's name.
    const std::string own = shapes[whole.made.parts[0].source].name;
    std::vector<Placed> placed = place_groups(whole, own, gguf, model, where);
    if (placed.empty()) {
      whole.tensor.name = arranged.files[k].name == own ? gguf_name(gguf, own) : arranged.files[k].name;
      if (whole.tensor.name.empty())
        throw Error(Exit::usage, fmt::format("{}: llama.cpp has no name for the tensor `{}`", where, own),
                    own.find(".lora_") != own.npos ? "give --merge to add the adapter to the weights of its maps"
                                                   : "a transform added it, or [provides.gguf] of the plugin lacks it");
      placed.push_back(std::move(whole));
    }
    for (Placed& one : placed) {
      finish_place(one, own, gguf, model, type, where);
      out.push_back(std::move(one));
    }
  }
  return out;
}

// The row of the model's tensor that becomes this row of the file's.
uint64_t source_row(const Placed& t, uint64_t row) {
  if (t.head) {
    const uint64_t inside = row % t.head;
    if (inside < t.turned) row += inside / 2 + inside % 2 * (t.turned / 2) - inside;
  }
  if (!t.groups) return row;
  const uint64_t size = static_cast<uint64_t>(t.made.shape[0]) / t.groups;
  for (const Piece& piece : t.pieces) {
    if (row < t.groups * piece.count) return row / piece.count * size + piece.first + row % piece.count;
    row -= t.groups * piece.count;
  }
  return row;
}

// Elements of the file's tensor as f32. `read` gives those of the model's tensors.
void read_placed(const Placed& t, uint64_t first, uint64_t count, const ReadSource& read, float* out) {
  if (!t.head && !t.groups) return gather(t.made, first, count, sizeof(float), read, out);
  uint64_t columns = 1;
  for (size_t d = 1; d < t.made.shape.size(); ++d) columns *= static_cast<uint64_t>(t.made.shape[d]);
  for (uint64_t done = 0, n = 0; done < count; done += n) {
    const uint64_t row = (first + done) / columns, column = (first + done) % columns;
    n = std::min(columns - column, count - done);
    gather(t.made, source_row(t, row) * columns + column, n, sizeof(float), read, out + done);
  }
}

// A file under another name until it is complete.
class NewFile {
 public:
  NewFile(const fs::path& name, uint64_t bytes)
      : name_(name), temporary_(name.string() + ".tmp"), file_(temporary_, bytes) {}
  ~NewFile() {
    std::error_code gone;
    if (!done_) fs::remove(temporary_, gone);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  void write(const void* data, uint64_t bytes) {
    sum_.add(data, bytes);
    file_.write(data, bytes);
    bytes_ += bytes;
  }
  void align() {
    constexpr char zeros[gguf_alignment] = {};
    write(zeros, (gguf_alignment - bytes_ % gguf_alignment) % gguf_alignment);
  }
  // Reads all of it back, and gives it its name.
  void finish() {
    file_.finish();
    const FileReader in(temporary_, Exit::disk);
    std::vector<char> memory(8u << 20);
    Checksum sum;
    for (uint64_t at = 0, n = 0; at < in.size(); at += n) {
      n = std::min<uint64_t>(memory.size(), in.size() - at);
      in.read(memory.data(), at, n);
      sum.add(memory.data(), n);
    }
    if (in.size() != bytes_ || sum.hex() != sum_.hex()) refuse(name_.string(), "does not read back as it was written");
    rename_durably(temporary_, name_);
    done_ = true;
  }

 private:
  fs::path name_, temporary_;
  FileWriter file_;
  Checksum sum_;
  uint64_t bytes_ = 0;
  bool done_ = false;
};

// Multiplies `count` elements of the tensor, from `first` on.
void scale_values(const Placed& t, uint64_t first, uint64_t count, float* values) {
  uint64_t begin = 0;
  for (const auto& [elements, factor] : t.scales) {
    const uint64_t end = begin + elements;
    for (uint64_t at = std::max(first, begin); at < std::min(first + count, end); ++at)
      values[at - first] = static_cast<float>(static_cast<double>(values[at - first]) * factor);
    begin = end;
  }
}

void write_tensor(const Placed& t, const ReadSource& read, NewFile& file) {
  const uint64_t all = element_count(t.tensor.shape, t.tensor.name), most = gather_tile(t.made);
  std::vector<float> values(std::min(all, most));
  std::vector<char> encoded(gguf_bytes(t.tensor.type, values.size()));
  for (uint64_t first = 0, n = 0; first < all; first += n) {
    n = std::min(most, all - first);
    read_placed(t, first, n, read, values.data());
    if (t.negative_exp)
      for (uint64_t i = 0; i < n; ++i) values[i] = static_cast<float>(-std::exp(static_cast<double>(values[i])));
    scale_values(t, first, n, values.data());
    if (t.plus_one)
      for (uint64_t i = 0; i < n; ++i) values[i] += 1.0f;
    if (t.tensor.type == GgufType::q8_0 && !std::all_of(values.begin(), values.begin() + static_cast<ptrdiff_t>(n),
                                                        [](float x) { return std::fabs(x) < 8e6f; }))
      refuse(t.tensor.name, "has a value that is not finite, or too large for q8_0", "take another --type");
    gguf_encode(t.tensor.type, values.data(), n, encoded.data());
    file.write(encoded.data(), gguf_bytes(t.tensor.type, n));
  }
  file.align();
}

uint32_t file_type(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::bf16:
      return 32;
  }
  return 0;
}

// All keys of a file, and the tensors that write_keys returns.
struct Keys {
  GgufHeader header;
  std::vector<RopeFactors> rope;
  std::vector<std::string> notes;
};

// `ids`: how many the vocabulary has.
Keys write_all_keys(const GgufModel& gguf, const Section& model, const GgufTokenizer& tokenizer, int64_t ids,
                    const std::string& name, GgufType type) {
  Keys out;
  out.header.text("general.architecture", gguf.architecture);
  out.header.text("general.type", "model");
  out.header.text("general.name", name);
  out.header.number("general.file_type", file_type(type));
  out.header.number("general.quantization_version", 2);
  out.header.number("general.alignment", gguf_alignment);
  out.rope = write_keys(gguf, model, out.header);
  out.header.number(gguf.architecture + ".vocab_size", static_cast<uint32_t>(model.integer("vocab_size")));
  out.notes = write_vocabulary(tokenizer, ids, out.header);
  for (std::string& note : gguf_notes(gguf, model)) out.notes.push_back(std::move(note));
  return out;
}

}  // namespace

ExportedGguf export_gguf(const fs::path& checkpoint, const Config& config, const PluginSchema& plugin,
                         const GgufTokenizer& tokenizer, const fs::path& to, GgufType type,
                         const std::vector<Adapter>& merged) {
  if (std::error_code none; fs::exists(to, none))
    throw Error(Exit::usage, to.string() + " already exists", "give --to a new file");
  const Section& model = config.section("model");
  require_gguf(pretrained_of(plugin).gguf.get(), model);
  const GgufModel gguf = gguf_for(*pretrained_of(plugin).gguf, model);
  std::vector<ManifestTensor> stored = read_manifest(checkpoint).tensors;
  std::erase_if(stored, [](const ManifestTensor& t) { return t.role != kParameterRole; });
  std::vector<ManifestTensor> exported = stored;
  std::erase_if(exported, [&](const ManifestTensor& t) { return !t.exported || is_of_path(merged, t.name); });
  const auto paths_of = [&] {
    return static_cast<size_t>(std::count_if(stored.begin(), stored.end(),
                                             [&](const ManifestTensor& t) { return is_of_path(merged, t.name); }));
  };
  std::vector<TensorShape> shapes;
  for (const ManifestTensor& t : exported) shapes.push_back({t.name, t.shape});
  const std::vector<Placed> placed = place_tensors(shapes, gguf, model, type, checkpoint.string());
  ExportedGguf out{0, placed.size(), stored.size() - exported.size() - paths_of(), 0, {}};

  const Keys keys = write_all_keys(gguf, model, tokenizer, model.integer("vocab_size"), to.stem().string(), type);
  out.notes = keys.notes;
  std::vector<GgufTensor> tensors;
  for (const Placed& t : placed) {
    tensors.push_back(t.tensor);
    out.wider += type == GgufType::q8_0 && t.tensor.type == GgufType::f16;
  }
  for (const RopeFactors& one : keys.rope)
    tensors.push_back({one.name, {static_cast<int64_t>(one.divisors.size())}, GgufType::f32, one.divisors.size() * 4});
  const std::string before = keys.header.finish(tensors);
  out.bytes = before.size();
  for (const GgufTensor& t : tensors) out.bytes += (t.bytes + gguf_alignment - 1) / gguf_alignment * gguf_alignment;

  const std::vector<TensorSpec> parameters(stored.begin(), stored.end());
  load_checkpoint(
      checkpoint, whole(parameters), [](auto&&...) {}, {}, kParameterRole);  // every byte is checked
  const OpenCheckpoint in(checkpoint);
  const Merged paths(in, merged);
  std::vector<char> kept;
  const ReadSource read = [&](size_t source, uint64_t first, uint64_t count, void* values) {
    const ManifestTensor& t = exported[source];
    kept.resize(std::max<uint64_t>(kept.size(), count * dtype_size(t.dtype)));
    in.read(t, first, count, kept.data());
    convert(t.dtype, kept.data(), ENG_F32, values, count);
    if (paths.has(t.name)) paths.add(t.name, first, std::span(static_cast<float*>(values), count));
  };
  if (to.has_parent_path()) make_directories(to.parent_path());
  NewFile file(to, out.bytes);
  file.write(before.data(), before.size());
  for (const Placed& t : placed) write_tensor(t, read, file);
  for (const RopeFactors& one : keys.rope) {
    file.write(one.divisors.data(), one.divisors.size() * sizeof(float));
    file.align();
  }
  file.finish();
  return out;
}

std::string check_gguf(const std::vector<TensorShape>& parameters, const Config& config, const PluginSchema& plugin,
                       const GgufTokenizer& tokenizer) {
  const Section& model = config.section("model");
  require_gguf(pretrained_of(plugin).gguf.get(), model);
  const GgufModel gguf = gguf_for(*pretrained_of(plugin).gguf, model);
  const size_t tensors = place_tensors(parameters, gguf, model, GgufType::f32, "[model]").size();
  const int64_t ids = std::min(model.integer("vocab_size"), most_checked_ids);
  const Keys keys = write_all_keys(gguf, model, tokenizer, ids, "model", GgufType::f32);
  return fmt::format("{}, {} tensors{}{}", gguf.architecture, tensors, keys.notes.empty() ? "" : "; ",
                     fmt::join(keys.notes, "; "));
}

}  // namespace eng
