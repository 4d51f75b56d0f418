"""The style sheet of the report: light, dark and paper. Nothing of it comes from elsewhere."""

from collections.abc import Mapping

# Series on light and on dark ground; chosen to differ for the colour-blind, in lightness too.
PALETTE = [("#c9460a", "#ff9257"), ("#0069b4", "#62b5ff"), ("#00805a", "#3ed3a0"), ("#9c3d86", "#e994d3"),
           ("#8f6a00", "#edc34a"), ("#586174", "#aeb8c9"), ("#6b3fa8", "#b79cf5"), ("#00768a", "#5cd4e4")]

LIGHT = {"ground": "#ffffff", "text": "#1d232b", "muted": "#5c6570", "grid": "#e3e6ea", "line": "#d3d8de",
         "panel": "#f5f7f9", "link": "#0a5ba8", "agrees": "#0b6b47", "agrees-ground": "#dcf3e8", "disagrees": "#a33a00",
         "disagrees-ground": "#fde7da", "unknown": "#4d5663", "unknown-ground": "#e9edf1"}
DARK = {"ground": "#14181d", "text": "#e4e8ed", "muted": "#9aa5b1", "grid": "#2b323a", "line": "#38414b",
        "panel": "#1c2229", "link": "#7cbcff", "agrees": "#5ddbaa", "agrees-ground": "#123a2c", "disagrees": "#ffa070",
        "disagrees-ground": "#47240f", "unknown": "#b4bfcb", "unknown-ground": "#2a323b"}


def variables(colours: Mapping[str, str], shade: int) -> str:
    series = {f"series-{index}": pair[shade] for index, pair in enumerate(PALETTE)}
    return " ".join(f"--{name}: {value};" for name, value in {**colours, **series}.items())


RULES = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--text); font: 16px/1.5 var(--font); }
main, header { max-width: 1180px; margin: 0 auto; padding: 0 28px; }
header { padding-top: 36px; }
h1 { font-size: 30px; line-height: 1.2; margin: 0 0 6px; }
h2 { font-size: 22px; margin: 52px 0 4px; padding-top: 14px; border-top: 2px solid var(--line); }
h3 { font-size: 17px; margin: 0 0 10px; }
p { margin: 8px 0; max-width: 78ch; }
a { color: var(--link); }
.muted { color: var(--muted); }
.small { font-size: 14px; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 20px 0 8px; }
.tile { border-radius: 8px; padding: 10px 18px 12px; min-width: 150px; }
.tile b { font-size: 30px; line-height: 1.1; display: block; }
.agrees { color: var(--agrees); background: var(--agrees-ground); }
.disagrees { color: var(--disagrees); background: var(--disagrees-ground); }
.unknown { color: var(--unknown); background: var(--unknown-ground); }
.verdict { display: inline-block; border-radius: 4px; padding: 1px 8px; font-size: 14px; font-weight: 600;
  white-space: nowrap; }
nav { margin: 14px 0; display: flex; flex-wrap: wrap; gap: 4px 20px; font-size: 15px; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: 14px 18px; font-size: 14px;
  line-height: 1.45; overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; margin: 8px 0; font-size: 14.5px; }
th, td { text-align: left; vertical-align: top; padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--muted); }
thead th { border-bottom: 2px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.wide { overflow-x: auto; }
table.claims { width: 100%; } table.claims .reference { display: block; color: var(--muted); font-size: 12.5px; }
table.claims td:first-child { white-space: nowrap; } table.claims th:nth-child(2) { width: 34%; }
table.claims th:nth-child(3) { width: 13%; } table.claims th:nth-child(4) { width: 22%; }
table.claims td:last-child, table.claims th:last-child { padding-right: 0; }
ul { margin: 8px 0; padding-left: 22px; max-width: 100ch; }
.overview { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 8px 40px; }
.overview table { width: 100%; }
.overview td, .overview pre { overflow-wrap: anywhere; }
code { font-size: 0.92em; overflow-wrap: anywhere; }
.panel { display: grid; grid-template-columns: minmax(0, 680px) minmax(0, 1fr); gap: 4px 36px; margin: 26px 0 34px; }
.panel > h3 { grid-column: 1 / -1; margin: 0 0 4px; }
.panel figure { margin: 0; min-width: 0; }
svg.plot { display: block; width: 100%; height: auto; max-width: 680px; color: var(--text); overflow: visible; }
svg.plot text { fill: currentColor; }
figcaption { color: var(--muted); font-size: 13.5px; margin-top: 6px; }
.claim { border-left: 4px solid var(--line); padding: 0 0 2px 14px; margin: 0 0 20px; background: none; }
.claim.agrees { border-color: var(--agrees); } .claim.disagrees { border-color: var(--disagrees); }
.claim.agrees, .claim.disagrees, .claim.unknown { background: none; color: inherit; }
.claim p { margin: 4px 0; font-size: 15px; line-height: 1.42; }
.claim dl { display: grid; grid-template-columns: auto 1fr; gap: 1px 10px; margin: 4px 0 0; font-size: 14px;
  line-height: 1.42; }
.claim dt { color: var(--muted); } .claim dd { margin: 0; min-width: 0; }
.claim .reference { color: var(--muted); font-size: 13px; }
details { margin-top: 8px; font-size: 14px; } summary { cursor: pointer; color: var(--link); }
details:not([open]) + .numbers { display: none; }
.numbers table { font-size: 13px; } .numbers td, .numbers th { padding: 3px 14px 3px 0; }
.numbers .spread { display: block; color: var(--muted); font-size: 11.5px; }
footer { margin: 60px 0 40px; color: var(--muted); font-size: 14px; border-top: 1px solid var(--line);
  padding-top: 12px; }
@media screen and (max-width: 1000px) { .panel, .overview { grid-template-columns: minmax(0, 1fr); } }
@media print {
  @page { size: A4; margin: 14mm 14mm 16mm; }
  body { font-size: 10.5pt; } main, header { max-width: none; padding: 0; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  h1 { font-size: 20pt; } h3 { break-after: avoid; }
  h2 { font-size: 14pt; margin-top: 26px; break-after: avoid; break-inside: avoid; }
  h2 + p.muted { break-after: avoid; } nav, summary, .files { display: none; }
  a { color: inherit; text-decoration: none; } p { orphans: 3; widows: 3; }
  .overview, .panel { display: block; } .panel { margin: 14px 0 20px; } svg.plot { max-width: 600px; }
  .panel figure > svg, .claim, tr, pre, .tiles { break-inside: avoid; } .panel > h3, svg.plot { break-after: avoid; }
  table { font-size: 8.5pt; } th, td { padding: 4px 10px 4px 0; } pre { white-space: pre-wrap; font-size: 8.5pt; }
  .verdict { font-size: 8.5pt; } .claims-beside { margin-top: 12px; }
  .claim { margin-bottom: 10px; } .claim p, .claim dl { font-size: 9.5pt; } .claim p.reference { font-size: 8.5pt; }
  details:not([open]) + .numbers, .numbers { display: block; break-inside: avoid; }
  .numbers table { font-size: 8pt; } .numbers td, .numbers th { padding: 2px 10px 2px 0; }
  .numbers .spread { font-size: 6.5pt; } .wide { overflow: visible; } footer { margin: 30px 0 0; }
}
"""


def sheet() -> str:
    """The whole style sheet. Dark is for screens only: paper is light."""
    font = '--font: system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, "Liberation Sans", sans-serif;'
    return (f":root {{ color-scheme: light dark; {font} {variables(LIGHT, 0)} }}\n"
            f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {variables(DARK, 1)} }} }}\n"
            "@media print { :root { color-scheme: light; } }\n" + RULES.strip())
