CREATE CONSTRAINT outsight_node IF NOT EXISTS FOR (n:Node) REQUIRE n.id IS UNIQUE;
MERGE (n:Node {id: 'f6'}) SET n += {name: '�[31m"];}�x\\�<script>', kind: 'container', host: 'vm', image: '�[31m"];}�x\\�<script>:1'};
MERGE (n:Node {id: 'g7'}) SET n += {name: 'b`](x)', kind: 'container', host: 'vm', image: 'b`](x):1'};
MATCH (a:Node {id: 'f6'}), (b:Node {id: 'g7'}) MERGE (a)-[r:CALLS {transport: 'tcp'}]->(b) SET r += {transport: 'tcp', services: '10.0.0.1:80', confidence: 'none', p50_seconds: 0.0010088133584191684, p90_seconds: 0.0010088133584191684, p99_seconds: 0.0010088133584191684, failures: 0, retransmits: 0};
