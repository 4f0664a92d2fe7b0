#!/usr/bin/env python3
"""Fails if documentation names something that does not exist: a file, a heading that is the target of a link, a class,
function or constant of the sources, an option of a command, a benchmark, a file in the tree of docs/map.md; or if a
line is too long. Files named in comments must exist, too.

usage: check_docs.py ROOT
"""
import os, pathlib, re, sys

LONGEST_LINE = 160
SOURCES = (".h", ".cc", ".cu", ".py", ".sh", ".sbatch", ".cmake", "CMakeLists.txt", ".yaml")

root = pathlib.Path(sys.argv[1]).resolve()
files = []
for folder, below, inside in os.walk(root):
    # Files that a build or a run writes are ignored.
    below[:] = [b for b in below if not re.match(r"\.git$|build|out$|__pycache__", b)]
    files += [str((pathlib.Path(folder) / f).relative_to(root)) for f in inside]
texts = {f: (root / f).read_text() for f in files if f.endswith(SOURCES + (".md",)) and f != "tools/check_docs.py"}
pages = {f: text for f, text in texts.items() if f.endswith(".md")}
code = "\n".join(text for f, text in texts.items() if f not in pages)
identifiers = set(re.findall(r"\w+", code))
# Tests misspell options on purpose.
options = set(re.findall(r'(?:"|--)([a-z][\w.-]*)', "".join(t for f, t in texts.items() if "_test." not in f and f not in pages)))
options |= {"allow-run-as-root", "bind-to", "mca", "oversubscribe"}  # mpirun's
benchmarks = {pathlib.Path(f).stem for f in files if f.startswith("bench/")}

faults, checked = [], 0


def check(holds, file, at, fault):
    global checked
    checked += 1
    if not holds:
        faults.append(f"{file}:{texts[file].count(chr(10), 0, at) + 1}: {fault}")


def there(path, folder):
    """Relative to the root, to src/ or src/backend/, or to the folder of the page; a bare name may be anywhere. A star
    and <name> match a part of a name."""
    pattern = re.sub(r"\\\*|<\w+>", "[^/]+", re.escape(path.rstrip("/")))
    starts = "|".join(re.escape(s) for s in ("", "src/", "src/backend/", "tests/", folder + "/"))
    if "/" not in path:
        starts = ".*/|"
    whole = re.compile(f"(?:{starts}){pattern}(?:/.*)?")
    return any(whole.fullmatch(f) for f in files)


def headings(page):
    """The headings of a page as GitHub's anchors."""
    lines = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


def check_paths(file, text):
    # Paths from a folder of the root; after other prefixes (build/,
    # /usr/) they are not ours. Files that scripts write may be missing.
    for m in re.finditer(r"(?<![\w./*<>{}$-])(?:src|docs|scripts|tools|tests|bench|examples|cmake)/[\w./*<>-]+\.\w+", text):
        if m[0].endswith(SOURCES + (".md", ".txt")):
            check(there(m[0], file.rpartition("/")[0]), file, m.start(), f"there is no {m[0]}")


def check_links(page, text):
    for m in re.finditer(r"\]\(([^)\s]*)\)", text):
        if re.match(r"\w+:", m[1]):
            continue
        path, _, heading = m[1].partition("#")
        target = (root / page).parent / path if path else root / page
        check(target.exists(), page, m.start(), f"the link leads to nothing: {m[1]}")
        if heading and target.is_file():
            check(heading in headings(target.read_text()), page, m.start(), f"there is no such heading: {m[1]}")


def check_names(page, text):
    for m in re.finditer(r"`([^`\n]+)`", text):
        if re.fullmatch(r"(?![/~]|build|OUT/|checkpoint-)[\w./*<>-]+(\.(h|cc|cu|py|sh|sbatch|md)|/)", m[1]):
            check(there(m[1], page.rpartition("/")[0]), page, m.start(), f"there is no {m[1]}")
        for name in re.findall(r"(?<![\w.-])(?:[A-Z][a-z0-9]+[A-Z]\w*|k[A-Z]\w+)(?![\w-])", m[1]):
            check(name in identifiers, page, m.start(), f"the sources have no {name}")
    for m in re.finditer(r"build[\w-]*/bench/(\w+)", text):
        check(m[1] in benchmarks, page, m.start(), f"there is no benchmark {m[1]}")


def check_lines(page, text):
    at = 0
    for line in text.split("\n"):
        check(len(line) <= LONGEST_LINE, page, at, f"a line of {len(line)} characters, {LONGEST_LINE} at most")
        at += len(line) + 1


def check_options(page, text):
    for span in re.finditer(r"^```.*?^```|`[^`\n]+`", text, re.M | re.S):
        for line in re.finditer(r"[^\n]+", span[0]):
            if re.search(r"mpirun|srun|sbatch|cmake|ctest", line[0]):
                continue  # partly of another program
            for m in re.finditer(r"(?<=[\s`(])--([a-z][\w.-]*\w)", line[0]):
                check(m[1] in options, page, span.start() + line.start(), f"no command has an option --{m[1]}")


def check_tree(page, text):
    """In the tree of the map a word with an underscore, outside parentheses, is the beginning of a file's name."""
    tree = re.search(r"^```\nsrc/\n.*?^```$", text, re.M | re.S)
    if not tree:
        sys.exit(f"{page}: the tree was not found")
    folders = []
    for entry in re.finditer(r"^( {0,4})([\w./]+/)( .*\n(?: {5,}.*\n)*)?", tree[0], re.M):
        folders[len(entry[1]) // 2:] = [entry[2]]
        folder = "".join(folders)
        for name in re.findall(r"[\w*-]*_[\w*-]*", re.sub(r"\([^()]*\)", "", entry[3] or "")):
            begin = re.compile(re.escape(folder) + "(.*/)?" + re.escape(name).replace(r"\*", ".*"))
            check(any(map(begin.match, files)), page, tree.start() + entry.start(), f"{folder} has no {name}")


for file, text in texts.items():
    check_paths(file, text)
for page, text in pages.items():
    check_lines(page, text)
    check_links(page, text)
    check_names(page, text)
    check_options(page, text)
check_tree("docs/map.md", texts["docs/map.md"])
for fault in faults:
    print(fault)
print(f"{checked} names and lines of documentation, {len(faults)} faults")
sys.exit(1 if faults or not checked else 0)
