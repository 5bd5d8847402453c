package region

import (
	"testing"

	"outsight/internal/kernel/kerneltest"
)

func TestMain(m *testing.M) {
	kerneltest.Main(m, map[string]func(string) int{responderWork: respond})
}
