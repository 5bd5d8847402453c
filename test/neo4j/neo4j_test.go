// Package neo4j loads the map's Cypher into a real Neo4j.
package neo4j

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serve starts Neo4j and answers the address of its HTTP interface, and its process.
func serve(t *testing.T) (address string, pid int) {
	t.Helper()
	classes := filepath.Join(t.TempDir(), "classpath")
	maven := exec.Command("mvn", "-q", "-B", "dependency:build-classpath", "-Dmdep.outputFile="+classes)
	if out, err := maven.CombinedOutput(); err != nil {
		t.Fatalf("fetching Neo4j: %v\n%s", err, out)
	}
	path, err := os.ReadFile(classes)
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command("java", "-cp", strings.TrimSpace(string(path)), "Server.java")
	var problems bytes.Buffer
	server.Stderr = &problems
	input, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		input.Close()
		if err := server.Wait(); err != nil {
			t.Errorf("Neo4j: %v", err)
		}
	})
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if address := lines.Text(); strings.HasPrefix(address, "http://") {
			go func() {
				for lines.Scan() { // or it would wait for us
				}
			}()
			return address, server.Process.Pid
		}
	}
	t.Fatalf("Neo4j did not start: %v\n%s", lines.Err(), problems.String())
	return "", 0
}

// run carries out statements in one transaction and answers the rows of the last.
func run(t *testing.T, server string, statements ...string) [][]any {
	t.Helper()
	type statement struct {
		Statement string `json:"statement"`
	}
	var ask struct {
		Statements []statement `json:"statements"`
	}
	for _, s := range statements {
		ask.Statements = append(ask.Statements, statement{s})
	}
	body, err := json.Marshal(ask)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Timeout: 2 * time.Minute}
	reply, err := client.Post(strings.TrimSuffix(server, "/")+"/db/neo4j/tx/commit", "application/json",
		bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	var answer struct {
		Results []struct {
			Data []struct {
				Row []any `json:"row"`
			} `json:"data"`
		} `json:"results"`
		Errors []struct{ Code, Message string } `json:"errors"`
	}
	if err := json.NewDecoder(reply.Body).Decode(&answer); err != nil {
		t.Fatalf("%s: %v", reply.Status, err)
	}
	if len(answer.Errors) > 0 {
		t.Fatalf("%+v", answer.Errors)
	}
	var rows [][]any
	for _, d := range answer.Results[len(answer.Results)-1].Data {
		rows = append(rows, d.Row)
	}
	return rows
}

// load carries out what WriteCypher wrote: a transaction for each statement, as cypher-shell does.
func load(t *testing.T, server, text string) {
	t.Helper()
	for _, s := range strings.SplitAfter(text, ";\n") {
		if s = strings.TrimSuffix(strings.TrimSpace(s), ";"); s != "" {
			run(t, server, s)
		}
	}
}

// TestCypherLoads loads the golden maps, hostile names included, twice: the second time changes nothing.
func TestCypherLoads(t *testing.T) {
	server, pid := serve(t)
	nodes, edges := 0, 0
	for _, name := range []string{"shop", "hostile"} {
		text, err := os.ReadFile("../../internal/graph/testdata/" + name + ".cypher")
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range strings.SplitAfter(string(text), ";\n") {
			switch rows := strings.Count(statement, "\t\n") + 1; {
			case strings.Contains(statement, " MERGE (n:Node {"):
				nodes += rows
			case strings.Contains(statement, "[r:CALLS {"):
				edges += rows
			}
		}
		for range 2 {
			load(t, server, string(text))
		}
	}
	rows := run(t, server, "MATCH (n:Node) RETURN count(n)")
	if got := fmt.Sprint(rows[0][0]); got != fmt.Sprint(nodes) || nodes == 0 {
		t.Errorf("%s nodes, want %d", got, nodes)
	}
	rows = run(t, server, "MATCH (:Node)-[r:CALLS]->(:Node) RETURN count(r)")
	if got := fmt.Sprint(rows[0][0]); got != fmt.Sprint(edges) || edges == 0 {
		t.Errorf("%s edges, want %d", got, edges)
	}
	rows = run(t, server, "MATCH (c {name:'gateway'})-[r]->(s {name:'catalogue'}) RETURN r.p99_seconds > 0, r.transport")
	if len(rows) != 1 || rows[0][0] != true || rows[0][1] != "tcp" {
		t.Errorf("the gateway's calls of the catalogue: %v", rows)
	}
	rows = run(t, server, "MATCH p = shortestPath((a {name:'gateway'})-[:CALLS*]->(b {name:'postgres'})) RETURN length(p)")
	if len(rows) != 1 || fmt.Sprint(rows[0][0]) != "2" {
		t.Errorf("the shortest path: %v", rows)
	}
	t.Run("page", func(t *testing.T) { checkPage(t, server) })
	t.Run("load", func(t *testing.T) { checkLoad(t, server, pid) })
}
