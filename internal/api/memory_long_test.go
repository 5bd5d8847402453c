//go:build long

package api

import "testing"

// The same against a server of the size that the manifests give it.
func TestQueriesInFourGiB(t *testing.T) { survives(t, 200_000, 4<<30) }
