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

// Door keeps requests out that a web page of somebody else makes a browser send. A nil one knows no names but those of
// loopback, and takes what arrives there to be unasked for credentials.
type Door struct {
	// Names are those by which requests may call this process where it asks nobody for credentials, besides IP
	// addresses and localhost. They are in lower case.
	Names []string
	// Flag adds a name; messages have it.
	Flag string
	// Asks is whether credentials are asked for. The name is of no matter then: a page that has made its own name
	// lead here has none to show.
	Asks bool
	// allowed are those of Names that the flag gave: pages of these hosts may send requests.
	allowed []string

	foreignHosts, foreignPages turnedAway
}

const defaultNameFlag = "allow-host"

// newDoor is for a process that listens at the addresses.
func newDoor(flag, names string, asks bool, addresses []string) (*Door, error) {
	d := &Door{Flag: flag, Asks: asks}
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if strings.ContainsAny(name, "/ *@") {
			return nil, usage("--%s has %q: want names of hosts with commas between them, as in outsight.example", flag, name)
		}
		name = bareName(name)
		d.Names, d.allowed = append(d.Names, name), append(d.allowed, name)
	}
	if name, err := os.Hostname(); err == nil {
		name = bareName(name)
		short, _, _ := strings.Cut(name, ".")
		d.Names = append(d.Names, name, short)
	}
	for _, address := range addresses {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			d.Names = append(d.Names, bareName(host))
		}
	}
	return d, nil
}

// bareName is the host of HOST or HOST:PORT as names are compared.
func bareName(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// admitsHost answers requests that call this process by a name which is not its own. Only programs of this host can
// reach an address that asks for no credentials; but a page in somebody's browser is one of them, once its own name
// leads to 127.0.0.1.
func (d *Door) admitsHost(w http.ResponseWriter, r *http.Request) bool {
	if d != nil && d.Asks || !overLoopback(r) {
		return true
	}
	host := bareName(r.Host)
	_, err := netip.ParseAddr(host)
	if err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") || d.knows(host) {
		return true
	}
	if d != nil {
		d.foreignHosts.add(r)
	}
	refuse(w, http.StatusForbidden, "forbidden", fmt.Sprintf("this server is not called %.100q: "+
		"address it by its IP address or as localhost, or start it with --%s %.100s", r.Host, d.flag(), host))
	return false
}

// admitsOrigin answers requests that a browser sent for a page of somebody else. What is no browser sends none of
// these headers.
func (d *Door) admitsOrigin(w http.ResponseWriter, r *http.Request) bool {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	if site == "same-origin" || site == "none" || site == "" && origin == "" {
		return true
	}
	from, err := url.Parse(origin)
	if err == nil && from.Host != "" && (site == "" && strings.EqualFold(from.Host, r.Host) || d.knowsPage(from.Host)) {
		return true
	}
	if d != nil {
		d.foreignPages.add(r)
	}
	if origin == "" {
		origin = "another site"
	}
	refuse(w, http.StatusForbidden, "forbidden", fmt.Sprintf("the page that asks is of %.100q "+
		"and not of this server (%.100q): open the address itself, or start the server with --%s and the name of the "+
		"page's host", origin, r.Host, d.flag()))
	return false
}

func (d *Door) knows(host string) bool { return d != nil && slices.Contains(d.Names, host) }

// knowsPage is whether pages of a host may send requests. That this host is known by a name says nothing of other
// pages that it serves, so only the names of the flag count.
func (d *Door) knowsPage(host string) bool {
	return d != nil && slices.Contains(d.allowed, bareName(host))
}

func (d *Door) flag() string {
	if d == nil || d.Flag == "" {
		return defaultNameFlag
	}
	return d.Flag
}

// overLoopback is whether a request came over the loopback interface. A unix socket is none: no page reaches it.
func overLoopback(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// Refusals are the requests that were refused here: at most an entry for each reason.
func (d *Door) Refusals() []model.Refusal {
	if d == nil {
		return nil
	}
	return append(d.foreignHosts.refusals("foreign-host"), d.foreignPages.refusals("foreign-page")...)
}
