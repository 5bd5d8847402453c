package graph

// Split is where the time goes from a request's first byte to its reply's, on average: the four parts add up to what the
// client waits. It is known where both ends counted the same connections, and packets were timed in both directions: in
// the whole window where the ends are on one host, and in its last 10 s where they are on two.
type Split struct {
	// Client is what remains: the time in the client's own host, before the request is sent and until the reply is read.
	// It is 0 where the others, which are not of exactly the same packets, are more than the whole.
	Client float64 `json:"client_seconds"`
	// There is the time of a packet on its way to the server, Back to the client. Between two hosts they are as well known
	// as the clocks are, see Network.DelayThereError. Where one of them is not, both are nil and Both is their sum, in which
	// no clock is.
	There *float64 `json:"network_there_seconds,omitempty"`
	Back  *float64 `json:"network_back_seconds,omitempty"`
	Both  *float64 `json:"network_both_seconds,omitempty"`
	// Server is from the request's arrival in the server's socket to the reply's first byte.
	Server float64 `json:"server_seconds"`
}

var (
	networkRequestPackets  = edgeTable.field("network_request_packets")
	networkResponsePackets = edgeTable.field("network_response_packets")
	networkDuplicated      = edgeTable.field("network_duplicated")
	networkObserved        = edgeTable.field("network_observed")
	networkRetransmitted   = edgeTable.field("network_retransmitted")
)

// splitOf is the split of an edge of which both sides counted the same on one host.
func splitOf(client, server *Side) *Split {
	if client.delayMean == 0 || server.delayMean == 0 {
		return nil
	}
	return splitBy(client, server, server.delayMean, client.delayMean, true)
}

// splitAcross is that of an edge between two hosts. It is nil where too few packets were seen at both.
func splitAcross(client, server *Side, ways *[2]wayDelays) *Split {
	there, back := &ways[0], &ways[1]
	if min(len(there.delays), len(back.delays)) < minCrossed {
		return nil
	}
	return splitBy(client, server, mean(there.delays), mean(back.delays), there.known() && back.known())
}

// splitBy is the split with so many seconds there and back, known apart or not; nil where no request was timed.
func splitBy(client, server *Side, there, back float64, apart bool) *Split {
	if client.firstByteMean == 0 || server.firstByteMean == 0 {
		return nil
	}
	s := &Split{Server: server.firstByteMean}
	if server.NetworkUnread != nil {
		s.Server += float64(*server.NetworkUnread)
	}
	both := there + back
	s.Client = max(0, client.firstByteMean-s.Server-both)
	if apart {
		s.There, s.Back = &there, &back
	} else {
		s.Both = &both
	}
	return s
}

// lost is what of sent packets did not arrive. Copies that were made on the way arrived besides: as many as of the
// packets that were observed. The ends are read one after the other, and of a busy edge much is sent meanwhile; but
// what TCP loses it sends again, so that it is no more than that.
func lost(packets Field, sender, receiver *Side, tcp bool) float64 {
	sent, arrived, copies := sender.Of(packets), receiver.Of(packets), receiver.Of(networkDuplicated)
	if observed := receiver.Of(networkObserved); observed > 0 {
		copies *= max(1, arrived/observed)
	}
	n := max(0, sent+copies-arrived)
	if tcp {
		return min(n, sender.Of(networkRetransmitted))
	}
	return n
}
