package graph

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// cypherRows is how many nodes or edges a statement has.
const cypherRows = 1000

// cypherSchema makes nodes be found by their IDs, and hosts by their names.
const cypherSchema = `CREATE CONSTRAINT outsight_node IF NOT EXISTS FOR (n:Node) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT outsight_host IF NOT EXISTS FOR (h:Host) REQUIRE h.name IS UNIQUE;
`

// WriteCypher writes the graph as statements for Neo4j that can be run again: nodes are merged by their ID, and edges by
// their ends and transport. Nodes are in their containers, and these are on their hosts: (:Process)-[:IN]->(:Container)
// -[:ON]->(:Host). No more than one row is in memory. A statement ends with ";" at the end of a line, which is nowhere else.
//
// The rows of a statement are lines of one text, so that all statements of a kind are the same but for that text: Neo4j
// plans them once. A list of maps it would plan anew for each statement, a thousand of them in half a minute.
func WriteCypher(w io.Writer, g *Graph) error {
	c := cypherWriter{out: bufio.NewWriterSize(w, 1<<16)}
	c.out.WriteString(cypherSchema)
	c.nodes(g)
	c.places(g)
	const calls = "MATCH (a:Node {id: f[0]}), (b:Node {id: f[1]}) MERGE (a)-[r:CALLS {transport: f[2]}]->(b) SET "
	set := calls + setCypher("r", 3, edgeFields)
	for _, e := range g.Edges {
		c.begin(set)
		c.field(e.Client)
		c.field(e.Server)
		c.field(e.Transport)
		c.fields(edgeFields, e.cypherAttributes())
	}
	c.end()
	return c.out.Flush()
}

// cypherField is a property. Texts that are empty and numbers that are missing are not set.
type cypherField struct {
	name   string
	number bool
}

var (
	nodeFields = []cypherField{{"name", false}, {"kind", false}, {"host", false}, {"image", false}, {"namespace", false},
		{"pod", false}, {"process", false}, {"workload", false}, {"cpu_cores", true}, {"memory_bytes", true},
		{"run_queue_p99_seconds", true}}
	edgeFields = []cypherField{{"services", false}, {"confidence", false}, {"requests_per_second", true},
		{"request_bytes_per_second", true}, {"response_bytes_per_second", true}, {"p50_seconds", true}, {"p90_seconds", true},
		{"p99_seconds", true}, {"failures", true}, {"retransmits", true}, {"bytes", true}, {"packets", true},
		{"requests", true}}
)

// setCypher sets properties of a variable to the fields from the one with an index on.
func setCypher(of string, first int, fields []cypherField) string {
	all := make([]string, len(fields))
	for i, field := range fields {
		value := fmt.Sprintf("CASE f[%d] WHEN '' THEN null ELSE f[%[1]d] END", first+i)
		if field.number {
			value = fmt.Sprintf("toFloat(f[%d])", first+i)
		}
		all[i] = of + "." + field.name + " = " + value
	}
	return strings.Join(all, ", ")
}

// cypherWriter writes statements. Errors stay in out.
type cypherWriter struct {
	out *bufio.Writer
	// statement is what is done with the fields f of each of the rows that are being written, of which there are some.
	statement string
	rows      int
}

// begin begins a row of a statement, and the statement when the one before it is another or has enough rows.
func (c *cypherWriter) begin(statement string) {
	if statement != c.statement || c.rows == cypherRows {
		c.end()
		c.statement = statement
		c.out.WriteString("UNWIND split('")
	} else {
		c.out.WriteByte('\n')
	}
	c.rows++
}

var cypherQuotes = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

// field adds a field to a row. It has no tab or line of its own, as it is cleaned.
func (c *cypherWriter) field(text string) {
	cypherQuotes.WriteString(c.out, Clean(text))
	c.out.WriteByte('\t')
}

func (c *cypherWriter) fields(fields []cypherField, all []attribute) {
	all = there(all)
	for _, field := range fields {
		text := ""
		for i := range all {
			if all[i].name == field.name {
				text = all[i].value()
			}
		}
		c.field(text)
	}
}

func (c *cypherWriter) end() {
	if c.rows > 0 {
		c.out.WriteString(`', '\n') AS line WITH split(line, '\t') AS f ` + c.statement + ";\n")
	}
	c.statement, c.rows = "", 0
}

// cypherLabels are those of nodes beside Node.
var cypherLabels = map[Kind]string{KindProcess: ":Process", KindContainer: ":Container", KindService: ":Container",
	KindPod: ":Pod", KindOutside: ":Outside"}

func (c *cypherWriter) nodes(g *Graph) {
	for _, kind := range []Kind{KindContainer, KindService, KindHost, KindOutside, KindPod, KindProcess, KindWorkload,
		KindNamespace, KindClusterService} {
		statement := "MERGE (n:Node {id: f[0]}) SET " + setCypher("n", 1, nodeFields)
		if label := cypherLabels[kind]; label != "" {
			statement += ", n" + label
		}
		for _, n := range g.Nodes {
			if n.Kind == kind {
				c.begin(statement)
				c.field(n.ID)
				c.fields(nodeFields, n.cypherAttributes())
			}
		}
	}
}

// places puts nodes where they are.
func (c *cypherWriter) places(g *Graph) {
	in := "MERGE (c:Node {id: f[1]}) SET c:Container, " + setCypher("c", 2, nodeFields) +
		" WITH c, f MATCH (p:Node {id: f[0]}) MERGE (p)-[:IN]->(c)"
	for _, n := range g.Nodes {
		if n.in != nil && n.in.Kind != KindHost {
			c.begin(in)
			c.field(n.ID)
			c.field(n.in.ID)
			c.fields(nodeFields, n.in.cypherAttributes())
		}
	}
	const on = "MERGE (h:Host {name: f[1]}) WITH h, f MATCH (n:Node {id: f[0]}) MERGE (n)-[:ON]->(h)"
	seen := map[string]bool{}
	for _, n := range g.Nodes {
		if n.in != nil && n.in.Kind != KindHost {
			n = n.in
		}
		if n.Host != "" && !seen[n.ID] {
			seen[n.ID] = true
			c.begin(on)
			c.field(n.ID)
			c.field(n.Host)
		}
	}
}

func (n *Node) cypherAttributes() []attribute {
	return append(n.attributes(), attribute{name: "process", text: Clean(n.Process)},
		attribute{name: "workload", text: Clean(n.Workload)})
}

// cypherAttributes has, beside rates, what was counted in the window.
func (e *Edge) cypherAttributes() []attribute {
	s := e.Best()
	bytes, packets := s.Of(RequestBytes)+s.Of(ResponseBytes), s.Of(RequestPackets)+s.Of(ResponsePackets)
	requests := s.Of(Transactions)
	return append(e.attributes(), attribute{name: "bytes", number: &bytes}, attribute{name: "packets", number: &packets},
		attribute{name: "requests", number: &requests})
}
