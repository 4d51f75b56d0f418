// A dashboard's variables: what they stand for, and expressions with them filled in.
import { TimeRange } from '@grafana/data';

import { Steps, labelValues } from './prometheus';

export interface VariableModel {
  name: string;
  label: string;
  type: string;
  query: string;
  allValue?: string;
  current: { value: string | string[] };
}

export interface Variable {
  label: string;
  text: string;  // as the head of the page shows it
  value: string; // as it stands in expressions
}

export type Variables = Record<string, Variable>;

const regex = (value: string) => value.replace(/[.*+?^${}()|[\]\\]/g, '\\\\$&');

// `chosen`: the values of some, as in `var-island=1` of the page's address; the others have those of the file.
export async function resolve(
  models: VariableModel[], chosen: Record<string, string[]>, url: string, range: TimeRange): Promise<Variables> {
  const made: Variables = {};
  for (const { name, label, type, query, allValue, current } of models) {
    if (type === 'datasource') {
      if (query !== 'prometheus') throw new Error(`variable ${name}: a data source of type ${query}`);
      made[name] = { label, text: url, value: url };
      continue;
    }
    const asked = /^label_values\((.*), (\w+)\)$/.exec(query);
    if (type !== 'query' || !asked) throw new Error(`variable ${name}: cannot ask for ${query}`);
    const known = await labelValues(url, fill(asked[1], made), asked[2], range);
    const wanted = chosen[name] ?? [current.value].flat();
    if (wanted.includes('$__all')) {
      made[name] = { label, text: 'All', value: allValue ?? `(${known.map(regex).join('|')})` };
      continue;
    }
    const unknown = wanted.filter((value) => !known.includes(value));
    if (unknown.length) throw new Error(`variable ${name}: no value ${unknown}; there are ${known}`);
    const values = wanted.map(regex);
    made[name] = { label, text: wanted.join(' + '), value: values.length > 1 ? `(${values.join('|')})` : values[0] };
  }
  return made;
}

export function fill(expression: string, variables: Variables, steps?: Steps): string {
  return expression.replace(/\$(?:\{(\w+)\}|(\w+))/g, (_, braced, bare) => {
    const name: string = braced ?? bare;
    if (steps && name === '__rate_interval') return `${steps.rateMs}ms`;
    if (!(name in variables)) throw new Error(`nothing sets the variable $${name}`);
    return variables[name].value;
  });
}
