// Made from the registry of metrics (internal/model) by scripts/generate: do not edit.

/** Seconds; "+Inf" is a duration past the end of the histogram's range. */
export type Seconds = number | '+Inf'

/** What one end of an edge counted in a window. */
export interface Side {
  /** Requests whose reply has ended, per second */
  transactions_per_second?: number
  /** Requests whose reply has ended */
  transactions: number
  /** Requests that wait for their reply at the end of the window */
  in_flight?: number
  /** The most requests that waited for their reply at any moment since the last full minute before the end of the window; of several edges the sum of theirs */
  in_flight_most?: number
  request_bytes_per_second?: number
  response_bytes_per_second?: number
  request_bytes: number
  response_bytes: number
  request_packets?: number
  response_packets?: number
  p50?: Seconds
  p75?: Seconds
  p90?: Seconds
  p99?: Seconds
  mean?: Seconds
  /** From the first byte of a request to the first byte of its reply */
  first_byte_p50?: Seconds
  /** From the first byte of a request to the first byte of its reply */
  first_byte_p99?: Seconds
  /** Time that a packet and its acknowledgement take, as the kernel measures it */
  rtt_p50?: Seconds
  /** Time that a packet and its acknowledgement take, as the kernel measures it */
  rtt_p99?: Seconds
  /** The least round trip since the agent began */
  rtt_min?: Seconds
  /** By how much the round trip varies, on average */
  jitter?: Seconds
  /** TCP segments sent again, because they were lost or late */
  retransmits: number
  /** Time in which the receiver took no more, of connections that ended */
  window_limited_seconds?: Seconds
  /** Time of a packet on its way to this end */
  network_delay_p50?: Seconds
  /** Time of a packet on its way to this end */
  network_delay_p99?: Seconds
  /** By how much the delay of one packet differs from the one before, on average */
  network_jitter?: Seconds
  /** Packets with data to the server: on the client side those sent, retransmissions among them, on the server side those that arrived */
  network_request_packets?: number
  /** Packets with data to the client: on the server side those sent, retransmissions among them, on the client side those that arrived */
  network_response_packets?: number
  /** Packets that arrived at this end after one that was sent later, of those that were observed */
  network_reordered?: number
  /** Copies of packets, made on the way, that arrived at this end, of those that were observed */
  network_duplicated?: number
  /** TCP segments that were sent again although they had arrived at this end, of those that were observed */
  network_repeated?: number
  /** Packets whose delay on the way to this end was measured */
  network_delay_samples?: number
  /** For how long a request lay in the server’s socket until it was read, on average */
  network_unread_mean?: Seconds
  /** Requests of which it was measured how long they lay in the server’s socket until it read them */
  network_unread_requests?: number
  /** Packets that arrived at this end whose order and delay were looked at: what was found of them is an estimate for all */
  network_observed?: number
  /** TCP segments that this end sent again */
  network_retransmitted?: number
  /** TCP segments that arrived at this end when one before them was missing: lost, or on its way */
  network_out_of_order?: number
  /** Packets sent and received at this end that were sampled, to be found again at the other host: delays between hosts are of these */
  network_sampled?: number
  /** Time in which the sender’s own buffer was too small for the path, of connections that ended */
  send_buffer_limited_seconds?: Seconds
  connections_open: number
  connections_opened: number
  connections_closed: number
  duration_p50?: Seconds
  duration_p99?: Seconds
  /** Attempts to connect that failed */
  failures: number
  failures_refused?: number
  failures_timed_out?: number
  failures_unreachable?: number
  /** Connections that ended with a reset instead of a close */
  resets?: number
  /** Connections whose other end fell silent */
  timed_out?: number
  /** Requests that ended without a reply */
  aborted: number
  /** Replies that went on after a second of silence; their latency lacks the tail */
  continued: number
  /** Requests whose reply flowed for over a second: downloads, not slow requests */
  transfers?: number
  /** Requests whose reply began after over ten seconds: long polls, not slow requests */
  held?: number
  /** Times that the server sent without having been asked */
  pushes?: number
  /** Packets in streams that nobody answers */
  one_way?: number
  /** Received by the kernel and read by no call that is seen (splice), or never read */
  unseen_bytes?: number
  /** Requests that had not ended when their HTTP/2 connection could no longer be followed */
  lost_transactions?: number
  /** Share of what happened that is counted; absent where nothing was received */
  completeness?: number
}

/** The numbers of a container by the headings of the page, in the order in which people ask for them. */
export const USAGE_GROUPS: [string, string[]][] = [
  ['CPU', ['cpu_cores', 'run_queue_p99', 'run_queue_p50', 'throttled_share', 'throttled_seconds', 'voluntary_switches', 'involuntary_switches', 'threads', 'busy_threads', 'cpu_quota_cores', 'forks', 'execs', 'exits', 'thread_starts', 'threads_mean', 'threads_highest', 'threads_limit', 'open_files', 'open_files_limit', 'busy_threads_mean', 'busy_threads_highest']],
  ['Memory', ['memory_bytes', 'memory_bytes_mean', 'memory_bytes_highest', 'working_set_bytes', 'working_set_bytes_mean', 'working_set_bytes_highest', 'rss_bytes', 'rss_bytes_mean', 'rss_bytes_highest', 'cache_bytes', 'cache_bytes_mean', 'cache_bytes_highest', 'memory_limit_bytes', 'minor_page_faults', 'major_page_faults', 'oom_kills']],
  ['Network', ['network_receive_bytes', 'network_transmit_bytes', 'receive_packets', 'transmit_packets', 'network_errors', 'network_dropped', 'zero_windows', 'listen_overflows', 'kernel_drops', 'forwarded_packets', 'forward_p50', 'forward_p99', 'proxy_p50', 'proxy_p99', 'proxy_matched_share', 'proxy_alone_share']],
  ['Disk', ['disk_read_bytes', 'disk_write_bytes', 'disk_reads', 'disk_writes']],
]

/** The numbers of a side of an edge by the headings of the page, in the order in which people ask for them. */
export const SIDE_GROUPS: [string, string[]][] = [
  ['Requests', ['transactions_per_second', 'transactions', 'in_flight', 'in_flight_most', 'request_bytes_per_second', 'response_bytes_per_second', 'request_bytes', 'response_bytes', 'request_packets', 'response_packets']],
  ['Latency', ['p50', 'p75', 'p90', 'p99', 'mean', 'first_byte_p50', 'first_byte_p99']],
  ['Path', ['rtt_p50', 'rtt_p99', 'rtt_min', 'jitter', 'retransmits', 'window_limited_seconds', 'network_delay_p50', 'network_delay_p99', 'network_jitter', 'network_request_packets', 'network_response_packets', 'network_reordered', 'network_duplicated', 'network_repeated', 'network_delay_samples', 'network_unread_mean', 'network_unread_requests', 'network_observed', 'network_retransmitted', 'network_out_of_order', 'network_sampled', 'send_buffer_limited_seconds']],
  ['Connections', ['connections_open', 'connections_opened', 'connections_closed', 'duration_p50', 'duration_p99']],
  ['What went wrong', ['failures', 'failures_refused', 'failures_timed_out', 'failures_unreachable', 'resets', 'timed_out', 'aborted', 'continued']],
  ['Not timed as requests', ['transfers', 'held', 'pushes', 'one_way']],
  ['Completeness', ['unseen_bytes', 'lost_transactions']],
]

/** The numbers of both ends of an edge together by the headings of the page, in the order in which people ask for them. */
export const ENDS_GROUPS: [string, string[]][] = [
  ['Between the ends', ['network_seconds', 'delay_there_p50', 'delay_there_p99', 'delay_back_p50', 'delay_back_p99', 'jitter_there', 'jitter_back', 'lost_there', 'lost_back', 'loss_ratio', 'delay_there_error', 'delay_back_error', 'above_minimum_there_p50', 'above_minimum_there_p99', 'above_minimum_back_p50', 'above_minimum_back_p99', 'matched_there', 'matched_back', 'observed_there', 'observed_back']],
  ['The hosts’ stacks and the wire', ['sender_stack_there_p50', 'sender_stack_there_p99', 'wire_there_p50', 'wire_there_p99', 'wire_above_minimum_there_p50', 'wire_above_minimum_there_p99', 'receiver_stack_there_p50', 'receiver_stack_there_p99', 'at_cards_there', 'sender_stack_back_p50', 'sender_stack_back_p99', 'wire_back_p50', 'wire_back_p99', 'wire_above_minimum_back_p50', 'wire_above_minimum_back_p99', 'receiver_stack_back_p50', 'receiver_stack_back_p99', 'at_cards_back']],
  ['Where the time goes', ['client_seconds', 'network_there_seconds', 'server_seconds', 'network_back_seconds', 'network_both_seconds']],
]

/** The numbers of what is measured between two hosts by the headings of the page, in the order in which people ask for them. */
export const PROBE_GROUPS: [string, string[]][] = [
  ['Measured between the two', ['probe_round_trip_p50', 'probe_round_trip_p99', 'probe_delay_there_p50', 'probe_delay_there_p99', 'probe_above_minimum_there_p99', 'probe_delay_back_p50', 'probe_delay_back_p99', 'probe_above_minimum_back_p99', 'probe_jitter', 'probe_loss_ratio', 'probe_lost_there', 'probe_lost_back']],
  ['Capacity, measured on request', ['capacity_there', 'capacity_back', 'capacity_age']],
]

/** What a number means, in plain words, where its title does not say it. */
export const USAGE_MEANING: Record<string, string> = {
  cpu_cores: 'CPUs kept busy, by threads that still run too',
  run_queue_p99: '99 % of the times that a runnable thread waited for a CPU were shorter',
  run_queue_p50: 'Half of the times that a runnable thread waited for a CPU were shorter',
  throttled_share: 'Share of the quota’s periods in which the container was held back',
  throttled_seconds: 'Time per second for which the CPU quota held the container back',
  busy_threads: 'Over how many threads the CPU time is spread: that of all over that of the busiest',
  cpu_quota_cores: 'CPU quota over its period',
  thread_starts: 'Threads started beside the first of each process: many per second, and a pool of them would pay',
  threads_mean: 'Mean over the covered time of the window; where it was not there it counts as none',
  threads_highest: 'Highest value since the last full minute before the end of the window; of several containers the sum of theirs',
  threads_limit: 'Threads that there may be by the container’s own control group',
  open_files: 'Files that the process has open that is nearest to its limit',
  open_files_limit: 'Files that this process may have open',
  busy_threads_mean: 'Mean over the covered time of the window; where it was not there it counts as none',
  busy_threads_highest: 'Highest value since the last full minute before the end of the window; of several containers the sum of theirs',
  memory_bytes: 'Memory in use, page cache included',
  memory_bytes_mean: 'Mean over the covered time of the window; where it was not there it counts as none',
  memory_bytes_highest: 'Highest value since the last full minute before the end of the window; of several containers the sum of theirs',
  working_set_bytes: 'Memory in use less the inactive page cache',
  working_set_bytes_mean: 'Mean over the covered time of the window; where it was not there it counts as none',
  working_set_bytes_highest: 'Highest value since the last full minute before the end of the window; of several containers the sum of theirs',
  rss_bytes_mean: 'Mean over the covered time of the window; where it was not there it counts as none',
  rss_bytes_highest: 'Highest value since the last full minute before the end of the window; of several containers the sum of theirs',
  cache_bytes_mean: 'Mean over the covered time of the window; where it was not there it counts as none',
  cache_bytes_highest: 'Highest value since the last full minute before the end of the window; of several containers the sum of theirs',
  zero_windows: 'Times that a receiver closed its window: it did not read fast enough',
  listen_overflows: 'Connections that found the accept queue full',
  kernel_drops: 'Packets that it sent or was to receive and that the kernel dropped: full buffers, rules, nobody there',
  forward_p50: 'Half of the packets that were timed took less to pass through',
  forward_p99: '99 % of the packets that were timed took less to pass through',
  proxy_p50: 'Half of the requests that it sent on took less from being received to being sent on',
  proxy_p99: '99 % of the requests that it sent on took less from being received to being sent on',
  proxy_matched_share: 'Of the requests that its proxies received, how many were found where they were sent on: of these are the times. The others were answered by the proxy, or could not be told apart',
  proxy_alone_share: 'Of the requests that were found again, how many had another name when they were sent on. In a program that is no proxy, its first call of a service is taken for its request sent on',
}

/** What a number means, in plain words, where its title does not say it. */
export const SIDE_MEANING: Record<string, string> = {
  transactions_per_second: 'Requests whose reply has ended, per second',
  transactions: 'Requests whose reply has ended',
  in_flight: 'Requests that wait for their reply at the end of the window',
  in_flight_most: 'The most requests that waited for their reply at any moment since the last full minute before the end of the window; of several edges the sum of theirs',
  first_byte_p50: 'From the first byte of a request to the first byte of its reply',
  first_byte_p99: 'From the first byte of a request to the first byte of its reply',
  rtt_p50: 'Time that a packet and its acknowledgement take, as the kernel measures it',
  rtt_p99: 'Time that a packet and its acknowledgement take, as the kernel measures it',
  rtt_min: 'The least round trip since the agent began',
  jitter: 'By how much the round trip varies, on average',
  retransmits: 'TCP segments sent again, because they were lost or late',
  window_limited_seconds: 'Time in which the receiver took no more, of connections that ended',
  network_delay_p50: 'Time of a packet on its way to this end',
  network_delay_p99: 'Time of a packet on its way to this end',
  network_jitter: 'By how much the delay of one packet differs from the one before, on average',
  network_request_packets: 'Packets with data to the server: on the client side those sent, retransmissions among them, on the server side those that arrived',
  network_response_packets: 'Packets with data to the client: on the server side those sent, retransmissions among them, on the client side those that arrived',
  network_reordered: 'Packets that arrived at this end after one that was sent later, of those that were observed',
  network_duplicated: 'Copies of packets, made on the way, that arrived at this end, of those that were observed',
  network_repeated: 'TCP segments that were sent again although they had arrived at this end, of those that were observed',
  network_delay_samples: 'Packets whose delay on the way to this end was measured',
  network_unread_mean: 'For how long a request lay in the server’s socket until it was read, on average',
  network_unread_requests: 'Requests of which it was measured how long they lay in the server’s socket until it read them',
  network_observed: 'Packets that arrived at this end whose order and delay were looked at: what was found of them is an estimate for all',
  network_retransmitted: 'TCP segments that this end sent again',
  network_out_of_order: 'TCP segments that arrived at this end when one before them was missing: lost, or on its way',
  network_sampled: 'Packets sent and received at this end that were sampled, to be found again at the other host: delays between hosts are of these',
  send_buffer_limited_seconds: 'Time in which the sender’s own buffer was too small for the path, of connections that ended',
  failures: 'Attempts to connect that failed',
  resets: 'Connections that ended with a reset instead of a close',
  timed_out: 'Connections whose other end fell silent',
  aborted: 'Requests that ended without a reply',
  continued: 'Replies that went on after a second of silence; their latency lacks the tail',
  transfers: 'Requests whose reply flowed for over a second: downloads, not slow requests',
  held: 'Requests whose reply began after over ten seconds: long polls, not slow requests',
  pushes: 'Times that the server sent without having been asked',
  one_way: 'Packets in streams that nobody answers',
  unseen_bytes: 'Received by the kernel and read by no call that is seen (splice), or never read',
  lost_transactions: 'Requests that had not ended when their HTTP/2 connection could no longer be followed',
  completeness: 'Share of what happened that is counted; absent where nothing was received',
}

/** What a number means, in plain words, where its title does not say it. */
export const ENDS_MEANING: Record<string, string> = {
  network_seconds: 'By how much the median that the client waits is longer than that which the server takes',
  delay_there_p50: 'Time of a packet on its way to the server',
  delay_there_p99: 'Time of a packet on its way to the server',
  delay_back_p50: 'Time of a packet on its way to the client',
  delay_back_p99: 'Time of a packet on its way to the client',
  jitter_there: 'By how much the delay of a packet to the server differs from that of the one before, on average',
  jitter_back: 'By how much the delay of a packet to the client differs from that of the one before, on average',
  lost_there: 'Packets that the client sent and that did not arrive; of ends on one host',
  lost_back: 'Packets that the server sent and that did not arrive; of ends on one host',
  loss_ratio: 'Share of the packets that were sent, in both directions, and did not arrive; of ends on one host',
  delay_there_error: 'By how much a delay to the server may be wrong, because two hosts have two clocks',
  delay_back_error: 'By how much a delay to the client may be wrong, because two hosts have two clocks',
  above_minimum_there_p50: 'Between hosts: delay to the server above the least of the last 10 s; needs no clock',
  above_minimum_there_p99: 'Between hosts: delay to the server above the least of the last 10 s; needs no clock',
  above_minimum_back_p50: 'Between hosts: delay to the client above the least of the last 10 s; needs no clock',
  above_minimum_back_p99: 'Between hosts: delay to the client above the least of the last 10 s; needs no clock',
  matched_there: 'Packets to the server that both hosts sampled in the last 10 s',
  matched_back: 'Packets to the client that both hosts sampled in the last 10 s',
  observed_there: 'Share of the packets to the server of which the delays there are: those observed',
  observed_back: 'Share of the packets to the client of which the delays back are: those observed',
  sender_stack_there_p50: 'From the sender’s socket to the interface by which a packet to the server leaves its host: its network namespace, bridges, rules; one clock, exact',
  sender_stack_there_p99: 'From the sender’s socket to the interface by which a packet to the server leaves its host: its network namespace, bridges, rules; one clock, exact',
  wire_there_p50: 'From the sender’s interface, with its queue, to the receiver’s, on the way to the server; as well known as the delay there is',
  wire_there_p99: 'From the sender’s interface, with its queue, to the receiver’s, on the way to the server; as well known as the delay there is',
  wire_above_minimum_there_p50: 'By how much packets to the server were on the wire for longer than the fastest of the last 10 s; needs no clock',
  wire_above_minimum_there_p99: 'By how much packets to the server were on the wire for longer than the fastest of the last 10 s; needs no clock',
  receiver_stack_there_p50: 'From the interface by which a packet to the server came to its host to the receiver’s socket; one clock, exact',
  receiver_stack_there_p99: 'From the interface by which a packet to the server came to its host to the receiver’s socket; one clock, exact',
  at_cards_there: 'Packets to the server of the last 10 s that both hosts sampled, and saw leave and come in: those of the parts',
  sender_stack_back_p50: 'From the sender’s socket to the interface by which a packet to the client leaves its host: its network namespace, bridges, rules; one clock, exact',
  sender_stack_back_p99: 'From the sender’s socket to the interface by which a packet to the client leaves its host: its network namespace, bridges, rules; one clock, exact',
  wire_back_p50: 'From the sender’s interface, with its queue, to the receiver’s, on the way to the client; as well known as the delay there is',
  wire_back_p99: 'From the sender’s interface, with its queue, to the receiver’s, on the way to the client; as well known as the delay there is',
  wire_above_minimum_back_p50: 'By how much packets to the client were on the wire for longer than the fastest of the last 10 s; needs no clock',
  wire_above_minimum_back_p99: 'By how much packets to the client were on the wire for longer than the fastest of the last 10 s; needs no clock',
  receiver_stack_back_p50: 'From the interface by which a packet to the client came to its host to the receiver’s socket; one clock, exact',
  receiver_stack_back_p99: 'From the interface by which a packet to the client came to its host to the receiver’s socket; one clock, exact',
  at_cards_back: 'Packets to the client of the last 10 s that both hosts sampled, and saw leave and come in: those of the parts',
  client_seconds: 'Until the request is sent, and from the arrival of the reply until it is read; on average',
  network_there_seconds: 'A packet on its way to the server, on average',
  server_seconds: 'From the arrival of the request in the server’s socket to the first byte of the reply, on average',
  network_back_seconds: 'A packet on its way to the client, on average',
  network_both_seconds: 'A packet on its way to the server and one to the client, on average, between hosts whose clocks do not tell them apart',
  probe_round_trip_p50: 'Of measuring packets between the two hosts, or containers, from interface to interface',
  probe_round_trip_p99: 'Of measuring packets between the two hosts, or containers, from interface to interface',
  probe_delay_there_p50: 'Of measuring packets to the server or its host; where time daemons keep the clocks of both',
  probe_delay_there_p99: 'Of measuring packets to the server or its host; where time daemons keep the clocks of both',
  probe_above_minimum_there_p99: 'By how much measuring packets to the server or its host took longer than the fastest of the last minute',
  probe_delay_back_p50: 'Of measuring packets to the client or its host; where time daemons keep the clocks of both',
  probe_delay_back_p99: 'Of measuring packets to the client or its host; where time daemons keep the clocks of both',
  probe_above_minimum_back_p99: 'By how much measuring packets to the client or its host took longer than the fastest of the last minute',
  probe_jitter: 'By how much two consecutive round trips differ, on average',
  probe_loss_ratio: 'Share of measuring packets that were not answered within a second',
  probe_lost_there: 'Measuring packets that were lost on the way to the server or its host',
  probe_lost_back: 'Measuring packets that were lost on the way to the client or its host',
  capacity_there: 'What the path to the server’s container carried when somebody last measured it, as by outsight probe --capacity',
  capacity_back: 'What the path to the client’s container carried when somebody last measured it, as by outsight probe --capacity',
  capacity_age: 'How long before the end of the window the capacity was measured; of two directions the older',
}

/** What a number means, in plain words, where its title does not say it. */
export const HOST_MEANING: Record<string, string> = {
  memory_available_bytes: 'What programs could get without swapping: memory that is free, and caches that can be reclaimed',
  agent_read_seconds: 'Time that the agent’s last reading of all counters took',
}

/** The numbers of edges of which more is worse. */
export const TROUBLE: ReadonlySet<string> = new Set(['retransmits', 'network_reordered', 'network_duplicated', 'network_repeated', 'network_retransmitted', 'network_out_of_order', 'failures', 'failures_refused', 'failures_timed_out', 'failures_unreachable', 'resets', 'timed_out', 'aborted', 'continued', 'unseen_bytes', 'lost_there', 'lost_back', 'loss_ratio', 'probe_loss_ratio', 'probe_lost_there', 'probe_lost_back'])
