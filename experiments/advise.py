#!/usr/bin/env python3
"""Predicts every layout's throughput under a load, from a few short runs of each, measures those that are close in
turns, and recommends one, with its settings."""

import argparse
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Mapping, Sequence

from advising import advice, written
from advising.advice import Case, Verdict
from advising.contest import Contest
from advising.model import MULTISITE_ANCHORS, ZIPF_ANCHORS, Load, Measured, Model, Predictor
from advising.trials import Laboratory, experiment_of
from durability import DURABILITIES, EXPECTED, LOG, settings_of, word_of
from islands_command import (ROOT, Document, Failed, Interrupted, Islands, WorkloadDescription, complain,
                             handle_signals, interrupt, json_of, misplaced, option, without_effect, wrong_value)
from sweeping import results as result_files
from sweeping.cluster import PLACES
from sweeping.machine import LAYOUT, LAYOUTS, Machine
from sweeping.plan import Point
from sweeping.sweep_file import CLIENTS, Measure
from sweeping.tree import BadFile, Reader, Scalar

EPILOG = """The short runs of a workload that draws its rows as the microbenchmark does are at 0, 5, 20 and 100 %
multisite, and zipf 0, 0.5, 0.75 and 1 if any skew is asked about, on every layout: once made (--results DIR) they
answer for any percentage and skew. Other workloads are measured as they are. Layouts that come close are then measured
under the very load, in turns, until one is known to be the best or as good as the others; and that one with other
settings. experiments/README.md explains the model.

Data and logs of the runs are their own, in a temporary folder (where TMPDIR says), and destroyed after them: the
directories that FILE names are never touched. Runs are kept, and nothing there is removed: those of another build,
machine, load or length go beside.

examples:
  islands advise my.yaml --op update --multisite 20
  islands advise my.yaml --op update --multisite 20 --write best.yaml
  islands advise my.yaml --op update --multisite 0 10 50 --zipf 0 0.8 --validate
  islands advise my.yaml --op update --zipf 0.8 --skew table --clients deployment
  islands advise my.yaml --workload tatp --mix update
  islands advise my.yaml --op update --multisite 20 --durability none lazy sync
  islands advise --workload tatp --help           parameters of another workload

exit codes: 0 ok, 1 failed, 2 usage or invalid file, 130 interrupted"""


SETTINGS = ("placement", "hardware_threads", "cores", "sites", "transport")
IN_TURNS, WITH_SETTINGS, VALIDATION = 1000, 2000, 3000  # where their repetitions begin: nothing is judged by the runs
#                                                         that led to it
MODELLED = ("multisite", "zipf", "rows")  # a workload that has these is predicted, for several values of the first two


def add_parameters(parser: argparse.ArgumentParser, workload: str, description: WorkloadDescription) -> None:
    group = parser.add_argument_group(f"parameters of {workload}")
    for parameter in description["parameters"]:
        default = f"; default {parameter['preset']}" if "preset" in parameter else ""
        group.add_argument(option(parameter["name"]), dest=f"of_{parameter['name']}",
                           nargs="+" if is_modelled(description) and parameter["name"] in MODELLED[:2] else 1,
                           metavar=parameter["kind"].upper(),
                           help=f"{parameter['help']}; {parameter['expected']}{default}".replace("%", "%%"))


def is_modelled(description: WorkloadDescription) -> bool:
    return set(MODELLED) <= {parameter["name"] for parameter in description["parameters"]}


def number(text: str) -> Scalar:
    """What a word of the command line is: a number, if it looks like one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def read_parameters(parser: argparse.ArgumentParser, arguments: argparse.Namespace,
                    description: WorkloadDescription) -> None:
    """Sets `parameters`, and `multisite` and `zipf`, of which there may be several."""
    arguments.modelled = is_modelled(description)
    arguments.multisite, arguments.zipf, arguments.parameters = [0.0], [0.0], {}
    for parameter in description["parameters"]:
        name = parameter["name"]
        given = getattr(arguments, f"of_{name}")
        if given is None and "preset" not in parameter:
            continue
        values = [number(text) for text in given or [parameter["preset"]]]
        for value in values:
            if wrong_value(parameter, value):
                parser.error(f"{option(name)}: found {value}, expected {parameter['expected']}")
        if arguments.modelled and name in MODELLED[:2]:
            setattr(arguments, name, values)
        elif given or arguments.modelled:
            arguments.parameters[name] = values[0]
    for parameter in description["parameters"]:
        if what := misplaced(parameter, arguments.parameters, description):
            parser.error(what)
    asked = [arguments.parameters | ({"multisite": multisite, "zipf": zipf} if arguments.modelled else {})
             for multisite in arguments.multisite for zipf in arguments.zipf]
    for what in without_effect(asked, description):
        parser.error(what)


def describe(parser: argparse.ArgumentParser, islands: Islands, workload: str) -> WorkloadDescription:
    try:
        found = islands.describe(workload)
    except (Failed, OSError) as failure:
        parser.error(str(failure))
    if found is None:
        parser.error(f"--workload: found '{workload}', expected one that is built in {islands.library}")
    return found


def parse_arguments(islands: Islands) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="islands advise", epilog=EPILOG, allow_abbrev=False,
                                     description="Predicts every layout's throughput under a load; recommends one.",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE", help="a deployment file; its layout does not matter")
    parser.add_argument("--workload", default="micro", help="its name, or the path of its object; default micro")
    parser.add_argument("--mpl", type=int, default=16, help="transactions in flight per worker; default 16")
    parser.add_argument("--clients", choices=CLIENTS, default=CLIENTS[0],
                        help="whose: each island's own, or the whole deployment's, which go where their next "
                             "transaction's first row is (micro: with --skew table); default island")
    parser.add_argument("--layouts", nargs="+", metavar="NISL", help="default: from 1ISL to one island per core")
    parser.add_argument("--durability", nargs="+", choices=DURABILITIES, metavar="DURABILITY",
                        help=f"what is asked about: {EXPECTED} (+forced: with votes forced); default: as FILE says")
    parser.add_argument("--seconds", type=float, default=0.6, help="measured per run; default 0.6")
    parser.add_argument("--warmup", type=float, default=0.2, help="before each; default 0.2")
    parser.add_argument("--repeat", type=int, default=2, help="times each; default 2")
    parser.add_argument("--rounds", type=int, default=12,
                        help="in turns, of layouts that come close and of settings, at most; 0: predict only; "
                             "default 12")
    parser.add_argument("--settings", nargs="+", choices=(*SETTINGS, "none"), default=list(SETTINGS), metavar="SETTING",
                        help=f"which of the best layout are tried, where they make a difference: "
                             f"{', '.join(SETTINGS)} (cores: one of each island left free; sites: one for each island, "
                             "which no more islands can share later), none; default: all")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the runs; default 1")
    parser.add_argument("--write", metavar="NEW", help="FILE with what is recommended, as a new file; of several loads "
                        "with the layout that is least behind at its worst")
    parser.add_argument("--validate", action="store_true",
                        help="also run what is predicted, on every layout; print errors and the regret of the advice")
    parser.add_argument("--results", metavar="DIR", help="where the runs are kept, and found again; default: a new "
                        "directory under ./results")
    parser.add_argument("--again", action="store_true",
                        help="with --results: make those runs again, beside the old ones, in which others had the "
                             "cores")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="of what is written to stdout")
    first = argparse.ArgumentParser(prog=parser.prog, usage=argparse.SUPPRESS, add_help=False, allow_abbrev=False)
    first.add_argument("--workload", default="micro")
    workload = first.parse_known_args()[0].workload
    description = describe(parser, islands, workload)
    add_parameters(parser, workload, description)
    arguments = parser.parse_args()
    for name, value, low, high in (("mpl", arguments.mpl, 1, 1000), ("seconds", arguments.seconds, 0.1, 3600),
                                   ("warmup", arguments.warmup, 0, 3600), ("repeat", arguments.repeat, 1, 100),
                                   ("rounds", arguments.rounds, 0, 100),
                                   ("seed", arguments.seed, 0, 2**32)):
        if not low <= value <= high:
            parser.error(f"--{name}: found {value:g}, expected {low} to {high}")
    for layout in arguments.layouts or []:
        if not LAYOUT.match(layout):
            parser.error(f"--layouts: found '{layout}', expected {LAYOUTS}")
    if arguments.write and os.path.lexists(arguments.write):
        parser.error(f"--write: found {arguments.write}, which is there; expected the name of a new file")
    if "none" in arguments.settings:
        arguments.settings = []
    read_parameters(parser, arguments, description)
    if arguments.clients == "deployment" and arguments.modelled and arguments.parameters.get("skew") != "table":
        parser.error("--clients: found deployment, expected island, or --skew table: without it no island is hot")
    arguments.description, arguments.table = description, description["rows_total_of"]
    return arguments


def anchors(arguments: argparse.Namespace) -> dict[str, list[float]]:
    """Axes of the calibration. Skews only if asked about: they are four times the runs."""
    if not arguments.modelled:
        return {"multisite": [0], "zipf": [0]}
    return {"multisite": [*MULTISITE_ANCHORS], "zipf": [*(ZIPF_ANCHORS if any(arguments.zipf) else ZIPF_ANCHORS[:1])]}


def islands_of(layout: str) -> int:
    return int(layout.removesuffix("ISL"))


def load_of(arguments: argparse.Namespace, sites: int) -> Load:
    """Rows of the workload's table, as the deployment file says."""
    tables = Reader(arguments.file).tree().plain_mapping().get("data", {}).get("tables", [])
    begin, end = next((table["range"] for table in tables if table.get("name") == arguments.table),
                      (0, 240_000))
    told = arguments.parameters
    return Load(told["rows"], end - begin, sites, told.get("op") != "read", told.get("skew", "per_site"),
                arguments.clients)


def shortest(number: float) -> Scalar:
    """20 and 20.0 are one load, and have one name."""
    return int(number) if number == int(number) else number


class Adviser:
    """Asks the laboratory, and makes a case of each load."""

    def __init__(self, arguments: argparse.Namespace, machine: Machine, laboratory: Laboratory, load: Load | None,
                 own: Mapping[str, Scalar]) -> None:
        """`own`: settings of the file."""
        self.arguments, self.machine, self.laboratory, self.load, self.own = arguments, machine, laboratory, load, own
        self.models: dict[str, dict[str, Predictor]] = {}  # by durability, by layout
        self.pools: dict[str, dict[str, advice.Pools]] = {}  # likewise, as the runs have found them
        self.noise, self.calibration_runs, self.runs_made = 0.0, 0, 0
        self.others: list[str] = []  # what is to be said of who else used the cores

    def point(self, layout: str, durability: str, multisite: float, zipf: float) -> Point:
        load: Point = {"multisite": shortest(multisite), "zipf": shortest(zipf)} if self.arguments.modelled else {}
        return {"layout": layout, "durability": durability, **load}

    def point_of(self, case: Case, layout: str) -> Point:
        return self.point(layout, word_of(case["durability"], case["votes"]), case["multisite"], case["zipf"])

    def calibrate(self, durability: str) -> None:
        """Models of all layouts, from a few runs of each."""
        axes = anchors(self.arguments)
        places = [(layout, float(multisite), float(zipf)) for layout in self.arguments.layouts
                  for multisite in axes["multisite"] for zipf in axes["zipf"]]
        points = {place: self.point(place[0], durability, *place[1:]) for place in places}
        self.laboratory.measure([*points.values()], range(self.arguments.repeat))
        self.calibration_runs += len(points) * self.arguments.repeat
        rates = {place: [self.laboratory.rate(point, repetition) for repetition in range(self.arguments.repeat)]
                 for place, point in points.items()}
        medians: dict[str, dict[tuple[float, float], float]] = {}
        for (layout, multisite, zipf), found in rates.items():
            medians.setdefault(layout, {})[multisite, zipf] = statistics.median(found)
        self.noise = max(self.noise, advice.noise_of([*rates.values()]))
        self.pools[durability] = {place[0]: pools for place, point in points.items()
                                  if (pools := advice.pools_of(self.laboratory.summary(point, 0)))}
        self.models[durability] = {
            layout: self.model_of(islands_of(layout), anchor) for layout, anchor in medians.items()}

    def model_of(self, islands: int, anchors: Mapping[tuple[float, float], float]) -> Predictor:
        if self.load is None:
            return Measured(islands, anchors[0, 0])
        return Model(islands, self.load, anchors)

    def predicted(self, durability: str, multisite: float, zipf: float) -> Case:
        models, modelled = self.models[durability], self.load is not None
        ranking = advice.rank(models, multisite, zipf, self.noise)
        for row in ranking:
            if pools := self.pools[durability].get(row["layout"]):
                row["pool_bytes"], row["held"], row["paged"] = pools["pool_bytes"], pools["held"], pools["paged"]
        case: Case = {"durability": settings_of(durability)["durability"], "votes": settings_of(durability)["votes"],
                      "multisite": multisite, "zipf": zipf, "recommended": ranking[0]["layout"], "settings": {},
                      "ranking": ranking, "variants": []}
        if modelled and len(ranking) > 1:
            case["changes"] = advice.changes(models, multisite, zipf, any(self.arguments.zipf))
        return case

    def confirm(self, cases: Sequence[Case]) -> None:
        """Layouts that are close are measured in turns, those of all cases together: fewer clusters to start."""
        contests = [(case, Contest(advice.close(case["ranking"]))) for case in cases]
        number = 0
        while due := [(case, contest, names) for case, contest in contests
                      if (names := contest.due(self.arguments.rounds))]:
            points = [self.point_of(case, name) for case, _, names in due for name in names]
            self.laboratory.measure(points, [IN_TURNS + number])
            for case, contest, names in due:
                contest.add({name: self.laboratory.rate(self.point_of(case, name), IN_TURNS + number)
                             for name in names})
            number += 1
        alone = [case for case, contest in contests if not contest.rounds] if self.arguments.rounds else []
        self.laboratory.measure([self.point_of(case, case["recommended"]) for case in alone], [IN_TURNS])
        for case, contest in contests:
            if contest.rounds:
                advice.confirm(case, contest)
            elif case in alone:
                case["decided"] = True  # nobody came close
            if self.arguments.rounds:
                last = self.laboratory.summary(self.point_of(case, case["recommended"]),
                                               IN_TURNS + max(contest.rounds, 1) - 1)
                if hot := advice.limiting(last):
                    case["limits"] = hot
            if self.load and len(case["ranking"]) > 1:
                models = self.models[word_of(case["durability"], case["votes"])]
                case["why"] = advice.why(models, case["ranking"], case["zipf"])

    def variants(self, case: Case) -> list[tuple[str, Scalar]]:
        """Settings of the recommended layout that make a difference on this machine, but those of the file."""
        layout = case["recommended"]
        found: list[tuple[str, Scalar]] = []
        for setting in self.arguments.settings:
            if setting == "cores":
                found += [("cores", cpus)] if (cpus := self.one_core_free(case)) else []
                continue
            values: Sequence[Scalar] = (self.machine.values(setting) or ([], None))[0]
            if setting == "sites":
                values = [islands_of(layout)]
            if setting == "placement" and self.machine.domains == 1:
                values = [value for value in values if value != "spread"]
            if setting == "transport":  # one island has nobody to send to
                values = ["shm", "uds", "zmq"] if islands_of(layout) > 1 else []
            found += [(setting, value) for value in values if value != self.own[setting]]
        return found

    def one_core_free(self, case: Case) -> str:
        """A CPU list with all but the last core of each island, "" if one would have none."""
        islands = self.laboratory.resolved(self.point_of(case, case["recommended"]))["islands"]
        if self.own["placement"] == "os" or any(island["workers"] < 2 for island in islands):
            return ""
        return ",".join(str(cpu) for island in islands for cpu in island["worker_cpus"][:-1])

    def settle(self, cases: Sequence[Case]) -> None:
        """Settings of the recommended layouts, in turns with these as they are. One that is better beyond the noise is
        taken; of several the best, since what they do together was not measured. What a workload cannot do with a
        setting is told by its run, and left out."""
        contests = []
        for case in cases:
            base = self.point_of(case, case["recommended"])
            settings = {f"{name} {value}": (name, value) for name, value in self.variants(case)}
            points = {"": base} | {words: {**base, name: value} for words, (name, value) in settings.items()}
            contests.append((case, settings, points, Contest([*points])))
        if all(len(points) == 1 for _, _, points, _ in contests):
            return
        laboratory = self.laboratory.of_kind("settings")
        number = 0
        while due := [(points, contest, names) for _, _, points, contest in contests
                      if (names := contest.due(self.arguments.rounds))]:
            for _, _, names in due:
                if "" not in names:
                    names.append("")  # what all are compared with
            this_round = WITH_SETTINGS + number
            laboratory.measure([points[name] for points, _, names in due for name in names], [this_round],
                               may_fail=True)
            for points, contest, names in due:
                for name in names:
                    if name and not laboratory.held(points[name], this_round):
                        contest.leave_out(name)
                contest.add({name: laboratory.rate(points[name], this_round) for name in names
                             if name in contest.rates})
            number += 1
        self.runs_made += laboratory.made
        self.others.append(laboratory.others_on_cores())
        for case, settings, points, contest in contests:
            if not contest.rounds:
                continue
            beside = {words: contest.beside(words, "") for words in settings if words in contest.rates}
            case["variants"] = [{"setting": settings[words][0], "value": settings[words][1],
                                 "beside": advice.share_of(found)} for words, found in beside.items()]
            better = [words for words, found in beside.items() if found.share.low > 1]
            if better:
                name, value = settings[max(better, key=lambda words: beside[words].share.ratio)]
                case["settings"][name] = value

    def validate(self, cases: Sequence[Case]) -> Verdict:
        """By runs of their own, of every layout, in turns."""
        wanted = {(word_of(case["durability"], case["votes"]), row["layout"], case["multisite"], case["zipf"]):
                  self.point_of(case, row["layout"]) for case in cases for row in case["ranking"]}
        repetitions = range(VALIDATION, VALIDATION + self.arguments.repeat)
        self.laboratory.measure([*wanted.values()], repetitions)
        return advice.judge(cases, {place: [self.laboratory.rate(point, repetition) for repetition in repetitions]
                                    for place, point in wanted.items()})


def plan_of(islands: Islands, file: str) -> Document:
    """What `islands plan` says; BadFile with all that is wrong. Not `check`: directories need not be usable here."""
    plan: Document = json_of([islands.binary, "plan", file, "--format", "json"], codes=(0, 2))
    if "error" in plan:
        raise BadFile(plan["error"]["message"])
    return plan


def run(arguments: argparse.Namespace, islands: Islands) -> int:
    begin = time.monotonic()
    tree = Reader(arguments.file).tree()  # says what is wrong with its name
    plan = plan_of(islands, arguments.file)
    machine = Machine(islands.call("machine"))
    cores = sum(island["workers"] for island in plan["islands"])
    arguments.layouts = arguments.layouts or machine.layouts(min(cores, machine.cores))
    asked = arguments.durability
    # By name, whether the file has it or leaves it to deployments: they are what is advised on.
    arguments.durability = list(dict.fromkeys(asked or [word_of(plan["durability"], plan["votes"])]))
    directory = arguments.results or result_files.new_directory("results", "advise")
    measure: Measure = {"seconds": arguments.seconds, "warmup": arguments.warmup, "repeat": arguments.repeat}
    here = [arguments.file] if plan["machine"]["is_this_machine"] else []
    identity = result_files.identify(islands, machine, *here)
    laboratory = Laboratory(islands, machine, experiment_of(arguments, measure), directory, identity,
                            shlex.join(["islands", "advise", *sys.argv[1:]]), arguments.again)
    own = {"placement": plan["placement"], "transport": plan["transport"], "sites": plan["sites"],
           "hardware_threads": tree.plain_mapping().get("hardware_threads", "one")}
    adviser = Adviser(arguments, machine, laboratory, load_of(arguments, plan["sites"]) if arguments.modelled else None,
                      own)
    cases: list[Case] = []
    for durability in arguments.durability:
        adviser.calibrate(durability)
        cases += [adviser.predicted(durability, multisite, zipf)
                  for multisite in arguments.multisite for zipf in arguments.zipf]
    adviser.confirm(cases)
    adviser.settle(cases)
    verdict = adviser.validate(cases) if arguments.validate else None
    if arguments.write:
        write(arguments, islands, cases, asked[0] if asked and len(asked) == 1 else None)
    show(arguments, adviser, directory, cases, verdict, time.monotonic() - begin)
    return 0


def write(arguments: argparse.Namespace, islands: Islands, cases: Sequence[Case], durability: str | None) -> None:
    """The file with what is recommended; never over another."""
    settings: dict[tuple[str, ...], Scalar] = {("layout",): advice.overall(cases)[0]}
    for name, value in cases[0]["settings"].items() if len(cases) == 1 else ():
        settings[PLACES.get(name, (name,))] = value
    if durability:
        settings.update({(*LOG, name): value for name, value in settings_of(durability).items()})
    reader = Reader(arguments.file)
    text = reader.text
    with open(arguments.write, "x", encoding="utf-8") as out:
        out.write(text)
    try:
        for path, value in settings.items():
            text = written.with_setting(text, Reader(arguments.write).tree(), path, value)
            with open(arguments.write, "w", encoding="utf-8") as out:
                out.write(text)
        plan_of(islands, arguments.write)
    except BaseException:
        os.remove(arguments.write)
        raise


def by_durability(cases: Sequence[Case]) -> list[str]:
    """What the recommended layouts do, beside those of the durability that was asked about first."""
    lines = []
    for load in dict.fromkeys((case["multisite"], case["zipf"]) for case in cases):
        of_load = [case for case in cases if (case["multisite"], case["zipf"]) == load]
        rates = [case["ranking"][0].get("confirmed_per_s", case["ranking"][0]["predicted_per_s"]) for case in of_load]
        lines.append(f"  {load[0]:g} % multisite, zipf {load[1]:g}: " + ", ".join(
            f"{word_of(case['durability'], case['votes'])} {rate:,.0f}/s on {case['recommended']}"
            f"{'' if case is of_load[0] else f' ({rate / rates[0]:.0%})'}" for case, rate in zip(of_load, rates)))
    return lines


def show(arguments: argparse.Namespace, adviser: Adviser, directory: str, cases: list[Case], verdict: Verdict | None,
         seconds: float) -> None:
    load = " ".join(f"{name} {value}" for name, value in arguments.parameters.items())
    machine, runs, noise = adviser.machine.report["summary"], adviser.calibration_runs, adviser.noise
    best, behind = advice.overall(cases)
    disturbance = next(filter(None, [adviser.laboratory.others_on_cores(), *adviser.others]), "")
    if arguments.format == "json":
        print(json.dumps({"workload": arguments.workload, "parameters": arguments.parameters, "mpl": arguments.mpl,
                          "clients": arguments.clients, "machine": machine, "noise": round(noise, 4),
                          "calibration_runs": runs, "runs_made": adviser.runs_made + adviser.laboratory.made,
                          "disturbed": disturbance,
                          "seconds": round(seconds, 1),
                          "results": os.path.abspath(directory), "cases": cases,
                          "overall": {"recommended": best, "most_behind": round(behind, 4)}, "validation": verdict,
                          "written": arguments.write}, indent=1))
        return
    print(f"{arguments.workload} {load}, MPL {arguments.mpl}, clients {arguments.clients}, on {machine}")
    print(f"predicted from {runs} runs of {arguments.seconds:g} s; a prediction may be off by {noise:.0%} for noise "
          "alone" + (" (assumed: --repeat 2 or more measures it)" if arguments.repeat == 1 else "") + "\n")
    if disturbance:
        print(f"not sure: {disturbance}.\nWhen the machine is quieter, the same command with --results "
              f"{os.path.relpath(directory)} --again makes these runs again.\n")
    for case in cases:
        print(advice.case_text(case, arguments.modelled) + "\n")
    if len(arguments.durability) > 1:
        print("by durability:\n" + "\n".join(by_durability(cases)) + "\n")
    if len(cases) > 1:
        print(f"for all of these: {best}; " + (f"at worst {behind:.0%} behind the best" if behind >= 0.005 else
                                               "nowhere behind"))
    if verdict:
        print(f"of {sum(len(case['ranking']) for case in cases)} predictions: median error "
              f"{verdict['median_error']:.1%}, largest {verdict['largest_error']:.1%}")
        print(f"of {len(cases)} recommendations: mean regret {verdict['mean_regret']:.1%}, median "
              f"{verdict['median_regret']:.1%}, largest {verdict['largest_regret']:.1%}")
    if arguments.write:
        print(f"wrote {arguments.write}: " + (f"{best}, the best for all" if len(cases) > 1 else "what is recommended"))
    print(f"took {seconds:.0f} s; runs kept in {os.path.relpath(directory)} (--results uses them again)")


def main() -> int:
    islands = Islands(os.path.dirname(os.environ.get("ISLANDS_BIN", os.path.join(ROOT, "build/release/bin/islands"))))
    if not islands.built():
        return 2
    arguments = parse_arguments(islands)
    handle_signals(interrupt)
    try:
        return run(arguments, islands)
    except BadFile as bad:
        message, code = str(bad), 2
    except Interrupted as name:
        message, code = f"{name}; stopped", 130
    except (Failed, OSError) as failure:
        message, code = str(failure), 1
    complain(message) if code != 2 else print(message, file=sys.stderr)
    if arguments.format == "json":
        print(json.dumps({"error": {"message": message, "exit_code": code}}, indent=1))
    return code


if __name__ == "__main__":
    sys.exit(main())
