"""Policies in Python: a method answers each decision of a kernel."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable
from typing import Any, NamedTuple

from largefolio import _native


class Window(NamedTuple):
    """The file pages that :meth:`Policy.window` reads."""

    start: int
    """First page."""
    nr_pages: int
    """Pages from there on."""
    nr_ahead: int = 0
    """Pages after the marker; a read of the marker starts the next window."""
    order: int = 0
    """Order of the folios."""


class Made(NamedTuple):
    """A policy factory for the native module, called once per cell."""

    name: str
    make: Callable[[], Any]


class Policy:
    """Answers decisions of the modelled kernel. Define a method for each point that you answer:

        >>> class Small(lf.Policy):
        ...     def anon_order(self, ctx):
        ...         return ctx.orders & 0b11111  # up to order 4
        >>> table = lf.predict(trace, kernels="7.2+thp=always", policy=Small)

    The methods are the points of ``folio_policy.h``. ``ctx`` has the fields of ``struct
    folio_context`` by their names (``dir(ctx)``), ``ctx.comm`` as text and ``ctx.free`` as a tuple.

    * ``anon_order``: orders to try, as bits (``1 << 4`` is order 4); 0: base pages
    * ``window``: a :class:`Window`, or 0 to read only the faulting page
    * ``around``: pages to map around a load, a power of two
    * ``collapse``: orders to collapse a block to, as bits; 0: none
    * ``write``: 1 keeps a folio that is stored to, 2 copies the page
    * ``victim``: 1 evicts a folio, 2 keeps it for another round, 3 splits it
    * ``swapin_order``, ``shmem_order``: as ``anon_order``, for swap-ins and shared memory
    * ``added``, ``accessed``, ``removed``: a file's folio entered the page cache, was used, or left;
      the answer is ignored
    * ``evict``: the ``ctx.folio`` that reclaim evicts
    * ``admit``: 1 reads past the page cache, 0 does not
    * ``interval``: called once per second of references, for each control group

    A point that is set to ``None`` is not answered. Returning ``None`` leaves the decision to the
    kernel. The model does not follow an answer that a kernel could not; the result counts it as
    refused. Each cell has its own object: a new instance of a class, or a deep copy of an object.
    Answers must depend only on ``ctx`` and on state in ``self``, so that the same call has the same
    result. An exception ends the prediction.
    """

    name: str
    """Name in results; default: the class's name."""


def factory(policy: Policy | type) -> Made:
    """Returns a function that creates a policy for each cell.

    Raises:
        TypeError: a class that is not a policy, or an object that cannot be copied.
    """
    kind = policy if isinstance(policy, type) else type(policy)
    if not issubclass(kind, Policy):
        raise TypeError(f"policy: {kind.__name__} is not a subclass of largefolio.Policy")
    for method in dir(kind):
        if method.startswith("_") or not callable(getattr(kind, method, None)):
            continue
        near = difflib.get_close_matches(method, _native.POLICY_POINTS, 1, 0.8)
        # If the class also has the right method, this one is a helper.
        if near and getattr(kind, near[0], None) is None:
            raise TypeError(f"policy: {kind.__name__}.{method} is not a point; did you mean {near[0]}?")
    name = str(getattr(policy, "name", kind.__name__))
    if isinstance(policy, type):
        return Made(name, policy)
    try:
        copy.deepcopy(policy)
    except Exception as error:
        text = f"policy: each cell has a copy of the object, and it cannot be copied ({error}); give its class"
        raise TypeError(text) from error
    return Made(name, lambda: copy.deepcopy(policy))
