"""Dashboard "Islands: experiment": the run being measured, and the runs of a sweep beside each other."""

from panels import (BUSY, COMMITTED, ENDED, FULL, HALF, LATENCY, QUARTER, RUNS, THIRD, WORKED, Board, board, graph,
                    labels, number, query, rate, row, select, spread, total, variable)

CHOSEN = select("islands_experiment_info", 'multisite=~"$multisite"', 'zipf=~"$zipf"')
# The layout is the island's, the other parameters are the run's.
WITH_LAYOUT = "* on (job, island) group_left (layout) " + select("islands_island_info", 'layout=~"$layout"')
RUN = f"(max by (job, island, run_id, multisite, zipf) ({CHOSEN}) {WITH_LAYOUT})"
BY = ("job", "layout", "multisite", "zipf", "run_id")
LEGEND = "{{layout}}, multisite {{multisite}} %, Zipf {{zipf}}"


def of_run(expression: str, *by: str) -> str:
    """The expression while a chosen run is going on, with the run's labels; `by` are labels kept besides."""
    return (f"{total(expression, 'job', 'island', *by)}"
            f" * on (job, island) group_left (run_id, layout, multisite, zipf) {RUN}")


def per_run(expression: str, *by: str) -> str:
    return total(of_run(expression, *by), *BY, *by)


def per_run_ratio(part: str, whole: str) -> str:
    return f"{per_run(part)} / ({per_run(whole)} > 0)"


def experiment() -> Board:
    source = 'islands_experiment_info{job=~"$job"}'
    # Runs of workloads that have no such parameter lack the label: "All" has to match that too.
    variables = [variable("layout", "Layout", 'label_values(islands_island_info{job=~"$job"}, layout)',
                          "Into how many islands"),
                 variable("multisite", "Multisite %", f"label_values({source}, multisite)",
                          "Percentage of transactions that touch several sites", all_value=".*"),
                 variable("zipf", "Skew", f"label_values({source}, zipf)", "Zipf exponent of the keys; 0 is uniform",
                          all_value=".*")]
    made = board("islands-experiment", "Islands: experiment", "The run that is being measured, and those of a "
                 "sweep beside each other: marked by annotations, chosen by layout, multisite percentage and skew.",
                 variables)
    made.with_panel(number("Committed", "Transactions committed per second, while a chosen run is going on.", "ops",
                           per_run(COMMITTED), LEGEND, width=HALF))
    made.with_panel(number("Distributed", "Part of the run's committed transactions that touched several islands.",
                           "percentunit", per_run_ratio(rate("islands_transactions_total", 'outcome="committed"',
                                                             'scope="distributed"'), COMMITTED), LEGEND, width=HALF))
    made.with_panel(graph("Committed, by run", "One line per run, so that the runs of a sweep lie beside each other.",
                          "ops", query(per_run(COMMITTED), LEGEND), width=FULL, height=10))
    made.with_row(row("Why"))
    made.with_panel(graph("Committed, by scope", "Local: one site. Multisite: several sites of one island. "
                          "Distributed: several islands.", "ops",
                          query(total(of_run(COMMITTED, "scope"), "scope"), "{{scope}}"), width=THIRD, stacked=True))
    made.with_panel(graph("Workers' time, by activity", "Workers' seconds per second, while a chosen run is going on.",
                          "none", query(total(of_run(WORKED, "activity"), "activity"), "{{activity}}"),
                          width=THIRD, stacked=True))
    made.with_panel(graph("Busy, by run", "Part of the workers' time spent executing or messaging.", "percentunit",
                          query(per_run_ratio(BUSY, WORKED), LEGEND), width=THIRD, top=1))
    made.with_panel(graph("Latency, 99 %, by run", "Of all scopes.", "s",
                          query("histogram_quantile(0.99, " + total(of_run(rate(LATENCY + "_bucket"), "le"), *BY, "le")
                                + ")", LEGEND), width=QUARTER))
    made.with_panel(graph("Messages per transaction, by run", "Messages sent by all islands for each that committed.",
                          "short", query(per_run_ratio(rate("islands_messages_total", 'direction="sent"'),
                                                       COMMITTED), LEGEND), width=QUARTER))
    made.with_panel(graph("Aborted, by run", "Part of the attempts that aborted.", "percentunit",
                          query(per_run_ratio(rate("islands_transactions_total", 'outcome="aborted"'), ENDED), LEGEND),
                          width=QUARTER))
    made.with_panel(graph("Imbalance", "(max - min) / avg of what the islands commit.", "percentunit",
                          query(spread(COMMITTED), "{{job}}"), width=QUARTER))
    made.with_panel(labels("Run being measured", "All its parameters. Empty while there is none.",
                           f"max without (island, instance) ({CHOSEN} {WITH_LAYOUT})",
                           ["run_id", "layout", "workload", "op", "multisite", "zipf"], wide=["run_id"]))
    return made, [RUNS]
