"""The site of the reports, and the workflow that serves it."""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def workflow(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_what_is_downloaded_for_a_gpu_without_a_network_is_every_dependency_but_torch() -> None:
    page = (ROOT / "docs" / "benches.md").read_text(encoding="utf-8")
    commands = re.findall(r"--dest wheels ([^`]*)```", page)
    few, whole = (re.findall(r'"([a-z-]+)([^"]*)"', command) for command in commands)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]

    named = {name: bound.partition(",")[0] for name, bound in whole}
    for requirement in wanted:
        name, bound = re.fullmatch(r"([a-z-]+)(.*)", requirement).groups()  # type: ignore[union-attr]
        assert name == "torch" or named[name] == bound
    assert set(few) <= set(whole)


def test_counts_of_the_readme_are_computed_and_a_missing_phrase_is_named() -> None:
    counted = runpy.run_path(str(ROOT / "docs" / "generate.py"))["counted"]
    page = (ROOT / "README.md").read_text(encoding="utf-8")

    assert counted(re.sub(r"\*\*\d+ (tasks|mechanisms)", r"**1 \1", page)) == page
    with pytest.raises(ValueError, match="0 phrases like"):
        counted("")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_says_when_it_runs_what_it_may_and_on_what(path: Path) -> None:
    found = workflow(path)

    assert found[True]  # YAML reads the key `on` as a boolean
    assert "permissions" in found
    for job in found["jobs"].values():
        assert job["timeout-minutes"] <= 350
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            assert re.fullmatch(r"actions/[a-z-]+@v[0-9]+", step.get("uses", "actions/none@v1"))


def test_the_pages_are_served_with_least_rights_from_paths_that_exist() -> None:
    found = workflow(ROOT / ".github" / "workflows" / "pages.yml")
    build, deploy = found["jobs"]["build"], found["jobs"]["deploy"]

    assert (found["permissions"], build["permissions"]) == ({}, {"contents": "read"})
    assert deploy["permissions"] == {"pages": "write", "id-token": "write"}
    assert deploy["needs"] == "build"
    for pattern in found[True]["push"]["paths"]:
        assert (ROOT / pattern.removesuffix("/**")).exists()
    assert "make site" in "\n".join(step.get("run", "") for step in build["steps"])
    (upload,) = (step for step in build["steps"] if "upload-pages-artifact" in step.get("uses", ""))
    assert upload["with"]["path"] == "site"
