"""A section for every analysis: what the report shows of its finding."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from robustvit.analysis import Finding
from robustvit.report.sections import accuracies, convergence, effectiveness, pictures
from robustvit.report.sections.section import Section

SECTIONS: dict[str, Callable[[Finding], Section]] = {
    "effectiveness": effectiveness.effectiveness,
    "convergence": convergence.convergence,
    "eps_sweep": accuracies.eps_sweep,
    "pgd_steps": accuracies.pgd_steps,
    "semantic": pictures.semantic,
    "feature_images": pictures.feature_images,
    "gallery": pictures.gallery,
}


def sections(findings: Iterable[Finding]) -> Iterator[Section]:
    for finding in findings:
        made_by = json.dumps(finding.provenance, indent=1, ensure_ascii=False)
        yield replace(SECTIONS[finding.name](finding), provenance=made_by)


__all__ = ["SECTIONS", "Section", "sections"]
