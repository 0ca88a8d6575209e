"""Results in formats of other projects: scores for Every Eval Ever, and tables as a Croissant dataset."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from synthbench import __version__, sources
from synthbench.plugins import BUILT_IN
from synthbench.reports.cells import CELL_COLUMNS
from synthbench.reports.report import Report
from synthbench.reports.standings import ranked_board, standings
from synthbench.results import Store
from synthbench.results.schema import CURVE_COLUMNS, RUN_COLUMNS

_CROISSANT = "http://mlcommons.org/croissant/"
_TYPES = {"bool": "Boolean", "int32": "Integer", "int64": "Integer", "float64": "Float", "timestamp": "DateTime"}
"""Croissant types by column type; columns of all other types are text."""
_ENCODINGS = {"parquet": "application/x-parquet", "csv": "text/csv"}


class Data(NamedTuple):
    """A table of a dataset, with the contents of the files that store the table."""

    files: Mapping[str, bytes]
    """File contents by path, relative to the folder of the dataset description."""
    columns: Sequence[tuple[str, str, str]]
    """Name, type (as in Arrow or pandas) and meaning of each column."""


def cell_data(report: Report, content: str) -> Data:
    """Describe the file ``cells.csv`` of a report, whose text is ``content``, as a table of a dataset."""
    columns = report.cells.frame.dtypes.items()
    return Data(
        {"cells.csv": content.encode()}, [(str(name), str(kind), CELL_COLUMNS[str(name)]) for name, kind in columns]
    )


def row_data(store: Store) -> dict[str, Data]:
    """Return the files of a store as two tables: ``runs`` (one row per run) and ``curves`` (learning curves).

    Each table has the contents of its files, and a description of every column that all of these files contain. A table
    without files is left out.
    """
    tables = {}
    for name, columns in (("runs", RUN_COLUMNS), ("curves", CURVE_COLUMNS)):
        contents = {path.relative_to(store.root).as_posix(): path.read_bytes() for path in sorted(store.files_of(name))}
        if contents:
            in_all = set[str].intersection(*(set(pq.read_schema(BytesIO(one)).names) for one in contents.values()))
            described = [(each.name, each.type, each.meaning) for each in columns if each.name in in_all]
            tables[name] = Data(contents, described)
    return tables


def croissant(
    name: str, description: str, report: Report, tables: Mapping[str, Data], *, url: str | None = None
) -> dict[str, Any]:
    """Describe a dataset (tables and their files) in the Croissant format; return a dictionary for JSON-LD.

    Args:
        name: Name of the dataset.
        description: Description of the dataset, in one sentence.
        report: Report on the suite to cite. The date of the report's newest run becomes the date of the dataset.
        tables: Tables of the dataset, by name.
        url: Address of the folder that contains the files. Default: file paths are relative to the folder of the
            Croissant file.

    Source: Croissant format specification 1.1, MLCommons (2025).
    """
    suite, version = report.selection.suite, report.selection.suite_version
    return {
        # Validators require the whole vocabulary, including words that are not used.
        "@context": json.loads(files("synthbench.reports").joinpath("templates", "croissant.json").read_text("utf-8")),
        "@type": "sc:Dataset",
        "name": name,
        "description": description,
        "conformsTo": f"{_CROISSANT}1.1",
        "version": __version__,
        "license": "https://www.apache.org/licenses/LICENSE-2.0",
        "creator": {"@type": "sc:Organization", "name": sources.AUTHORS},
        "datePublished": f"{report.selection.rows['finished_at'].max():%Y-%m-%d}",
        "citeAs": sources.of_suite(suite, version),
        **({"url": url} if url else {}),
        "distribution": [
            *(_file(*file, url) for data in tables.values() for file in data.files.items()),
            *(_file_set(table, list(data.files)) for table, data in tables.items()),
        ],
        "recordSet": [_record_set(table, data) for table, data in tables.items()],
    }


def _file(path: str, content: bytes, url: str | None) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": path,
        "name": path.rpartition("/")[2],
        "contentUrl": f"{url.rstrip('/')}/{path}" if url else path,
        "contentSize": f"{len(content)} B",
        "encodingFormat": _ENCODINGS[path.rpartition(".")[2]],
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def _file_set(name: str, paths: Sequence[str]) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": f"{name}-files",
        "name": f"{name}-files",
        "containedIn": [{"@id": path} for path in paths],
        "encodingFormat": _ENCODINGS[paths[0].rpartition(".")[2]],
        "includes": paths,
    }


def _record_set(name: str, data: Data) -> dict[str, Any]:
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{name}/{column}",
            "name": column,
            "description": meaning,
            "dataType": f"sc:{_TYPES.get(kind, 'Text')}",
            "source": {"fileSet": {"@id": f"{name}-files"}, "extract": {"column": column}},
        }
        for column, kind, meaning in data.columns
    ]
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "field": fields}


def every_eval_ever(report: Report, created: float) -> list[dict[str, Any]]:
    """Return one record per mechanism, with the skill on each task, in the format of Every Eval Ever.

    Args:
        report: The report to export.
        created: Time to write into the records, in seconds since 1970.

    Raises:
        UsageError: If the report has no ranking, because all tasks are scored in bits.

    Source: Every Eval Ever, schema 0.3.0.
    """
    facts = standings(report)
    ranked_board(report)
    suite = f"{facts['suite']} {facts['suite_version']}"
    records = []
    for one in facts["mechanisms"]:
        is_ours = one["origin"] == BUILT_IN
        options = [f"{name}={value}" for name, value in one["options"].items()]
        model = "-".join(filter(None, [one["name"], one["condition"], one["block"], one["positions"], *options]))
        records.append(
            {
                "schema_version": "0.3.0",
                "evaluation_id": f"synthbench {suite}/synthbench/{model}/{created:.0f}".replace(" ", "-"),
                "retrieved_timestamp": f"{created:.0f}",
                "source_metadata": {
                    "source_name": f"synthbench, suite {suite}",
                    "source_type": "evaluation_run",
                    "source_organization_name": sources.AUTHORS if is_ours else one["origin"],
                    "evaluator_relationship": "third_party" if is_ours else "first_party",
                    "additional_details": {name: facts[name] for name in ("setting", "rows_sha256")},
                },
                "eval_library": {"name": "synthbench", "version": __version__},
                "model_info": {
                    "name": one["label"],
                    "id": f"synthbench/{model}",
                    "additional_details": {name: str(one[name]) for name in _OF_MODEL if one[name] not in ("", None)},
                },
                "evaluation_results": [
                    _result(suite, name, found)
                    for name, found in one["tasks"].items()
                    if not math.isnan(found["skill"])
                ],
            }
        )
    return records


_OF_MODEL = ("source", "condition", "convolution", "positions", "num_params", "state", "num_seeds", "num_verified")


def _result(suite: str, task: str, found: Mapping[str, Any]) -> dict[str, Any]:
    ends = {"lower": found["low"], "upper": found["high"], "confidence_level": 0.95, "method": "over seeds"}
    uncertainty = {"num_samples": found["num_seeds"]}
    is_known = not math.isnan(found["low"])
    return {
        "evaluation_name": task,
        "source_data": {
            "dataset_name": f"synthbench {suite}, {task}",
            "source_type": "other",
            "additional_details": {"how": "sequences are drawn by the task's code: synthbench data writes them"},
        },
        "metric_config": {
            "metric_id": "synthbench.skill",
            "metric_name": "skill: 0 at the baseline, 1 at the ceiling; on levels of a task, their mean",
            "metric_unit": "proportion",
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0,
            "max_score": 1,
        },
        "score_details": {
            "score": found["skill"],
            **({"details": {"capacity": found["capacity"]}} if "capacity" in found else {}),
            "uncertainty": uncertainty | ({"confidence_interval": ends} if is_known else {}),
        },
    }
