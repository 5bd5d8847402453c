package graph

import (
	"bufio"
	"io"
	"strings"
)

// cypherRows is how many nodes or edges a statement has.
const cypherRows = 1000

// cypherSchema makes nodes be found by their IDs, and hosts by their names.
const cypherSchema = `CREATE CONSTRAINT outsight_node IF NOT EXISTS FOR (n:Node) REQUIRE n.id IS UNIQUE;
CREATE CONSTRAINT outsight_host IF NOT EXISTS FOR (h:Host) REQUIRE h.name IS UNIQUE;
`

// WriteCypher writes the graph as statements for Neo4j that can be run again: nodes are merged by their ID, and edges
// by their ends and transport. Nodes are in their containers, and these are on their hosts:
// (:Process)-[:IN]->(:Container) -[:ON]->(:Host). A statement has many rows, and no more than one row is in memory. It
// ends with ";" at the end of a line, which is nowhere else: names are cleaned and quoted.
func WriteCypher(w io.Writer, g *Graph) error {
	c := cypherWriter{out: bufio.NewWriterSize(w, 1<<16)}
	c.out.WriteString(cypherSchema)
	c.nodes(g)
	c.places(g)
	for _, e := range g.Edges {
		c.row("MATCH (a:Node {id: row.a}), (b:Node {id: row.b}) MERGE (a)-[r:CALLS {transport: row.transport}]->(b) "+
			"SET r += row.is", "{a: ", quoteCypher(Clean(e.Client)), ", b: ", quoteCypher(Clean(e.Server)), ", transport: ",
			quoteCypher(e.Transport), ", is: ", mapCypher(e.cypherAttributes()), "}")
	}
	c.end()
	return c.out.Flush()
}

// cypherWriter writes statements. Errors stay in out.
type cypherWriter struct {
	out *bufio.Writer
	// statement is what is done with each of the rows that are being written, of which there are some.
	statement string
	rows      int
}

// row adds a row to a statement, which begins when the one before it is another or has enough rows.
func (c *cypherWriter) row(statement string, parts ...string) {
	if statement != c.statement || c.rows == cypherRows {
		c.end()
		c.statement = statement
		c.out.WriteString("UNWIND [\n")
	} else {
		c.out.WriteString(",\n")
	}
	c.rows++
	for _, part := range parts {
		c.out.WriteString(part)
	}
}

func (c *cypherWriter) end() {
	if c.rows > 0 {
		c.out.WriteString("\n] AS row " + c.statement + ";\n")
	}
	c.statement, c.rows = "", 0
}

// cypherLabels are those of nodes beside Node.
var cypherLabels = map[Kind]string{KindProcess: ":Process", KindContainer: ":Container", KindService: ":Container",
	KindPod: ":Pod", KindOutside: ":Outside"}

func (c *cypherWriter) nodes(g *Graph) {
	for _, kind := range []Kind{KindContainer, KindService, KindHost, KindOutside, KindPod, KindProcess, KindWorkload,
		KindNamespace, KindClusterService} {
		statement := "MERGE (n:Node {id: row.id}) SET n += row.is"
		if label := cypherLabels[kind]; label != "" {
			statement += ", n" + label
		}
		for _, n := range g.Nodes {
			if n.Kind == kind {
				c.row(statement, "{id: ", quoteCypher(Clean(n.ID)), ", is: ", mapCypher(n.cypherAttributes()), "}")
			}
		}
	}
}

// places puts nodes where they are.
func (c *cypherWriter) places(g *Graph) {
	const in = "MERGE (c:Node {id: row.container}) SET c:Container, c += row.is WITH c, row MATCH (p:Node {id: row.id}) " +
		"MERGE (p)-[:IN]->(c)"
	for _, n := range g.Nodes {
		if n.in != nil && n.in.Kind != KindHost {
			c.row(in, "{id: ", quoteCypher(Clean(n.ID)), ", container: ", quoteCypher(Clean(n.in.ID)), ", is: ",
				mapCypher(n.in.cypherAttributes()), "}")
		}
	}
	const on = "MERGE (h:Host {name: row.host}) WITH h, row MATCH (n:Node {id: row.id}) MERGE (n)-[:ON]->(h)"
	seen := map[string]bool{}
	for _, n := range g.Nodes {
		if n.in != nil && n.in.Kind != KindHost {
			n = n.in
		}
		if n.Host != "" && !seen[n.ID] {
			seen[n.ID] = true
			c.row(on, "{id: ", quoteCypher(Clean(n.ID)), ", host: ", quoteCypher(Clean(n.Host)), "}")
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

func mapCypher(all []attribute) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, a := range there(all) {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.name + ": ")
		if a.number != nil {
			b.WriteString(a.value())
		} else {
			b.WriteString(quoteCypher(a.value()))
		}
	}
	b.WriteByte('}')
	return b.String()
}

var cypherQuotes = strings.NewReplacer(`\`, `\\`, `'`, `\'`)

func quoteCypher(s string) string { return "'" + cypherQuotes.Replace(s) + "'" }
