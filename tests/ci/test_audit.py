"""What a report of known vulnerabilities means."""

from __future__ import annotations

from tools.audit import judge

UNKNOWN = {"name": "b", "skip_reason": "Dependency not found"}
SOUND = {"name": "c", "version": "3", "vulns": []}
FAULTY = {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
UNFIXED = {"name": "d", "version": "4", "vulns": [{"id": "CVE-2", "fix_versions": []}]}


def test_a_vulnerability_is_a_finding() -> None:
    assert judge([FAULTY, UNKNOWN, SOUND, UNFIXED]) == (
        ["a 1: CVE-1; fixed in 2", "d 4: CVE-2; fixed in no version yet"],
        3,
    )


def test_a_database_that_cannot_be_asked_knows_nothing() -> None:
    assert judge([UNKNOWN]) == ([], 0)
