// Command tlspeer is a Go program that talks HTTP/1 over TLS to itself, for a test: a server, or a
// client that asks it.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if args[0] == "serve" {
		server := &http.Server{Addr: args[1], Handler: http.HandlerFunc(answer), TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
		return server.ListenAndServeTLS(args[2], args[3])
	}
	clients, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	var done sync.WaitGroup
	for i := range clients {
		done.Go(func() {
			// Each has a connection of its own.
			c := &http.Client{Transport: &http.Transport{
				TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
			}}
			for j := range 10 {
				ask(c, "GET", fmt.Sprintf("https://%s/users/%d/orders", args[1], 100*i+j))
			}
			ask(c, "DELETE", "https://"+args[1]+"/fail")
			c.CloseIdleConnections()
		})
	}
	done.Wait()
	return nil
}

func answer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/fail" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, strings.Repeat("x", 5000))
}

func ask(c *http.Client, method, url string) {
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		panic(err)
	}
	reply, err := c.Do(request)
	if err != nil {
		panic(err)
	}
	io.Copy(io.Discard, reply.Body)
	reply.Body.Close()
}
