import { expect, it } from 'vitest'

const texts = import.meta.glob<string>('./*.{ts,tsx}', { query: '?raw', import: 'default', eager: true })

it('no file imports itself, through whatever others', () => {
  const imports = new Map(Object.entries(texts).filter(([file]) => !file.includes('.test.')).map(([file, text]) => [
    file.replace(/^\.\/|\.tsx?$/g, ''), [...text.matchAll(/from '\.\/(\w+)'/g)].map((m) => m[1]!),
  ]))
  expect(imports.size).toBeGreaterThan(30)
  const done = new Set<string>()
  const circles: string[] = []
  const walk = (file: string, path: string[]) => {
    if (path.includes(file)) circles.push([...path.slice(path.indexOf(file)), file].join(' → '))
    if (path.includes(file) || done.has(file)) return
    for (const next of imports.get(file) ?? []) walk(next, [...path, file])
    done.add(file)
  }
  for (const file of imports.keys()) walk(file, [])
  expect(circles).toEqual([])
})
