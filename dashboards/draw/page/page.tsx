// The page: a dashboard's file, drawn over a Prometheus.
//
//   index.html?dashboard=cluster&prometheus=http://localhost:9090&from=MS&to=MS[&interval=1s][&var-island=1]
//
// Times are milliseconds since 1970. `window.drawn` is the report, once all panels are drawn or have failed.
import { createTheme, dateTime, DataFrame, GrafanaTheme2, ThemeContext, TimeRange } from '@grafana/data';
import { GlobalStyles, PanelChrome, useTheme2 } from '@grafana/ui';
import { Component, ReactElement, ReactNode, useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';

import { AnnotationModel, Mark, marksOf } from './annotations';
import { panelOptions, withFields } from './fields';
import { DRAWERS } from './panels';
import { Series, Target, at, frames, over, stepsOf } from './prometheus';
import { VariableModel, Variables, fill, resolve } from './variables';

export interface PanelModel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  datasource?: { type: string; uid: string };
  fieldConfig: { defaults: Record<string, any>; overrides: Array<{
    matcher: { id: string; options?: unknown }; properties: Array<{ id: string; value?: unknown }> }> };
  options?: Record<string, any>;
  targets: Target[];
  transformations?: Array<{ id: string; options: object }>;
  maxDataPoints?: number;
}

interface Dashboard {
  title: string;
  panels: PanelModel[];
  templating: { list: VariableModel[] };
  annotations: { list: AnnotationModel[] };
}

interface PanelReport {
  id: number;
  title: string;
  type: string;
  series: number[]; // of each query: those with a value that is a number
  drawn: boolean;
  error?: string;
}

export interface Report {
  dashboard: string;
  panels: PanelReport[];
  marks: Record<string, number>;
  error?: string;
}

declare global {
  interface Window { drawn?: Report }
}

const COLUMNS = 24, CELL_PX = 30, GAP_PX = 8;
const DRAW_WITHIN_MS = 60_000;

interface Surroundings {
  url: string;
  range: TimeRange;
  interval: string;
  variables: Variables;
  marks: Mark[];
}

interface Loaded {
  frames: DataFrame[];
  options: Record<string, any>;
  range: TimeRange;
}

const reports = new Map<number, PanelReport>();
const empty = new Set<number>(); // panels whose queries have no series: nothing is going to be drawn

const isSeries = ({ values }: Series) => values.some(([, value]) => Number.isFinite(Number(value)));

async function load(panel: PanelModel, around: Surroundings, width: number, theme: GrafanaTheme2): Promise<Loaded> {
  const drawer = DRAWERS[panel.type];
  if (!drawer) throw new Error(`cannot draw panels of type ${panel.type}`);
  const options = panelOptions(panel, drawer);
  const steps = stepsOf(around.range, panel.maxDataPoints ?? width, around.interval);
  const report = reports.get(panel.id)!;
  const data: DataFrame[] = [];
  for (const target of panel.targets) {
    const expr = fill(target.expr, around.variables, steps);
    const found = target.instant ? await at(around.url, expr, steps.range) : await over(around.url, expr, steps);
    report.series.push(found.filter(isSeries).length);
    if (found.length) data.push(...frames({ ...target, expr }, found, steps.stepMs));
  }
  const made = await withFields(panel, drawer, data, theme);
  if (!made.length) empty.add(panel.id);
  return { frames: made, options, range: steps.range };
}

// What a panel's drawing throws is the panel's error.
class Guard extends Component<{ failed: (error: Error) => void; children: ReactNode }, { failed: boolean }> {
  state = { failed: false };
  static getDerivedStateFromError() { return { failed: true }; }
  componentDidCatch(error: Error) { this.props.failed(error); }
  render() { return this.state.failed ? null : this.props.children; }
}

function Panel({ panel, around, width, height }: {
  panel: PanelModel; around: Surroundings; width: number; height: number }): ReactElement {
  const theme = useTheme2();
  const [loaded, setLoaded] = useState<Loaded>();
  const [error, setError] = useState<string>();
  const fail = (reason: Error) => {
    reports.get(panel.id)!.error = reason.message;
    setError(reason.message);
  };
  useEffect(() => { load(panel, around, width, theme).then(setLoaded, fail); }, []);
  const drawer = DRAWERS[panel.type];
  return <PanelChrome title={panel.title} description={panel.description} width={width} height={height}
    statusMessage={error}>
    {(innerWidth, innerHeight) => <div data-body style={{ width: innerWidth, height: innerHeight }}>
      {error && <div style={{ color: theme.colors.error.text }}>{error}</div>}
      {!error && loaded && (loaded.frames.length === 0 ? 'No data' : <Guard failed={fail}>
        <drawer.Draw panel={panel} marks={around.marks} {...loaded} width={innerWidth} height={innerHeight} />
      </Guard>)}
    </div>}
  </PanelChrome>;
}

function Board({ board, around }: { board: Dashboard; around: Surroundings }): ReactElement {
  const theme = useTheme2();
  const column = (window.innerWidth - 2 * GAP_PX - (COLUMNS - 1) * GAP_PX) / COLUMNS;
  const pixels = (cells: number, size: number) => cells * size + (cells - 1) * GAP_PX;
  const bottom = Math.max(...board.panels.map(({ gridPos: { y, h } }) => y + h));
  const chosen = Object.values(around.variables).map(({ label, text }) => `${label}: ${text}`);
  const time = (moment: TimeRange['from']) => moment.format('YYYY-MM-DD HH:mm:ss');
  return <>
    <div style={{ display: 'flex', gap: 16, padding: '12px 8px', color: theme.colors.text.secondary }}>
      <strong style={{ color: theme.colors.text.primary, fontSize: 18 }}>{board.title}</strong>
      {chosen.map((each) => <span key={each} style={{ alignSelf: 'end' }}>{each}</span>)}
      <span style={{ alignSelf: 'end', marginLeft: 'auto' }}>{time(around.range.from)} to {time(around.range.to)}</span>
    </div>
    <div style={{ position: 'relative', height: bottom * (CELL_PX + GAP_PX), margin: `0 ${GAP_PX}px` }}>
      {board.panels.map((panel) => {
        const { x, y, w, h } = panel.gridPos;
        const [width, height] = [pixels(w, column), pixels(h, CELL_PX)];
        return <div key={panel.id} id={`panel-${panel.id}`} style={{
          position: 'absolute', left: x * (column + GAP_PX), top: y * (CELL_PX + GAP_PX), width, height }}>
          {panel.type === 'row' ? <h5 style={{ lineHeight: `${CELL_PX}px` }}>{panel.title}</h5>
            : <Panel panel={panel} around={around} width={width} height={height} />}
        </div>;
      })}
    </div>
  </>;
}

// Drawing goes on after React has done its part: until what each panel must show is there, or it has failed.
async function settled(): Promise<void> {
  const deadline = performance.now() + DRAW_WITHIN_MS;
  const isOpen = (report: PanelReport) => {
    const panel = document.getElementById(`panel-${report.id}`); // null before React has begun
    report.drawn ||= !!panel && !!DRAWERS[report.type]?.isDrawn(panel);
    return !report.drawn && !report.error && !empty.has(report.id);
  };
  while ([...reports.values()].filter(isOpen).length && performance.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  for (const report of reports.values()) if (report.error) report.drawn = false;
}

async function main(): Promise<void> {
  const asked = new URLSearchParams(location.search);
  const name = asked.get('dashboard')!, url = asked.get('prometheus')!;
  const report: Report = { dashboard: name, panels: [], marks: {} };
  try {
    const board: Dashboard = await (await fetch(`/dashboards/${name}.json`)).json();
    const [from, to] = [dateTime(Number(asked.get('from'))), dateTime(Number(asked.get('to')))];
    const range = { from, to, raw: { from, to } };
    const chosen: Record<string, string[]> = {};
    for (const key of asked.keys()) if (key.startsWith('var-')) chosen[key.slice(4)] = asked.getAll(key);
    const theme = createTheme({ colors: { mode: 'dark' } });
    const interval = asked.get('interval') ?? '1s';
    const variables = await resolve(board.templating.list, chosen, url, range);
    const marks: Mark[] = [];
    for (const annotation of board.annotations.list.filter(({ enable }) => enable)) {
      const made = await marksOf(annotation, url, variables, range, interval, theme);
      report.marks[annotation.name] = made.length;
      marks.push(...made);
    }
    for (const { id, title, type } of board.panels.filter((panel) => panel.type !== 'row')) {
      reports.set(id, { id, title, type, series: [], drawn: false });
    }
    const around = { url, range, interval, variables, marks };
    createRoot(document.getElementById('page')!).render(
      <ThemeContext.Provider value={theme}>
        <GlobalStyles />
        <Board board={board} around={around} />
      </ThemeContext.Provider>);
    await settled();
    report.panels = [...reports.values()];
  } catch (error) {
    report.error = (error as Error).message;
    document.body.append(report.error);
  }
  window.drawn = report;
}

void main();
