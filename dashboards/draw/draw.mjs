#!/usr/bin/env node
// Draws dashboards over a Prometheus, in Chromium without a window, with Grafana's own components (page/).
//
//   draw.mjs --prometheus URL --from SECONDS --to SECONDS --out FOLDER [--width PIXELS] [--interval 1s]
//            [--only PANEL]... [--var NAME=VALUE]... FILE.json...
//
// Of each FILE it writes FOLDER/FILE.png, and FOLDER/drawn.json says of each panel whether it was drawn, how many
// series each of its queries had, and what went wrong. Exits with 1 if a panel is not drawn. Times are seconds since
// 1970; --only takes a picture that just holds the panels with these titles.
import { createReadStream, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { basename, dirname, extname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const HERE = dirname(fileURLToPath(import.meta.url));
const TOOLS = resolve(HERE, '../../build/tools/draw');
const MODULES = join(TOOLS, 'node_modules');
const require = createRequire(join(TOOLS, 'package.json'));
const { chromium } = require('playwright-core');
const esbuild = require('esbuild');

const HTML = `<!DOCTYPE html><html><head><meta charset="utf-8"><title>Dashboard</title>
<link rel="icon" href="data:,"><link rel="stylesheet" href="page.css"></head>
<body style="margin: 0"><div id="page"></div><script src="page.js"></script></body></html>`;
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.json': 'application/json',
  '.svg': 'image/svg+xml' };

// Grafana's modules import CommonJS ones, and esbuild would take what these export by default as Node does: as the
// whole module. Grafana's CommonJS builds look into each.
const GRAFANA = Object.fromEntries(['data', 'schema', 'ui'].map((name) =>
  [`@grafana/${name}`, require.resolve(`@grafana/${name}`)]));

function build(folder) {
  esbuild.buildSync({
    entryPoints: [join(HERE, 'page', 'page.tsx')], outdir: folder, bundle: true, nodePaths: [MODULES], alias: GRAFANA,
    minify: true,
    define: { 'process.env.NODE_ENV': '"production"' },
    loader: { '.ttf': 'dataurl', '.svg': 'dataurl' }, logLevel: 'error',
  });
  writeFileSync(join(folder, 'index.html'), HTML);
}

// The page, the dashboards' files, Grafana's icons.
function serve(folder, files) {
  const server = createServer(({ url }, answer) => {
    const { pathname } = new URL(url, 'http://localhost');
    const icon = /\/img\/icons\/([\w/-]+\.svg)$/.exec(pathname);
    const path = icon ? join(MODULES, '@grafana/ui/dist/public/img/icons', icon[1])
      : files.find((file) => pathname === `/dashboards/${basename(file)}`) ?? join(folder, basename(pathname));
    if (!statSync(path, { throwIfNoEntry: false })?.isFile()) return answer.writeHead(404).end();
    answer.writeHead(200, { 'Content-Type': TYPES[extname(path)] ?? 'application/octet-stream' });
    createReadStream(path).pipe(answer);
  });
  return new Promise((done) => server.listen(0, '127.0.0.1', () => done(server)));
}

// Around the panels with these titles, or of the whole page.
async function picture(page, report, titles, path) {
  if (!titles) return page.screenshot({ path, fullPage: true });
  const boxes = [];
  for (const title of titles) {
    const panel = report.panels.find((each) => each.title === title);
    if (!panel) throw new Error(`${report.dashboard} has no panel "${title}"`);
    boxes.push(await page.locator(`#panel-${panel.id}`).boundingBox());
  }
  const [left, top] = [Math.min(...boxes.map(({ x }) => x)), Math.min(...boxes.map(({ y }) => y))];
  const width = Math.max(...boxes.map(({ x, width }) => x + width)) - left;
  const height = Math.max(...boxes.map(({ y, height }) => y + height)) - top;
  return page.screenshot({ path, fullPage: true, clip: { x: left, y: top, width, height } });
}

async function main() {
  const { values: asked, positionals: files } = parseArgs({ allowPositionals: true, options: {
    prometheus: { type: 'string' }, from: { type: 'string' }, to: { type: 'string' }, out: { type: 'string' },
    width: { type: 'string', default: '1600' }, interval: { type: 'string', default: '1s' },
    only: { type: 'string', multiple: true },
    var: { type: 'string', multiple: true, default: [] } } });
  mkdirSync(asked.out, { recursive: true });
  const folder = join(TOOLS, 'page');
  build(folder);
  const server = await serve(folder, files.map((file) => resolve(file)));
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu'] });
  const reports = [];
  try {
    for (const file of files) {
      const name = basename(file, '.json');
      const page = await browser.newPage({ viewport: { width: Number(asked.width), height: 900 } });
      const said = [];
      page.on('pageerror', (error) => said.push(error.message));
      const query = new URLSearchParams({ dashboard: name, prometheus: asked.prometheus, interval: asked.interval,
        from: String(Math.round(asked.from * 1000)), to: String(Math.round(asked.to * 1000)) });
      for (const pair of asked.var) query.append(`var-${pair.split('=')[0]}`, pair.slice(pair.indexOf('=') + 1));
      await page.goto(`http://127.0.0.1:${server.address().port}/index.html?${query}`);
      await page.waitForFunction(() => window.drawn, null, { timeout: 120_000 });
      const report = await page.evaluate(() => window.drawn);
      if (said.length) report.error = [report.error, ...said].filter(Boolean).join('; ');
      reports.push(report);
      await picture(page, report, asked.only, join(asked.out, `${name}.png`));
      await page.close();
    }
  } finally {
    await browser.close();
    server.close();
  }
  writeFileSync(join(asked.out, 'drawn.json'), JSON.stringify(reports, null, 1));
  const wrong = reports.flatMap(({ dashboard, error, panels }) => [
    ...(error ? [`${dashboard}: ${error}`] : []),
    ...panels.filter(({ drawn }) => !drawn).map(
      ({ title, error }) => `${dashboard}, ${title}: ${error ?? 'nothing to see'}`)]);
  for (const { dashboard, panels } of reports) {
    console.log(`${dashboard}: ${panels.filter(({ drawn }) => drawn).length} of ${panels.length} panels drawn`);
  }
  for (const line of wrong) console.error(line);
  process.exitCode = wrong.length ? 1 : 0;
}

await main();
