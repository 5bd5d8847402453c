package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"outsight/internal/model"
)

// HostPolicy refuses requests that a foreign web page makes a browser send (DNS rebinding and cross-site requests). A
// nil one allows loopback names alone, and assumes that credentials are not needed.
type HostPolicy struct {
	// Names are the host names, in lower case, by which requests may address this process if no credentials are needed.
	// IP addresses and localhost are always allowed.
	Names []string
	// Flag is the flag that adds a name; errors mention it.
	Flag string
	// Authenticated means that credentials are needed. Then the name does not matter: a page whose name resolves to
	// this process has no credentials.
	Authenticated bool
	// allowed are those of Names that were given by the flag: pages of these hosts may send requests.
	allowed []string

	foreignHosts, foreignPages refusalCount
}

const defaultNameFlag = "allow-host"

// newHostPolicy is the policy of a process that listens on the addresses.
func newHostPolicy(flag, names string, authenticated bool, addresses []string) (*HostPolicy, error) {
	p := &HostPolicy{Flag: flag, Authenticated: authenticated}
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if strings.ContainsAny(name, "/ *@") {
			return nil, usage("--%s has %q: want names of hosts with commas between them, as in outsight.example", flag, name)
		}
		name = bareName(name)
		p.Names, p.allowed = append(p.Names, name), append(p.allowed, name)
	}
	if name, err := os.Hostname(); err == nil {
		name = bareName(name)
		short, _, _ := strings.Cut(name, ".")
		p.Names = append(p.Names, name, short)
	}
	for _, address := range addresses {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			p.Names = append(p.Names, bareName(host))
		}
	}
	return p, nil
}

// bareName is the normalised host of HOST or HOST:PORT.
func bareName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// allowsHost refuses requests for a host name that is not this process's. Only programs of this host can reach an
// address without credentials; but a page in a browser is one of them once its own name resolves to 127.0.0.1.
func (p *HostPolicy) allowsHost(w http.ResponseWriter, r *http.Request) bool {
	if p != nil && p.Authenticated || !overLoopback(r) {
		return true
	}
	host := bareName(r.Host)
	_, err := netip.ParseAddr(host)
	if err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") || p.isOwnName(host) {
		return true
	}
	if p != nil {
		p.foreignHosts.add(r)
	}
	refuse(w, http.StatusForbidden, "forbidden", fmt.Sprintf("this server is not called %.100q: "+
		"address it by its IP address or as localhost, or start it with --%s %.100s", r.Host, p.flag(), host))
	return false
}

// allowsOrigin refuses requests that a browser sent for a foreign page. Other clients send none of these headers.
func (p *HostPolicy) allowsOrigin(w http.ResponseWriter, r *http.Request) bool {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if site == "same-origin" || site == "none" || site == "" && origin == "" {
		return true
	}
	from, err := url.Parse(origin)
	if err == nil && from.Host != "" &&
		(site == "" && strings.EqualFold(from.Host, r.Host) || p.isAllowedPage(from.Host)) {
		return true
	}
	if p != nil {
		p.foreignPages.add(r)
	}
	if origin == "" {
		origin = "another site"
	}
	refuse(w, http.StatusForbidden, "forbidden", fmt.Sprintf("the page that asks is of %.100q "+
		"and not of this server (%.100q): open the address itself, or start the server with --%s and the name of the "+
		"page's host", origin, r.Host, p.flag()))
	return false
}

func (p *HostPolicy) isOwnName(host string) bool { return p != nil && slices.Contains(p.Names, host) }

// isAllowedPage reports whether pages of a host may send requests. Only names of the flag count: this host's own name
// may also serve other pages.
func (p *HostPolicy) isAllowedPage(host string) bool {
	return p != nil && slices.Contains(p.allowed, bareName(host))
}

func (p *HostPolicy) flag() string {
	if p == nil || p.Flag == "" {
		return defaultNameFlag
	}
	return p.Flag
}

// overLoopback reports whether a request came over the loopback interface. A unix socket does not count: no page
// reaches it.
func overLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// Refusals are the requests that were refused, at most one entry for each reason.
func (p *HostPolicy) Refusals() []model.Refusal {
	if p == nil {
		return nil
	}
	return append(p.foreignHosts.refusals("foreign-host"), p.foreignPages.refusals("foreign-page")...)
}
