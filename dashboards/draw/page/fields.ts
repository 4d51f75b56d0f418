// How a panel's fields look: units, limits, colours, mappings, by Grafana's own code. What that code, or ours, would
// ignore without a word is an error here: a unit it does not know, an option that nothing draws.
import {
  DataFrame, DataTransformerInfo, FieldConfigPropertyItem, FieldConfigSource, GrafanaTheme2, Registry,
  applyFieldOverrides, fieldMatchers, getValueFormats, standardTransformers, standardTransformersRegistry,
  transformDataFrame,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';

import type { PanelModel } from './page';

const STANDARD = ['unit', 'min', 'max', 'decimals', 'noValue', 'thresholds', 'mappings', 'color', 'displayName'];

// Grafana writes these into every panel that does not say otherwise.
const THRESHOLDS = { mode: 'absolute', steps: [{ color: 'green', value: null }, { color: 'red', value: 80 }] };

export interface Drawable {
  custom: Record<string, unknown>;  // what fields may say of themselves, and what holds if they do not
  options: Record<string, unknown>; // the same of the panel
  color: string;
}

const TRANSFORMERS: Array<DataTransformerInfo<any>> = [
  standardTransformers.convertFieldTypeTransformer, standardTransformers.groupingToMatrixTransformer,
  standardTransformers.organizeFieldsTransformer, standardTransformers.sortByTransformer];
standardTransformersRegistry.setInit(() => TRANSFORMERS.map((transformation) => ({
  id: transformation.id, name: transformation.name, transformation, editor: () => null })));

const units = new Set(getValueFormats().flatMap(({ submenu }) => (submenu ?? []).map(({ value }) => value)));

function checkUnit(unit: unknown): void {
  if (unit !== undefined && !units.has(unit as string)) throw new Error(`Grafana knows no unit ${unit}`);
}

function checkKeys(what: string, found: object, known: object): void {
  const unknown = Object.keys(found).filter((key) => !(key in known));
  if (unknown.length) throw new Error(`cannot draw ${what} ${unknown.join(', ')}`);
}

function property(id: string, custom: boolean): FieldConfigPropertyItem {
  return {
    id: custom ? `custom.${id}` : id, path: id, isCustom: custom, name: id, description: '', settings: {},
    editor: () => null, override: () => null, process: (value) => value, shouldApply: () => true,
  };
}

export function panelOptions(panel: PanelModel, drawable: Drawable): Record<string, any> {
  const own = panel.options ?? {};
  checkKeys('option', own, drawable.options);
  checkUnit(own.yAxis?.unit);
  checkUnit(own.cellValues?.unit);
  return { ...drawable.options, ...own };
}

export async function withFields(
  panel: PanelModel, drawable: Drawable, data: DataFrame[], theme: GrafanaTheme2): Promise<DataFrame[]> {
  const { defaults, overrides } = panel.fieldConfig;
  checkKeys('field option', defaults, Object.fromEntries([...STANDARD, 'custom'].map((id) => [id, true])));
  checkKeys('field option custom.', defaults.custom ?? {}, drawable.custom);
  checkUnit(defaults.unit);
  const items = [...STANDARD.map((id) => property(id, false)),
    ...Object.keys(drawable.custom).map((id) => property(id, true))];
  for (const { matcher, properties } of overrides) {
    fieldMatchers.get(matcher.id); // throws if there is none
    for (const { id, value } of properties) {
      if (!items.some((item) => item.id === id)) throw new Error(`cannot draw the override of ${id}`);
      if (id === 'unit') checkUnit(value);
    }
  }
  const { steps, mode } = defaults.thresholds ?? THRESHOLDS;
  const fieldConfig = {
    overrides,
    defaults: {
      ...defaults,
      color: defaults.color ?? { mode: drawable.color },
      thresholds: { mode, steps: steps.map((step: { value: number | null }) =>
        ({ ...step, value: step.value ?? -Infinity })) },
      custom: { ...drawable.custom, ...defaults.custom },
    },
  } as FieldConfigSource;
  for (const { id } of panel.transformations ?? []) standardTransformersRegistry.get(id); // throws if there is none
  return applyFieldOverrides({
    data: await lastValueFrom(transformDataFrame(panel.transformations ?? [], data)),
    fieldConfig, theme, fieldConfigRegistry: new Registry(() => items), replaceVariables: (text) => text,
    timeZone: 'browser',
  });
}
