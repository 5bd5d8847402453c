//go:build long

package attacks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// attackFor is how long the attacks go on.
const attackFor = 90 * time.Second

// attacks are what one tenant, or somebody without a token, does. Each goes on until its context is done.
var attacks = map[string]func(context.Context, *server) tally{
	"queries that build labels":              labelQueries,
	"queries over the attacker's series":     wideQueries,
	"JSON of empty scopes":                   emptyScopes,
	"gRPC streams that send nothing":         stalledStreams,
	"series of long labels":                  longLabels,
	"very many small series":                 manySeries,
	"readers that do not read":               slowReaders,
	"connections with large headers":         largeHeaders,
	"bodies that do not end":                 slowBodies,
	"requests in the name of a foreign page": foreignPages,
}

// tally counts the answers to an attack by what they said.
type tally map[string]int

func (t tally) add(response *http.Response, err error) {
	switch {
	case err != nil:
		t[shortError(err)]++
	default:
		io.Copy(io.Discard, response.Body)
		response.Body.Close()
		t[strconv.Itoa(response.StatusCode)]++
	}
}

func shortError(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	case strings.Contains(err.Error(), "connection refused"):
		return "connection refused"
	}
	return "connection closed"
}

// TestOneTenantAttacksAnotherDoesNotNotice: with all attacks at once for a minute and a half, the server stays alive
// under its memory limit, each sample of the other tenant that was accepted is stored once, and none of that tenant's
// queries fails.
func TestOneTenantAttacksAnotherDoesNotNotice(t *testing.T) {
	s := startServer(t)
	n := &neighbor{server: s, client: &http.Client{Timeout: 20 * time.Second}}

	// A quiet quarter of a minute first, to compare with.
	quiet, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	n.run(t, quiet)
	cancel()
	calm := n.quantile(0.99)
	n.took = nil

	under, cancel := context.WithTimeout(t.Context(), attackFor)
	defer cancel()
	var mu sync.Mutex
	answers := map[string]tally{}
	var attackers sync.WaitGroup
	for name, attack := range attacks {
		attackers.Go(func() {
			said := attack(under, s)
			mu.Lock()
			defer mu.Unlock()
			answers[name] = said
		})
	}
	n.run(t, under)
	s.alive(t)
	t.Logf("neighbor: %d batches accepted, %d retries; query p50 %v, p99 %v, max %v (p99 before the attacks %v); %d of %d queries failed; peak memory %d MiB",
		n.sent, n.retries, n.quantile(0.5), n.quantile(0.99), n.quantile(1), calm, len(n.failed), len(n.took),
		s.peakMemory(t)>>20)
	attackers.Wait()
	for name, said := range answers {
		t.Logf("%-40s %v", name, said)
	}
	s.alive(t)
	if len(n.failed) > 0 {
		t.Errorf("%d of the neighbor's %d queries failed, the first with: %s", len(n.failed), len(n.took), n.failed[0])
	}
	// What was accepted may wait in the queue for a moment.
	var counts map[float64]int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		if counts = n.stored(t); counts[float64(n.sent)] == neighborSeries {
			break
		}
	}
	if len(counts) != 1 || counts[float64(n.sent)] != neighborSeries {
		t.Errorf("the server accepted %d batches of %d series; stored are (samples: series) %v", n.sent, neighborSeries,
			counts)
	}
}

// repeat calls f from several goroutines until ctx is done, and adds up what it said.
func repeat(ctx context.Context, goroutines int, f func(tally)) tally {
	all := tally{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			own := tally{}
			for ctx.Err() == nil {
				f(own)
				// Refusals come at once: the attack is that of a few clients, not of a flood of packets.
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for k, v := range own {
				all[k] += v
			}
		})
	}
	wg.Wait()
	return all
}

func post(ctx context.Context, client *http.Client, address, token string, header http.Header,
	body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, body)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		request.Header[k] = v
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return client.Do(request)
}

var formHeader = http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}

func postQuery(ctx context.Context, s *server, token, text string) (*http.Response, error) {
	return post(ctx, http.DefaultClient, "http://"+s.page+"/api/v1/query", token, formHeader,
		strings.NewReader(url.Values{"query": {text}}.Encode()))
}

// joinedLabels is a query of 27 KB: 600 series, whose label doubles with each of 20 levels.
func joinedLabels() string {
	series := make([]string, 600)
	for i := range series {
		series[i] = fmt.Sprintf(`label_replace(vector(1),"a","%d","","")`, i)
	}
	text := strings.Join(series, " or ")
	for range 20 {
		text = `label_join(` + text + `,"a","","a","a")`
	}
	return text
}

func labelQueries(ctx context.Context, s *server) tally {
	nested := joinedLabels()
	return repeat(ctx, 2, func(t tally) { t.add(postQuery(ctx, s, attackerToken, nested)) })
}

func wideQueries(ctx context.Context, s *server) tally {
	texts := []string{
		`label_replace({__name__=~"attacker.*"}, "z", "` + strings.Repeat("$1", 2000) + `", "u0", "(.*)")`,
		`count by (u0, u1, u2) (rate({__name__=~"attacker.*"}[5m:1s]))`,
		`sort_desc({__name__=~".+"} * on() group_left sum({__name__=~".+"}))`,
		strings.Repeat("(", 20000) + "1" + strings.Repeat(")", 20000),
		`count_values("v", {__name__=~".+"})`,
	}
	var next int
	var mu sync.Mutex
	return repeat(ctx, 30, func(t tally) {
		mu.Lock()
		text := texts[next%len(texts)]
		next++
		mu.Unlock()
		t.add(postQuery(ctx, s, attackerToken, text))
	})
}

// foreignPages sends what a page of another site can make a browser send.
func foreignPages(ctx context.Context, s *server) tally {
	header := formHeader.Clone()
	header.Set("Origin", "https://attacker.example")
	header.Set("Sec-Fetch-Site", "cross-site")
	text := url.Values{"query": {joinedLabels()}}.Encode()
	return repeat(ctx, 1, func(t tally) {
		t.add(post(ctx, http.DefaultClient, "http://"+s.page+"/api/v1/query", attackerToken, header, strings.NewReader(text)))
	})
}

func emptyScopes(ctx context.Context, s *server) tally {
	const scopes = 10_500_000
	var body bytes.Buffer
	w, err := zstd.NewWriter(&body)
	if err != nil {
		panic(err)
	}
	io.WriteString(w, `{"resourceMetrics":[{"scopeMetrics":[{}`)
	thousand := strings.Repeat(",{}", 1000)
	for range scopes / 1000 {
		io.WriteString(w, thousand)
	}
	io.WriteString(w, `]}]}`)
	w.Close()
	header := http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"zstd"}}
	return repeat(ctx, 4, func(t tally) {
		t.add(post(ctx, http.DefaultClient, "http://"+s.otlpHTTP+"/v1/metrics", attackerToken, header,
			bytes.NewReader(body.Bytes())))
	})
}

// stalledStreams opens calls and sends nothing but their headers.
func stalledStreams(ctx context.Context, s *server) tally {
	said := tally{}
	for range 4 {
		connection, err := grpc.NewClient(s.otlpGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			said[shortError(err)]++
			continue
		}
		defer connection.Close()
		for range 50 {
			authorized := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+attackerToken)
			// The handler reads one message: a stream that declares to send many can leave it out.
			_, err := connection.NewStream(authorized, &grpc.StreamDesc{ClientStreams: true},
				collector.MetricsService_Export_FullMethodName)
			if err != nil {
				said[shortError(err)]++
			} else {
				said["open"]++
			}
		}
	}
	<-ctx.Done()
	return said
}

// longLabels sends series of 60 labels of 1 KB each, 47,500 of them if the server takes them.
func longLabels(ctx context.Context, s *server) tally {
	said, client := tally{}, &http.Client{}
	filler := strings.Repeat("x", 1000)
	for first := 0; first < 47_500 && ctx.Err() == nil; first += 50 {
		points := make([]*metrics.NumberDataPoint, 50)
		for i := range points {
			attributes := make([]*common.KeyValue, 60)
			for l := range attributes {
				attributes[l] = attribute(fmt.Sprintf("u%d", l), fmt.Sprintf("%d-%d-%s", first+i, l, filler))
			}
			points[i] = numberPoint(attributes)
		}
		said.add(sendPoints(ctx, client, s, "attacker.long", points))
	}
	return said
}

// manySeries sends 2,000 new series at a time as fast as they are taken.
func manySeries(ctx context.Context, s *server) tally {
	var mu sync.Mutex
	next := 0
	return repeat(ctx, 4, func(t tally) {
		mu.Lock()
		first := next
		next += 2000
		mu.Unlock()
		points := make([]*metrics.NumberDataPoint, 2000)
		for i := range points {
			points[i] = numberPoint([]*common.KeyValue{attribute("u0", strconv.Itoa(first+i))})
		}
		t.add(sendPoints(ctx, http.DefaultClient, s, "attacker.many", points))
	})
}

func numberPoint(attributes []*common.KeyValue) *metrics.NumberDataPoint {
	return &metrics.NumberDataPoint{Attributes: attributes, TimeUnixNano: uint64(time.Now().UnixNano()),
		Value: &metrics.NumberDataPoint_AsInt{AsInt: 1}}
}

func sendPoints(ctx context.Context, client *http.Client, s *server, name string,
	points []*metrics.NumberDataPoint) (*http.Response, error) {
	body, err := proto.Marshal(exportRequest("attacker",
		&metrics.Metric{Name: name, Data: &metrics.Metric_Gauge{Gauge: &metrics.Gauge{DataPoints: points}}}))
	if err != nil {
		return nil, err
	}
	return post(ctx, client, "http://"+s.otlpHTTP+"/v1/metrics", attackerToken,
		http.Header{"Content-Type": {"application/x-protobuf"}}, bytes.NewReader(body))
}

// slowReaders ask for large answers and read none of them.
func slowReaders(ctx context.Context, s *server) tally {
	body := url.Values{"query": {`{__name__=~".+"}[10m]`}}.Encode()
	request := fmt.Sprintf("POST /api/v1/query HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: %d\r\n\r\n%s", s.page, attackerToken,
		len(body), body)
	return hold(ctx, 30, s.page, func(c net.Conn) { io.WriteString(c, request) })
}

// largeHeaders opens 4,000 connections without a token, each with as many headers as the server takes, to 1 MB.
func largeHeaders(ctx context.Context, s *server) tally {
	line := "X-Filler: " + strings.Repeat("x", 8<<10) + "\r\n"
	said := tally{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, address := range map[string]string{"page": s.page, "OTLP": s.otlpHTTP} {
		wg.Go(func() {
			held := hold(ctx, 2000, address, func(c net.Conn) {
				fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n", address)
				for range 128 {
					if _, err := io.WriteString(c, line); err != nil {
						return
					}
				}
			})
			mu.Lock()
			defer mu.Unlock()
			for k, v := range held {
				said[name+" "+k] += v
			}
		})
	}
	wg.Wait()
	return said
}

// slowBodies begin requests of 1 MB and send one byte of them.
func slowBodies(ctx context.Context, s *server) tally {
	request := fmt.Sprintf("POST /v1/metrics HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/x-protobuf\r\nContent-Length: 1000000\r\n\r\nx", s.otlpHTTP, attackerToken)
	return hold(ctx, 100, s.otlpHTTP, func(c net.Conn) { io.WriteString(c, request) })
}

// hold opens connections, lets start write to each, and reads nothing. A half of the time of the attack is for opening
// them.
func hold(ctx context.Context, connections int, address string, start func(net.Conn)) tally {
	said := tally{}
	deadline := time.Now().Add(attackFor / 2)
	for range connections {
		if ctx.Err() != nil || time.Now().After(deadline) {
			break
		}
		dialer := net.Dialer{Timeout: 2 * time.Second}
		c, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			said[shortError(err)]++
			continue
		}
		defer c.Close()
		c.(*net.TCPConn).SetReadBuffer(4 << 10)
		c.SetWriteDeadline(time.Now().Add(2 * time.Second))
		start(c)
		said["open"]++
	}
	<-ctx.Done()
	return said
}
