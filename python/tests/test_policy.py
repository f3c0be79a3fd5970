"""Policies in Python have the same results as their C versions, and end as Python does."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import largefolio as lf

_KERNEL = "6.16+thp=always+anon-64K=always+anon-16K=always"
_EXEC, _COLD, _NO_LIMIT = 1 << 2, 0, 2**64 - 1


def _order_of(ctx: Any, bytes_: int) -> int:
    return max((bytes_ >> ctx.page_shift).bit_length() - 1, 0)


class ExecOrder(lf.Policy):
    """policies/exec-order.c, line by line."""

    name = "exec-order"

    def window(self, ctx: Any) -> lf.Window | None:
        if not ctx.area_flags & _EXEC or ctx.cause != _COLD or not ctx.ra_pages:
            return None
        order = _order_of(ctx, 64 << 10)
        first = ctx.index - (ctx.page - ctx.area_start)
        last = ctx.index + (ctx.area_end - ctx.page)
        start = max(ctx.index >> order << order, first)
        end = min(start + ctx.ra_pages + (1 << order) - 1 >> order << order, last)
        return lf.Window(start, end - start, 0, order)


class PerProgram(lf.Policy):
    """policies/per-program.c, which keeps state."""

    name = "per-program"

    def __init__(self) -> None:
        self.faults: dict[int, tuple[str, int]] = {}

    def anon_order(self, ctx: Any) -> int | None:
        def up_to(bytes_: int) -> int:
            orders: int = ctx.orders & ((1 << _order_of(ctx, bytes_) + 1) - 1)
            return orders

        comm, nr = self.faults.get(ctx.process, ("", 0))
        nr = nr + 1 if comm == ctx.comm else 1
        self.faults[ctx.process] = (ctx.comm, nr)
        if ctx.comm in ("python3", "perl", "python3.11"):
            return up_to(16 << 10)
        return None if nr > 256 else up_to(64 << 10)


def _rows(trace: Path, policy: Any, **settings: Any) -> list[dict[str, Any]]:
    report = lf.report(trace, kernels=_KERNEL, policy=policy, progress=False, **settings)
    rows: list[dict[str, Any]] = report["rows"]
    for row in rows:
        if "policy" in row:
            row["policy"].pop("digest")
    return rows


@pytest.mark.parametrize("policy", [ExecOrder, PerProgram])
@pytest.mark.parametrize("name", ["demo", "make"])
def test_a_policy_in_python_does_what_it_does_in_c(
    policy: type[lf.Policy], name: str, traces: Path
) -> None:
    trace = traces / f"{name}.folio"
    plain, in_python = _rows(trace, policy)
    _, in_c = _rows(trace, policy.name)
    assert in_python == in_c
    assert sum(answers["honoured"] for answers in in_c["policy"]["points"].values()) > 0
    assert in_c["faults"] != plain["faults"] or in_c["folios"] != plain["folios"]


def test_every_cell_has_an_object_of_its_own(small: Path) -> None:
    class Counts(lf.Policy):
        def __init__(self) -> None:
            self.nr = 0

        def around(self, ctx: Any) -> int:
            self.nr += 1
            return 16 if self.nr % 3 else 1

    shared = Counts()
    counted = ("policy", "faults", "folios", "reads")
    sizes = ["64M", "128M", "256M"]
    alone = [_rows(small, Counts, memory=size)[1] for size in sizes]
    for policy in (Counts, shared):
        rows = [row for row in _rows(small, policy, memory=sizes) if "policy" in row]
        assert [[row[name] for name in counted] for row in rows] == [
            [row[name] for name in counted] for row in alone
        ]
    assert shared.nr == 0


def test_a_policy_sees_what_the_header_names(small: Path) -> None:
    seen: list[Any] = []

    class Looks(lf.Policy):
        def anon_order(self, ctx: Any) -> None:
            seen.append((ctx.comm, ctx.free, ctx.group_max, dir(ctx)))
            with pytest.raises(AttributeError, match="a policy has no nothing"):
                _ = ctx.nothing

    _rows(small, Looks)
    comm, free, group_max, names = seen[0]
    assert isinstance(comm, str)
    assert len(free) == 14
    assert sum(free) > 0
    assert group_max == _NO_LIMIT
    assert {"area_flags", "orders", "nr_free"} < set(names)
    stub = Path(lf.__file__).with_name("_native.pyi").read_text()
    numbers = stub.partition("class _Numbers:\n")[2].partition("\n\n")[0]
    known = [line.split(":")[0].strip() for line in numbers.splitlines()]
    assert {"comm", "free", *known} == set(names)


def test_an_exception_ends_the_prediction(small: Path) -> None:
    class Fails(lf.Policy):
        def around(self, ctx: Any) -> int:
            raise LookupError(f"no answer for page {ctx.page}")

    with pytest.raises(LookupError, match="no answer for page"):
        lf.predict(small, kernels=_KERNEL, policy=Fails, progress=False)

    class Odd(lf.Policy):
        def around(self, ctx: Any) -> Any:
            return "many"

    with pytest.raises(TypeError, match="around: expected None or an int"):
        lf.predict(small, kernels=_KERNEL, policy=Odd, progress=False)

    class Wide(lf.Policy):
        def window(self, ctx: Any) -> lf.Window:
            return lf.Window(-1, 1)

    with pytest.raises(TypeError, match=r"window: expected None, 0 or a Window .* not Window\(start=-1"):
        lf.predict(small, kernels=_KERNEL, policy=Wide, progress=False)

    class Yes(lf.Policy):
        def window(self, ctx: Any) -> lf.Window:
            return lf.Window(ctx.index, True)

    with pytest.raises(TypeError, match="window: expected None, 0 or a Window .* nr_pages=True"):
        lf.predict(small, kernels=_KERNEL, policy=Yes, progress=False)

    class Sets(lf.Policy):
        def around(self, ctx: Any) -> int:
            ctx.page = 3
            return 1

    with pytest.raises(AttributeError, match="page: a policy can read the context but not change it"):
        lf.predict(small, kernels=_KERNEL, policy=Sets, progress=False)

    class Property(lf.Policy):
        @property
        def around(self) -> Any:
            raise AttributeError("self.table is missing")

        def window(self, ctx: Any) -> None:
            return None

    with pytest.raises(AttributeError, match="self.table is missing"):
        lf.predict(small, kernels=_KERNEL, policy=Property, progress=False)

    class Elsewhere(lf.Policy):
        def around(self, ctx: Any) -> lf.Window:
            return lf.Window(ctx.index, 1)

    with pytest.raises(TypeError, match="around: expected None or an int"):
        lf.predict(small, kernels=_KERNEL, policy=Elsewhere, progress=False)

    class Misspelt(lf.Policy):
        def anon_oder(self, ctx: Any) -> int:
            return 0

        def around(self, ctx: Any) -> int:
            return 1

    with pytest.raises(TypeError, match=r"Misspelt.anon_oder is not a point; did you mean anon_order\?"):
        lf.predict(small, kernels=_KERNEL, policy=Misspelt, progress=False)

    class Absent(lf.Policy):
        window = None

        def windows(self, ctx: Any) -> int:
            return 0

    with pytest.raises(TypeError, match=r"Absent.windows is not a point; did you mean window\?"):
        lf.predict(small, kernels=_KERNEL, policy=Absent, progress=False)

    class Locked(lf.Policy):
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def around(self, ctx: Any) -> int:
            return 1

    with pytest.raises(TypeError, match=r"it cannot be copied \(.*\); give its class"):
        lf.predict(small, kernels=_KERNEL, policy=Locked(), progress=False)

    class Broken(lf.Policy):
        def __init__(self) -> None:
            raise RuntimeError("cannot start")

        def around(self, ctx: Any) -> int:
            return 1

    with pytest.raises(RuntimeError, match="cannot start"):
        lf.predict(small, kernels=_KERNEL, policy=Broken, progress=False)
    with pytest.raises(TypeError, match="one method per point"):
        lf.predict(small, kernels=_KERNEL, policy=lf.Policy, progress=False)
    with pytest.raises(TypeError, match="int is not a subclass"):
        lf.predict(small, kernels=_KERNEL, policy=int, progress=False)
    with pytest.raises(lf.KernelError, match="did you mean exec-order"):
        lf.predict(small, kernels=_KERNEL, policy="exec-oder", progress=False)


def test_names_beside_the_points_are_the_users_own(small: Path) -> None:
    class Helped(lf.Policy):
        victims = 3
        window = None

        def _window(self) -> int:
            return 2

        def arounds(self) -> int:
            return self._window()

        def around(self, ctx: Any) -> int:
            return self.arounds()

    _, helped = _rows(small, Helped)
    assert helped["policy"]["points"]["around"]["honoured"] > 0
    assert "window" not in helped["policy"]["points"]


def test_the_largest_number_is_the_kernels_own_answer(small: Path) -> None:
    class Own(lf.Policy):
        def around(self, ctx: Any) -> int:
            return _NO_LIMIT

    plain, own = _rows(small, Own)
    answers = own["policy"]["points"]["around"]
    assert answers["asked"] > 0 == answers["honoured"] == answers["refused"]
    assert own["faults"] == plain["faults"]


def test_two_policies_of_one_name_are_refused(small: Path) -> None:
    for policies in ([ExecOrder, "exec-order"], ["pressure", "pressure"]):
        with pytest.raises(lf.KernelError, match="results could not distinguish them"):
            lf.predict(small, kernels=_KERNEL, policy=policies, progress=False)

    class Odd(lf.Policy):
        name = "a\x1b[31m"

        def around(self, ctx: Any) -> int:
            return 1

    with pytest.raises(lf.KernelError, match="is not a valid policy name"):
        lf.predict(small, kernels=_KERNEL, policy=Odd, progress=False)


def test_a_slow_policy_is_interrupted_between_two_questions(traces: Path) -> None:
    class Slow(lf.Policy):
        nr_asked = 0

        def window(self, ctx: Any) -> None:
            Slow.nr_asked += 1
            if Slow.nr_asked == 2:
                signal.raise_signal(signal.SIGINT)
            time.sleep(0.2)

    with pytest.raises(KeyboardInterrupt):
        lf.predict(traces / "make.folio", kernels=_KERNEL, policy=Slow, progress=False)
    assert Slow.nr_asked < 10


@pytest.mark.parametrize("where", ["answer", "start"])
def test_a_policy_that_never_answers_is_interrupted(small: Path, where: str) -> None:
    begun = threading.Event()

    def forever() -> None:
        begun.set()
        while True:
            pass

    class Endless(lf.Policy):
        def __init__(self) -> None:
            if where == "start":
                forever()

        def around(self, ctx: Any) -> int:
            forever()
            return 1

    def interrupt() -> None:
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        lf.predict(small, kernels=_KERNEL, policy=Endless, progress=False)


def test_a_sweep_takes_object_files_only(small: Path, tmp_path: Path) -> None:
    with pytest.raises(lf.FolioError, match="cannot be serialized"):
        lf.sweep([small], _KERNEL, policy=ExecOrder, directory=tmp_path / "a", progress=False)
    assert not (tmp_path / "a").exists()
    swept = lf.sweep(
        [small], _KERNEL, policy="exec-order", directory=tmp_path / "b", progress=False
    )
    assert not swept.failed
