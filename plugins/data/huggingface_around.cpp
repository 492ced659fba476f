// SPDX-License-Identifier: Apache-2.0
#include "huggingface_around.hpp"

#include <algorithm>

namespace text_data {
namespace {

class AroundReader {
 public:
  AroundReader(const JsonReader& reader, const std::function<int32_t(const std::string&)>& id_of, std::size_t ids)
      : reader_(reader), id_of_(id_of), ids_(ids) {}

  // Before and after what an earlier processor puts there.
  void read(const json& value, const std::string& place, Around& out) const {
    if (value.is_null()) return;
    const std::string type = reader_.type_of(value, place);
    if (type == "ByteLevel") return;  // affects offsets only
    if (type == "Sequence") {
      const json& list = reader_.at(value, "processors", place + ".processors", json::value_t::array);
      for (std::size_t i = 0; i < list.size(); ++i)
        read(list[i], place + ".processors[" + std::to_string(i) + "]", out);
    } else if (type == "TemplateProcessing") {
      single(value, place, out);
    } else if (type == "RobertaProcessing" || type == "BertProcessing") {
      out.prefix.insert(out.prefix.begin(), pair_id(value, "cls", place));
      out.suffix.push_back(pair_id(value, "sep", place));
    } else {
      reader_.unsupported(place + ".type", type,
                          "use TemplateProcessing, RobertaProcessing, BertProcessing or ByteLevel");
    }
  }

 private:
  int32_t pair_id(const json& value, const char* key, const std::string& place) const {
    const json& pair = reader_.at(value, key, place + "." + key, json::value_t::array);
    if (pair.size() != 2) reader_.refuse(place + "." + key, "is not [token, id]");
    return known_id(reader_.id_of(pair[1], place + "." + key + "[1]"), place + "." + key);
  }
  int32_t known_id(int32_t id, const std::string& place) const {
    if (static_cast<std::size_t>(id) >= ids_) reader_.refuse(place, "is an id that no token has");
    return id;
  }

  void single(const json& value, const std::string& place, Around& out) const {
    const json& list = reader_.at(value, "single", place + ".single", json::value_t::array);
    const auto given = value.find("special_tokens");
    const json none = json::object();
    const json& tokens = given == value.end() ? none : *given;
    std::vector<int32_t> before, after;
    bool text = false;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string here = place + ".single[" + std::to_string(i) + "]";
      if (!list[i].is_object()) reader_.refuse(here, "is not an object");
      if (list[i].contains("Sequence")) {
        if (text) reader_.refuse(here, "is a second place for the text");
        text = true;
        continue;
      }
      const json& token = reader_.at(list[i], "SpecialToken", here + ".SpecialToken", json::value_t::object);
      const std::string name = reader_.text(token, "id", here + ".SpecialToken");
      std::vector<int32_t>& ids = text ? after : before;
      const auto known = tokens.is_object() ? tokens.find(name) : tokens.end();
      if (known != tokens.end() && known->is_object()) {
        const std::string there = place + ".special_tokens[\"" + printable(name, 40) + "\"].ids";
        for (const json& id : reader_.at(*known, "ids", there, json::value_t::array))
          ids.push_back(known_id(reader_.id_of(id, there), there));
      } else if (const int32_t found = id_of_(name); found >= 0) {
        ids.push_back(found);
      } else {
        reader_.refuse(here,
                       "names a token that is neither in special_tokens nor in the vocabulary: " + printable(name, 40));
      }
    }
    if (!text) reader_.refuse(place + ".single", "has no place for the text");
    out.prefix.insert(out.prefix.begin(), before.begin(), before.end());
    out.suffix.insert(out.suffix.end(), after.begin(), after.end());
  }

  const JsonReader& reader_;
  const std::function<int32_t(const std::string&)>& id_of_;
  std::size_t ids_;
};

}  // namespace

Around read_post_processor(const JsonReader& reader, const json& value, const std::string& place,
                           const std::function<int32_t(const std::string&)>& id_of, std::size_t ids) {
  Around out;
  AroundReader(reader, id_of, ids).read(value, place, out);
  return out;
}

}  // namespace text_data
