package net

import (
	"slices"
	"testing"
)

func TestEveryDropHasAName(t *testing.T) {
	for table, names := range map[string][]string{"edgeDropNames": edgeDropNames[:], "endpointDropNames": endpointDropNames[:],
		"quotaNames": quotaNames[:]} {
		if i := slices.Index(names, ""); i >= 0 {
			t.Errorf("%s has no name for value %d of its enum", table, i)
		}
	}
}
