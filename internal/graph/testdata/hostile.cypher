CREATE CONSTRAINT outsight_node IF NOT EXISTS FOR (n:Node) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT outsight_host IF NOT EXISTS FOR (h:Host) REQUIRE h.name IS UNIQUE;
UNWIND [
{id: 'f6', is: {name: '�[31m"];}�x\\�<script>', kind: 'container', host: 'vm', image: '�[31m"];}�x\\�<script>:1'}},
{id: 'g7', is: {name: 'b`](x)', kind: 'container', host: 'vm', image: 'b`](x):1'}}
] AS row MERGE (n:Node {id: row.id}) SET n += row.is, n:Container;
UNWIND [
{id: 'f6', host: 'vm'},
{id: 'g7', host: 'vm'}
] AS row MERGE (h:Host {name: row.host}) WITH h, row MATCH (n:Node {id: row.id}) MERGE (n)-[:ON]->(h);
UNWIND [
{a: 'f6', b: 'g7', transport: 'tcp', is: {transport: 'tcp', services: '10.0.0.1:80', confidence: 'none', p50_seconds: 0.0010088133584191684, p90_seconds: 0.0010088133584191684, p99_seconds: 0.0010088133584191684, failures: 0, retransmits: 0, bytes: 1, packets: 0, requests: 1}}
] AS row MATCH (a:Node {id: row.a}), (b:Node {id: row.b}) MERGE (a)-[r:CALLS {transport: row.transport}]->(b) SET r += row.is;
