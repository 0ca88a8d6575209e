"""An evaluator for a program that searches for mechanisms. A candidate is a plugin file with one mechanism.

OpenEvolve calls :func:`evaluate`. ShinkaEvolve and autoresearch run the file, ``python evaluator.py --program_path
candidate.py --results_dir out``: it writes ``out/metrics.json`` and ``out/correct.json``, and adds a line to
``results.tsv`` in the current folder. Further options go to ``synthbench quick``.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

LONGEST_S = 3600
"""Seconds after which a candidate is given up."""


def judge(path: str, *options: str) -> dict[str, Any]:
    """Get a first verdict from a separate process, so that no fault of a candidate can end the search.

    Args:
        path: The candidate.
        options: Options of ``synthbench quick``, which keeps its ledger and rows in ``results`` by default.

    Returns:
        The JSON of ``synthbench quick``; ``error`` has a ``kind`` and a ``message`` if there is no score.
    """
    # With -P, no file of the current folder stands in for a module of Python.
    command = [sys.executable, "-P", "-m", "synthbench", "-q", "quick", "--mech", path, "--json", *options]
    # Into files: a pipe would stay open as long as any process that a candidate left behind.
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            code = subprocess.run(command, stdout=out, stderr=err, timeout=LONGEST_S, check=False).returncode  # noqa: S603
        except subprocess.TimeoutExpired:
            return {"combined_score": None, "error": {"kind": "timeout", "message": f"more than {LONGEST_S} s"}}
        out.seek(0)
        try:
            return dict(json.load(out))
        except ValueError:
            err.seek(0)
            return {"combined_score": None, "error": {"kind": f"exit code {code}", "message": err.read()[-500:]}}


def metrics_of(verdict: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a verdict; a candidate without a score has 0."""
    is_kept = {"keep": 1.0, "discard": -1.0}.get(verdict.get("decision") or "", 0.0)
    numbers = {name: verdict.get(name) for name in ("combined_score_error", "parameters", "state", "step_ms")}
    of_tasks = {task["task"]: task["score"] for task in verdict.get("tasks", ())}
    known = {name: float(value) for name, value in {**numbers, **of_tasks}.items() if value is not None}
    return {"combined_score": verdict.get("combined_score") or 0.0, "decision": is_kept, **known}


def evaluate(path: str, *options: str) -> Any:
    """Evaluate a candidate: ``combined_score`` is to be maximised, ``combined_score_error`` is its noise.

    Returns:
        The metrics; if OpenEvolve is installed, its ``EvaluationResult`` with the error and the verdict as artifacts.
    """
    verdict = judge(path, *options)
    try:
        from openevolve.evaluation_result import EvaluationResult  # noqa: PLC0415 - optional
    except ImportError:
        return metrics_of(verdict)
    error = verdict["error"]["message"] if verdict["error"] else ""
    return EvaluationResult(metrics=metrics_of(verdict), artifacts={"error": error, "verdict": json.dumps(verdict)})


def main() -> None:
    """Evaluate a candidate and write the result files."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--program_path", required=True)
    parser.add_argument("--results_dir", type=Path, default=Path("out"))
    asked, options = parser.parse_known_args()
    verdict = judge(asked.program_path, *options)
    metrics, error = metrics_of(verdict), verdict["error"]
    asked.results_dir.mkdir(parents=True, exist_ok=True)
    private = {"verdict": verdict}
    content = {"combined_score": metrics["combined_score"], "public": metrics, "private": private}
    (asked.results_dir / "metrics.json").write_text(json.dumps(content), encoding="utf-8")
    correct = {"correct": error is None, "error": error and error["message"]}
    (asked.results_dir / "correct.json").write_text(json.dumps(correct), encoding="utf-8")
    status = "crash" if error else verdict["decision"]
    with Path("results.tsv").open("a", encoding="utf-8") as file:
        file.write(f"{asked.program_path}\t{metrics['combined_score']:.6f}\t{status}\n")


if __name__ == "__main__":
    main()
