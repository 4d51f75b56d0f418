// Charts that are rows of coloured cells over time: heatmap, state timeline, status history. Grafana has no package
// with its own drawing of them; these stand on the same chart and axes, and their colours and texts are Grafana's.
import { DataFrame, Field, FieldType, GrafanaTheme2, TimeRange, formattedValueToString, getFieldDisplayName,
  getValueFormat } from '@grafana/data';
import { AxisPlacement, LegendDisplayMode, ScaleDirection, ScaleOrientation } from '@grafana/schema';
import { UPlotChart, UPlotConfigBuilder, VizLayout, VizLegend, useTheme2 } from '@grafana/ui';
import * as schemes from 'd3-scale-chromatic';
import { ReactElement } from 'react';

import type { DrawProps } from './panels';

interface Cell {
  row: number; // from below
  from: number;
  to: number;
  color: string;
  text?: string;
}

interface Chart {
  cells: Cell[];
  rows: number;
  ticks: Array<{ at: number; text: string }>;
  filled: { width: number; height: number }; // parts of a cell's place
  gapPx?: number;                            // taken from its width and height besides
}

const AXIS_PX = 16; // between the longest text beside an axis and the rows

function axisSize(texts: string[], theme: GrafanaTheme2): number {
  const ctx = document.createElement('canvas').getContext('2d')!;
  ctx.font = `12px ${theme.typography.fontFamily}`;
  return Math.ceil(Math.max(...texts.map((text) => ctx.measureText(text).width))) + AXIS_PX;
}

function configOf(
  { cells, rows, ticks, filled, gapPx = 0 }: Chart, range: TimeRange, theme: GrafanaTheme2): UPlotConfigBuilder {
  const builder = new UPlotConfigBuilder('browser');
  const span: [number, number] = [range.from.valueOf(), range.to.valueOf()];
  builder.addScale({ scaleKey: 'x', isTime: true, orientation: ScaleOrientation.Horizontal,
    direction: ScaleDirection.Right, range: () => span });
  builder.addScale({ scaleKey: 'y', orientation: ScaleOrientation.Vertical, direction: ScaleDirection.Up,
    range: () => [0, rows] });
  builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, theme, grid: { show: false } });
  builder.addAxis({ scaleKey: 'y', placement: AxisPlacement.Left, theme, grid: { show: false },
    size: axisSize(ticks.map(({ text }) => text), theme),
    splits: () => ticks.map(({ at }) => at), values: () => ticks.map(({ text }) => text) });
  builder.addSeries({ scaleKey: 'y', theme, pathBuilder: () => null, pointsBuilder: () => undefined });
  builder.addHook('draw', (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.font = `${12 * devicePixelRatio}px ${theme.typography.fontFamily}`;
    ctx.textAlign = 'left';
    ctx.textBaseline = 'middle';
    for (const { row, from, to, color, text } of cells) {
      const [left, right] = [from, to].map((time) => Math.round(u.valToPos(time, 'x', true)));
      const [top, bottom] = [row + 1, row].map((edge) => Math.round(u.valToPos(edge, 'y', true)));
      const [width, height] = [(right - left) * filled.width - gapPx, (bottom - top) * filled.height - gapPx];
      const [x, y] = [left + (right - left - width) / 2, top + (bottom - top - height) / 2];
      ctx.fillStyle = color;
      ctx.fillRect(x, y, width, height);
      if (text && ctx.measureText(text).width + 8 < width) {
        ctx.fillStyle = theme.colors.getContrastText(color);
        ctx.fillText(text, Math.max(x, bbox.left) + 4, y + height / 2);
      }
    }
    ctx.restore();
  });
  return builder;
}

function CellChart(props: Chart & { range: TimeRange; width: number; height: number }): ReactElement {
  const theme = useTheme2();
  const span = [props.range.from.valueOf(), props.range.to.valueOf()];
  return <UPlotChart width={props.width} height={props.height} config={configOf(props, props.range, theme)}
    data={[span, [null, null]]} />;
}

const valuesOf = (frame: DataFrame): Field[] => frame.fields.filter(({ type }) => type === FieldType.number);

// Of a frame's value at `index`: until the next one, but not over a gap.
function span(frame: DataFrame, index: number): [number, number] {
  const { values, config } = frame.fields[0];
  const step = config.interval ?? 0;
  return [values[index], Math.min(values[index + 1] ?? Infinity, values[index] + step)];
}

type Rows = Pick<Chart, 'cells' | 'rows' | 'ticks'> & { names: Map<string, string> }; // each text's colour

// The frames' series, the first one on top.
function rowsOf(frames: DataFrame[], merged: boolean): Rows {
  const rows = frames.flatMap((frame) => valuesOf(frame).map((field) => ({ frame, field })));
  const cells: Cell[] = [];
  const names = new Map<string, string>();
  rows.forEach(({ frame, field }, index) => {
    const row = rows.length - 1 - index;
    let last: Cell | undefined;
    field.values.forEach((value, at) => {
      if (!Number.isFinite(value)) return;
      const { color = 'gray', ...shown } = field.display!(value);
      const text = formattedValueToString(shown);
      const [from, to] = span(frame, at);
      names.set(text, color);
      if (merged && last && last.text === text && last.to === from) last.to = to;
      else cells.push(last = { row, from, to, color, text });
    });
  });
  const ticks = rows.map(({ frame, field }, index) => ({
    at: rows.length - 0.5 - index, text: getFieldDisplayName(field, frame, frames) }));
  return { cells, rows: rows.length, ticks, names };
}

export function StateTimeline({ frames, options, range, width, height }: DrawProps): ReactElement {
  const { names, ...chart } = rowsOf(frames, options.mergeValues);
  const cells = options.showValue === 'never' ? chart.cells.map((cell) => ({ ...cell, text: undefined })) : chart.cells;
  const items = [...names].map(([label, color]) => ({ label, color, yAxis: 1 }));
  const legend = options.legend.showLegend
    ? <VizLayout.Legend placement={options.legend.placement}>
        <VizLegend placement={options.legend.placement} items={items} displayMode={LegendDisplayMode.List} />
      </VizLayout.Legend> : null;
  return <VizLayout width={width} height={height} legend={legend}>
    {(inner, high) => <CellChart {...chart} cells={cells} filled={{ width: 1, height: options.rowHeight }} range={range}
      width={inner} height={high} />}
  </VizLayout>;
}

export function StatusHistory({ frames, options, range, width, height }: DrawProps): ReactElement {
  const { names, ...chart } = rowsOf(frames, false);
  const cells = options.showValue === 'never' ? chart.cells.map((cell) => ({ ...cell, text: undefined })) : chart.cells;
  return <CellChart {...chart} cells={cells} filled={{ width: options.colWidth, height: options.rowHeight }}
    range={range} width={width} height={height} />;
}

function paletteOf({ scheme, steps, reverse }: { scheme: string; steps: number; reverse: boolean }): string[] {
  const interpolate = (schemes as unknown as Record<string, (part: number) => string>)[`interpolate${scheme}`];
  if (!interpolate) throw new Error(`there is no colour scheme ${scheme}`);
  const palette = Array.from({ length: steps }, (_, index) => interpolate(index / (steps - 1)));
  return reverse ? palette.reverse() : palette;
}

const TICK_PX = 18;
const LEGEND_PX = 28;

export function Heatmap({ frames, options, range, width, height }: DrawProps): ReactElement {
  const theme = useTheme2();
  const [frame] = frames;
  const buckets = valuesOf(frame);
  const counts = buckets.flatMap(({ values }) => values.filter((count) => count > options.filterValues.le));
  const [least, most] = [Math.min(...counts), Math.max(...counts)];
  const palette = paletteOf(options.color);
  const colorOf = (count: number) =>
    palette[Math.min(palette.length - 1, Math.floor((count - least) / (most - least || 1) * palette.length))];
  const cells = buckets.flatMap(({ values }, row) => values.flatMap((count, index): Cell[] => {
    const [from, to] = span(frame, index);
    return count > options.filterValues.le ? [{ row, from, to, color: colorOf(count) }] : [];
  }));
  const high = height - (options.legend.show ? LEGEND_PX : 0);
  const every = Math.ceil(TICK_PX / (high / buckets.length));
  const bound = getValueFormat(options.yAxis.unit);
  // A bucket's name is its upper bound: it stands at the upper edge.
  const ticks = buckets.map(({ name }, index) => ({
    at: index + 1, text: Number.isFinite(Number(name)) ? formattedValueToString(bound(Number(name))) : name }));
  const show = (count: number) => formattedValueToString(getValueFormat(options.cellValues.unit)(count, 0));
  return <>
    <CellChart cells={cells} rows={buckets.length} ticks={ticks.filter((_, index) => index % every === 0)}
      filled={{ width: 1, height: 1 }} gapPx={options.cellGap} range={range} width={width} height={high} />
    {options.legend.show && <div style={{
      display: 'flex', gap: 8, padding: '8px 12px 0', fontSize: 12, color: theme.colors.text.secondary }}>
      {show(least)}
      <div style={{ width: 200, background: `linear-gradient(to right, ${palette.join(', ')})` }} />
      {show(most)}
    </div>}
  </>;
}
