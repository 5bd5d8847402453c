// The JSON of the server (internal/api). A number that could not be had is absent.

import type { Seconds, Side } from './numbers'

export type { Seconds, Side }

export type Usage = Record<string, Seconds | undefined>

export interface Node {
  id: string
  name: string
  kind: 'container' | 'service' | 'host' | 'outside' | 'pod' | 'process' | 'workload' | 'namespace' | 'cluster-service'
  host?: string
  image?: string
  runtime?: string
  pod?: string
  namespace?: string
  workload?: string
  workload_kind?: string
  /** What the processes of the node run. */
  process?: string
  addresses?: string[]
  address_count?: number
  started?: number
  gone?: boolean
  usage?: Usage
  served?: Side
  called?: Side
}

/** What was asked for on an edge. */
export interface Endpoint {
  protocol: string
  name: string
  requests: number
  requests_per_second?: number
  /** Counts by status of the reply, "" where it did not say. */
  statuses: Record<string, number>
  error_share: number
  errors_per_second?: number
  p50?: Seconds
  p99?: Seconds
}

export interface Edge {
  id: string
  client: string
  server: string
  services: string[]
  transport: string
  client_side?: Side
  server_side?: Side
  paired: boolean
  confidence: 'exact' | 'listener' | 'address' | 'none'
  via?: string
  network_seconds?: number
  /** Where the time goes from a request's first byte to its reply's, on average, and what was lost on the way. */
  split?: Split
  /** What its packets tell of the network between the ends. */
  network?: Network
  /** The most asked for; how many there are besides, and their sum. */
  endpoints?: Endpoint[]
  omitted_endpoints?: number
  other_endpoints?: Endpoint
}

export interface Split {
  client_seconds: number
  network_there_seconds?: number
  server_seconds: number
  network_back_seconds?: number
  /** There and back together, where the clocks of two hosts do not tell them apart. */
  network_both_seconds?: number
}

export interface Network {
  delay_there_p50?: Seconds
  delay_there_p99?: Seconds
  delay_back_p50?: Seconds
  delay_back_p99?: Seconds
  jitter_there?: Seconds
  jitter_back?: Seconds
  /** Within a host: of which share of the packets that arrived the delays are. */
  observed_there?: number
  observed_back?: number
  lost_there?: number
  lost_back?: number
  loss_ratio?: number
  /** Between hosts: packets that both sampled, and their delays above the least, which need no clock. */
  matched_there?: number
  matched_back?: number
  above_minimum_there_p50?: Seconds
  above_minimum_there_p99?: Seconds
  above_minimum_back_p50?: Seconds
  above_minimum_back_p99?: Seconds
  /** By how much the delays between hosts may be wrong, because of the two clocks. */
  delay_there_error?: Seconds
  delay_back_error?: Seconds
  /** Between hosts: the parts of the way, of the packets that were seen at both hosts' interfaces. */
  at_cards_there?: number
  sender_stack_there_p50?: Seconds
  sender_stack_there_p99?: Seconds
  wire_there_p50?: Seconds
  wire_there_p99?: Seconds
  wire_above_minimum_there_p50?: Seconds
  wire_above_minimum_there_p99?: Seconds
  receiver_stack_there_p50?: Seconds
  receiver_stack_there_p99?: Seconds
  at_cards_back?: number
  sender_stack_back_p50?: Seconds
  sender_stack_back_p99?: Seconds
  wire_back_p50?: Seconds
  wire_back_p99?: Seconds
  wire_above_minimum_back_p50?: Seconds
  wire_above_minimum_back_p99?: Seconds
  receiver_stack_back_p50?: Seconds
  receiver_stack_back_p99?: Seconds
}

export interface NumberInfo {
  key: string
  title: string
  unit: '' | 's' | 'B' | 'B/s' | '/s' | 'cores' | 'ratio' | 'W'
  query: string
}

/** The numbers that lack what a table dropped; '' or absent: any may. */
export type Affected = '' | 'usage' | 'disks' | 'edges' | 'endpoints' | 'contention' | 'energy' | 'names' | 'flight' | 'history' | 'ended'

/** A bounded table or queue, and how many updates it dropped in the window. */
export interface Loss {
  host: string
  name: string
  dropped: number
  used?: number
  capacity?: number
  /** All of it is used. Others drop for another reason. */
  full?: boolean
  affects?: Affected
}

export interface Completeness {
  window_seconds: number
  covered_seconds: number
  state: 'complete' | 'incomplete'
  tables: Loss[]
  /** Queues of snapshots: what is missing are points of charts, not counts. */
  sinks: Loss[]
}

export interface Host {
  name: string
  cores: number
  memory_bytes?: number
}

export interface Graph {
  from: string
  to: string
  covered_seconds: number
  error_bound: number
  nodes: Node[]
  edges: Edge[]
  omitted_edges: number
  /** Edges below the share of traffic that was asked for. */
  hidden_edges?: number
  /** Share of edges with an end that is in no known container, and of the bytes on them. */
  unmatched_share: number
  unmatched_bytes_share: number
  /** For each host, the share of the received bytes that was seen and is in an edge. */
  counted_share: Record<string, number>
  /** Connections that are in no edge: what their ends sent (request) and received (response). */
  unplaced?: Side
  hosts: Host[]
  completeness: Completeness
  numbers: {
    usage: NumberInfo[]
    side: NumberInfo[]
    endpoint: NumberInfo[]
    /** Of both ends of an edge together, and of what is measured between two hosts. */
    ends: NumberInfo[]
    probe: NumberInfo[]
  }
  /** Label matchers of the series of each node and each edge. */
  matches: Record<string, { usage: string; served: string; called: string }>
  edge_matches: Record<string, string>
}

/** A client or a server of a matrix; of a sum of several the id is empty, and others is of how many. */
export interface MatrixEnd {
  id: string
  name: string
  kind: Node['kind'] | 'other'
  host?: string
  others?: number
  sum: Record<string, Seconds>
}

export interface MatrixCell {
  /** Indices of rows and columns. */
  row: number
  column: number
  /** The busiest of the edges that are summed, and how many they are. */
  edges: string[]
  edge_count: number
  numbers: Record<string, Seconds>
}

export interface Matrix {
  from: string
  to: string
  covered_seconds: number
  rows: MatrixEnd[]
  columns: MatrixEnd[]
  cells: MatrixCell[]
  total: Record<string, Seconds>
}

/** A node, or the CPUs of a host ("cpus/" and its name), that requests use. */
export interface Resource {
  node: string
  name: string
  cpu_cores: number
  /** How much CPU it could use at most, and why no more. */
  parallel: number
  parallel_by: 'cores' | 'quota' | 'threads' | 'left'
  utilisation: number
  demand?: number
  arrival_rate?: number
  max_arrival_rate?: number
  threads?: number
  latency?: Seconds
}

/** How often and how fast something is answered. */
export interface Timing {
  requests: number
  requests_per_second?: number
  p50?: Seconds
  p99?: Seconds
  mean?: Seconds
}

/** A node with how near it is to its limit and how it answers. */
export interface Service extends Resource {
  kind: Node['kind'] | 'cpus'
  host?: string
  /** Whether requests at the entries lead here. */
  reached: boolean
  tcp?: Timing
  http?: Timing
  failed: number
  aborted: number
  errors_per_second?: number
  error_share?: number
}

/** In queries, $usage, $served, $parallel and $window stand for what is the service's own. */
export interface ServiceColumn {
  key: string
  title: string
  unit: NumberInfo['unit']
  formula: string
  query?: string
  bounded?: boolean
}

export interface Services {
  from: string
  to: string
  covered_seconds: number
  error_bound: number
  entries: PathAnswer['entries']
  arrival_rate: number
  saturation_rate?: number
  /** With $window in place of the window of rates. */
  arrival_query?: string
  extrapolation?: number
  bottleneck?: string
  bottleneck_name?: string
  services: Service[]
  columns: ServiceColumn[]
  cores: Record<string, number>
  completeness: Completeness
}

export interface HostPart {
  kind: 'container' | 'host' | 'more' | 'other' | 'idle' | 'steal' | 'unattributed'
  node?: string
  name: string
  cpu_cores: number
  /** Of all parts of the host together they are 1. */
  share: number
}

export interface HostRow extends Host {
  containers: number
  cpu_cores: number
  parts: HostPart[]
  containers_memory_bytes?: number
  network_receive_bytes?: number
  network_transmit_bytes?: number
  disk_read_bytes?: number
  disk_write_bytes?: number
  version?: string
  last_heard?: string
  covered_seconds: number
  agent_cpu_cores?: number
  agent_memory_bytes?: number
  counted_share?: number
  dropped: number
  /** Those of Hosts.numbers that could be had, by their keys. */
  numbers: Record<string, number>
}

/** How long packets took, in seconds. */
export interface Delay {
  count: number
  mean: number
  p50: number
  p90: number
  p99: number
}

/** What was measured of the network between two hosts, by the one that sends, or between two containers of theirs. */
export interface Probe {
  from: string
  to: string
  /** The containers on the two hosts, in whose own network namespaces packets are sent and reflected; none between hosts. */
  client?: string
  server?: string
  dscp: number
  running: boolean
  answered: boolean
  interval_seconds?: number
  sent: number
  lost: number
  lost_there: number
  lost_back: number
  loss_ratio?: number
  round_trip?: Delay
  jitter_seconds?: number
  there?: Delay
  back?: Delay
  clock_error_seconds?: number
  above_minimum_there?: Delay
  above_minimum_back?: Delay
  /** The routers between the hosts, with blanks between them: * is one that does not answer; direct is none. */
  route?: string
  hops?: number
  route_changes: number
}

/** Something that happened to hosts. */
export interface HostEvent {
  kind: 'pair_measured' | 'pair_ended' | 'pair_handed_over' | 'route_changed' | 'container_moved'
  time: string
  /** It happened in so many seconds before; 0 where that is not known. */
  within_seconds: number
  from: string
  to: string
  /** Containers on these hosts between which it is measured, and the hosts that had them before. */
  client?: string
  server?: string
  from_before?: string
  to_before?: string
  container?: string
  /** Of a route that changed, as in a Probe. */
  before?: string
  now?: string
}

export interface Events {
  from: string
  to: string
  /** How often it was looked. */
  step_seconds: number
  events: HostEvent[]
  omitted?: number
}

export interface Hosts {
  from: string
  to: string
  covered_seconds: number
  hosts: HostRow[]
  numbers: NumberInfo[]
  probes: Probe[]
  completeness: Completeness
}

/** What containers waited for a CPU behind. */
export interface ContentionAnswer {
  from: string
  to: string
  containers: { host: string; id: string; name: string; by: { id?: string; name: string; seconds: number; ms_per_second: number; preemptions: number }[] }[]
}

/** A short saturation whose surroundings are kept longer than others. */
export interface KeptAnomaly {
  number: number
  kind: string
  container: string
  container_id: string
  from: string
  to: string
  waited_ms: number
  text: string
  effects: string[]
  file?: string
  bytes?: number
}

/** Anomalies of one kind of one container, newest first. */
export interface AlikeAnomalies {
  key: string
  list: KeptAnomaly[]
  longest: KeptAnomaly
  waited_ms: number
}

export interface Recordings {
  flight: { from: string | null; to: string | null; interval_ms: number; bytes: number } | null
  /** Why there is no flight recorder, and what to do. */
  absent?: string
  anomalies: KeptAnomaly[]
  dropped: number
  problem?: string
  directory?: string
}

/** How fast each edge answered in the hour before the window. */
export interface Baseline {
  from: string
  to: string
  covered_seconds: number
  edges: Record<string, Usual>
}

export interface Usual {
  transactions: number
  p50?: Seconds
  p90?: Seconds
  p99?: Seconds
}

/** From when to when there is data. */
export interface Extent {
  from: string | null
  to: string | null
}

/** A node of the critical path; times are of the path's statistic, in seconds. */
export interface Hop {
  node: string
  name: string
  /** The edge that leads here; absent at the entry. */
  edge?: string
  weight?: Seconds
  served?: Seconds
  own?: number
  next?: number
  others?: number
  /** It waits longer than it takes to answer, so that its own time is not known. */
  concurrent?: boolean
  /** What it is of one request to the entry; the parts of all hops add up to the whole. Only by the mean. */
  of_request?: { calls: number; network: number; own: number; others: number }
}

export interface PathAnswer {
  from: string
  to: string
  entries: { node: string; name: string; arrival_rate: number; clients: string[] }[]
  arrival_rate: number
  /** With $window in place of the window of rates. */
  arrival_query?: string
  saturation_rate?: number
  bottleneck?: string
  extrapolation?: number
  resources: Resource[]
  critical_path?: { statistic: string; whole?: Seconds; former?: boolean; hops: Hop[] }
  formulas: Record<string, string>
}

/** A number of a node or an edge in two windows; one is absent where the node or edge was not there. */
export interface ChangeOf {
  node?: string
  edge?: string
  name: string
  what: string
  unit: NumberInfo['unit']
  before?: number
  after?: number
  /** Standard deviations of chance; 0 where chance has no part in it. */
  deviations: number
  sure: boolean
}

export interface Changes {
  from: string
  to: string
  before_from: string
  before_to: string
  changes: ChangeOf[]
  omitted: number
  completeness: Completeness
  before_completeness: Completeness
}

/** A stretch of the flight recorder. Times that end with _ms are in ms since base_ms, in Unix ms. */
export interface Flight {
  base_ms: number
  from_ms: number
  to_ms: number
  kept_from_ms: number | null
  kept_to_ms: number | null
  interval_ms: number
  /** Over 1: two points are the least and the greatest value of so many ticks. */
  ticks_per_point: number
  at_ms: number[]
  lanes: Lane[]
  omitted_lanes: number
  left_out: number
  marks: Mark[]
  omitted_marks: number
}

type Column = (number | null)[]

/** A container: CPUs, threads that waited for one, requests that it waits for, and that wait for it. */
export interface Lane {
  id: string
  name: string
  cpu: Column
  waiting: Column
  asking: Column
  serving: Column
}

/** A saturation, and what it slowed. */
export interface Mark {
  kind: 'host-cpu' | 'cpu-quota' | 'one-cpu' | 'run-queue' | 'memory-limit' | 'disk-time' | 'stall'
  container: string
  id: string
  from_ms: number
  to_ms: number
  duration_ms: number
  resolution_ms: number
  open_end: boolean
  sustained: boolean
  waited_ms: number
  text: string
  cpu: { container: string; cpus: number; usual_cpus: number }[]
  effects: { container: string; id: string; what: string; from_ms: number }[]
  chain: { at_ms: number; container: string; id: string; text: string }[]
  edges: { id: string; client: string; server: string }[]
}

/** What a server refused for one reason since it began: senders' requests, data points in them, readers' requests. */
export interface Refusal {
  what: 'requests' | 'points' | 'readers'
  reason: string
  count: number
  /** When the last one was, the address that it came from, and the answer to its sender. */
  last?: string
  from?: string
  said?: string
}

export interface Quota {
  tenant: string
  what:
    | 'series'
    | 'label_bytes'
    | 'in_flight_bytes'
    | 'samples_per_second'
    | 'queries_running'
    | 'query_milliseconds_per_minute'
    | 'query_memory_bytes'
  used: number
  /** What it could have in all at the moment, and what it gets whatever others take. */
  limit: number
  guaranteed: number
  /** Times that it did not get more, since the server began. */
  refused: number
}

export interface Status {
  version: string
  now: string
  sources: string[]
  hosts: {
    name: string
    kernel?: string
    cores: number
    memory_bytes: number
    cgroup_layout?: string
    agent_cpu_seconds: number
    agent_memory_bytes: number
  }[]
  /** Hosts that were not heard of for a while, the last to fall silent first. */
  silent?: { name: string; last_heard: string }[]
  /** Which series are made for PromQL; "off" for none. */
  promql?: 'full' | 'containers' | 'off'
  features: { host: string; name: string; purpose: string; state: 'works' | 'absent' | 'off'; reason?: string; remedy?: string; required?: boolean }[]
  drops: { host: string; name: string; count: number; used?: number; capacity?: number }[]
  programs: { host: string; name: string; runs: number; run_seconds: number }[]
  /** Of servers that have it. */
  refusals?: Refusal[]
  /** What tenants have of what the server divides among them. */
  quotas?: Quota[]
  completeness: Completeness
}

/** What something uses: the mean over the window, and the highest of its minutes. */
export interface Use {
  mean: number
  peak: number
}

/** What a placement is like; shares are 0 to 1. */
export interface PlaceFigures {
  cost: number
  cross_bytes_per_second: number
  cross_bytes_share: number
  busiest_uplink_bytes_per_second: number
  cross_requests_share: number
  hosts_in_use: number
  highest_cpu_share: number
  highest_memory_share: number
  cpu_deviation: number
  watts?: number
  moved: number
}

export interface PlaceMove {
  container: number
  name: string
  from: string
  to: string
}

/** Containers that move at once, and what the placement is like then. */
export interface PlaceStep {
  moves: PlaceMove[]
  gain: number
  after?: PlaceFigures
}

export interface HostUse {
  cpu_cores: Use
  memory_bytes: number
  containers: number
}

export interface PlaceContainer {
  id: string
  name: string
  namespace?: string
  workload?: string
  /** Where it runs now, as an index. */
  host: number
  cpu_cores: Use
  memory_bytes: Use
  pinned?: string
  of_host?: boolean
  /** Rules that it has to keep besides, in words. */
  rules?: string[]
}

/** What stays where it is because of a rule: on another host the placement would cost less. */
export interface Kept {
  container: number
  name: string
  host: string
  to: string
  gain: number
  rule: string
}

/** Where containers would better run. */
export interface Placement {
  from: string
  to: string
  covered_seconds: number
  headroom: number
  before: PlaceFigures
  after: PlaceFigures
  moves: PlaceStep[]
  bound: number
  gap: number
  search: 'exact' | 'annealing' | 'chosen'
  broken?: string[]
  broken_after?: string[]
  full?: string
  kept?: Kept[]
  kept_omitted?: number
  /** The host of each container after all moves, as an index. */
  placement: number[]
  hosts_before: HostUse[]
  hosts_after: HostUse[]
  hosts: { name: string; cores: number; memory_bytes: number; labels?: Record<string, string> }[]
  containers: PlaceContainer[]
  traffic: [number, number, number][]
}

/** An estimate, with the bounds between which the truth is in nine of ten cases; there may be none above. */
export interface Interval {
  value: number
  low: number
  high?: number
}

/** A container, or the CPUs of a host, as it would be. */
export interface WhatIfResource {
  node: string
  name: string
  host: string
  /** Where it was, if it is on another one. */
  moved_from?: string
  /** The rate at which its threads would be used up if they never waited for the CPUs of their host. */
  alone?: number
  parallel: number
  parallel_by: string
  base?: number
  per_request?: number
  /** The part of it that threads take to look for something now and then, which ends where requests follow each other. */
  polling?: number
  /** What a request of each endpoint takes, where the mix changed; share is of all requests. */
  per_endpoint?: { endpoint: string; per_request: number; share: number }[]
  before?: Interval
  utilisation?: Interval
  limit?: Interval
  unknown?: string
}

/** The connections of a client to a server, of which there were always as many. */
export interface Pool {
  client: string
  server: string
  name: string
  open: number
  /** How many are busy at the mean rate, and then. */
  before: Interval
  busy: Interval
  /** The rate at which all are busy. */
  limit?: Interval
  /** There were no more when more were needed. */
  fixed: boolean
  /** The client waited for them as for a queue. */
  waited: boolean
  /** No more than open requests were under way at a time although there were others: it is not known what it is. */
  ceiling?: boolean
}

export interface Latencies {
  mean: Interval
  p50: Interval
  p95: Interval
  p99: Interval
}

/** How long requests take where they come in, at the mean rate and then; in seconds. */
export interface WhatIfEntry {
  node: string
  name: string
  rate: number
  model?: 'queueing' | 'scalability'
  before?: Latencies
  then?: Latencies
  /** A resource is used up, so that the queue has no end. */
  saturated?: boolean
  /** What p99 is longer for, the longest first: by how much shorter it would be if requests waited for that as they do now, in seconds. */
  waits?: { for: string; longer: number }[]
  /** How far off each model was on the past, as shares, and at how many times the load that it knew. */
  tested?: { queueing_error: number; scalability_error: number; times: number }
  unknown?: string
}

/** Something of which there is so much, and how its use goes on. */
export interface BoundedResource {
  kind: 'memory' | 'cpu' | 'threads' | 'open files' | 'filesystem' | 'accept queue' | 'connections' | 'requests at a time' | 'requests'
  /** The container's; none for a host's. */
  node?: string
  name: string
  host: string
  /** What requests are limited by. */
  by?: string
  used: number
  capacity: number
  course?: { kind: 'steady' | 'grows' | 'falls' | 'daily' | 'daily, grows'; per_day: Interval; daily?: number; days: number }
  unknown?: string
  /** When it is used up, between what that is; none where it is not in sight. */
  runs_out?: { at?: string; earliest: string; latest?: string }
}

export interface RunOut {
  from: string
  to: string
  step_seconds: number
  horizon_seconds: number
  resources: BoundedResource[]
}

/** What would be if more came, or containers were others. */
export interface WhatIf {
  from: string
  to: string
  step_seconds: number
  mean_rate: number
  rate: number
  stretches: number
  least_rate: number
  greatest_rate: number
  limit?: Interval
  /** That the limit is no estimate: by CPU time no more can be served, and what is in doubts may be used up before. */
  upper_bound?: boolean
  /** The node of a resource, or CLIENT>SERVER of a pool. */
  limited_by?: string
  /** Why the limit may be less than what is told, from its lower bound on. */
  at_most?: string
  resources: WhatIfResource[]
  /** Connections of which there may be no more; what is full first comes first. */
  pools: Pool[]
  /** What may be used up before the limit, which then cannot be told. */
  doubts: { node: string; text: string }[]
  entries: WhatIfEntry[]
  hosts: string[]
  power: HostPower[]
  /** Of all hosts, where each is known. */
  before_watts?: Interval
  watts?: Interval
  before_joules_per_request?: Interval
  joules_per_request?: Interval
}

/** The power of a host now and in a scenario, where a meter tells it. */
export interface HostPower {
  host: string
  idle_watts?: number
  watts_per_core?: number
  before_watts?: Interval
  watts?: Interval
  unknown?: string
}

/** A container that ended before its name was known: known by the start of its id. */
export const unnamed = (n: Node): boolean => n.gone === true && /^[0-9a-f]{12}$/.test(n.name)

export const best = (e: Edge): Side | undefined => e.client_side ?? e.server_side

export const bytesPerSecond = (s?: Side): number =>
  (s?.request_bytes_per_second ?? 0) + (s?.response_bytes_per_second ?? 0)
