"""The checks of a gate as JUnit XML, which CI systems display."""

from __future__ import annotations

from xml.etree import ElementTree

import polars as pl

from .gate_rows import CANNOT_TELL, FAIL, NOT_MEASURED


def junit_xml(checks: pl.DataFrame, remarks: tuple[str, ...] = (), name: str = "unswayed check") -> bytes:
    """Return the checks as JUnit XML, one test case each; an undecided or unmeasured check is `skipped`.

    remarks: about all checks, as properties of the suite. The reason of every check is its output.
    """
    found = checks["verdict"].to_list()
    suite = ElementTree.Element(
        "testsuite",
        name=name,
        tests=str(len(found)),
        failures=str(found.count(FAIL)),
        errors="0",
        skipped=str(found.count(CANNOT_TELL) + found.count(NOT_MEASURED)),
    )
    if remarks:
        properties = ElementTree.SubElement(suite, "properties")
        for remark in remarks:
            ElementTree.SubElement(properties, "property", name="remark", value=_printable(remark))
    kinds = {FAIL: "failure", CANNOT_TELL: "skipped", NOT_MEASURED: "skipped"}
    for row in checks.iter_rows(named=True):
        case = ElementTree.SubElement(
            suite, "testcase", classname=_printable(row["model"]), name=_printable(f"{row['edit']}: {row['measure']}")
        )
        if row["verdict"] in kinds:
            message = _printable(f"{row['verdict']}: {row['reason']}")
            ElementTree.SubElement(case, kinds[row["verdict"]], message=message)
        ElementTree.SubElement(case, "system-out").text = _printable(row["reason"])
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True) + b"\n"


def _printable(text: str) -> str:
    """Return text without the control characters that XML does not allow."""
    return "".join(one if one.isprintable() else " " for one in text)
