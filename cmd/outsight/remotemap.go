package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"outsight/internal/export"
)

// remoteFlags name a server whose map is shown, and the window.
type remoteFlags struct {
	server   string
	from, to string
	files    export.Files
}

func (f *remoteFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.server, "server", "", "server whose map is shown, as in https://outsight.example:8470, for --output cypher, json or svg")
	flags.StringVar(&f.from, "from", "", "begin of the window there, as a time or as in now-1h (default: an hour before --to)")
	flags.StringVar(&f.to, "to", "", "end of the window there (default: now)")
	flags.StringVar(&f.files.Token, "token-file", "", "file with the token to send there")
	flags.StringVar(&f.files.CA, "ca", "", "file with certificates of authorities to trust there, in PEM")
}

// remotePaths are where a server has its map, by what is written.
var remotePaths = map[string]string{"cypher": "cypher", "json": "graph", "svg": "picture"}

func (f *remoteFlags) check(output string) error {
	switch {
	case f.server == "" && (f.from != "" || f.to != "" || f.files != (export.Files{})):
		return usagef("--from, --to, --token-file and --ca are for --server")
	case f.server != "" && remotePaths[output] == "":
		return usagef("--output %s is for this host, want cypher, json or svg with --server", output)
	}
	return nil
}

// maxRefusal bounds what is read of an answer that is an error.
const maxRefusal = 4 << 10

// print writes the map as the server does.
func (f *remoteFlags) print(ctx context.Context, o *mapOptions, out io.Writer) error {
	u, err := url.Parse(f.server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usagef("--server is no URL as in https://outsight.example:8470")
	}
	var access export.Options
	if err := f.files.Read(&access); err != nil {
		return fmt.Errorf("reading --token-file or --ca: %w", err)
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/api/outsight/" + remotePaths[o.output]
	query := url.Values{"by": {string(o.by)}, "share": {strconv.FormatFloat(o.share, 'g', -1, 64)}}
	for name, value := range map[string]string{"from": f.from, "to": f.to} {
		if value != "" {
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	if access.Token != "" {
		r.Header.Set("Authorization", "Bearer "+access.Token)
	}
	// A redirect must not make the client send the token to another server.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: access.TLS, Proxy: http.ProxyFromEnvironment},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the server redirects") }}
	defer client.CloseIdleConnections()
	reply, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("asking the server: %w", err)
	}
	defer reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(reply.Body, maxRefusal))
		return fmt.Errorf("the server answers %s: %s", reply.Status, strings.TrimSpace(string(text)))
	}
	if _, err := io.Copy(out, reply.Body); err != nil {
		return fmt.Errorf("reading the server's answer: %w", err)
	}
	return nil
}
