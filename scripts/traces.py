#!/usr/bin/env python3
"""Records the programs that the studies replay, with `folio record`, into traces/.

Small recordings are committed; larger ones (--large) go to traces/large/, which git ignores. A
program runs in an empty directory with a neutral name, with its own environment and fixed seeds. A
repeated recording differs only if the program uses the time, its process id or random numbers.
Programs that are not installed are skipped, with the command to install them. The arm64 programs
are Debian's, in a root made by mmdebstrap.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys

from recordings import sources

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = pathlib.Path("/tmp/largefolio-traces")
# Total size of the committed recordings; git keeps every version.
COMMITTED_BYTES_MAX = 24 << 20
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C",
    "HOME": "/nonexistent",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}

C_HEADERS = "stdio stdlib string math signal errno ctype time setjmp locale wchar stdint".split()
C_FUNCTION = """
static int total_{n}(const int *v, int len) {{
    int sum = {n};
    for (int i = 0; i < len; i++) {{
        if (v[i] % {m} == 0) sum += v[i] * {n}; else sum ^= v[i] >> {s};
    }}
    return sum;
}}
"""
# A web page's work for a JavaScript engine: objects, strings, closures, sorting, JSON, regular
# expressions.
SCRIPT = """
const rows = [];
for (let i = 0; i < 400; i++) rows.push({ id: i, name: 'row ' + (i * 7919) % 400, tags: [i % 7, i % 11] });
rows.sort((a, b) => a.name < b.name ? -1 : 1);
const html = rows.map(r => `<li id="${r.id}">${r.name.replace(/o/g, '0')}</li>`).join('');
const back = JSON.parse(JSON.stringify(rows)).filter(r => /1$/.test(r.name));
const byTag = new Map();
for (const r of back) for (const t of r.tags) byTag.set(t, (byTag.get(t) || 0) + html.length);
if (byTag.size < 2) throw new Error('wrong');
"""


def c_source(nr_headers, nr_functions, compiler="gcc"):
    """A preprocessed C file, mostly lines from headers."""
    headers = "".join(f"#include <{name}.h>\n" for name in C_HEADERS[:nr_headers])
    functions = "".join(C_FUNCTION.format(n=n, m=n % 5 + 2, s=n % 9) for n in range(nr_functions))
    calls = " + ".join(f"total_{n}(v, argc)" for n in range(nr_functions)) or "0"
    main = f"int main(int argc, char **argv) {{ int v[64] = {{0}}; return printf(\"%d\", {calls}); }}\n"
    source = WORK / "unit.c"
    source.write_text(headers + functions + main)
    subprocess.run([compiler, "-E", "-P", source, "-o", WORK / "unit.i"], check=True)


def cc1(nr_headers, nr_functions):
    c_source(nr_headers, nr_functions)
    found = subprocess.run(["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=True)
    # The compiler proper, without the driver, assembler and linker.
    return [str(pathlib.Path(found.stdout.strip()).resolve()), "-quiet", "-O2", "unit.i", "-o", "/dev/null"]


def make(compiler="gcc"):
    """The build of one C file without headers: make, the driver, the compiler, assembler, linker."""
    (WORK / "unit.c").write_text("int main(void) { return 0; }\n")
    rules = f"unit: unit.o\n\tld -o unit unit.o -e main\nunit.o: unit.c\n\t{compiler} -c unit.c\n"
    (WORK / "Makefile").write_text(rules)
    return ["/usr/bin/make"]


def make_project(package, jobs=2):
    """The whole build of a source package of the distribution, after configure."""
    tree = sources.unpacked(package, WORK)
    subprocess.run(["./configure"], cwd=tree, env=ENVIRONMENT, stdout=subprocess.DEVNULL, check=True)
    return ["/usr/bin/make", "-C", tree.name, f"-j{jobs}"]


def arm64_root():
    """An unpacked Debian for arm64; nothing in it was run."""
    root = WORK / "root"
    if not root.exists():
        packages = "gcc,libc6-dev,make,python3"
        subprocess.run(["mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64",
                        f"--include={packages}", "bookworm", root], check=True)
        # Compile the imported modules, as an installation does.
        subprocess.run(["/usr/bin/python3", "-m", "compileall", "-q", root / "usr/lib/python3.11/encodings"],
                       env=ENVIRONMENT, check=True)
    return root


def arm64_cc1():
    root = arm64_root()
    c_source(1, 0, compiler="aarch64-linux-gnu-gcc")
    [found] = root.glob("usr/lib/gcc/aarch64-linux-gnu/*/cc1")
    return ["/" + str(found.relative_to(root)), "-quiet", "-O2", "unit.i", "-o", "/dev/null"]


def arm64_make():
    # gcc finds its parts relative to itself.
    return make(compiler=arm64_root() / "usr/bin/gcc")


def arm64_python(modules):
    arm64_root()
    return ["/usr/bin/python3.11", "-I", "-S", "-c", f"import {modules}"]


def python(modules):
    return ["/usr/bin/python3", "-I", "-S", "-c", f"import {modules}"]


def node(script):
    (WORK / "page.js").write_text(script)
    return ["/usr/bin/node", "--single-threaded", "--random-seed=1", "--hash-seed=1", "page.js"]


PROGRAMS = {
    # name: (needs, Debian package, command)
    "cc1": ("/usr/bin/gcc", "gcc", lambda: cc1(1, 0)),
    # An interpreter that loads OpenSSL: 20 files, several with megabytes of text.
    "python3": ("/usr/bin/python3", "python3", lambda: python("_ssl")),
    # Hardly any code of its own, 27 shared objects.
    "perf": ("/usr/bin/perf", "linux-perf", lambda: ["/usr/bin/perf", "version"]),
    # Five programs that share a page cache.
    "make": ("/usr/bin/make", "make", make),
    "cc1-arm64": ("/usr/bin/mmdebstrap", "mmdebstrap", arm64_cc1),
    "make-arm64": ("/usr/bin/mmdebstrap", "mmdebstrap", arm64_make),
    "python3-arm64": ("/usr/bin/mmdebstrap", "mmdebstrap", lambda: arm64_python("_ssl")),
}
LARGE = {
    "cc1": ("/usr/bin/gcc", "gcc", lambda: cc1(len(C_HEADERS), 300)),
    "python3": ("/usr/bin/python3", "python3", lambda: python("asyncio, decimal, email.message, sqlite3, ssl")),
    "node": ("/usr/bin/node", "nodejs", lambda: node(SCRIPT)),
    # About 170 processes, ten minutes and three gigabytes.
    "make": ("/usr/bin/make", "make", lambda: make_project("zlib")),
    "gdb": ("/usr/bin/gdb", "gdb", lambda: ["/usr/bin/gdb", "-nx", "-batch", "-ex", "print 6*7"]),
}


def record(folio, name, command, directory):
    """Records one program; returns the trace."""
    trace = directory / f"{name}.folio"
    made = WORK / trace.name
    root = ["--root", WORK / "root"] if name.endswith("-arm64") else []
    subprocess.run(
        [folio, "record", "--quiet", *root, "-o", made, "--", *command],
        cwd=WORK, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True,
    )
    directory.mkdir(exist_ok=True)
    shutil.move(made, trace)
    return trace


def describe(folio, trace):
    """One line with size and counters."""
    shown = subprocess.run([folio, "trace", "info", "--json", trace], capture_output=True, text=True, check=True)
    info = json.loads(shown.stdout)
    meta = info.get("meta", info)
    return (
        f"{trace.relative_to(ROOT)}: {trace.stat().st_size / 2**20:.1f} MiB, "
        f"{meta['nr_references']:,} references in {meta['nr_rows']:,} rows, {len(meta['files'])} files"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="*", help="programs to record [default: all]")
    parser.add_argument("--large", action="store_true", help="record the larger traces, into traces/large/")
    parser.add_argument("--folio", default=ROOT / "target/release/folio", type=pathlib.Path)
    args = parser.parse_args()
    programs = LARGE if args.large else PROGRAMS
    directory = ROOT / "traces" / "large" if args.large else ROOT / "traces"
    unknown = set(args.name) - set(programs)
    if unknown:
        sys.exit(f"no program is called {', '.join(sorted(unknown))}; known: {', '.join(programs)}")
    if subprocess.run([ROOT / "scripts/qemu.sh", "find"], capture_output=True).returncode:
        sys.exit("no QEMU with plugins. Run: make qemu")
    folio = args.folio.resolve()
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    try:
        for name in args.name or programs:
            needs, package, command = programs[name]
            if not os.path.exists(needs):
                print(f"SKIPPED: {name}: no {needs}. Run: sudo apt-get install {package}", file=sys.stderr)
                continue
            print(describe(folio, record(folio, name, command(), directory)))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    total = sum(trace.stat().st_size for trace in (ROOT / "traces").glob("*.folio"))
    print(f"traces/: {total / 2**20:.1f} MiB")
    if total > COMMITTED_BYTES_MAX:
        sys.exit(f"more than {COMMITTED_BYTES_MAX >> 20} MiB: give the programs less work")


if __name__ == "__main__":
    main()
