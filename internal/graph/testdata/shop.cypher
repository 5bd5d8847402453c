CREATE CONSTRAINT outsight_node IF NOT EXISTS FOR (n:Node) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT outsight_host IF NOT EXISTS FOR (h:Host) REQUIRE h.name IS UNIQUE;
UNWIND [
{id: 'b2', is: {name: 'catalogue', kind: 'container', host: 'vm', image: 'catalogue:1', cpu_cores: 0.2, memory_bytes: 2.097152e+06, run_queue_p99_seconds: 0.002979683888172926}},
{id: 'a1', is: {name: 'gateway', kind: 'container', host: 'vm', image: 'gateway:1', cpu_cores: 0.1, memory_bytes: 1.048576e+06, run_queue_p99_seconds: 0.002979683888172926}},
{id: 'e5', is: {name: 'idle', kind: 'container', host: 'vm', image: 'idle:1', cpu_cores: 0.5, memory_bytes: 5.24288e+06, run_queue_p99_seconds: 0.002979683888172926}},
{id: 'd4', is: {name: 'postgres', kind: 'container', host: 'vm', image: 'postgres:1', cpu_cores: 0.4, memory_bytes: 4.194304e+06, run_queue_p99_seconds: 0.002979683888172926}},
{id: 'c3', is: {name: 'worker', kind: 'container', host: 'vm', image: 'worker:1', cpu_cores: 0.3, memory_bytes: 3.145728e+06, run_queue_p99_seconds: 0.002979683888172926}}
] AS row MERGE (n:Node {id: row.id}) SET n += row.is, n:Container;
UNWIND [
{id: '203.0.113.9', is: {name: '203.0.113.9', kind: 'outside'}},
{id: 'outside', is: {name: 'outside', kind: 'outside'}}
] AS row MERGE (n:Node {id: row.id}) SET n += row.is, n:Outside;
UNWIND [
{id: 'b2', host: 'vm'},
{id: 'a1', host: 'vm'},
{id: 'e5', host: 'vm'},
{id: 'd4', host: 'vm'},
{id: 'c3', host: 'vm'}
] AS row MERGE (h:Host {name: row.host}) WITH h, row MATCH (n:Node {id: row.id}) MERGE (n)-[:ON]->(h);
UNWIND [
{a: 'b2', b: 'd4', transport: 'tcp', is: {transport: 'tcp', services: '10.0.0.4:5432', confidence: 'exact', requests_per_second: 400, request_bytes_per_second: 40000, response_bytes_per_second: 800000, p50_seconds: 0.0006980533878867041, p90_seconds: 0.0006980533878867041, p99_seconds: 0.0006980533878867041, failures: 0, retransmits: 0, bytes: 1.68e+06, packets: 0, requests: 800}},
{a: 'a1', b: 'b2', transport: 'tcp', is: {transport: 'tcp', services: '10.0.0.2:8080', confidence: 'exact', requests_per_second: 200, request_bytes_per_second: 20000, response_bytes_per_second: 400000, p50_seconds: 0.002979683888172926, p90_seconds: 0.002979683888172926, p99_seconds: 0.002979683888172926, failures: 0, retransmits: 0, bytes: 840000, packets: 0, requests: 400}},
{a: 'outside', b: 'a1', transport: 'tcp', is: {transport: 'tcp', services: '192.0.2.1:80', confidence: 'none', requests_per_second: 120, request_bytes_per_second: 12000, response_bytes_per_second: 240000, p50_seconds: 0.008993665859007677, p90_seconds: 0.08935083364949813, p99_seconds: 0.08935083364949813, failures: 0, retransmits: 0, bytes: 504000, packets: 0, requests: 240}},
{a: 'd4', b: 'c3', transport: 'tcp', is: {transport: 'tcp', services: '10.0.0.3:9000', confidence: 'exact', requests_per_second: 2, request_bytes_per_second: 200, response_bytes_per_second: 4000, p50_seconds: 0.0010088133584191684, p90_seconds: 0.0010088133584191684, p99_seconds: 0.0010088133584191684, failures: 0, retransmits: 0, bytes: 8400, packets: 0, requests: 4}},
{a: 'c3', b: '203.0.113.9', transport: 'tcp', is: {transport: 'tcp', services: '203.0.113.9:443', confidence: 'none', requests_per_second: 5, request_bytes_per_second: 500, response_bytes_per_second: 10000, p50_seconds: 0.04008968800246182, p90_seconds: 0.04008968800246182, p99_seconds: 0.04008968800246182, failures: 0, retransmits: 0, bytes: 21000, packets: 0, requests: 10}},
{a: 'c3', b: 'd4', transport: 'tcp', is: {transport: 'tcp', services: '10.0.0.4:5432', confidence: 'exact', requests_per_second: 50, request_bytes_per_second: 5000, response_bytes_per_second: 100000, failures: 0, retransmits: 0, bytes: 210000, packets: 0, requests: 100}}
] AS row MATCH (a:Node {id: row.a}), (b:Node {id: row.b}) MERGE (a)-[r:CALLS {transport: row.transport}]->(b) SET r += row.is;
