package graph

// Split is where the time goes from a request's first byte to its reply's, on average: the four parts add up to what the
// client waits. It is known where both ends are on one host and counted the same connections, and packets were timed in
// both directions.
type Split struct {
	// Client is what remains: the time in the client's own host, before the request is sent and until the reply is read.
	// It is 0 where the others, which are not of exactly the same packets, are more than the whole.
	Client float64 `json:"client_seconds"`
	// There is the time of a packet on its way to the server, Back to the client; Server is from the request's arrival in
	// the server's socket to the reply's first byte.
	There  float64 `json:"network_there_seconds"`
	Server float64 `json:"server_seconds"`
	Back   float64 `json:"network_back_seconds"`
}

var (
	networkRequestPackets  = edgeTable.field("network_request_packets")
	networkResponsePackets = edgeTable.field("network_response_packets")
	networkDuplicated      = edgeTable.field("network_duplicated")
	networkObserved        = edgeTable.field("network_observed")
	networkRetransmitted   = edgeTable.field("network_retransmitted")
)

// splitOf is the split of an edge of which both sides counted the same.
func splitOf(client, server *Side) *Split {
	if client.firstByteMean == 0 || server.firstByteMean == 0 || client.delayMean == 0 || server.delayMean == 0 {
		return nil
	}
	s := &Split{There: server.delayMean, Server: server.firstByteMean, Back: client.delayMean}
	if server.NetworkUnread != nil {
		s.Server += float64(*server.NetworkUnread)
	}
	s.Client = max(0, client.firstByteMean-s.There-s.Server-s.Back)
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
