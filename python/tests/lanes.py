"""How much a test run covers; the Makefile describes the lanes."""

from __future__ import annotations

import os

import pytest

IN_TEST_ALL = os.environ.get("LARGEFOLIO_LANE") == "all"

only_in_test_all = pytest.mark.skipif(not IN_TEST_ALL, reason="only `make test-all` runs it")
