"""Libraries that packages call and do not install: what is said where they are missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from thunder.core.errors import ExecutorUnavailable
from thunder.plugins import Unavailable, VendorLibrary


def library(reason: str | None) -> VendorLibrary:
    return VendorLibrary("Acme", missing=lambda: reason, install=lambda: "pip install acme")


def test_a_missing_library_is_an_error_with_the_reason_and_no_executor() -> None:
    with pytest.raises(ExecutorUnavailable, match="Acme cannot be used here") as error:
        library("Acme needs a device").module("json")
    assert "Acme needs a device" in str(error.value)
    assert library("Acme needs a device").executor("json:dumps") == Unavailable(
        "Acme needs a device", lacks_device=True
    )


def test_a_library_that_is_here_is_imported() -> None:
    assert library(None).module("json") is json
    assert library(None).executor("json:dumps") is json.dumps


@pytest.mark.parametrize("fault", ["import nothing_of_this_name", "raise OSError('no symbol')"])
def test_a_library_that_cannot_be_imported_says_what_to_install(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "acme_with_a_fault.py").write_text(fault, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ExecutorUnavailable, match="acme_with_a_fault cannot be imported") as error:
        library(None).module("acme_with_a_fault")
    assert "pip install acme" in str(error.value)
