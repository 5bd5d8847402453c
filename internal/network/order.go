package network

import "cmp"

// compareTotals orders edges by client, server, service, side and processes.
func compareTotals(a, b *total) int {
	return cmp.Or(
		cmp.Compare(a.key.client, b.key.client),
		cmp.Compare(a.key.server, b.key.server),
		a.key.service.Compare(b.key.service),
		cmp.Compare(a.key.transport, b.key.transport),
		cmp.Compare(a.key.side, b.key.side),
		cmp.Compare(a.key.clientProcess, b.key.clientProcess),
		cmp.Compare(a.key.serverProcess, b.key.serverProcess),
	)
}

// compareIdle orders edges by the time they were last seen, the longest ago first; ties in
// order of key, so that the same views give the same answer.
func compareIdle(a, b *total) int {
	return cmp.Or(cmp.Compare(a.idle, b.idle), compareTotals(a, b))
}
