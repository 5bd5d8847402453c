package main

import (
	"errors"
	"net"

	"outsight/internal/access"
	"outsight/internal/agent"
)

func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, listenError{address, err}
	}
	return l, nil
}

// pageURL is where a browser on this host finds what l serves.
func pageURL(l net.Listener, a access.Access) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return a.Scheme() + "://" + net.JoinHostPort(host, port)
}

// asListenError names the address, so that the message can say what to do.
func asListenError(address string, err error) error {
	if errors.Is(err, agent.ErrListen) {
		return listenError{address, err}
	}
	return err
}
