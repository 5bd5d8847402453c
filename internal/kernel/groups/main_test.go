package groups

import (
	"testing"

	"outsight/internal/kernel/host"
	"outsight/internal/kernel/kerneltest"
)

func TestMain(m *testing.M) { kerneltest.Main(m, nil, &shared) }

var shared = kerneltest.Shared[*Groups]{New: func() (*Groups, []host.Module) {
	p := New(Options{})
	return p, []host.Module{p}
}}
