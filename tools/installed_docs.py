# SPDX-License-Identifier: Apache-2.0
"""Documents in an installed tree must name only files that are installed with them. Of check-docs and check-install.

installed_docs.py SHARE: prints what is wrong in share/engine of an installation; the last line is the sum."""
import pathlib
import re
import sys
import tempfile

TOP = "abi|benchmarks|core|docs|examples|plugins|session|tests|tools"  # folders of this tree
PATH = re.compile(rf"(?<![\w./~$*-])(?:{TOP})/[\w./*-]*[\w/*]")
LINK = re.compile(r"\]\(\s*([^)\s]+)\s*\)")
# Words by which a sentence, the paragraph before a code block, or the introduction of a page says that what it names is
# not in a package.
ELSEWHERE = re.compile(r"repository|source\s+tree|仓库|源码")
PAGE_ELSEWHERE = re.compile(r"source\s+tree|源码树")
# Pages of the whole source tree, as their readers know: only their links must lead somewhere.
OF_THE_TREE = ("README.md", "README.zh-CN.md", "CONTRIBUTING.md", "SECURITY.md")


def paragraphs(text):
    """(number of the first line, text, whether it is a code block). A fence within a list counts, too."""
    number, begin, lines, fence = 0, 1, [], ""
    for number, line in enumerate(text.split("\n"), 1):
        mark = re.match(r" *(```+|~~~+)", line)
        if fence:
            lines.append(line)
            if line.strip() == fence:
                yield begin, "\n".join(lines), True
                lines, fence, begin = [], "", number + 1
        elif mark or not line.strip():
            if lines:
                yield begin, "\n".join(lines), False
            lines, begin = ([line], number) if mark else ([], number + 1)
            fence = mark[1] if mark else ""
        else:
            lines.append(line)
    if lines:
        yield begin, "\n".join(lines), bool(fence)


def sentences(text):
    """(where it begins, text) of each sentence or row of a table."""
    begin = 0
    for end in [found.end() for found in re.finditer(r"[.?!]\)?\s+|[。？！]|\n(?=\|)", text)] + [len(text)]:
        yield begin, text[begin:end]
        begin = end


def is_there(share, page, path):
    """A path or pattern, from the top or from its page."""
    for folder in (share, page.parent):
        if any(folder.glob(path.rstrip("/"))) if "*" in path else (folder / path).exists():
            return True
    return False


def wrong_in(share, page):
    """`LINE: text` of each link or path that leads nowhere."""
    text = page.read_text()
    of_the_tree = page.parent == share and page.name in OF_THE_TREE
    introduction = text.partition("\n## ")[0]
    last = ""
    for begin, part, code in paragraphs(text):
        if not code:
            last = part
            for found in LINK.finditer(re.sub(r"`[^`]*`(?!\])", lambda m: " " * len(m[0]), part)):
                link = found[1].partition("#")[0]
                if link and "://" not in link and not link.startswith("mailto:") and not (page.parent / link).exists():
                    yield f"{begin + part.count(chr(10), 0, found.start())}: no file for the link {link}"
        if of_the_tree or PAGE_ELSEWHERE.search(introduction) or code and ELSEWHERE.search(last):
            continue
        # Links are looked at above.
        for sentence in [(0, part)] if code else sentences(re.sub(r"\]\([^)]*\)", lambda m: "]" + " " * (len(m[0]) - 1), part)):
            for found in PATH.finditer(sentence[1]):
                if (code or not ELSEWHERE.search(sentence[1])) and not is_there(share, page, found[0]):
                    yield f"{begin + part.count(chr(10), 0, sentence[0] + found.start())}: {found[0]} is not installed; " \
                          "install it in meson.build, or say in this sentence that it is of the repository"


def wrong(share):
    share = pathlib.Path(share)
    pages = sorted(share.rglob("*.md"))
    if not pages:
        yield f"{share}: no documents"
    for page in pages:
        for line in wrong_in(share, page):
            yield f"{page.relative_to(share)}:{line}"


# A page, and whether it names what is not there.
FAULTS = [
    ("[a](there.md) and [b](docs/page.md#part), `tools/there`, `tests/*.c`", False),
    ("[a](gone.md)", True), ("[the `a`](gone.md)", True), ("`[a](gone.md)`", False), ("[a](https://gone.md)", False),
    ("`tools/gone`", True), ("`tools/gone` of the repository", False), ("tools/gone is text.", True),
    ("Of this repository is `tools/gone`.\nSo is `tests/gone`.", True), ("| repository |\n| `tools/gone` |", True),
    ("```\ntools/gone a\n```", True), ("## A\n\nIn the source tree:\n\n```\ntools/gone a\n```\n\nThen:\n\n```\ntools/gone\n```", True),
    ("In the source tree:\n\n```\ntools/gone a\n```", False), ("`tests/*.rs`", True), ("`build/tools/gone` `a/tools/gone`", False),
    ("Of this repository.\n\n`tools/gone`", True), ("Of the source tree.\n\n## A\n\n`tools/gone`", False), ("# A\n\n## B\n\nOf the source tree.\n\n`tools/gone`", True),
]


def planted():
    """For each planted fault: its name, and None or that it was not seen."""
    with tempfile.TemporaryDirectory() as folder:
        share = pathlib.Path(folder)
        for name in ("there.md", "docs/page.md", "tools/there", "tests/a.c"):
            (share / name).parent.mkdir(exist_ok=True)
            (share / name).write_text("")
        for text, bad in FAULTS:
            (share / "page.md").write_text("# A page\n\n" + text + "\n")
            found = list(wrong(share))
            yield text.replace("\n", " "), None if bool(found) == bad else f"was {'not ' * bad}seen: {found}"


def main():
    passed = failed = 0
    for name, problem in planted():
        passed, failed = passed + (problem is None), failed + (problem is not None)
        if problem:
            print(f"planted: {name}: {problem}")
    found = list(wrong(sys.argv[1]))
    print("\n".join(found) if found else "every file that the installed documents name is installed")
    print(f"{passed + (not found)} passed, {failed + len(found)} failed, 0 skipped")
    return int(bool(failed or found))


if __name__ == "__main__":
    sys.exit(main())
