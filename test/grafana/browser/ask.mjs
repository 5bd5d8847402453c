// Opens Grafana's dashboards in headless Chromium. What is asked comes on the standard input as JSON, the answer goes to the
// standard output: address of the data source's backend, uid, begin and end in milliseconds, queries of variables, and dashboards with
// the values that are chosen there. CHROMIUM names the browser (/usr/bin/chromium).
import { text } from 'node:stream/consumers'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'
import { chromium } from 'playwright-core'

const asked = JSON.parse(await text(process.stdin))

// Scenes are written for the next release of the router, which the one before brings with it.
const router = {
  name: 'router',
  setup: (b) => b.onResolve({ filter: /^react-router-dom$/ }, ({ importer, resolveDir, kind }) =>
    importer.includes('@grafana/scenes') ? b.resolve('react-router-dom-v5-compat', { resolveDir, kind }) : undefined),
}
const bundle = await build({
  entryPoints: [fileURLToPath(new URL('dashboard.mjs', import.meta.url))], bundle: true, minify: true, write: false, format: 'iife', logLevel: 'error',
  define: { 'process.env.NODE_ENV': '"production"' }, plugins: [router],
  loader: { '.css': 'empty', '.svg': 'empty', '.png': 'empty', '.woff2': 'empty', '.ttf': 'empty' },
})

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'] })
try {
  const page = await browser.newPage()
  const faults = []
  page.on('pageerror', (e) => faults.push(e.message))
  page.on('response', (r) => r.status() < 400 || faults.push(`${r.status()} for ${r.url()}`))
  const empty = asked.address + '/'
  await page.route(empty, (r) => r.fulfill({ contentType: 'text/html', body: '<!doctype html><script>window.grafanaBootData = { settings: {}, user: {}, navTree: [] }</script>' }))
  await page.goto(empty)
  await page.addScriptTag({ content: bundle.outputFiles[0].text })
  const { uid, begin, end } = asked
  const explored = await page.evaluate(({ uid, begin, end, queries }) => window.explore(uid, begin, end, queries), { uid, begin, end, queries: asked.queries })
  const dashboards = []
  for (const { dashboard, chosen } of asked.dashboards) {
    dashboards.push(await page.evaluate(({ dashboard, uid, begin, end, chosen }) => window.show(dashboard, uid, begin, end, chosen), { dashboard, uid, begin, end, chosen }))
  }
  process.stdout.write(JSON.stringify({ explored, dashboards, faults }))
} finally {
  await browser.close()
}
