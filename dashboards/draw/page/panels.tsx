// A way to draw each type of panel that our dashboards have, and what Grafana takes for options a panel does not say.
import { DataFrame, Field, FieldConfigSource, FieldDisplay, TimeRange, getDisplayValueAlignmentFactors,
  getFieldDisplayValues } from '@grafana/data';
import { BigValueColorMode, BigValueGraphMode, BigValueJustifyMode, BigValueTextMode,
  VizOrientation } from '@grafana/schema';
import { BigValue, Table, TimeSeries, UPlotConfigBuilder, VizRepeater, useTheme2 } from '@grafana/ui';
import { ReactElement } from 'react';

import type { Mark } from './annotations';
import { Heatmap, StateTimeline, StatusHistory } from './cells';
import type { Drawable } from './fields';
import type { PanelModel } from './page';

export interface DrawProps {
  panel: PanelModel;
  frames: DataFrame[];
  options: Record<string, any>;
  range: TimeRange;
  marks: Mark[];
  width: number;
  height: number;
}

interface Drawer extends Drawable {
  Draw: (props: DrawProps) => ReactElement;
  isDrawn: (panel: Element) => boolean;
}

const LIST = { displayMode: 'list', placement: 'bottom', showLegend: true, calcs: [] };

function mark(builder: UPlotConfigBuilder, marks: Mark[]): void {
  builder.addHook('ready', (u) => {
    for (const { from, to, color, text } of marks) {
      const line = document.createElement('div');
      const left = u.valToPos(from, 'x');
      line.title = text;
      line.style.cssText = `position: absolute; top: 0; bottom: 0; left: ${left}px; border-left: 1px dashed ${color}`;
      if (to > from) {
        line.style.width = `${u.valToPos(to, 'x') - left}px`;
        line.style.borderRight = `1px dashed ${color}`;
        line.style.background = `color-mix(in srgb, ${color} 10%, transparent)`;
      }
      u.over.append(line);
    }
  });
}

// Where a step has no value, or one that is no number, the line ends. The component sees to the first frame alone.
function withGaps(frame: DataFrame): DataFrame {
  const [time, ...fields] = frame.fields;
  const step = time.config.interval!;
  const rows: Array<[number, number?]> = []; // a moment, and which value that is
  time.values.forEach((moment, index) => {
    if (index > 0 && moment - time.values[index - 1] > step) rows.push([time.values[index - 1] + step]);
    rows.push([moment, index]);
  });
  const valueOf = (field: Field, index?: number) =>
    index !== undefined && Number.isFinite(field.values[index]) ? field.values[index] : null;
  return {
    ...frame, length: rows.length,
    fields: [{ ...time, values: rows.map(([moment]) => moment) },
      ...fields.map((field) => ({ ...field, values: rows.map(([, index]) => valueOf(field, index)) }))],
  };
}

function Lines({ frames, options, range, marks, width, height }: DrawProps): ReactElement {
  return <TimeSeries frames={frames.map(withGaps)} width={width} height={height} timeRange={range} timeZone="browser"
    legend={options.legend}>
    {(builder) => { mark(builder, marks); return null; }}
  </TimeSeries>;
}

function Figures({ panel, frames, options, range, width, height }: DrawProps): ReactElement {
  const theme = useTheme2();
  const getValues = () => getFieldDisplayValues({
    fieldConfig: panel.fieldConfig as FieldConfigSource, reduceOptions: options.reduceOptions, theme, data: frames,
    replaceVariables: (text) => text, sparkline: options.graphMode !== BigValueGraphMode.None });
  return <VizRepeater<FieldDisplay, ReturnType<typeof getDisplayValueAlignmentFactors>>
    getValues={getValues} getAlignmentFactors={getDisplayValueAlignmentFactors} source={frames} renderCounter={0}
    width={width} height={height} itemSpacing={3} orientation={VizOrientation.Auto} autoGrid
    renderValue={({ value, alignmentFactors, count, width, height }) =>
      <BigValue width={width} height={height} value={value.display} count={count} theme={theme}
        alignmentFactors={alignmentFactors}
        sparkline={value.sparkline && { ...value.sparkline, timeRange: range }} colorMode={options.colorMode}
        graphMode={options.graphMode} justifyMode={options.justifyMode} textMode={options.textMode}
        disableWideLayout={!options.wideLayout} />} />;
}

function Rows({ panel, frames, width, height }: DrawProps): ReactElement {
  return <Table ariaLabel={panel.title} data={frames[0]} width={width} height={height} />;
}

// Whether there is more on the panel's canvases than greys, which grids and letters are.
function hasColour(panel: Element): boolean {
  return [...panel.querySelectorAll('canvas')].some((canvas) => {
    if (!canvas.width || !canvas.height) return false;
    const { data } = canvas.getContext('2d')!.getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 4) {
      const colour = [data[at], data[at + 1], data[at + 2]];
      if (data[at + 3] > 40 && Math.max(...colour) - Math.min(...colour) > 60) return true;
    }
    return false;
  });
}

const hasRows = (panel: Element) => panel.querySelectorAll('[role="cell"]').length > 0;
const hasDigits = (panel: Element) => /\d/.test(panel.querySelector('[data-body]')?.textContent ?? '');

export const DRAWERS: Record<string, Drawer> = {
  timeseries: {
    Draw: Lines, isDrawn: hasColour, color: 'palette-classic',
    custom: { drawStyle: 'line', lineInterpolation: 'linear', lineWidth: 1, fillOpacity: 0, gradientMode: 'none',
      showPoints: 'auto', pointSize: 5, spanNulls: false, stacking: { mode: 'none', group: 'A' },
      hideFrom: { legend: false, tooltip: false, viz: false }, scaleDistribution: { type: 'linear' },
      axisPlacement: 'auto', axisLabel: '', axisColorMode: 'text', axisBorderShow: false, axisCenteredZero: false,
      thresholdsStyle: { mode: 'off' } },
    options: { legend: LIST, tooltip: { mode: 'single', sort: 'none' } },
  },
  stat: {
    Draw: Figures, isDrawn: hasDigits, color: 'thresholds', custom: {},
    options: { reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false }, orientation: VizOrientation.Auto,
      colorMode: BigValueColorMode.Value, graphMode: BigValueGraphMode.Area, justifyMode: BigValueJustifyMode.Auto,
      textMode: BigValueTextMode.Auto, wideLayout: true },
  },
  table: {
    Draw: Rows, isDrawn: hasRows, color: 'thresholds',
    custom: { align: 'auto', cellOptions: { type: 'auto' }, inspect: false, minWidth: 150 }, options: {},
  },
  heatmap: {
    Draw: Heatmap, isDrawn: hasColour, color: 'thresholds', custom: {},
    options: { calculate: false, cellGap: 1, cellValues: {}, exemplars: {}, legend: { show: true }, showValue: 'auto',
      color: { scheme: 'Oranges', steps: 64, reverse: false }, filterValues: { le: 1e-9 }, selectionMode: 'x',
      tooltip: { mode: 'single' }, yAxis: {} },
  },
  'state-timeline': {
    Draw: StateTimeline, isDrawn: hasColour, color: 'thresholds', custom: { fillOpacity: 70, lineWidth: 0 },
    options: { mergeValues: true, showValue: 'auto', rowHeight: 0.9, alignValue: 'left', perPage: 20, legend: LIST,
      tooltip: { mode: 'single', sort: 'none' } },
  },
  'status-history': {
    Draw: StatusHistory, isDrawn: hasColour, color: 'thresholds', custom: { fillOpacity: 70, lineWidth: 1 },
    options: { showValue: 'auto', rowHeight: 0.9, colWidth: 0.9, perPage: 20, legend: LIST,
      tooltip: { mode: 'single', sort: 'none' } },
  },
};
