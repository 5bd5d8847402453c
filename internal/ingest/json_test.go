package ingest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	colpb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonToProto is a request in JSON as protobuf, with the bounds of a server.
func jsonToProto(b []byte) ([]byte, error) {
	return fromJSON(b, jsonLimits{bytes: 32 << 20, elements: 400_000})
}

// generated is what the generated types make of a request in JSON.
func generated(b []byte) ([]byte, error) {
	var m colpb.ExportMetricsServiceRequest
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, &m); err != nil {
		return nil, err
	}
	return proto.Marshal(&m)
}

// seriesOf are the series of a request as text.
func seriesOf(t *testing.T, body []byte) (lines []string) {
	t.Helper()
	b := decode(t, body, "")
	for i := range b.Series {
		lines = append(lines, fmt.Sprint(line(&b.Series[i]), " ", b.Series[i].Time.UnixMilli(), " ",
			b.Series[i].Start.UnixMilli()))
	}
	return append(lines, b.Rejected.String())
}

// Requests in JSON mean what they mean to the generated types.
func TestJSONAsGenerated(t *testing.T) {
	canonical, err := protojson.Marshal(allKinds())
	if err != nil {
		t.Fatal(err)
	}
	inNames, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true,
		Multiline: true}.Marshal(allKinds())
	if err != nil {
		t.Fatal(err)
	}
	at := ns(t0)
	point := func(rest string) string {
		return fmt.Sprintf(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"g","gauge":{"dataPoints":[{"timeUnixNano":"%d",%s}]}}]}]}]}`, at, rest)
	}
	for _, text := range []string{
		string(canonical), string(inNames), `{}`, ` { "resourceMetrics" : null } `, `{"resourceMetrics":[]}`,
		`{"future":{"a":[1,{"b":[]}],"c":null},"resourceMetrics":[{"x":1}]}`,
		point(`"asDouble":1.5`), point(`"asDouble":"NaN"`), point(`"asDouble":"-Infinity"`), point(`"asDouble":"2.5"`),
		point(`"asInt":"-7"`), point(`"asInt":7`),
		point(`"asInt":1e3`), point(`"asInt":"12.0"`), point(`"flags":1`),
		point(`"asDouble":1,"attributes":[{"key":"k\u00fc\n","value":{"stringValue":"\ud83d\ude00"}}]`),
		point(`"asDouble":1,"attributes":[{"key":"k","value":{"bytesValue":"AQI_-w"}}]`),
		point(`"asDouble":1,"attributes":[{"key":"k","value":{"arrayValue":{"values":[{"intValue":"1"},{"boolValue":true},{}]}}}]`),
		point(`"asDouble":1,"attributes":[{"key":"k","value":{"kvlistValue":{"values":[{"key":"b","value":{"doubleValue":1}},{"key":"a"}]}}}]`),
		point(`"asDouble":1,"exemplars":[{"asDouble":1,"traceId":"00"}]`),
	} {
		want, err := generated([]byte(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		got, err := jsonToProto([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, want := seriesOf(t, got), seriesOf(t, want); !slices.Equal(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", text, got, want)
		}
	}
	for _, text := range []string{
		``, `[]`, `7`, `"x"`, `null`, `{`, `{}x`, `{"resourceMetrics":7}`, `{"resourceMetrics":[7]}`,
		`{"resourceMetrics":[null]}`, `{"resourceMetrics":{}}`,
		`{"resourceMetrics":[],"resourceMetrics":[]}`, point(`"asInt":1,"asDouble":2`), point(`"asInt":"x"`),
		point(`"asInt":1.5`), point(`"asInt":"99999999999999999999"`),
		point(`"asDouble":true`), point(`"asDouble":"x"`), point(`"flags":-1`), point(`"attributes":[{"key":7}]`),
		point(`"attributes":[{"key":"k","value":{"bytesValue":"?"}}]`),
		strings.Repeat(`{"a":`, 20_000), `{"a":` + strings.Repeat(`[`, 20_000),
	} {
		if _, err := generated([]byte(text)); err == nil {
			t.Fatalf("%s: the generated types take it", text)
		}
		if got, err := jsonToProto([]byte(text)); classify(err) != Malformed {
			t.Errorf("%.100s: got %q, %v", text, got, err)
		}
	}
}

// Bytes that a request in JSON becomes are bounded: a number of two bytes is one of eight.
func TestJSONIsBounded(t *testing.T) {
	text := `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"histogram":{"dataPoints":[{"explicitBounds":[` +
		strings.Repeat("1,", 5<<20) + `1]}]}}]}]}]}`
	var err error
	if bytes := allocated(func() {
		_, err = fromJSON([]byte(text),
			jsonLimits{bytes: 1 << 20, elements: 1000})
	}); bytes > 128<<20 || classify(err) != TooLarge {
		t.Errorf("%d MiB were allocated, %v", bytes>>20, err)
	}
}

func FuzzJSON(f *testing.F) {
	canonical, err := protojson.Marshal(allKinds())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(canonical)
	f.Add([]byte(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"g","gauge":{"data_points":[{"asInt":"1e2","flags":1}]}}]}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := jsonToProto(text)
		if err != nil {
			return
		}
		var m colpb.ExportMetricsServiceRequest
		if err := proto.Unmarshal(got, &m); err != nil && !strings.Contains(err.Error(), "UTF-8") {
			t.Fatalf("%q became %x: %v", text, got, err)
		}
		want, err := generated(text)
		if err != nil || bytes.Contains(text, []byte("xemplars")) {
			return // they are stricter, and read more
		}
		var n colpb.ExportMetricsServiceRequest
		if proto.Unmarshal(want, &n) != nil {
			return
		}
		if !proto.Equal(&m, &n) {
			t.Fatalf("%q: got %v, want %v", text, &m, &n)
		}
	})
}

func BenchmarkJSON(b *testing.B) {
	var points []*metricspb.NumberDataPoint
	for i := range 5000 {
		points = append(points, pointAt(t0.Add(time.Second), float64(i), text("id", fmt.Sprintf("%064d", i%100)),
			text("image", "registry.example/shop/cart:1.2.3"), text("name", "cart")))
	}
	body, err := protojson.Marshal(foreignRequest(gauge("g", "", points...)))
	if err != nil {
		b.Fatal(err)
	}
	for name, f := range map[string]func([]byte) ([]byte, error){"streamed": jsonToProto, "generated": generated} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
