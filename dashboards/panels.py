"""Pieces that the dashboards are made of: selections in PromQL, queries, panels, variables.

Every selection carries the variables job and island (of a gateway's metrics job alone), every rate runs over
$__rate_interval, and a ratio aggregates its numerator and its denominator apart, so that islands weigh by what they did
and not one each.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard, heatmap, prometheus, stat, statetimeline, statushistory, table
from grafana_foundation_sdk.builders import timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat as Format

SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
Annotation = tuple[dashboard.AnnotationQuery, dict[str, str | bool]]
Board = tuple[dashboard.Dashboard, list[Annotation]]  # a dashboard, and what is marked on it
FULL, HALF, THIRD, QUARTER, SIXTH = 24, 12, 8, 6, 4

# A gateway is of no island; these of its metrics tell islands apart.
GATEWAY = "islands_gateway_"
BY_ISLAND = {GATEWAY + name for name in ("messages_total", "message_bytes_total", "island_reachable")}

# ---- PromQL ----------------------------------------------------------------------------------------------------------


def select(metric: str, *matchers: str) -> str:
    """The series of a metric that the dashboard's variables choose, and further matchers such as 'scope="local"'."""
    chosen = ["job=~" + quoted("$job")]
    if not metric.startswith(GATEWAY) or metric in BY_ISLAND:
        chosen.append("island=~" + quoted("$island"))
    return f'{metric}{{{", ".join([*chosen, *matchers])}}}'


def quoted(text: str) -> str:
    return f'"{text}"'


def rate(metric: str, *matchers: str) -> str:
    return f"rate({select(metric, *matchers)}[$__rate_interval])"


def total(expression: str, *by: str) -> str:
    return f"sum by ({', '.join(by)}) ({expression})" if by else f"sum({expression})"


def ratio(part: str, whole: str, *by: str) -> str:
    """Nothing, rather than 0/0, where the denominator is 0."""
    return f"{total(part, *by)} / ({total(whole, *by)} > 0)"


def share(part: str, whole: str, *by: str) -> str:
    """Part of a whole that has the labels of `part` but the first of `by`, which tells the parts from each other."""
    rest = by[1:]
    return f"{total(part, *by)} / on ({', '.join(rest)}) group_left () ({total(whole, *rest)} > 0)"


def spread(expression: str) -> str:
    """Imbalance of islands: (max - min) / avg of what each did."""
    each = total(expression, "job", "island")
    return (f"(max by (job) ({each}) - min by (job) ({each})) / (avg by (job) ({each}) > 0)")


def quantile(number: float, metric: str, *by: str) -> str:
    return f"histogram_quantile({number}, {total(rate(metric + '_bucket'), *by, 'le')})"


def lag(ahead: str, behind: str) -> str:
    """Between two of the log's epochs, by island. They are read one after the other: never below 0."""
    epoch = {kind: total(select("islands_log_epoch", f'kind="{kind}"'), "job", "island") for kind in (ahead, behind)}
    return f"clamp_min({epoch[ahead]} - {epoch[behind]}, 0)"


COMMITTED = rate("islands_transactions_total", 'outcome="committed"')
ENDED = rate("islands_transactions_total")
BUSY = rate("islands_worker_seconds_total", 'activity=~"executing|messaging"')
WORKED = rate("islands_worker_seconds_total")
LATENCY = "islands_transaction_latency_seconds"

# ---- Panels ----------------------------------------------------------------------------------------------------------


def query(expression: str, legend: str = "", instant: bool = False,
          form: Format = Format.TIME_SERIES) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(expression).datasource(SOURCE).format(form)
    made.legend_format(legend or "__auto")
    return made.instant() if instant else made.range()


class Panel(Protocol):
    """What the SDK's panels have in common; their only base class is a builder of anything."""
    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def unit(self, unit: str) -> Self: ...
    def datasource(self, datasource: models.DataSourceRef) -> Self: ...
    def span(self, w: int) -> Self: ...
    def height(self, h: int) -> Self: ...
    def with_target(self, target: Builder[Dataquery]) -> Self: ...


P = TypeVar("P", bound=Panel)


def describe(panel: P, title: str, description: str, unit: str, width: int, height: int,
             queries: Iterable[prometheus.Dataquery]) -> P:
    """What every panel has. Queries get the letters A, B, ... as their names."""
    panel.title(title).description(description).unit(unit).datasource(SOURCE).span(width).height(height)
    for number, made in enumerate(queries):
        panel.with_target(made.ref_id(chr(ord("A") + number)))
    return panel


def graph(title: str, description: str, unit: str, *queries: prometheus.Dataquery, width: int = HALF, height: int = 8,
          stacked: bool = False, top: float | None = None) -> timeseries.Panel:
    panel = describe(timeseries.Panel(), title, description, unit, width, height, queries)
    panel.min(0).line_width(1).fill_opacity(30 if stacked else 8).show_points(common.VisibilityMode.NEVER)
    panel.legend(common_builders.VizLegendOptions().display_mode(common.LegendDisplayMode.LIST)
                 .placement(common.LegendPlacement.BOTTOM).show_legend(True).calcs([]))
    panel.tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI)
                  .sort(common.SortOrder.DESCENDING))
    if stacked:
        panel.stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL))
    if top is not None:
        panel.max(top)
    return panel


def number(title: str, description: str, unit: str, expression: str, legend: str = "", width: int = SIXTH,
           steps: Sequence[tuple[float, str]] = (), decimals: float | None = None) -> stat.Panel:
    """One figure; steps are (value, colour) from which on it has that colour."""
    panel = describe(stat.Panel(), title, description, unit, width, 4, [query(expression, legend)])
    if decimals is not None:
        panel.decimals(decimals)
    panel.no_value("-")
    return panel.thresholds(thresholds(*steps))


def thresholds(*steps: tuple[float, str]) -> dashboard.ThresholdsConfig:
    first = models.Threshold(value=None, color="green")
    return (dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE)
            .steps([first] + [models.Threshold(value=value, color=color) for value, color in steps]))


def buckets(title: str, description: str, expression: str, width: int = HALF, height: int = 9) -> heatmap.Panel:
    """Latencies over time: a row per bucket, the darker the more transactions."""
    made = query(expression, "{{le}}", form=Format.HEATMAP)
    panel = describe(heatmap.Panel(), title, description, "short", width, height, [made])
    panel.calculate(False).y_axis(heatmap.YAxisConfig().unit("s"))
    panel.cell_values(heatmap.CellValues().unit("short"))
    return panel.color(heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME)
                       .scheme("Spectral").steps(64).exponent(0.5).fill("dark-orange").reverse(True))


def cells(title: str, description: str, unit: str, *queries: prometheus.Dataquery, width: int = HALF,
          height: int = 9) -> statushistory.Panel:
    """Shares over time: a row per series, coloured from green (0) over yellow to red (1)."""
    panel = describe(statushistory.Panel(), title, description, unit, width, height, queries)
    panel.min(0).max(1).decimals(0).max_data_points(120).show_value(common.VisibilityMode.NEVER)
    return panel.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.CONTINUOUS_GR_YL_RD))


def states(title: str, description: str, expression: str, legend: str, names: Mapping[int, tuple[str, str]],
           width: int = HALF, height: int = 8) -> statetimeline.Panel:
    """names: {value: (text, colour)}."""
    panel = describe(statetimeline.Panel(), title, description, "none", width, height, [query(expression, legend)])
    texts = {str(value): models.ValueMappingResult(text=text, color=color, index=index)
             for index, (value, (text, color)) in enumerate(names.items())}
    return panel.mappings([models.ValueMap(options=texts)]).fill_opacity(80)


def transformation(name: str, **options: object) -> models.DataTransformerConfig:
    return models.DataTransformerConfig(id_val=name, options=options)


def matrix(title: str, description: str, unit: str, expression: str, row: str, column: str, width: int = HALF,
           height: int = 9) -> table.Panel:
    """A table of the last value, coloured by size: `row` downwards, `column` across, both labels that are numbers."""
    made = query(expression, instant=True, form=Format.TABLE)
    panel = describe(table.Panel(), title, description, unit, width, height, [made]).decimals(0).min(0)
    heads = f"{row}\\{column}"  # what Grafana calls the column of rows' names
    numbers = [{"targetField": label, "destinationType": "number"} for label in (row, column)]
    for each in (transformation("convertFieldType", conversions=numbers, fields={}),  # 2 before 10
                 transformation("sortBy", sort=[{"field": column}], fields={}),
                 transformation("groupingToMatrix", rowField=row, columnField=column, valueField="Value",
                                emptyValue="null"),
                 transformation("sortBy", sort=[{"field": heads}], fields={})):
        panel.with_transformation(each)
    panel.override_by_name(heads, [models.DynamicConfigValue(id_val="unit", value="none"),
                                   models.DynamicConfigValue(id_val="custom.align", value="left"),
                                   models.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "auto"})])
    panel.cell_options(common.TableColoredBackgroundCellOptions(mode=common.TableCellBackgroundDisplayMode.GRADIENT))
    return panel.color_scheme(dashboard.FieldColor().mode(models.FieldColorModeId.CONTINUOUS_BLUES))


def labels(title: str, description: str, expression: str, columns: Sequence[str], wide: Sequence[str] = (),
           width: int = FULL, height: int = 6) -> table.Panel:
    """A table of labels, in this order, some of them wide; the value, a constant 1, is left out."""
    made = query(expression, instant=True, form=Format.TABLE)
    # A label that looks like a number is none: version 1.0 is not 1.
    panel = describe(table.Panel(), title, description, "string", width, height, [made]).min_width(90)
    for name in wide:
        panel.override_by_name(name, [models.DynamicConfigValue(id_val="custom.minWidth", value=160)])
    return panel.with_transformation(transformation(
        "organize", excludeByName={"Time": True, "Value": True, "__name__": True},
        indexByName={name: index for index, name in enumerate(columns)}))


def row(title: str) -> dashboard.Row:
    return dashboard.Row(title)


# ---- Dashboards ------------------------------------------------------------------------------------------------------


def variable(name: str, label: str, values: str, description: str, all_value: str = ".+") -> dashboard.QueryVariable:
    """A choice of one or several values of a label; `values` is the query that lists them. "All" is `all_value`."""
    return (dashboard.QueryVariable(name).label(label).description(description).query(values).datasource(SOURCE)
            .multi(True).include_all(True).all_value(all_value).refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.NATURAL_ASC)
            .current(models.VariableOption(text=["All"], value=["$__all"], selected=True)))


def board(uid: str, title: str, description: str,
          further: Iterable[dashboard.QueryVariable] = ()) -> dashboard.Dashboard:
    """An empty dashboard with the variables and links that all have, and `further` variables."""
    made = (dashboard.Dashboard(title).uid(uid).description(description).tags(["islands"]).editable()
            .time("now-15m", "now").refresh("5s").timezone("browser").tooltip(models.DashboardCursorSync.CROSSHAIR))
    # "default" is Grafana's word for its default data source; where that is no Prometheus, it takes the first that is.
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus")
                       .current(models.VariableOption(text="default", value="default", selected=True)))
    made.with_variable(variable("job", "Job", "label_values(islands_island_info, job)",
                                "Prometheus job: one per deployment that is scraped"))
    made.with_variable(variable("island", "Island", 'label_values(islands_island_info{job=~"$job"}, island)',
                                "Islands that are looked at"))
    for each in further:
        made.with_variable(each)
    return made.link(dashboard.DashboardLink("Islands").type(models.DashboardLinkType.DASHBOARDS).tags(["islands"])
                     .include_vars(True).keep_time(True).as_dropdown(False))


def annotation(name: str, color: str, expression: str, title: str, text: str) -> Annotation:
    """A mark, or a region while `expression` is not 0. The SDK does not know how Prometheus words them, so a pair of
    the builder and those fields; generate.py puts them together."""
    made = (dashboard.AnnotationQuery().name(name).datasource(SOURCE).enable(True).icon_color(color).expr(expression))
    return made, {"titleFormat": title, "textFormat": text, "step": "5s", "useValueForTime": False}


RUNS = annotation("Runs", "blue", "max by (job, layout, workload, op, multisite, zipf, run_id) ("
                  + select("islands_experiment_info") + " * on (job, island) group_left (layout) "
                  + select("islands_island_info") + ")", "{{layout}} {{workload}} {{op}}",
                  "run {{run_id}}: multisite {{multisite}} %, Zipf {{zipf}}")
# Not a change of islands_restarts_total, which goes on over restarts: one that takes longer than an interval has none.
RESTARTS = annotation("Restarts", "red", f"max by (job, island) (time() - {select('islands_start_time_seconds')} < 10"
                      f" and on (job, island) {select('islands_restarts_total')} > 0)",
                      "island {{island}} restarted", "of {{job}}")
