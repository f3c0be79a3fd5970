"""Runs one document's Python blocks in one namespace: one block per line (JSON) in, one result out.

A block with `>>> ` prompts runs example by example and is compared as in doctest: exactly, except
for blanks and `...`.
"""

import contextlib
import doctest
import io
import json
import sys
import traceback

LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run(code, mode, names):
    """Whether the code ran, and its output."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            exec(compile(code, "<document>", mode), names)
            return True, output.getvalue()
        except BaseException:  # SystemExit too: the next block must still run
            traceback.print_exc(file=output)
            return False, output.getvalue()


def answer(text, names):
    if ">>> " not in text:
        is_good, output = run(text, "exec", names)
        return {"status": 0 if is_good else 1, "output": output}
    for example in doctest.DocTestParser().get_examples(text):
        is_good, output = run(example.source, "single", names)
        if not is_good:
            return {"status": 1, "output": output}
        if not doctest.OutputChecker().check_output(example.want, output, LIKE):
            return {"status": 1, "output": f"{example.source}shows\n{example.want}but the command printed\n{output}"}
    return {"status": 0, "output": ""}


def main():
    answers, sys.stdout = sys.stdout, sys.stderr
    names = {"__name__": "__main__"}
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), names)), file=answers, flush=True)


if __name__ == "__main__":
    main()
