package access

import (
	"fmt"
	"strings"
)

// Roles are a set of what a token may do. A route names the roles of which a token must have one; none implies another.
type Roles uint8

// The roles.
const (
	// Send is for sending metrics (OTLP).
	Send Roles = 1 << iota
	// Read is for series and what is computed of them: the page, the query API, an agent's /metrics.
	Read
	// Record is for what the flight recorder has: every 50 ms of each container.
	Record
	// Administer is for the server's own /metrics, which have sums over all tenants.
	Administer

	// Public is no role: no token is needed.
	Public Roles = 0

	allRoles    = Send | Read | Record | Administer
	tenantRoles = Send | Read | Record
)

var roleNames = []struct {
	role Roles
	name string
}{{Send, "send"}, {Read, "read"}, {Record, "record"}, {Administer, "administer"}}

// String joins the names with "or", for messages.
func (r Roles) String() string {
	var names []string
	for _, known := range roleNames {
		if r&known.role != 0 {
			names = append(names, known.name)
		}
	}
	if len(names) == 0 {
		return "public"
	}
	return strings.Join(names, " or ")
}

// parseEntry parses a token and its roles, as in "TOKEN read,record". A token without roles gets those of bare.
func parseEntry(entry string, bare Roles) (token string, roles Roles, err error) {
	token, rest, _ := strings.Cut(strings.TrimSpace(entry), " ")
	named := strings.FieldsFunc(rest, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
	if len(named) == 0 {
		return token, bare, nil
	}
	for _, name := range named {
		role, ok := roleNamed(name)
		if !ok {
			return token, 0, fmt.Errorf("role %.40q is unknown: want send, read, record or administer", name)
		}
		roles |= role
	}
	return token, roles, nil
}

func roleNamed(name string) (Roles, bool) {
	for _, known := range roleNames {
		if known.name == name {
			return known.role, true
		}
	}
	return 0, false
}
