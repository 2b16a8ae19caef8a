"""accept_common.py: what the acceptance lines of all areas share: paths, runs, records."""
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ZEROPE = ROOT / "build/release/zerope"
WORK = ROOT / "build/accept"
EVIDENCE = ROOT / "docs/evidence"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "zerope"
MODELS = pathlib.Path(os.environ.get("ZEROPE_MODELS", CACHE / "models"))
CORPUS = CACHE / "corpus"
STRUCTURED = CACHE / "structured"
MODEL = {"smollm2": MODELS / "smollm2-135m-instruct-q4_1.gguf",
         "gemma3": MODELS / "gemma3-270m-q4_k_m.gguf"}


def run(*command, codes=(0,), **options):
    """Output of a command that must end with one of the codes."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True,
                          check=False, **options)
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit code {done.returncode}")
    return done.stdout


def zerope(*arguments, codes=(0,), **options):
    return json.loads(run(ZEROPE, *arguments, "--json", codes=codes, **options))


def commit():
    return run("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip()


def record(area, line, holds, complete=True, **values):
    """Writes the evidence of one line and tells how it went; not complete: so far."""
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    names = [row.split(":")[1].strip() for row in cpuinfo.splitlines() if "model name" in row]
    today = datetime.date.today().isoformat()
    machine = f"{names[0]}, {os.cpu_count()} processors, {platform.release()}"
    document = {"line": line, "holds": holds, "date": today, "commit": commit(),
                "load": os.getloadavg()[0], "machine": machine, **values}
    path = EVIDENCE / f"{area}-{line}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    verdict = "holds" if holds else "DOES NOT HOLD" if complete else "not yet whole"
    print(f"{verdict:14} {line}: {path.relative_to(ROOT)}", flush=True)
    return holds


def peer(variable, what):
    if variable not in os.environ:
        sys.exit(f"accept: this line needs {variable}={what}")
    return pathlib.Path(os.environ[variable])
