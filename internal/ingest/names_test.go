package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/klauspost/compress/zstd"

	"outsight/internal/model"
)

// someSeries are n series, of which each three share their labels.
func someSeries(n int) (all []model.Series) {
	var labels []model.Label
	for i := range n {
		if i%3 == 0 {
			labels = []model.Label{{Name: "host", Value: "h"}, {Name: "id", Value: fmt.Sprint(i / 3)}}
		}
		all = append(all, model.Series{Name: fmt.Sprint("m", i%3), Labels: labels, Value: float64(i), Key: uint64(i + 1)})
	}
	return all
}

// What is read back is what was written, and the data before it are what they were.
func TestNamesAreReadBack(t *testing.T) {
	f := func(name string, n int, change func(i int, s *model.Series), frame bool) {
		t.Helper()
		series := someSeries(n)
		named := slices.Clone(series)
		for i := range named {
			change(i, &named[i])
			if len(named[i].Labels) != len(series[i].Labels) {
				named[i].Key = 0
			}
		}
		encoder, _ := zstd.NewWriter(nil)
		decoder, _ := zstd.NewReader(nil)
		defer decoder.Close()
		body := []byte("the request itself")
		data, length := appendNames(encoder.EncodeAll(body, nil), series, named, encoder)
		if (length > 0) != frame {
			t.Errorf("%s: %d bytes of names", name, length)
		}
		if got, err := decoder.DecodeAll(data, nil); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: the request is %q, %v", name, got, err)
		}
		if length == 0 {
			return
		}
		got, err := applyNames(data, strconv.Itoa(length), series, decoder)
		if err != nil || !reflect.DeepEqual(got, named) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, named)
		}
		// Of another number of series they are not.
		if _, err := applyNames(data, strconv.Itoa(length), series[1:], decoder); !errors.Is(err, errOtherSeries) {
			t.Errorf("%s: names of %d series were put to %d", name, n, n-1)
		}
	}
	pod := func(s *model.Series, of string) {
		s.Labels = withLabels(s.Labels, []model.Label{{Name: "pod", Value: of}, {Name: "a", Value: "first"}})
	}
	f("nothing", 10, func(int, *model.Series) {}, false)
	f("no series", 0, func(int, *model.Series) {}, false)
	f("all alike", 10, func(_ int, s *model.Series) { pod(s, "p") }, true)
	f("each its own", 30, func(i int, s *model.Series) { pod(s, fmt.Sprint("p", i/3)) }, true)
	f("every second", 31, func(i int, s *model.Series) {
		if i%2 == 0 {
			pod(s, "p")
		}
	}, true)
	f("the last one", 30, func(i int, s *model.Series) {
		if i == 29 {
			pod(s, "p")
		}
	}, true)
	f("values", 30, func(i int, s *model.Series) {
		if i%10 == 9 {
			s.Value = -1
		}
	}, true)
}

// FuzzNames: bytes that are no names are an error, and what is read has no more series than before.
func FuzzNames(f *testing.F) {
	series := someSeries(9)
	named := slices.Clone(series)
	for i := range named[3:] {
		named[i].Labels = withLabels(named[i].Labels, []model.Label{{Name: "pod", Value: fmt.Sprint(i)}})
	}
	named[8].Value = 7
	data := encodeNames(series, named)
	f.Add(data)
	f.Add(data[:len(data)-1])
	f.Add([]byte("\x09\x00\x00\x09\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := someSeries(9)
		got, err := decodeNames(data, before)
		if err == nil && len(got) != len(before) {
			t.Errorf("%d series, want %d", len(got), len(before))
		}
		if !reflect.DeepEqual(before, someSeries(9)) {
			t.Error("the series that it was given have changed")
		}
	})
}
