#!/usr/bin/env python3
"""Makes a page of a sweep's results: its plots, and which of the paper's claims hold on this machine."""

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from islands_command import Document, writing
from reporting import results, sizes
from reporting.elements import text
from reporting.evidence import Claim

EPILOG = """Writes index.html (one file, nothing from elsewhere), each plot as SVG and CSV, the runs behind it with
their commands as CSV, and claims.json. With --against, it compares instead, and writes against.html.

examples:
  islands report                          the newest results under ./results
  islands report results/all --format json
  islands report results/new --against results/old

exit codes: 0 ok, 1 failed, 2 usage or not a result directory"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="islands report", description="Makes a page of a sweep's results.", epilog=EPILOG,
                    formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", metavar="DIR",
                        help="a result directory of `islands sweep`; default: the newest under ./results")
    parser.add_argument("--against", metavar="B", help="compare with this result directory")
    parser.add_argument("--output", metavar="FOLDER", help="where the page goes; default: DIR/report")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of what is written to stdout")
    return parser.parse_args(arguments)


def write(folder: str, name: str, content: str) -> None:
    with writing(os.path.join(folder, name)) as file:
        file.write(content)


def report(sweep: results.Sweep, output: str, command: str) -> list[Claim]:
    """Writes the page and what belongs beside it; returns its claims."""
    from reporting import claims, drawing, heat_map, page, plots  # matplotlib is looked for only where plots are made

    found, styles, figures = claims.claims_of(sweep), drawing.Styles(sweep), []
    way = os.path.relpath(sweep.directory, output)
    for figure in sweep.figures:
        chosen, notes = plots.plots_of(figure)
        shown = []
        for plot in chosen:
            svg = drawing.draw(plot, styles)
            write(output, f"{plot.name}.svg", drawing.standalone(svg, plot.name))
            write(output, f"{plot.name}.csv", plot.csv())
            write(output, f"{plot.name}-runs.csv", plot.runs_csv(f"{way}/{figure.name}"))
            shown.append((plot, drawing.inline(svg, plot.name, page.description(plot))))
        remark = [claims.REMARKS[figure.name]] if figure.name in claims.REMARKS else []
        figures.append((figure, shown, remark + notes))
    trips, picture = sweep.round_trips, None
    if trips and trips.pairs:
        svg = heat_map.draw(trips)
        write(output, f"{heat_map.NAME}.svg", drawing.standalone(svg, heat_map.NAME))
        picture = drawing.inline(svg, heat_map.NAME, text("Round trips of a cache line between cores"))
    write(output, "claims.json", json.dumps(claims_document(sweep, found), indent=1, ensure_ascii=False) + "\n")
    write(output, "index.html", page.index(sweep, figures, found, command, way, picture))
    return found


def counts(claims: list[Claim]) -> dict[str, int]:
    """Of verdicts on the direction."""
    verdicts = [claim.verdict for claim in claims]
    return {"agree": verdicts.count("agrees"), "disagree": verdicts.count("disagrees"),
            "cannot_be_told": verdicts.count("cannot be told")}


def size_counts(claims: list[Claim]) -> dict[str, int]:
    return {size: sum(claim.size == size for claim in claims) for size in sizes.SIZES}


def claims_document(sweep: results.Sweep, claims: list[Claim]) -> Document:
    return {"format": 1, "sweep": sweep.name, "machine": sweep.machine_summary, **counts(claims),
            "sizes": size_counts(claims), "tolerance": sizes.TOLERANCE, "claims": [claim.json() for claim in claims]}


def print_report(sweep: results.Sweep, claims: list[Claim], path: str, form: str) -> None:
    if form == "json":
        print(json.dumps({"page": path, "notes": list(sweep.all_notes()), **claims_document(sweep, claims)}, indent=1,
                         ensure_ascii=False))
        return
    for claim in claims:
        here = f"Here, durability {claim.durability}" if claim.durability else "Here"
        size = f"size: {claim.size}" + (f" ({claim.size_here})" if claim.size_here else "")
        print(f"{claim.verdict:<15} {claim.id:<8} {claim.paper} There: {claim.there}. {here}: {claim.here}; {size}")
    for note in sweep.all_notes():
        print(f"note: {note}")
    of = counts(claims)
    if claims:
        print(f"of {len(claims)} claims of the papers {of['agree']} hold here in direction, {of['disagree']} do not, "
              f"{of['cannot_be_told']} cannot be told; in size: "
              + ", ".join(f"{size} {count}" for size, count in size_counts(claims).items()))
    print(f"report: {path}")


def print_comparison(sweep: results.Sweep, other: results.Sweep, output: str, command: str, form: str) -> None:
    from reporting import against

    comparison = against.Comparison(sweep, other)
    write(output, "against.html", against.as_page(comparison, command))
    path = os.path.join(output, "against.html")
    if form == "json":
        print(json.dumps({"page": path, **comparison.json()}, indent=1, ensure_ascii=False))
    else:
        print(against.as_text(comparison))
        print(f"report: {path}")


def fail(arguments: argparse.Namespace, code: int, message: object) -> int:
    """One line for people; with --format json, stdout too is to be one document."""
    print(f"islands report: {message}", file=sys.stderr)
    if arguments.format == "json":
        print(json.dumps({"error": {"message": str(message), "exit_code": code}}, indent=1))
    return code


def main() -> int:
    arguments = parse_arguments()
    command = shlex.join(["islands", "report", *sys.argv[1:]])
    try:
        sweep = results.load(arguments.directory or results.newest("results"))
        other = results.load(arguments.against) if arguments.against else None
    except results.NotResults as fault:
        return fail(arguments, 2, fault)
    output = arguments.output or os.path.join(sweep.directory, "report")
    try:
        os.makedirs(output, exist_ok=True)
        if other:
            print_comparison(sweep, other, output, command, arguments.format)
        else:
            claims = report(sweep, output, command)
            print_report(sweep, claims, os.path.join(output, "index.html"), arguments.format)
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in ("matplotlib", "numpy"):
            raise
        return fail(arguments, 1, "matplotlib is missing: apt-get install python3-matplotlib")
    except OSError as fault:
        return fail(arguments, 1, f"cannot write the report: {fault}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
