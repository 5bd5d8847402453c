CREATE CONSTRAINT outsight_node IF NOT EXISTS FOR (n:Node) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT outsight_host IF NOT EXISTS FOR (h:Host) REQUIRE h.name IS UNIQUE;
UNWIND split('b2	catalogue	container	vm	catalogue:1					0.2	2.097152e+06	0.002979683888172926	
a1	gateway	container	vm	gateway:1					0.1	1.048576e+06	0.002979683888172926	
e5	idle	container	vm	idle:1					0.5	5.24288e+06	0.002979683888172926	
d4	postgres	container	vm	postgres:1					0.4	4.194304e+06	0.002979683888172926	
c3	worker	container	vm	worker:1					0.3	3.145728e+06	0.002979683888172926	', '\n') AS line WITH split(line, '\t') AS f MERGE (n:Node {id: f[0]}) SET n.name = CASE f[1] WHEN '' THEN null ELSE f[1] END, n.kind = CASE f[2] WHEN '' THEN null ELSE f[2] END, n.host = CASE f[3] WHEN '' THEN null ELSE f[3] END, n.image = CASE f[4] WHEN '' THEN null ELSE f[4] END, n.namespace = CASE f[5] WHEN '' THEN null ELSE f[5] END, n.pod = CASE f[6] WHEN '' THEN null ELSE f[6] END, n.process = CASE f[7] WHEN '' THEN null ELSE f[7] END, n.workload = CASE f[8] WHEN '' THEN null ELSE f[8] END, n.cpu_cores = toFloat(f[9]), n.memory_bytes = toFloat(f[10]), n.run_queue_p99_seconds = toFloat(f[11]), n:Container;
UNWIND split('203.0.113.9	203.0.113.9	outside										
outside	outside	outside										', '\n') AS line WITH split(line, '\t') AS f MERGE (n:Node {id: f[0]}) SET n.name = CASE f[1] WHEN '' THEN null ELSE f[1] END, n.kind = CASE f[2] WHEN '' THEN null ELSE f[2] END, n.host = CASE f[3] WHEN '' THEN null ELSE f[3] END, n.image = CASE f[4] WHEN '' THEN null ELSE f[4] END, n.namespace = CASE f[5] WHEN '' THEN null ELSE f[5] END, n.pod = CASE f[6] WHEN '' THEN null ELSE f[6] END, n.process = CASE f[7] WHEN '' THEN null ELSE f[7] END, n.workload = CASE f[8] WHEN '' THEN null ELSE f[8] END, n.cpu_cores = toFloat(f[9]), n.memory_bytes = toFloat(f[10]), n.run_queue_p99_seconds = toFloat(f[11]), n:Outside;
UNWIND split('b2	vm	
a1	vm	
e5	vm	
d4	vm	
c3	vm	', '\n') AS line WITH split(line, '\t') AS f MERGE (h:Host {name: f[1]}) WITH h, f MATCH (n:Node {id: f[0]}) MERGE (n)-[:ON]->(h);
UNWIND split('b2	d4	tcp	10.0.0.4:5432	exact	400	40000	800000	0.0006980533878867041	0.0006980533878867041	0.0006980533878867041	0	0	1.68e+06	0	800	
a1	b2	tcp	10.0.0.2:8080	exact	200	20000	400000	0.002979683888172926	0.002979683888172926	0.002979683888172926	0	0	840000	0	400	
outside	a1	tcp	192.0.2.1:80	none	120	12000	240000	0.008993665859007677	0.08935083364949813	0.08935083364949813	0	0	504000	0	240	
d4	c3	tcp	10.0.0.3:9000	exact	2	200	4000	0.0010088133584191684	0.0010088133584191684	0.0010088133584191684	0	0	8400	0	4	
c3	203.0.113.9	tcp	203.0.113.9:443	none	5	500	10000	0.04008968800246182	0.04008968800246182	0.04008968800246182	0	0	21000	0	10	
c3	d4	tcp	10.0.0.4:5432	exact	50	5000	100000				0	0	210000	0	100	', '\n') AS line WITH split(line, '\t') AS f MATCH (a:Node {id: f[0]}), (b:Node {id: f[1]}) MERGE (a)-[r:CALLS {transport: f[2]}]->(b) SET r.services = CASE f[3] WHEN '' THEN null ELSE f[3] END, r.confidence = CASE f[4] WHEN '' THEN null ELSE f[4] END, r.requests_per_second = toFloat(f[5]), r.request_bytes_per_second = toFloat(f[6]), r.response_bytes_per_second = toFloat(f[7]), r.p50_seconds = toFloat(f[8]), r.p90_seconds = toFloat(f[9]), r.p99_seconds = toFloat(f[10]), r.failures = toFloat(f[11]), r.retransmits = toFloat(f[12]), r.bytes = toFloat(f[13]), r.packets = toFloat(f[14]), r.requests = toFloat(f[15]);
