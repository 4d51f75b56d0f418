"""What experiments/bench_engines.py found, as tables for the terminal and as an HTML page with charts."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.engines import EMBEDDED, FRONT_DOOR, OPS, OVER_GRPC, Contender
from benchmarks.section import Section, ratio
from reporting.elements import document, table, text
from reporting.style import PALETTE

MEANING = {"none": "none: nothing is promised, nobody waits for a log",
           "lazy": "lazy: a commit outlives its process, and the machine within about a second",
           "sync": "sync: a commit waits for the disk; several may share a sync"}
WIDTH, NAME_WIDTH, BAR_HEIGHT, ROW_HEIGHT, LABEL_WIDTH = 680, 190, 17, 25, 130


def named(contenders: Sequence[Contender], name: str) -> Contender | None:
    return next((contender for contender in contenders if contender.name == name), None)


def sections_of(durability: str, contenders: Sequence[Contender], cores: int) -> list[Section]:
    """One table of what runs in its clients' process, on one core, and one of servers."""
    front, embedded = named(contenders, FRONT_DOOR), named(contenders, EMBEDDED)
    inside = Section(f"{MEANING[durability]}. In the program's own process, on one core; x = times islands",
                     "engine, threads", [(f"{op}{unit}", form) for op in OPS
                                         for unit, form in (("/s", "{:,.0f}"), (" x", "{:.3g}"))])
    beside = Section(f"{MEANING[durability]}. Servers; their clients share the {cores} cores of this machine with "
                     "them; x = times islands through the front door, xe = times islands in the program",
                     "server, clients", [(f"{op}{unit}", form) for op in OPS for unit, form in
                                         (("/s", "{:,.0f}"), (" x", "{:.3g}"), (" xe", "{:.2g}"))])
    for contender in contenders:
        section, cells = (beside if contender.server else inside), []
        for op in OPS:
            rate = contender.median(op)
            bases = [front, embedded] if contender.server else [embedded]
            cells += [rate, *(ratio(rate, base.median(op) if base else None) for base in bases)]
        section.row(with_clients(contender), *cells)
    if front:
        beside.note("update is left out through the front door: a client would read, then write, in two calls")
    return [inside, beside]


def workloads_section(durability: str, contenders: Sequence[Contender], loads: Sequence[str]) -> Section:
    embedded = named(contenders, EMBEDDED)
    section = Section(f"{MEANING[durability]}. Workloads' own transactions; servers and their clients have all cores, "
                      "others one; x = times islands", "engine, clients",
                      [(f"{load}{unit}", form) for load in loads
                       for unit, form in (("/s", "{:,.0f}"), (" x", "{:.3g}"))])
    for contender in contenders:
        rates = [contender.median(load) for load in loads]
        section.row(with_clients(contender),
                    *(cell for load, rate in zip(loads, rates)
                      for cell in (rate, ratio(rate, embedded.median(load) if embedded else None))))
    return section


def with_clients(contender: Contender) -> str:
    """"PostgreSQL 15, 8/16/8": for each operation in turn; one number if it is the same."""
    counts = [str(contender.best[op]) for op in contender.ops]
    return f"{contender.title}, {counts[0] if len(set(counts)) == 1 else '/'.join(counts)}"


def bars(contenders: Sequence[Contender], op: str) -> str:
    """Lying bars, the longest on top, each with its figure and how often it is that of the first, islands."""
    found = [(contender, rate) for contender in contenders if (rate := contender.median(op)) is not None]
    found.sort(key=lambda pair: -pair[1])
    most = max(rate for _, rate in found)
    height = ROW_HEIGHT * len(found) + 4
    parts = [f'<svg class="plot" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(op)}" '
             f'font-size="13">']
    for index, (contender, rate) in enumerate(found):
        y = 2 + index * ROW_HEIGHT
        width = max(1.0, (WIDTH - NAME_WIDTH - LABEL_WIDTH) * rate / most)
        series = 0 if contender.title.startswith("islands") else 5 if contender.server else 1
        tip = f"{contender.title}: {rate:,.0f} transactions/s, from {min(contender.rates[op]):,.0f} to " \
              f"{max(contender.rates[op]):,.0f}, {contender.best[op]} clients"
        parts.append(f'<g><title>{text(tip)}</title>'
                     f'<text x="{NAME_WIDTH - 8}" y="{y + 13}" text-anchor="end">{text(contender.title)}</text>'
                     f'<rect x="{NAME_WIDTH}" y="{y}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2" '
                     f'fill="var(--series-{series}, {PALETTE[series][0]})"/>'
                     f'<text x="{NAME_WIDTH + width + 6:.1f}" y="{y + 13}">{rate:,.0f}</text></g>')
    return "".join(parts) + "</svg>"


def chart_pairs(contenders: Sequence[Contender], ops: Sequence[str]) -> Iterator[str]:
    """Servers have a scale of their own: else nothing of them could be seen."""
    for op in ops:
        inside = [contender for contender in contenders if not contender.server]
        servers = [contender for contender in contenders if contender.server and op in contender.rates]
        yield (f'<div class="panel"><h3>{text(op)}</h3><figure>{bars(inside, op)}<figcaption>Transactions per second, '
               "in the program's process, on one core</figcaption></figure>"
               + (f"<figure>{bars(servers, op)}<figcaption>Transactions per second of servers, clients on the same "
                  "cores</figcaption></figure>" if servers else "") + "</div>")


def html_table(section: Section) -> str:
    rows = [[text(label), *("–" if value is None else text(form.format(value))
                            for value, (_, form) in zip(values, section.columns))] for label, values in section.rows]
    head = [text(section.label), *(text(name) for name, _ in section.columns)]
    return f'<div class="wide">{table(rows, head)}</div>'


def facts_table(contenders: Sequence[Contender]) -> str:
    rows = [[text(contender.title), text(contender.facts.get("keeps", "")), text(contender.facts.get("isolation", "")),
             text(contender.facts.get("memory_mib", "–"))] for contender in contenders
            if contender.name not in (FRONT_DOOR, OVER_GRPC)]
    return f'<div class="wide">{table(rows, ["engine", "what is kept", "isolation", "memory, MiB"])}</div>'


def page(found: Mapping[str, Sequence[Contender]], workloads: Mapping[str, Sequence[Contender]],
         notes: Sequence[str], summary: str, command: str, cores: int) -> str:
    parts = [f"<header><h1>Engines side by side</h1><p class=\"muted\">{text(summary)}</p></header><main>",
             "<p>The same transactions, each on ten rows of 250 bytes, over the same rows: <b>read</b> takes ten rows "
             "to the client, <b>update</b> reads, changes and writes ten whole rows, <b>add</b> adds 1 to ten counters "
             "in each engine's own best way. Medians of turns; after each turn the counters have been added up. How "
             "each engine is set up, and why that is fair: experiments/peers/README.md.</p>"]
    if notes:
        parts.append("<ul>" + "".join(f"<li>{text(note)}</li>" for note in notes) + "</ul>")
    for durability, contenders in found.items():
        parts.append(f"<h2>{text(MEANING[durability])}</h2>")
        parts += chart_pairs(contenders, OPS)
        for section in sections_of(durability, contenders, cores):
            if section.rows:
                parts += [f'<p class="small">{text(section.title)}</p>', html_table(section)]
        parts.append(facts_table(contenders))
    for durability, contenders in workloads.items():
        loads = contenders[0].ops
        parts.append(f"<h2>Workloads, {text(MEANING[durability])}</h2>"
                     "<p>Each workload's own rows, generators and procedures; after every turn its audit has seen all "
                     "rows. Of TPC-C four warehouses with a tenth of the customers and items.</p>")
        parts += chart_pairs(contenders, loads)
        parts += [html_table(workloads_section(durability, contenders, loads)), facts_table(contenders)]
    parts.append(f"<footer>Made by <code>{text(command)}</code>. Every single measurement: engines.json.</footer>"
                 "</main>")
    return document("Engines side by side", "\n".join(parts))
