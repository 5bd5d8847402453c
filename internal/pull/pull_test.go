package pull

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"outsight/internal/region"
)

func TestHosts(t *testing.T) {
	hosts, err := ParseHosts("# of the shop\nweb1:8473\n\n  [fd00::1]:8473 interval=100ms  tenant=shop\n", time.Second)
	if err == nil {
		err = CheckHosts(hosts)
	}
	want := []Host{{"web1:8473", time.Second, ""}, {"[fd00::1]:8473", 100 * time.Millisecond, "shop"}}
	if err != nil || !reflect.DeepEqual(hosts, want) {
		t.Errorf("%+v (%v), want %+v", hosts, err, want)
	}
	for text, part := range map[string]string{"a:1 interval=x": "line 1", "a:1\nb:1 pace=1s": "line 2", "a:1\na:1": "twice",
		"a": "HOST:PORT", ":1": "HOST:PORT", "a:1 interval=1ms": "interval", "a:1 interval=61s": "interval"} {
		hosts, err := ParseHosts(text, time.Second)
		if err == nil {
			err = CheckHosts(hosts)
		}
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q: %v, want an error with %q", text, err, part)
		}
	}
}

// TestOwners: hosts are spread over the members, and only those of a member that went away change hands.
func TestOwners(t *testing.T) {
	members, without := []string{"a1", "b2", "c3"}, []string{"a1", "c3"}
	const hosts = 3000
	count := map[string]int{}
	for i := range hosts {
		host := fmt.Sprintf("web%d:8473", i)
		of := owner(members, host)
		count[of]++
		switch now := owner(without, host); {
		case of != "b2" && now != of:
			t.Fatalf("%s went from %s to %s, though %s is there", host, of, now, of)
		case of == "b2" && now == "b2":
			t.Fatalf("%s is still of a member that is gone", host)
		}
	}
	for _, m := range members {
		if count[m] < hosts/4 {
			t.Errorf("%v hosts of %d, want near a third for each", count, hosts)
			break
		}
	}
	if of := owner(nil, "web1:8473"); of != "" {
		t.Errorf("without members it is of %q", of)
	}
}

func TestReasons(t *testing.T) {
	for err, want := range map[error]Reason{
		context.DeadlineExceeded: Deadline, region.ErrRefused: Refused, region.ErrGone: Gone, region.ErrVersion: Version,
		errors.New("other"): Otherwise,
	} {
		if got := ReasonOf(fmt.Errorf("reading: %w", err)); got != want {
			t.Errorf("%v is %s, want %s", err, got, want)
		}
	}
}

func TestReadingIsSentWhole(t *testing.T) {
	w := newWorld(3)
	for range 20 {
		w.step()
	}
	r := w.read("a", 7, 8)
	r.Containers[0].Levels.Kills = level{0, true}
	codec, err := newReadingCodec()
	if err != nil {
		t.Fatal(err)
	}
	b, err := codec.encode(r)
	if err != nil {
		t.Fatal(err)
	}
	got, err := codec.decode(b)
	if err != nil || !got.At.Equal(r.At) {
		t.Fatal(err, got)
	}
	if got.At = r.At; !reflect.DeepEqual(got, r) {
		t.Errorf("sent was\n%+v, received\n%+v", r, got)
	}
}

// FuzzReading: whatever another server sends is a reading that can be taken, or an error.
func FuzzReading(f *testing.F) {
	codec, err := newReadingCodec()
	if err != nil {
		f.Fatal(err)
	}
	w := newWorld(3)
	w.step()
	b, err := codec.encode(w.read("a", 1, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{readingVersion})
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := codec.decode(b)
		if err != nil {
			if !errors.Is(err, errReading) {
				t.Errorf("%v, want %v", err, errReading)
			}
			return
		}
		m := newMaker(r, earlier{})
		m.take(r)
		m.frame()
	})
}
