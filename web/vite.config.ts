import { readFileSync } from 'node:fs'
import { defineConfig, type Plugin } from 'vite'

/** The licences of what is built into the page ask to be passed on with it. */
const licences = (...names: string[]): Plugin => ({
  name: 'licences',
  generateBundle() {
    const texts = names.map((name) => `${name}\n\n${readFileSync(`node_modules/${name}/LICENSE`, 'utf8').trim()}\n`)
    this.emitFile({ type: 'asset', fileName: 'licenses.txt', source: texts.join('\n') })
  },
})

export default defineConfig({
  plugins: [licences('preact', 'uplot')],
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    // The first versions that know light-dark() in style sheets.
    target: ['chrome123', 'firefox120', 'safari17.5'],
    // The policy of the server allows no inline content, and data: only for images.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { '/api': process.env.OUTSIGHT_URL ?? 'http://127.0.0.1:8470' } },
})
