# SPDX-License-Identifier: Apache-2.0
"""The needs of programs and libraries from the system they run on, read from the files. For tools/package and
make-wheel."""
import pathlib
import re
import shutil
import subprocess

# Libraries of every Debian system, or of the C library itself: never packed.
SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+))\.so")
# Libraries of some plugins only, never packed: the rest works without them, and the plugin that needs one says which is
# missing.
OPTIONAL = {"libmpi.so": "openmpi-bin", "libsentencepiece.so": "libsentencepiece0", "libcairo.so": "libcairo2",
            "libfreetype.so": "libfreetype6",
            "libarrow": None, "libparquet": None,
            "libcuda": None, "libcudart": None, "libcublas": None, "libcublasLt": None, "libcudnn": None, "libnccl": None}
# The version of gcc whose libstdc++ was the first with these symbols. Debian's package libstdc++6 has gcc's version.
GLIBCXX = {21: "5", 22: "6", 23: "7", 24: "7.2", 25: "8", 26: "9", 27: "9.2", 28: "9.3", 29: "11", 30: "12", 31: "13",
           32: "13.2", 33: "14", 34: "15"}
CXXABI = {"1.3.8": "4.9", "1.3.9": "5", "1.3.10": "6", "1.3.11": "7", "1.3.12": "9", "1.3.13": "11", "1.3.14": "13",
          "1.3.15": "14", "1.3.16": "15"}
# The oldest glibc of a distribution that has such a libstdc++: https://github.com/pypa/auditwheel, manylinux-policy.json.
GLIBC_OF = {"11": "2.34", "12": "2.35", "13": "2.38", "13.2": "2.38", "14": "2.39", "15": "2.41"}
# Versions of glibc that are not numbers.
GLIBC_NAMES = {"ABI_DT_RELR": "2.36"}


# The folders of NVIDIA's wheels with the libraries that a plugin for GPUs needs, and the wheels, in the versions of
# tools/cuda-toolkit.
NVIDIA_FOLDERS = ("nvidia/cu13/lib", "nvidia/cudnn/lib", "nvidia/nccl/lib")
NVIDIA_WHEELS = ("nvidia-cuda-runtime", "nvidia-cuda-nvrtc", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13")


def run(*command, **how):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, **how).stdout


def order(version):
    """To compare versions."""
    return [int(part) for part in version.split(".")]


def newest(versions):
    return max(versions, key=order)


def optional(soname):
    """The key of OPTIONAL, or None."""
    return next((name for name in OPTIONAL if soname.startswith(name)), None)


def programs(tree):
    """Programs and libraries below a folder."""
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            yield path


def needed(path):
    return re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-dW", path))


def run_path(path):
    found = re.search(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", run("readelf", "-dW", path))
    return found[1] if found else ""


def cuda_plugins(tree):
    """The plugins below a folder that are linked with CUDA."""
    return [path for path in sorted(tree.rglob("*.eng.so")) if any(name.startswith("libcudart.so") for name in needed(path))]


def cuda_run_path(top):
    """The run path of such a plugin where NVIDIA's wheels are installed in the folder `top`."""
    return ":".join(["$ORIGIN/../../libs", *(f"{top}/{folder}" for folder in NVIDIA_FOLDERS)])


def cuda_wheels():
    """The requirements of such a plugin: ["nvidia-cuda-runtime==13.0.96", ...]"""
    text = (pathlib.Path(__file__).resolve().parent / "cuda-toolkit").read_text()
    return [re.search(rf"^{name}==\S+", text, re.M)[0] for name in NVIDIA_WHEELS]


def set_run_path(path, to):
    """Gives a program another run path, in the place of the one that it has, which must not be shorter."""
    data, old = path.read_bytes(), run_path(path).encode()
    if not old or data.count(old + b"\0") != 1 or len(to) > len(old):
        raise SystemExit(f"error: {path.name} has no room for the run path {to}")
    path.write_bytes(data.replace(old + b"\0", to.encode().ljust(len(old) + 1, b"\0")))


def add_libraries(tree, libs):
    """Copies into `libs` what the tree needs, directly or through others, and has not. {soname: the file it was}"""
    table = dict(re.findall(r"^\s*(\S+) \(libc6,[^)]*\) => (\S+)$", run("/sbin/ldconfig", "-p"), re.M)[::-1])
    files = list(programs(tree))
    have, added, left = {path.name for path in files}, {}, [name for path in files for name in needed(path)]
    while left:
        name = left.pop()
        if name in have or name in added or SYSTEM.match(name) or optional(name):
            continue
        if name not in table:
            raise SystemExit(f"error: {name} is needed, and not on this machine")
        libs.mkdir(parents=True, exist_ok=True)
        added[name] = pathlib.Path(table[name])
        shutil.copyfile(added[name].resolve(), libs / name)
        left += needed(libs / name)
    return added


def symbol_versions(path):
    """(library, version) of all symbols that a file needs: ("libc.so.6", "GLIBC_2.34")"""
    library = None
    for line in run("readelf", "-VW", path).splitlines():
        if found := re.search(r"Version: \d+ +File: (\S+) ", line):
            library = found[1]
        elif found := re.match(r" +0x[0-9a-f]+: +Name: (\S+) ", line):
            yield library, found[1]


class Needs:
    """The needs of all programs and libraries below a folder: the least versions of the system's libraries with which
    they load."""

    def __init__(self, tree):
        self.glibc, self.gcc, self.libgcc = ("2.2.5", "", None), ("4.9", "", None), ("3.0", "", None)  # version, symbol, file
        self.optional = {}  # soname: the files that need it
        for path in programs(tree):
            where = str(path.relative_to(tree))
            for name in filter(optional, needed(path)):
                self.optional.setdefault(name, []).append(where)
            for library, symbol in symbol_versions(path):
                self._take(library, symbol, where)

    def _take(self, library, symbol, where):
        name, _, version = symbol.partition("_")
        if name == "GLIBC":
            version = GLIBC_NAMES.get(version, version)
            attribute = "glibc"
        elif name == "GLIBCXX":
            minor = (order(version) + [0])[2]
            attribute, version = "gcc", "4.9" if minor < 21 else GLIBCXX.get(minor)
        elif name == "CXXABI":
            attribute, version = "gcc", CXXABI.get(version, "4.9" if version in ("1.3", "FLOAT128", "TM_1") or
                                                    re.fullmatch(r"1\.3\.[1-7]", version) else None)
        elif library.startswith("libgcc_s.so"):
            attribute = "libgcc"
        else:
            return  # of a library that is packed, or optional
        if not version or not re.fullmatch(r"[\d.]+", version):
            raise SystemExit(f"error: {where} needs {symbol}, which tools/packing.py does not know: add it to its tables")
        if order(version) > order(getattr(self, attribute)[0]):
            setattr(self, attribute, (version, symbol, where))

    def depends(self):
        """For a Debian package."""
        return [f"libc6 (>= {self.glibc[0]})", f"libgcc-s1 (>= {self.libgcc[0]})", f"libstdc++6 (>= {self.gcc[0]})"]

    def recommends(self):
        return sorted({OPTIONAL[optional(name)] for name in self.optional} - {None})

    def wheel_tag(self, machine):
        """manylinux_2_N of PEP 600: every system with this glibc has a libstdc++ that is new enough, too."""
        of_gcc = GLIBC_OF.get(self.gcc[0], "2.34" if order(self.gcc[0]) < [11] else None)
        if not of_gcc:
            raise SystemExit(f"error: no glibc is known for the libstdc++ of gcc {self.gcc[0]}: add it to GLIBC_OF in tools/packing.py")
        return f"manylinux_{newest([self.glibc[0], of_gcc]).replace('.', '_')}_{machine}"

    def text(self, machine):
        def row(name, version, of):
            return f"  {name:<10} {version:<8} " + (f"for {of[1]}, which {of[2]} uses\n" if of[1] else "\n")
        lines = f"Linux on {machine} with at least:\n"
        lines += row("glibc", self.glibc[0], self.glibc) + row("libstdc++", self.gcc[0], self.gcc)
        lines += row("libgcc_s", self.libgcc[0], self.libgcc)
        lines += "The version of libstdc++ is that of the gcc it comes with. Debian 12, Ubuntu 22.04 and later have all of these.\n" \
            if order(self.glibc[0]) <= [2, 35] and order(self.gcc[0]) <= [12] else "The version of libstdc++ is that of the gcc it comes with.\n"
        lines += "/proc must be mounted. Without it, set LD_ORIGIN_PATH to the folder of bin/engine; the .deb needs neither.\n"
        if self.optional:
            lines += "Only for some plugins:\n"
        for name, files in sorted(self.optional.items()):
            package = OPTIONAL[optional(name)]
            lines += f"  {name:<22} {', '.join(pathlib.PurePath(f).name for f in files)}" + (f" ({package} of Debian)\n" if package else "\n")
        return lines
