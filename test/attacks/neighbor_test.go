//go:build long

package attacks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/proto"
)

// neighbor is the tenant that does nothing unusual: it sends some series each second and looks at them.
type neighbor struct {
	server  *server
	client  *http.Client
	sent    int // batches that the server has accepted
	retries int // answers that asked it to send again
	took    []time.Duration
	failed  []string // what its queries failed with
}

const neighborSeries = 200

// run sends a batch each second and asks ten queries each second until ctx is done.
func (n *neighbor) run(t *testing.T, ctx context.Context) {
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for tick := time.NewTicker(100 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			n.ask(ctx)
		}
	}()
	for tick := time.NewTicker(time.Second); ctx.Err() == nil; <-tick.C {
		if err := n.send(ctx, time.Now()); err != nil {
			t.Errorf("the neighbor's batch %d: %v", n.sent+1, err)
		}
	}
	<-asked
}

// send sends one batch until it is accepted, as an agent does, for a minute at most.
func (n *neighbor) send(ctx context.Context, at time.Time) error {
	body, err := proto.Marshal(neighborBatch(n.sent+1, at))
	if err != nil {
		return err
	}
	var last string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		request, err := http.NewRequest(http.MethodPost, "http://"+n.server.otlpHTTP+"/v1/metrics", bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/x-protobuf")
		request.Header.Set("Authorization", "Bearer "+neighborToken)
		response, err := n.client.Do(request)
		if err == nil {
			answer, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				if rejected := rejectedPoints(answer); rejected > 0 {
					return fmt.Errorf("%d of its points were rejected", rejected)
				}
				n.sent++
				return nil
			}
			err = fmt.Errorf("%s: %s", response.Status, answer)
		}
		last = err.Error()
		n.retries++
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("not accepted within a minute: %s", last)
}

func rejectedPoints(answer []byte) int64 {
	var r collector.ExportMetricsServiceResponse
	if proto.Unmarshal(answer, &r) != nil {
		return 0
	}
	return r.GetPartialSuccess().GetRejectedDataPoints()
}

func neighborBatch(number int, at time.Time) *collector.ExportMetricsServiceRequest {
	points := make([]*metrics.NumberDataPoint, neighborSeries)
	for i := range points {
		points[i] = &metrics.NumberDataPoint{
			Attributes:   []*common.KeyValue{attribute("shard", strconv.Itoa(i))},
			TimeUnixNano: uint64(at.UnixNano()),
			Value:        &metrics.NumberDataPoint_AsInt{AsInt: int64(number)},
		}
	}
	return exportRequest("neighbor", &metrics.Metric{Name: "neighbor.batches",
		Data: &metrics.Metric_Gauge{Gauge: &metrics.Gauge{DataPoints: points}}})
}

func exportRequest(service string, m ...*metrics.Metric) *collector.ExportMetricsServiceRequest {
	return &collector.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{{
		Resource:     &resource.Resource{Attributes: []*common.KeyValue{attribute("service.name", service)}},
		ScopeMetrics: []*metrics.ScopeMetrics{{Metrics: m}},
	}}}
}

func attribute(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

// ask asks what a dashboard would, and notes how long it took or why it failed.
func (n *neighbor) ask(ctx context.Context) {
	began := time.Now()
	_, err := query(n.client, n.server, neighborToken, `sum(max_over_time(neighbor_batches[1m]))`)
	if ctx.Err() != nil {
		return
	}
	n.took = append(n.took, time.Since(began))
	if err != nil {
		n.failed = append(n.failed, err.Error())
	}
}

// quantile is the q-th quantile of how long its queries took.
func (n *neighbor) quantile(q float64) time.Duration {
	if len(n.took) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(n.took))
	return sorted[int(q*float64(len(sorted)-1))]
}

// stored is how many samples each of its series has, in the order of their number.
func (n *neighbor) stored(t *testing.T) map[float64]int {
	t.Helper()
	values, err := query(n.client, n.server, neighborToken, `count_over_time(neighbor_batches[1h])`)
	if err != nil {
		t.Fatalf("how much of the neighbor's is stored: %v", err)
	}
	counts := map[float64]int{}
	for _, v := range values {
		counts[v]++
	}
	return counts
}

// query asks the server at one moment and returns the values.
func query(client *http.Client, s *server, token, text string) ([]float64, error) {
	request, err := http.NewRequest(http.MethodPost, "http://"+s.page+"/api/v1/query",
		bytes.NewBufferString(url.Values{"query": {text}}.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %.300s", response.Status, body)
	}
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	values := make([]float64, len(answer.Data.Result))
	for i, r := range answer.Data.Result {
		text, _ := r.Value[1].(string)
		if values[i], err = strconv.ParseFloat(text, 64); err != nil {
			return nil, err
		}
	}
	return values, nil
}
