package graph

import "testing"

func TestSplit(t *testing.T) {
	side := func(firstByte, delay, request, response, copies float64) *Side {
		s := &Side{firstByteMean: firstByte, delayMean: delay}
		s.set(networkRequestPackets, request)
		s.set(networkResponsePackets, response)
		s.set(networkDuplicated, copies)
		return s
	}
	// Of 100 packets to the server 95 arrived, and 2 copies; of 50 to the client all, and 3 copies.
	got := splitOf(side(8, 1, 100, 53, 3), side(4, 2, 97, 50, 2))
	if got == nil || got.Client != 1 || *got.There != 2 || got.Server != 4 || *got.Back != 1 || got.Both != nil {
		t.Errorf("got %+v, want 1, 2, 4 and 1 s", got)
	}
	// The parts are of other packets than the whole: what remains is never less than nothing.
	if got := splitOf(side(5, 1, 0, 0, 0), side(4, 2, 0, 0, 0)); got == nil || got.Client != 0 {
		t.Errorf("got %+v, want no time in the client", got)
	}
	// Until the server read them, requests lay in its socket.
	server, unread := side(4, 2, 97, 50, 2), Seconds(0.5)
	server.NetworkUnread = &unread
	if got := splitOf(side(8, 1, 100, 53, 3), server); got == nil || got.Server != 4.5 || got.Client != 0.5 {
		t.Errorf("got %+v, want 4.5 s in the server, and 0.5 s in the client", got)
	}
	if got := splitOf(side(8, 0, 0, 0, 0), side(4, 2, 0, 0, 0)); got != nil {
		t.Errorf("got %+v, and no delay back was measured", got)
	}
}

// The ends of an edge are read one after the other: what differs is lost only if it was sent again.
func TestLostOfTCPWasSentAgain(t *testing.T) {
	var client, server Side
	client.set(networkRequestPackets, 1000)
	server.set(networkRequestPackets, 990)
	for again, want := range map[float64]float64{0: 0, 3: 3, 10: 10, 11: 10} {
		client.set(networkRetransmitted, again)
		if got := lost(networkRequestPackets, &client, &server, true); got != want {
			t.Errorf("%v sent again: %v lost, want %v", again, got, want)
		}
	}
	if got := lost(networkRequestPackets, &client, &server, false); got != 10 {
		t.Errorf("%v datagrams lost, want 10", got)
	}
}

// One of 10 packets was observed: there were ten times as many copies.
func TestCopiesAreThoseOfPacketsObserved(t *testing.T) {
	var client, server Side
	client.set(networkRequestPackets, 100)
	server.set(networkRequestPackets, 97)
	server.set(networkDuplicated, 2)
	server.set(networkObserved, 9.7)
	if got := lost(networkRequestPackets, &client, &server, false); got != 100+20-97 {
		t.Errorf("%v lost there, want 23", got)
	}
}
