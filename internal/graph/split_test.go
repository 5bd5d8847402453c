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
	if want := (Split{Client: 1, There: 2, Server: 4, Back: 1}); got == nil || *got != want {
		t.Errorf("got %+v, want %+v", got, want)
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
