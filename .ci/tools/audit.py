"""Check of the locked packages by pip-audit: fails on a vulnerability, but not on an unreachable database.

python -m tools.audit
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCKS = Path(__file__).resolve().parents[1] / "requirements"
SERVICES = ("pypi", "osv")


def judge(dependencies: list[dict[str, Any]]) -> tuple[list[str], int]:
    """Evaluate a report of pip-audit.

    Returns:
        One line per vulnerability, and the number of packages that the database knows.
    """
    known = [item for item in dependencies if "skip_reason" not in item]
    findings = [
        f"{item['name']} {item['version']}: {fault['id']}; "
        f"fixed in {', '.join(fault['fix_versions']) or 'no version yet'}"
        for item in known
        for fault in item["vulns"]
    ]
    return findings, len(known)


def audit(service: str) -> list[dict[str, Any]] | None:
    """Return pip-audit's report about all locked packages, or None if the service is unreachable."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    command += ["--vulnerability-service", service, "--require-hashes", "--disable-pip", "--timeout", "15"]
    for lock in ("dev", "docs"):
        command += ["--requirement", str(LOCKS / f"{lock}.lock")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        print(f"{service}: {(done.stderr.strip().splitlines() or ['no answer'])[-1]}")
        return None


def main() -> int:
    for service in SERVICES:
        report = audit(service)
        if report is None:
            continue
        findings, known = judge(report)
        for line in findings:
            print(line)
        print(f"{service} knows {known} of {len(report)} packages: {len(findings)} vulnerabilities")
        if known:
            return int(bool(findings))
    print("NOT AUDITED: no vulnerability database could be reached")
    return 0


if __name__ == "__main__":
    sys.exit(main())
