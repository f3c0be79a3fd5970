#!/usr/bin/env python3
"""Runs every command of README.md, python/README.md and docs/**/*.md as a reader would, and
compares the output.

    scripts/docs.py                  all documents
    scripts/docs.py README.md maps   documents with one of these in their name; prose of all is checked
    scripts/docs.py --fix series     writes the numbers that are printed into the documents

Each document runs in a fresh directory with the files its commands name; at most two run at a time.
Output below a `$ ` is compared number by number, or only in shape for commands that
docs/commands.toml marks as varying (`scripts/doccheck/shape.py`). That file also lists the
documents' requirements and the commands that cannot run unchanged. Commands, options and make
targets named in prose must exist, and phrases of `scripts/doccheck/english.toml` must not occur in
prose and help texts. Needs Python 3.10.
"""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import time
import types

from doccheck import english, exceptions, machine, markdown, prose, session

ROOT = pathlib.Path(__file__).resolve().parent.parent


def read_documents():
    """{name: text} of the documents."""
    paths = [ROOT / "README.md", ROOT / "python/README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def chosen(found, only):
    """Returns the commands of documents with any word of `only` in their name, or of all."""
    return {name: found[name] for name in found if not only or any(word in name for word in only)}


def run_all(found, house):
    """Results of all commands, by document; the longest documents start first."""
    order = sorted((name for name in found if found[name]), key=lambda name: -len(found[name]))
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        runs = [pool.submit(session.run_document, name, found[name], house) for name in order]
        try:
            return [result for run in runs for result in run.result()]
        except KeyboardInterrupt:
            session.interrupt()
            raise


def summary(results, complaints, seconds):
    """Prints the failures and the closing line; returns the exit status."""
    failed = [(command, text) for command, outcome, text in results if outcome == "FAILED"]
    not_run = [text for _, outcome, text in results if outcome == "not run"]
    for line in complaints:
        print(f"WRONG: {line}")
    for command, text in failed:
        print(f"FAILED: {command.document}:{command.line}: {command.title}\n    {text}".replace("\n", "\n    "))
    reasons = "; ".join(f"{not_run.count(why)} {why}" for why in dict.fromkeys(not_run))
    print(
        f"{len(results) - len(not_run)} commands run, {len(failed)} failed, {len(not_run)} not run"
        f"{f' ({reasons})' if reasons else ''}; {seconds:.0f} s"
    )
    return 0 if len(results) > len(not_run) and not failed and not complaints else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="documents to run, by part of their name [default: all]")
    parser.add_argument("--folio", type=pathlib.Path, default=ROOT / "target/release/folio")
    parser.add_argument("--python", type=pathlib.Path, help="Python with the package, for Python blocks")
    parser.add_argument("--shared-machine", action="store_true",
                        help="other programs change system settings at the same time: do not compare them")
    parser.add_argument("--fix", action="store_true", help="write printed numbers into the documents")
    parser.add_argument("--list", action="store_true", help="print the commands and run nothing")
    args = parser.parse_args()
    if args.python and not args.python.exists():
        print(f"SKIPPED: Python blocks: no {args.python}; scripts/python.sh makes it", file=sys.stderr)
        args.python = None
    documents = read_documents()
    found = {name: markdown.commands(name, text) for name, text in documents.items()}
    to_run = chosen(found, args.only)
    if not to_run:
        sys.exit(f"no document has {' or '.join(args.only)} in its name; without a name all documents run")
    if args.list:
        for name, commands in to_run.items():
            for command in commands:
                print(f"{name}:{command.line}: {command.title}")
        return 0
    if not os.access(args.folio, os.X_OK):
        sys.exit(f"no folio at {args.folio}. Run: make build, or give its path with --folio")
    subprocess.run([args.folio, "--version"], check=True, stdout=subprocess.DEVNULL)
    start = time.monotonic()
    rules = exceptions.Exceptions(ROOT / "docs/commands.toml")
    house = types.SimpleNamespace(
        root=ROOT, folio=args.folio.resolve(), python=args.python and args.python.absolute(),
        exceptions=rules, turns=machine.Turns(), is_shared=args.shared_machine,
        renewals=[] if args.fix else None,
    )
    words = prose.Words(house.folio, ROOT, rules.options)
    # Contributors' documents have no commands to run.
    names = ["ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"]
    pages = {name: (ROOT / name).read_text() for name in names}
    complaints = prose.check({**documents, **pages}, words)
    read = {name: english.prose(text) for name, text in {**documents, **pages}.items()}
    complaints += english.check({**read, **words.all_help()}, english.phrases())
    complaints += rules.complaints([command for commands in found.values() for command in commands])
    results = run_all(to_run, house)
    for command, lines in house.renewals or []:
        path = ROOT / command.document
        path.write_text(markdown.renew(path.read_text(), command, lines))
    return summary(results, complaints, time.monotonic() - start)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
