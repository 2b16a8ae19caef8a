"""accept_server_faults.py: acceptance lines of what goes wrong: candidates, faults, abuse, fuzzing.

The programs themselves are in tests/serve/.
"""
from accept_common import MODEL, ROOT, ZEROPE, record, run
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


def line_abuse():
    """Smuggling, bombs, oversized and slow requests, 10,000 idle connections, wrong keys."""
    found, holds = program("tests/serve/abuse.py", ZEROPE, "--connections", 10000, "--asks", 20000)
    keys = found["cases"]["keys"]
    # medians of a wrong key that is right but for its last letter, and of one that is all wrong
    holds = holds and keys["difference_us"] <= max(1, 3 * keys["noise_us"])
    return record("server", "abuse", holds, **found)


def line_fuzz():
    """HTTP, requests in JSON and what models write as calls: 10 minutes each without a finding."""
    targets = ("http", "apirequest", "toolcalls")
    text = run(ROOT / "scripts/fuzz", 600, *targets, codes=(0, 1))
    rows = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    return record("server", "fuzz", all("no finding" in rows.get(t, "") for t in targets),
                  targets=rows)
