package net

import "strconv"

// responseCodes are the names of DNS response codes.
var responseCodes = map[uint8]string{1: "formerr", 2: "servfail", 3: "nxdomain", 4: "notimp", 5: "refused"}

func responseCode(code uint8) string {
	if name := responseCodes[code]; name != "" {
		return name
	}
	return "rcode" + strconv.Itoa(int(code))
}
