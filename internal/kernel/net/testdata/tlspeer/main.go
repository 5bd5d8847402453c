// Command tlspeer is a Go program that talks HTTP/1 over TLS to itself, for a test: a server, a
// client that asks it, or one that sends it long bodies and receives as much.
package main

import (
	"bytes"
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
		server := &http.Server{Addr: args[1], Handler: http.HandlerFunc(answer),
			TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}}
		return server.ListenAndServeTLS(args[2], args[3])
	}
	if args[0] == "post" {
		c := client()
		for _, text := range args[2:] {
			size, err := strconv.Atoi(text)
			if err != nil {
				return err
			}
			ask(c, "POST", "https://"+args[1]+"/large", bytes.Repeat([]byte("x"), size))
		}
		c.CloseIdleConnections()
		return nil
	}
	clients, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	var done sync.WaitGroup
	for i := range clients {
		done.Go(func() {
			c := client()
			for j := range 10 {
				ask(c, "GET", fmt.Sprintf("https://%s/users/%d/orders", args[1], 100*i+j), nil)
			}
			ask(c, "DELETE", "https://"+args[1]+"/fail", nil)
			c.CloseIdleConnections()
		})
	}
	done.Wait()
	return nil
}

// client is one with a connection of its own.
func client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, TLSNextProto: map[string]func(string,
			*tls.Conn) http.RoundTripper{},
	}}
}

func answer(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/fail" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if body, err := io.ReadAll(r.Body); err == nil && len(body) > 0 {
		w.Write(body)
		return
	}
	io.WriteString(w, strings.Repeat("x", 5000))
}

func ask(c *http.Client, method, url string, body []byte) {
	request, err := http.NewRequest(method, url, bytes.NewReader(body))
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
