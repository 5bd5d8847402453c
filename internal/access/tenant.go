package access

import (
	"errors"
	"fmt"
	"regexp"

	"outsight/internal/otlp"
)

// TenantHeaders are the headers in which a request may name its tenant. The second is that of Mimir, Loki and Grafana.
var TenantHeaders = [...]string{otlp.TenantHeader, "X-Scope-OrgID"}

// ErrNoTenant means that a request has to name a tenant and does not.
var ErrNoTenant = errors.New("a tenant is needed: name it in the header " + otlp.TenantHeader + " or X-Scope-OrgID")

var tenantName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

const tenantShape = "up to 64 letters, digits, dots, hyphens and underscores"

// IsTenant reports whether name is valid for a tenant.
func IsTenant(name string) bool { return tenantName.MatchString(name) }

// NamedTenant returns the tenant that a request names in its headers, "" if it names none; values returns the values of
// a header. Two different names are an error: a proxy that sets one header must not be overruled by another one.
func NamedTenant(values func(header string) []string) (string, error) {
	tenant := ""
	for _, header := range TenantHeaders {
		for _, named := range values(header) {
			switch {
			case named == "":
			case !IsTenant(named):
				return "", fmt.Errorf("header %s: tenant %.80q: want %s", header, named, tenantShape)
			case tenant != "" && named != tenant:
				return "", fmt.Errorf("header %s: tenant %q, and %q was named already: want one", header, named, tenant)
			default:
				tenant = named
			}
		}
	}
	return tenant, nil
}
