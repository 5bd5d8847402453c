package main

import (
	"testing"

	"outsight/internal/model"
)

func TestRecordPatterns(t *testing.T) {
	web := &model.Container{ID: "0123456789abcdef", Name: "web-1", Image: "nginx:1.27"}
	pod := &model.Container{ID: "fedcba9876543210", Name: "web", PodName: "shop-5d", Image: "registry/shop/web:2"}
	host := &model.Container{ID: model.HostContainerID, Name: "host"}
	f := func(patterns, format string, want ...*model.Container) {
		t.Helper()
		o := recordOptions{containers: patterns, format: format}
		for _, c := range []*model.Container{web, pod, host} {
			wanted := false
			for _, w := range want {
				wanted = wanted || w == c
			}
			if got := o.wanted(c); got != wanted {
				t.Errorf("--containers %s --format %s: %s is recorded: %v, want %v", patterns, format, c.Name, got, wanted)
			}
		}
	}
	f("*", "csvy", web, pod, host)
	f("*", "radvisor", web, pod) // it has no host
	f("web*", "csvy", web, pod)
	f("shop-*/web", "csvy", pod)
	f("nginx:*", "csvy", web)
	f("host,0123", "parquet", web, host)
	f("012", "csvy") // too short for an ID
	f("db", "csvy")
}

func TestByteSize(t *testing.T) {
	f := func(text string, want int64) {
		t.Helper()
		var b byteSize
		if err := b.Set(text); err != nil || int64(b) != want {
			t.Errorf("%q is %d (%v), want %d", text, b, err, want)
		}
	}
	f("0", 0)
	f("17", 17)
	f("64MiB", 64<<20)
	f("1.5 GiB", 3<<29)
	f("2kB", 2000)
	for _, text := range []string{"", "MiB", "-1", "NaN", "1e300GB", "5 bananas"} {
		var b byteSize
		if err := b.Set(text); err == nil {
			t.Errorf("%q is taken for %d bytes", text, b)
		}
	}
}
