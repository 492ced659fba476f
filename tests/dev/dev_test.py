#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dev_test.py: tools/dev on machines that lack packages, as root, as a user with and without sudo, without a terminal; and
in a copy of a clone. The machine is a folder of scripts that stand for dpkg-query, apt-get, sudo, id and meson."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ("bash", "cat", "dirname", "env", "sed", "grep", "python3", "nproc", "ls", "find", "rm", "mkdir", "git", "xargs", "sort",
         "mktemp", "mv")


class Machine:
    """A clone with tools/dev, and a PATH with nothing but what is given to it."""

    def __init__(self, folder, user, sudo=False, installed=""):
        self.tree, self.bin, self.log = folder / "clone", folder / "bin", folder / "log"
        self.bin.mkdir(parents=True)
        (self.tree / "tools").mkdir(parents=True)
        for name in ("dev", "stages", "cuda-toolkit"):
            shutil.copy(ROOT / "tools" / name, self.tree / "tools" / name)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.command("id", f"echo {user}")
        self.command("dpkg-query", f'for last; do :; done; case " {installed} " in *" $last "*) echo install ok installed;; esac')
        self.command("apt-get", f'echo "apt-get $*" >> {self.log}; exit ${{APT_FAILS:-0}}')
        self.command("meson", f'echo "meson $*" >> {self.log}; exit 1')
        if sudo:
            self.command("sudo", f'echo "sudo $1" >> {self.log}; [ "$1" != -n ] || shift; exec "$@"')

    def command(self, name, text):
        path = self.bin / name
        path.write_text(f"#!{shutil.which('bash')}\n{text}\n")
        path.chmod(0o755)

    def dev(self, *words, **environment):
        """Exit code, what it said, and what it ran; without a terminal."""
        self.log.write_text("")
        done = subprocess.run([self.tree / "tools" / "dev", *words], cwd=self.tree, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              env={"PATH": str(self.bin), "HOME": str(self.tree), **environment})
        return done.returncode, done.stdout, self.log.read_text()


def case(name, user, **how):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dev-test-"))
    print(name)
    return folder, Machine(folder, user, **how)


def expect(condition, *about):
    assert condition, about


def main():
    folders = []
    folder, machine = case("root without a terminal: the line is printed and run", 0)
    folders.append(folder)
    code, said, ran = machine.dev("run", "x.toml")
    expect("  apt-get install -y --no-install-recommends g++ meson" in said, said)
    expect("apt-get update" in ran and "apt-get install -y --no-install-recommends g++ meson" in ran, ran)
    expect("meson setup" in ran and code != 0, ran)  # it went on to build

    code, said, ran = machine.dev("run", "x.toml", APT_FAILS="100")
    expect(code == 3 and "could not install the packages. As root, run:\n  apt-get install" in said, code, said)
    expect("meson setup" not in ran, ran)

    folder, machine = case("a user without sudo: the error has the line for root", 1000)
    folders.append(folder)
    code, said, ran = machine.dev("build")
    expect(code == 3 and "only root can install them. As root, run:\n  apt-get install -y" in said, code, said)
    expect(ran == "", ran)

    folder, machine = case("a user with sudo, without a terminal: sudo may not ask for a password", 1000, sudo=True)
    folders.append(folder)
    code, said, ran = machine.dev("build")
    expect("  sudo -n apt-get install" in said and "sudo -n" in ran and "apt-get install" in ran, said, ran)

    packages = (ROOT / "tools" / "dev").read_text().split("build_packages=(")[1].split(")")[0].split()
    folder, machine = case("a build folder of another tree is refused", 0, installed=" ".join(packages))
    folders.append(folder)
    about = machine.tree / "build" / "meson-info"
    about.mkdir(parents=True)
    (machine.tree / "build" / "build.ninja").write_text("")
    (about / "meson-info.json").write_text(json.dumps({"directories": {"source": "/elsewhere/clone"}}))
    code, said, ran = machine.dev("run", "x.toml")
    expect(code == 3 and "builds the sources in /elsewhere/clone, not those in" in said, code, said)
    expect(f"rm -r {machine.tree}/build" in said, said)
    (about / "meson-info.json").write_text(json.dumps({"directories": {"source": str(machine.tree)}}))
    code, said, ran = machine.dev("run", "x.toml")
    expect("builds the sources in" not in said, said)
    for folder in folders:
        shutil.rmtree(folder)
    print("passed")


if __name__ == "__main__":
    main()
