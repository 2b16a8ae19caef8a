"""accept_server_faults.py: acceptance lines of what goes wrong: candidates, faults, abuse, fuzzing.

The programs themselves are in tests/serve/.
"""
from accept_common import MODEL, ZEROPE, record
from accept_server_load import program


def line_canary():
    """10^5 ids at each stage; bad candidates: within 5 requests and 1 s all is at the baseline."""
    found, holds = program("tests/serve/canary.py", ZEROPE, "--model", MODEL["smollm2"])
    return record("server", "canary", holds, **found)


def line_faults():
    """Clients that vanish or read nothing, jitter, full disks, kill -9, drain, 100 KB of base64."""
    found, holds = program("tests/serve/faults.py", ZEROPE, "--model", MODEL["smollm2"])
    cases = found["cases"]
    most = {"restart_seconds": 2, "base64_ms": 50, "slow_reader_mib": 16}
    holds = holds and cases["restart"]["ready_seconds"] < most["restart_seconds"] and \
        cases["base64"]["idle"]["most_ms"] < most["base64_ms"] and \
        cases["slow-reader"]["grown_mib"] < most["slow_reader_mib"]
    return record("server", "faults", holds, most=most, **found)
