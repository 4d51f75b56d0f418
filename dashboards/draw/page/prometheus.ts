// Asks a Prometheus as Grafana's data source of that type does, and gives its answers Grafana's shape: data frames.
import { DataFrame, Field, FieldType, TimeRange, dateTime, rangeUtil } from '@grafana/data';

export interface Target {
  refId: string;
  expr: string;
  legendFormat: string;
  format: string;
  instant: boolean;
}

export interface Series {
  metric: Record<string, string>;
  values: Array<[number, string]>; // seconds since 1970, and the value as Prometheus writes it
}

export interface Steps {
  range: TimeRange;
  stepMs: number;
  rateMs: number; // $__rate_interval
}

// The data source's timeInterval decides both: no step below it, no rate over less than four of it.
export function stepsOf(range: TimeRange, points: number, scrape: string, leastMs = 0): Steps {
  const scrapeMs = rangeUtil.intervalToMs(scrape);
  const { intervalMs } = rangeUtil.calculateInterval(range, points, scrape);
  const stepMs = Math.max(intervalMs, scrapeMs, leastMs);
  const aligned = (time: number) => dateTime(Math.floor(time / stepMs) * stepMs);
  const from = aligned(range.from.valueOf());
  const to = aligned(range.to.valueOf());
  return { range: { from, to, raw: { from, to } }, stepMs, rateMs: Math.max(stepMs + scrapeMs, 4 * scrapeMs) };
}

async function ask<T>(url: string, path: string, parameters: Record<string, string>): Promise<T> {
  const answer = await fetch(`${url}/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const { status, data, error } = await answer.json();
  if (status !== 'success') throw new Error(`Prometheus: ${error}`);
  return data;
}

const seconds = (time: { valueOf(): number }) => String(time.valueOf() / 1000);

export async function over(url: string, query: string, steps: Steps): Promise<Series[]> {
  const { result } = await ask<{ result: Series[] }>(url, 'query_range', {
    query, start: seconds(steps.range.from), end: seconds(steps.range.to), step: String(steps.stepMs / 1000),
  });
  return result;
}

export async function at(url: string, query: string, range: TimeRange): Promise<Series[]> {
  const { result } = await ask<{ result: Array<{ metric: Series['metric']; value: [number, string] }> }>(
    url, 'query', { query, time: seconds(range.to) });
  return result.map(({ metric, value }) => ({ metric, values: [value] }));
}

export function labelValues(url: string, selector: string, label: string, range: TimeRange): Promise<string[]> {
  return ask(url, `label/${label}/values`, {
    'match[]': selector, start: seconds(range.from), end: seconds(range.to) });
}

export function legend(form: string, labels: Record<string, string>): string {
  return form.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');
}

const number = (text: string) => (text === '+Inf' ? Infinity : text === '-Inf' ? -Infinity : Number(text));

function frame(refId: string, fields: Field[]): DataFrame {
  return { refId, fields, length: fields[0]?.values.length ?? 0 };
}

// A frame per series. "__auto" leaves the name to Grafana, which makes it from the labels.
function timeSeries(target: Target, found: Series[], stepMs: number): DataFrame[] {
  return found.map(({ metric, values }) => {
    const { __name__, ...labels } = metric;
    const name = target.legendFormat !== '__auto' ? legend(target.legendFormat, metric)
      : Object.keys(metric).length ? undefined : target.expr;
    return frame(target.refId, [
      { name: 'Time', type: FieldType.time, config: { interval: stepMs }, values: values.map(([time]) => time * 1000) },
      { name: __name__ ?? 'Value', type: FieldType.number, labels, config: { displayNameFromDS: name },
        values: values.map(([, value]) => number(value)) },
    ]);
  });
}

// A row per series: time, its labels by name, its value.
function table(target: Target, found: Series[]): DataFrame[] {
  const labels = [...new Set(found.flatMap(({ metric }) => Object.keys(metric)))].sort();
  const rows = found.flatMap(({ metric, values }) => values.map(([time, value]) => ({ metric, time, value })));
  return [frame(target.refId, [
    { name: 'Time', type: FieldType.time, config: {}, values: rows.map(({ time }) => time * 1000) },
    ...labels.map((name) => ({
      name, type: FieldType.string, config: {}, values: rows.map(({ metric }) => metric[name] ?? '') })),
    { name: 'Value', type: FieldType.number, config: {}, values: rows.map(({ value }) => number(value)) },
  ])];
}

// A field per bucket, from the lowest up. Prometheus' buckets hold what is below them, too; these do not.
function heatmap(target: Target, found: Series[], stepMs: number): DataFrame[] {
  const bound = ({ metric }: Series) => number(metric.le ?? '');
  const sorted = [...found].sort((left, right) => bound(left) - bound(right));
  const times = [...new Set(sorted.flatMap(({ values }) => values.map(([time]) => time)))].sort((a, b) => a - b);
  const counts = sorted.map(({ values }) => {
    const byTime = new Map(values.map(([time, value]) => [time, number(value)]));
    return times.map((time) => byTime.get(time) ?? 0);
  });
  if (!sorted.length) return [];
  return [frame(target.refId, [
    { name: 'Time', type: FieldType.time, config: { interval: stepMs }, values: times.map((time) => time * 1000) },
    ...sorted.map(({ metric }, bucket) => ({
      name: metric.le, type: FieldType.number, labels: { le: metric.le },
      config: { displayNameFromDS: legend(target.legendFormat, metric) },
      values: counts[bucket].map((count, index) => Math.max(0, count - (counts[bucket - 1]?.[index] ?? 0))),
    })),
  ])];
}

export function frames(target: Target, found: Series[], stepMs: number): DataFrame[] {
  switch (target.format) {
    case 'time_series': return timeSeries(target, found, stepMs);
    case 'table': return table(target, found);
    case 'heatmap': return heatmap(target, found, stepMs);
    default: throw new Error(`query ${target.refId}: unknown format ${target.format}`);
  }
}
