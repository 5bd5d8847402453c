// Grafana's own dashboard (scenes) over its own Prometheus data source, in a browser. What is written here is what lies
// between them in Grafana: requests to its server, and which data source a name is of.
import { LoadingState, makeTimeRange, dateTime } from '@grafana/data'
import { PrometheusDatasource } from '@grafana/prometheus'
import { setBackendSrv, setDataSourceSrv, setRunRequest, setTemplateSrv } from '@grafana/runtime'
import { EmbeddedScene, QueryVariable, SceneFlexItem, SceneFlexLayout, SceneQueryRunner, SceneTimeRange, SceneVariableSet, sceneGraph } from '@grafana/scenes'
import { catchError, from, map, of } from 'rxjs'

const formType = 'application/x-www-form-urlencoded'

/** The parameters of a path; each value of a list is one. */
function parameters(params = {}) {
  return new URLSearchParams(Object.entries(params).flatMap(([name, value]) => [value].flat().filter((v) => v !== undefined).map((v) => [name, v])))
}

async function send({ url, method = 'GET', params, data, headers }) {
  const form = headers?.['Content-Type'] === formType
  const query = parameters(params).toString()
  if (query) url += (url.includes('?') ? '&' : '?') + query
  const reply = await fetch(url, {
    method, headers: form ? headers : { ...headers, 'Content-Type': 'application/json' },
    body: data && (form ? new URLSearchParams(data) : JSON.stringify(data)),
  })
  const text = await reply.text()
  if (!reply.ok) throw { status: reply.status, statusText: reply.statusText, data: { message: text } }
  return { data: JSON.parse(text), status: reply.status, ok: true, headers: reply.headers, url }
}

setBackendSrv({ fetch: (request) => from(send(request)), get: async (url) => (await send({ url })).data })
setRunRequest((source, request, query = source.query.bind(source)) => query(request).pipe(
  map(({ data, errors = [] }) => ({ state: errors.length ? LoadingState.Error : LoadingState.Done, series: data, errors, request, timeRange: request.range })),
  catchError((error) => of({ state: LoadingState.Error, series: [], errors: [error], request, timeRange: request.range })),
))

let scene
setTemplateSrv({
  replace: (text, variables, format) => text && sceneGraph.interpolate(variables?.__sceneObject?.value.valueOf() ?? scene, text, variables, format),
  containsTemplate: (text = '') => text.includes('$'),
  getVariables: () => [],
})

/** Opens a data source as Grafana does, and makes it the one that dashboards ask. */
async function open(uid, range) {
  const settings = { uid, id: 1, name: uid, type: 'prometheus', access: 'proxy', url: `/api/datasources/proxy/uid/${uid}`, jsonData: {}, meta: { id: 'prometheus' } }
  const source = new PrometheusDatasource(settings)
  source.meta = settings.meta
  setDataSourceSrv({ get: async () => source, getInstanceSettings: () => settings, getList: () => [settings] })
  await source.init()
  await source.languageProvider.start(range)
  return source
}

const timeRange = (begin, end) => makeTimeRange(dateTime(begin), dateTime(end))

/** What "Save & test", the editor and a list of queries of variables find in a data source. */
window.explore = async (uid, begin, end, queries) => {
  const range = timeRange(begin, end)
  scene = new EmbeddedScene({ $timeRange: new SceneTimeRange({ from: range.from.toISOString(), to: range.to.toISOString() }), body: new SceneFlexLayout({ children: [] }) })
  const source = await open(uid, range)
  const found = {}
  for (const query of queries) found[query] = (await source.metricFindQuery(query, { range })).map((v) => v.text)
  return {
    health: await source.testDatasource(), exemplars: source.exemplarsAvailable, metrics: source.languageProvider.retrieveMetrics(),
    histograms: source.languageProvider.retrieveHistogramMetrics(), metadata: source.languageProvider.retrieveMetricsMetadata(), found,
  }
}

/** What the variables and the panels of a dashboard show; chosen are values of variables instead of its own. */
window.show = async (dashboard, uid, begin, end, chosen) => {
  const range = timeRange(begin, end)
  await open(uid, range)
  const datasource = { type: 'prometheus', uid }
  const variables = dashboard.templating.list.map((v) => {
    const { name, label, query, refresh, sort, includeAll, allValue, multi: isMulti } = v
    return new QueryVariable({ name, label, query, refresh, sort, includeAll, allValue, isMulti, datasource, value: chosen[name] ?? v.current.value, text: chosen[name] ?? v.current.text })
  })
  const runners = dashboard.panels.map((p) => new SceneQueryRunner({ datasource, maxDataPoints: 1000, queries: p.targets.map((t) => ({ ...t, datasource })) }))
  const body = new SceneFlexLayout({ children: runners.map(($data) => new SceneFlexItem({ $data })) })
  scene = new EmbeddedScene({
    $timeRange: new SceneTimeRange({ from: range.from.toISOString(), to: range.to.toISOString() }),
    $variables: new SceneVariableSet({ variables }), body,
  })
  const shown = runners.map((runner) => new Promise((resolve) => {
    runner.subscribeToState(({ data }) => [LoadingState.Done, LoadingState.Error].includes(data?.state) && resolve(data))
  }))
  for (const object of [scene, body, ...body.state.children]) object.activate()
  const panels = (await Promise.all(shown)).map(({ series, errors = [] }, i) => ({
    title: dashboard.panels[i].title,
    errors: errors.map((e) => e.message ?? JSON.stringify(e)),
    frames: series.map((f) => ({
      query: f.meta?.executedQueryString ?? '',
      fields: f.fields.map((field) => ({ name: field.config?.displayNameFromDS ?? field.name, values: Array.from(field.values) })),
    })),
  }))
  return { variables: Object.fromEntries(variables.map((v) => [v.state.name, v.state.options.map((o) => o.value)])), panels }
}
