package net

import (
	"testing"

	"outsight/internal/model"
)

// TestEndpointNumbers holds the numbers of the kernel programs against what the model makes of them.
func TestEndpointNumbers(t *testing.T) {
	for number, want := range map[edgesProtocol]model.Protocol{
		edgesProtocolPROTOCOL_HTTP: model.HTTP, edgesProtocolPROTOCOL_REDIS: model.Redis,
		edgesProtocolPROTOCOL_POSTGRESQL: model.PostgreSQL, edgesProtocolPROTOCOL_MYSQL: model.MySQL,
		edgesProtocolPROTOCOL_KAFKA: model.Kafka, edgesProtocolPROTOCOL_MEMCACHED: model.Memcached,
		edgesProtocolPROTOCOL_DNS: model.DNS, edgesProtocolPROTOCOL_HTTP2: model.HTTP2,
		edgesProtocolPROTOCOL_GRPC: model.GRPC, edgesProtocolPROTOCOL_UNKNOWN: "", edgesProtocolPROTOCOL_OPAQUE: "",
	} {
		if got := model.EndpointKeyOf(uint8(number), 0, nil); got.Protocol != want {
			t.Errorf("protocol %d is %q, want %q", number, got.Protocol, want)
		}
	}
	for number, want := range map[edgesStatus]string{
		edgesStatusSTATUS_UNKNOWN: "", 2: "2xx", 5: "5xx", edgesStatusSTATUS_OK: "ok", edgesStatusSTATUS_ERROR: "error",
		edgesStatusSTATUS_SWITCHED: "101", edgesStatusSTATUS_RCODE + 3: "nxdomain", edgesStatusSTATUS_RCODE + 15: "rcode15",
		edgesStatusSTATUS_GRPC: "ok", edgesStatusSTATUS_GRPC + 16: "unauthenticated", edgesStatusSTATUS_GRPC + 17: "",
	} {
		if got := model.EndpointKeyOf(0, uint8(number), []byte("GET /\x00\x00")); got.Status != want || got.Name != "GET /" {
			t.Errorf("status %d is %+v, want %q", number, got, want)
		}
	}
}
