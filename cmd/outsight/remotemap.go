package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"outsight/internal/export"
	"outsight/internal/otlp"
)

// remoteFlags name a server whose map or matrix is shown, and the window.
type remoteFlags struct {
	server   string
	from, to string
	// tenant is whose hosts are meant, empty where the token says so, or nobody has to.
	tenant string
	files  export.Files
	// outputs are those that a server has.
	outputs []string
}

// add adds the flags; what is shown is "map", "matrix" or "measurements".
func (f *remoteFlags) add(flags *pflag.FlagSet, what string) {
	flags.StringVar(&f.server, "server", "",
		"server whose "+what+" is shown, as in https://outsight.example:8470, for --output "+either(f.outputs))
	flags.StringVar(&f.from, "from", "", "begin of the window there, as a time or as in now-1h (default: an hour before --to)")
	flags.StringVar(&f.to, "to", "", "end of the window there (default: now)")
	flags.StringVar(&f.tenant, "tenant", "", "tenant whose hosts are shown, of a server with --tenant-header")
	flags.StringVar(&f.files.Token, "token-file", "", "file with the token to send there")
	flags.StringVar(&f.files.CA, "ca", "", "file with certificates of authorities to trust there, in PEM")
}

// either lists words: "json or csv".
func either(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// check refuses what only the other of this host and a server has.
func (f *remoteFlags) check(output string) error {
	switch {
	case f.server == "" && (f.from != "" || f.to != "" || f.tenant != "" || f.files != (export.Files{})):
		return usagef("--from, --to, --tenant, --token-file and --ca are for --server")
	case f.server != "" && !slices.Contains(f.outputs, output):
		return usagef("--output %s is for this host, want %s with --server", output, either(f.outputs))
	}
	return nil
}

// maxRefusal bounds what is read of an answer that is an error.
const maxRefusal = 4 << 10

// print writes what the server answers at a path below /api/outsight/ to a query of the window.
func (f *remoteFlags) print(ctx context.Context, path string, query url.Values, out io.Writer) error {
	return f.ask(ctx, path, query, nil, out)
}

// show writes what the server answers as output says: as JSON, or decoded into answer, which writes text.
func (f *remoteFlags) show(c *cobra.Command, path string, query url.Values, output string,
	answer interface{ write(io.Writer) error }) error {
	if err := oneOf("output", output, "text", "json"); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := f.print(c.Context(), path, query, &text); err != nil {
		return err
	}
	if output == "json" {
		_, err := c.OutOrStdout().Write(text.Bytes())
		return err
	}
	if err := json.Unmarshal(text.Bytes(), answer); err != nil {
		return fmt.Errorf("reading the server's answer: %w", err)
	}
	return answer.write(c.OutOrStdout())
}

// ask is print, with a body for POST where it is not nil.
func (f *remoteFlags) ask(ctx context.Context, path string, query url.Values, body []byte, out io.Writer) error {
	u, err := url.Parse(f.server)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return usagef("--server is no URL as in https://outsight.example:8470")
	}
	var access export.Options
	if err := f.files.Read(&access); err != nil {
		return fmt.Errorf("reading --token-file or --ca: %w", err)
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/api/outsight/" + path
	for name, value := range map[string]string{"from": f.from, "to": f.to} {
		if value != "" {
			query.Set(name, value)
		}
	}
	u.RawQuery = query.Encode()
	method := http.MethodGet
	if body != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	if access.Token != "" {
		r.Header.Set("Authorization", "Bearer "+access.Token)
	}
	if f.tenant != "" {
		r.Header.Set(otlp.TenantHeader, f.tenant)
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
		var told struct{ Error string }
		if json.Unmarshal(text, &told) == nil && told.Error != "" {
			return fmt.Errorf("the server answers %s: %s", reply.Status, told.Error)
		}
		return fmt.Errorf("the server answers %s: %s", reply.Status, strings.TrimSpace(string(text)))
	}
	if _, err := io.Copy(out, reply.Body); err != nil {
		return fmt.Errorf("reading the server's answer: %w", err)
	}
	return nil
}
