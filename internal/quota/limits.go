package quota

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// Limits bound a tenant besides its share. 0 means no limit.
type Limits struct {
	// Series in memory, and bytes of their labels.
	Series     int64 `yaml:"series"`
	LabelBytes int64 `yaml:"label_bytes"`
	// SamplesPerSecond that are accepted, on average over ten seconds.
	SamplesPerSecond int64 `yaml:"samples_per_second"`
	// InFlightBytes are the bytes of requests in flight.
	InFlightBytes int64 `yaml:"in_flight_bytes"`
	// QueryShare is the share (0 to 1) of the memory, slots and time of queries, instead of the default one.
	QueryShare float64 `yaml:"query_share"`
}

// AnyTenant is the name of the limits of all tenants that have none of their own.
const AnyTenant = "*"

// Table has the limits of tenants by name.
type Table map[string]Limits

// Of returns the limits of a tenant.
func (t Table) Of(tenant string) Limits {
	if l, ok := t[tenant]; ok {
		return l
	}
	return t[AnyTenant]
}

// maxTableBytes bounds a file of limits.
const maxTableBytes = 1 << 20

// Read reads a YAML file of limits, such as "shop: {series: 50000, samples_per_second: 20000}".
func Read(path string) (Table, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading quotas: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxTableBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading quotas: %w", err)
	}
	if len(text) > maxTableBytes {
		return nil, fmt.Errorf("reading quotas in %q: more than %d bytes", path, maxTableBytes)
	}
	t := Table{}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&t); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("reading quotas in %q: %w; want lines such as \"shop: {series: 50000, samples_per_second: 20000}\"", path, err)
	}
	for tenant, l := range t {
		if l.Series < 0 || l.LabelBytes < 0 || l.SamplesPerSecond < 0 || l.InFlightBytes < 0 {
			return nil, fmt.Errorf("reading quotas in %q: tenant %q has a limit below 0: leave it out for none", path, tenant)
		}
		if !(l.QueryShare >= 0 && l.QueryShare <= 1) {
			return nil, fmt.Errorf("reading quotas in %q: tenant %q has query_share %v, want more than 0 and at most 1",
				path, tenant, l.QueryShare)
		}
	}
	return t, nil
}
