"""Requirements of plugins on core (PEP 440, PEP 508)."""

from __future__ import annotations

import pytest

from thunder.plugins.compatibility import requirement_fault


@pytest.mark.parametrize(
    ("requirement", "version", "met"),
    [
        ("thunder-core>=0.1,<0.2", "0.1.0", True),
        ("thunder-core<0.2,>=0.1", "0.2.0", False),
        ("thunder-core>=0.1,<0.2", "0.1.7.dev3", True),
        ("thunder_core (>=0.2)", "0.1.0", False),
        ("Thunder.Core[testing]>=0.2", "0.1.0", False),
        ("thunder-core~=0.1.2", "0.1.9", True),
        ("thunder-core~=0.1.2", "0.2.0", False),
        ("thunder-core~=0.1.2", "0.1.1", False),
        ("thunder-core==0.1.*", "0.1.5", True),
        ("thunder-core==0.1.*", "0.2.0", False),
        ("thunder-core==0.1", "0.1.0", True),
        ("thunder-core!=0.1.3", "0.1.3", False),
        ("thunder-core>0.1", "0.1.0", False),
        ("thunder-core<=0.1", "0.1.0", True),
        ("thunder-core", "0.1.0", True),
        ("torch>=9", "0.1.0", True),
        ("thunder-core>=9; python_version < '3'", "0.1.0", True),
        ("thunder-core>=9; python_version >= '3'", "0.1.0", False),
        ("thunder-core>=9; extra == 'gpu'", "0.1.0", True),
        ("thunder-core>=0.2", "0.2.0rc1", False),  # PEP 440: a candidate is older than its release
        ("thunder-core>=0.1,!=0.1.*", "0.1.0", False),
        ("thunder-core===0.1.0", "0.1.0", True),
        ("thunder-core>=0.1.0", "0.1.0+local", True),
        ("not a requirement at all", "0.1.0", True),
    ],
)
def test_requirement(requirement: str, version: str, met: bool) -> None:
    fault = requirement_fault([requirement], version)
    assert (fault is None) == met
    if fault is not None:
        assert f"thunder-core {version} is installed" in fault
