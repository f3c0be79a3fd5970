"""Rules: read, changed, written and compared; edits work as on the command line."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import largefolio as lf

Complaint = Callable[..., str]


@pytest.mark.parametrize("name", [*lf.kernels(), "7.2+page=64K+sizes=64K:always+exec/2M:always"])
def test_rules_survive_every_way_out_and_back(name: str) -> None:
    rules = lf.Rules(name)
    assert lf.Rules.from_toml(name, rules.to_toml()) == rules
    assert lf.Rules.from_dict(name, rules.to_dict()) == rules
    for again in (pickle.loads(pickle.dumps(rules)), copy.deepcopy(rules), rules.set({}), rules.edit()):
        assert again == rules
        assert hash(again) == hash(rules)
    assert rules.name == name


def test_rules_are_a_mapping_by_dotted_names() -> None:
    rules = lf.Rules("7.2")
    assert rules["fault.exec_miss"] == "balanced"
    assert rules["fault_around_bytes"] == 65536
    assert rules["filesystems.xfs"] == "xfs"
    assert "fault" not in rules and rules.get("nothing") is None
    assert len(rules) == len(list(rules)) == len(dict(rules)) > 60
    with pytest.raises(KeyError):
        rules["fault.execc"]


def test_an_edit_is_that_of_the_command_line() -> None:
    plain = lf.Rules("7.2")
    assert plain.edit("exec-block=64K") == lf.Rules("7.2+exec-block=64K")
    assert plain.edit("page=64K", "sizes=64K:always+exec") == lf.Rules("7.2+page=64K+sizes=64K:always+exec")
    assert plain.edit("exec-block=64K", name="mine").name == "mine"
    assert plain.edit("exec-block=64K")["fault.exec"] == {"block": {"bytes": 65536}}
    assert plain.name == "7.2" and plain["fault.exec"] == "arch-window"


def test_a_rule_that_is_set_predicts_what_its_edit_predicts(small: Path) -> None:
    plain = lf.Rules("6.12")
    by_hand = plain.set({"fault.exec": {"block": {"bytes": 65536}}}, name="x")
    edited = plain.edit("exec-block=64K", name="x")
    assert by_hand == edited != plain
    assert lf.report(small, [plain, by_hand]) == lf.report(small, ["6.12", edited])
    assert lf.predict(small, [by_hand])["kernel"].to_pylist() == ["x"]


def test_set_names_what_was_set() -> None:
    plain = lf.Rules("7.2")
    mine = plain.set({"fault.exec_miss": "counted", "readahead_bytes": 1 << 20})
    assert mine.name == "7.2 with fault.exec_miss=counted, readahead_bytes=1048576"
    assert plain.diff(mine) == {
        "fault.exec_miss": ("balanced", "counted"),
        "readahead_bytes": (131072, 1 << 20),
    }
    assert mine.set({"fault.exec_miss": "balanced", "readahead_bytes": 131072}, name="7.2") == plain
    sized = plain.set({"sizes.machine": "64K:exec"})
    assert sized == plain.edit("sizes=64K:exec", name=sized.name)
    assert sized.set({"sizes.machine": None}, name="7.2") == plain
    assert plain.set({"page": "16K"}, name="x") == plain.edit("page=16K", name="x")


def test_values_are_of_every_kind_of_integer_and_mapping() -> None:
    import numpy

    plain = lf.Rules("7.2")
    for one, other in (
        (numpy.int64(1 << 20), 1 << 20),
        (numpy.uint32(1 << 20), 1 << 20),
    ):
        assert plain.set({"readahead_bytes": one}) == plain.set({"readahead_bytes": other})
    block = MappingProxyType({"block": MappingProxyType({"bytes": numpy.int64(65536)})})
    assert plain.set({"fault.exec": block}, name="x") == plain.edit("exec-block=64K", name="x")
    with pytest.raises(TypeError, match="no rule has a value of type object"):
        plain.set({"readahead_bytes": object()})


def test_a_file_may_be_based_on_a_preset(tmp_path: Path) -> None:
    text = 'based-on = "6.18"\ndescription = "mine"\nreadahead_bytes = 262144\n'
    path = tmp_path / "mine.toml"
    path.write_text(text)
    rules = lf.Rules.from_file(path)
    assert rules == lf.Rules(path) == lf.Rules.from_toml(str(path), text)
    assert rules.description == "mine"
    assert rules["readahead_bytes"] == 262144
    as_dict = {"based-on": "6.18", "description": "mine", "readahead_bytes": 262144}
    assert lf.Rules.from_dict(str(path), as_dict) == rules


@pytest.mark.parametrize(
    "edit", ["exec-blok=64K", "exec-block=65K", "min-folio=3", "sizes=64K:sometimes", "", "sizes.fat=64K:exec"]
)
def test_errors_are_those_of_the_command(complaint: Complaint, small: Path, edit: str) -> None:
    expected = complaint("predict", str(small), "--kernel", f"7.2+{edit}")
    for call in (lambda: lf.Rules(f"7.2+{edit}"), lambda: lf.Rules("7.2").edit(edit)):
        with pytest.raises(lf.KernelError) as raised:
            call()
        assert str(raised.value) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"fault.exec_miss": "sometimes"},
        {"fault.exec_miss": 3},
        {"fault.nothing": 1},
        {"nothing": 1},
        {"fault_around_bytes": 3},
        {"fault_around_bytes": -1},
        {"fault_around_bytes": math.nan},
        {"fault_around_bytes": 1 << 64},
        {"fault_around_bytes": 10**100},
        {"fault_around_bytes": "\0"},
        {"fault": None},
        {"fault.exec_miss.deeper": 1},
        {"page": "5K"},
        {"readahead_bytes": 1 << 50},
    ],
)
def test_rules_no_kernel_can_have_are_refused(changes: dict[str, Any]) -> None:
    rules = lf.Rules("7.2")
    with pytest.raises(ValueError):
        rules.set(changes)
    assert rules == lf.Rules("7.2")


@pytest.mark.parametrize("value", [None, 3, b"7.2", ["7.2"]])
def test_what_is_no_name_is_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        lf.Rules(value)
    with pytest.raises(TypeError):
        lf.Rules.from_dict("x", value)


def test_names_can_be_listed() -> None:
    assert {"6.1", "7.2"} <= set(lf.kernels())
    assert {"altra", "zen4"} <= set(lf.machines())
    assert {"xfs", "ext4"} <= set(lf.filesystems())
    (edit,) = [edit for edit in lf.edits() if edit.name == "exec-block"]
    assert "series 000" in edit.help and "64K" in edit.value
