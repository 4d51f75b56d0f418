// What a dashboard marks on its graphs: a moment, or a region while the expression is not 0.
import { GrafanaTheme2, TimeRange, rangeUtil } from '@grafana/data';

import { legend, over, stepsOf } from './prometheus';
import { Variables, fill } from './variables';

export interface AnnotationModel {
  name: string;
  enable: boolean;
  expr: string;
  iconColor: string;
  step: string;
  titleFormat: string;
  textFormat: string;
}

export interface Mark {
  from: number;
  to: number;
  color: string;
  text: string;
}

export async function marksOf(
  { expr, iconColor, step, titleFormat, textFormat }: AnnotationModel, url: string, variables: Variables,
  range: TimeRange, interval: string, theme: GrafanaTheme2): Promise<Mark[]> {
  const stepMs = rangeUtil.intervalToMs(step);
  const steps = stepsOf(range, (range.to.valueOf() - range.from.valueOf()) / stepMs, interval, stepMs);
  const marks: Mark[] = [];
  for (const { metric, values } of await over(url, fill(expr, variables, steps), steps)) {
    let last: Mark | undefined;
    for (const [time, value] of values) {
      const moment = time * 1000;
      if (!(Number(value) > 0)) continue;
      if (last && moment - last.to <= stepMs) last.to = moment;
      else marks.push(last = { from: moment, to: moment, color: theme.visualization.getColorByName(iconColor),
        text: `${legend(titleFormat, metric)}\n${legend(textFormat, metric)}` });
    }
  }
  return marks;
}
