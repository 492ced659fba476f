// SPDX-License-Identifier: Apache-2.0
// The users who may own and write a plugin file and the folders that it lies in.
#include "session/plugins/held_file.hpp"

#include <endian.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "core/base/error.hpp"
#include "tests/registry/fixture.h"
#include "tests/registry/folder.hpp"

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

void mode(const fs::path& path, unsigned bits) {
  REQUIRE(chmod(path.c_str(), bits) == 0);
}

// True if this test can act as more than one user; says it if not.
bool is_root() {
  if (geteuid() == 0) return true;
  WARN("SKIPPED: only root can give files to other users");
  return false;
}

void own(const fs::path& path, uid_t user, gid_t group) {
  REQUIRE(lchown(path.c_str(), user, group) == 0);
}

// top/middle/folder/fixture_good.eng.so
struct Deep : Folder {
  Deep() : middle(path / "middle"), folder(middle / "folder") {
    fs::create_directories(folder);
    for (const fs::path& one : {path, middle, folder}) mode(one, 0755);
    file = folder / put("good", "middle/folder/plugin.eng.so").filename();
  }
  fs::path middle, folder, file;
};

size_t open_files() {
  return static_cast<size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
}

}  // namespace

TEST_CASE("every folder above a plugin must be closed to others, and the refusal says which is not") {
  const Deep deep;
  CHECK(eng::hold(deep.file).refused == "");
  for (const fs::path& open : {deep.path, deep.middle, deep.folder}) {
    const std::string owner = std::to_string(geteuid());
    mode(open, 0757);
    CHECK_THAT(eng::hold(deep.file).refused,
               StartsWith("folder " + open.string() + " has mode 0757 and owner " + owner) &&
                   EndsWith(": every user can exchange what is in it (chmod go-w " + open.string() + ")"));
    CHECK(at(*eng::find_plugins({{deep.folder}, false}), deep.file).refused == eng::hold(deep.file).refused);
    mode(open, 0755);
  }
  // A sticky folder keeps others from exchanging what is not theirs, but not from adding a library beside the plugin.
  for (const fs::path& open : {deep.path, deep.middle}) {
    mode(open, 01777);
    CHECK(eng::hold(deep.file).refused == "");
    mode(open, 0755);
  }
  mode(deep.folder, 01777);
  CHECK_THAT(eng::hold(deep.file).refused, StartsWith("its folder " + deep.folder.string() + " has mode 1777") &&
                                               Contains("every user can put libraries beside it"));
  mode(deep.folder, 0755);
  mode(deep.file, 0646);
  CHECK_THAT(eng::hold(deep.file).refused,
             StartsWith("the file has mode 0646 and owner") &&
                 EndsWith(": every user can write it (chmod go-w " + deep.file.string() + ")"));
}

TEST_CASE("every owner above a plugin must be root or this user") {
  if (!is_root()) return;
  const Deep deep;
  for (const fs::path& theirs : {deep.path, deep.middle, deep.folder}) {
    own(theirs, 4711, 0);
    CHECK(eng::hold(deep.file).refused ==
          "folder " + theirs.string() +
              " has mode 0755 and owner 4711, who is neither root nor you: keep plugins "
              "where only root and you can write, or chown root " +
              theirs.string());
    own(theirs, 65534, 0);
    CHECK_THAT(eng::hold(deep.file).refused, Contains("a container shows this owner for users that it does not map"));
    own(theirs, 0, 0);
  }
  // The sticky bit means nothing to the folder's own owner.
  own(deep.middle, 4711, 0);
  mode(deep.middle, 01777);
  CHECK_THAT(eng::hold(deep.file).refused, Contains("has mode 1777 and owner 4711"));
  own(deep.middle, 0, 0);
  // In it, what is next must be root's or this user's.
  own(deep.folder, 4711, 0);
  CHECK_THAT(eng::hold(deep.file).refused,
             StartsWith("folder " + deep.folder.string() + " has mode 0755 and owner 4711"));
  own(deep.folder, 0, 0);
  CHECK(eng::hold(deep.file).refused == "");
  own(deep.file, 4711, 0);
  CHECK_THAT(eng::hold(deep.file).refused, StartsWith("the file has mode 0644 and owner 4711, who is neither"));
}

TEST_CASE("a group may write only if the owner is alone in it") {
  if (!is_root()) return;
  const Deep deep;
  own(deep.middle, 0, 4711);
  mode(deep.middle, 0775);
  CHECK_THAT(eng::hold(deep.file).refused, Contains("has mode 0775 and owner 0 (root): group 4711 can exchange"));
  own(deep.middle, 0, 0);
  CHECK(eng::hold(deep.file).refused == "");  // the group root of root
  // With an access list, the bits of the group are those of every user that it names.
  struct [[gnu::packed]] {
    uint32_t version = htole32(2);
    struct [[gnu::packed]] {
      uint16_t tag, bits;
      uint32_t id;
    } entries[5] = {{htole16(1), htole16(7), ~0u},
                    {htole16(2), htole16(7), htole32(4711)},  // user 4711
                    {htole16(4), htole16(7), ~0u},
                    {htole16(16), htole16(7), ~0u},  // mask
                    {htole16(32), htole16(5), ~0u}};
  } list;
  if (setxattr(deep.middle.c_str(), "system.posix_acl_access", &list, sizeof(list), 0) != 0) {
    REQUIRE(errno == ENOTSUP);
    WARN("SKIPPED: no access lists on the file system of " + deep.path.string());
    return;
  }
  CHECK_THAT(
      eng::hold(deep.file).refused,
      Contains("has mode 0775 and owner 0 (root): who is in its access list (getfacl) can exchange what is in it"));
}

TEST_CASE("links are followed one at a time, through folders that are closed to others") {
  const Deep deep, other;
  const fs::path link = other.folder / "link.eng.so", to_folder = other.middle / "linked";
  fs::create_symlink(deep.file, link);
  fs::create_directory_symlink("../../" + deep.path.filename().string() + "/./middle/folder", to_folder);
  for (const fs::path& way : {link, to_folder / deep.file.filename()}) {
    const eng::Held held = eng::hold(way);
    CHECK(held.refused == "");
    REQUIRE(held.file);
    CHECK(held.file->path() == deep.file.string());
    // The folders through which the link leads, and the one in which it lies.
    for (const fs::path& open : {deep.middle, deep.folder, other.middle}) {
      mode(open, 0777);
      CHECK_THAT(eng::hold(way).refused, StartsWith("folder " + open.string() + " has mode 0777"));
      mode(open, 0755);
    }
  }
  if (is_root()) {  // in a sticky folder, a link is as good as its owner
    mode(other.middle, 01777);
    CHECK(eng::hold(to_folder / deep.file.filename()).refused == "");
    own(to_folder, 4711, 0);
    CHECK_THAT(eng::hold(to_folder / deep.file.filename()).refused,
               StartsWith("link " + to_folder.string() + " has owner 4711, who is neither root nor you"));
  }
  fs::create_symlink("circle", other.path / "circle");
  CHECK(eng::hold(other.path / "circle").refused == "cannot be opened: Too many levels of symbolic links");
  CHECK(eng::hold(deep.file / "below").refused == "cannot be opened: Not a directory");
  CHECK(eng::hold(deep.folder / "none").refused == "cannot be opened: No such file or directory");
  CHECK(eng::hold(deep.folder).refused == "not a regular file");
  CHECK(eng::hold("/").refused == "not a regular file");
  CHECK(eng::hold("/../dev/null").refused == "not a regular file");
}

TEST_CASE("what is hashed and loaded is the file that was read") {
  const Deep deep, another;
  const std::string hash = sha256_of(deep.file);
  const auto registry = eng::find_plugins({{deep.folder}, false});
  const eng::PluginFile& file = *at(*registry, deep.file).file;
  CHECK(file.doubt() == "");
  // Replaced: it is still the file that was read that is hashed, and the one at the path is not loaded.
  fs::rename(deep.file, deep.folder / "before");
  fs::copy_file(fs::path(FIXTURES) / "fixture_other_id.eng.so", deep.file);
  mode(deep.file, 0644);
  CHECK(file.sha256() == hash);
  CHECK(sha256_of(deep.file) != hash);
  CHECK(file.doubt() == deep.file.string() + " was replaced or changed after it was checked: start the command again");
  CHECK_THROWS_WITH(registry->table<counter>(COUNTER_KIND, "counter"), Contains("was replaced or changed after"));
  CHECK(registry->loaded().empty());
  // Changed in place.
  fs::rename(deep.folder / "before", deep.file);
  CHECK(file.doubt() == "");
  std::ofstream(deep.file, std::ios::app) << 'x';
  CHECK_THAT(file.doubt(), Contains("was replaced or changed"));
  fs::resize_file(deep.file, fs::file_size(deep.file) - 1);
  CHECK_THAT(file.doubt(), Contains("was replaced or changed"));  // by its time
  // Opened to others after the search.
  const auto later = eng::find_plugins({{another.folder}, false});
  mode(another.path, 0777);
  CHECK_THROWS_WITH(later->table<counter>(COUNTER_KIND, "counter"),
                    Contains("folder " + another.path.string() + " has mode 0777"));
  mode(another.path, 0755);
  CHECK(later->table<counter>(COUNTER_KIND, "counter").starts() == 1);  // and it can be mended
  // A new file at the path of a loaded one is not the one that runs.
  fs::remove(another.file);
  another.put("other_id", "middle/folder/plugin.eng.so");
  CHECK_THROWS_WITH(eng::find_plugins({{another.folder}, false})->table<counter>(COUNTER_KIND, "counter"),
                    Contains("was replaced or changed"));
  CHECK(later->table<counter>(COUNTER_KIND, "counter").starts() == 1);
}

TEST_CASE("held files are closed with their registry, except for loaded ones, and no child gets them") {
  const Folder folder;
  for (const char* name : {"a.eng.so", "b.eng.so", "c.eng.so"}) folder.put("good", name);
  const size_t before = open_files();
  {
    const auto registry = folder.scan();
    CHECK(open_files() == before + 1);  // the others are shadowed
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code none;
      if (fs::read_symlink(entry, none) == folder.path / "a.eng.so")
        CHECK((fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC));
    }
  }
  CHECK(open_files() == before);
  folder.scan()->table<counter>(COUNTER_KIND, "counter");
  CHECK(open_files() == before + 1);
}
