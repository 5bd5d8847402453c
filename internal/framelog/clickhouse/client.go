package clickhouse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// client asks ClickHouse over HTTP.
type client struct {
	http     http.Client
	address  string
	user     string
	password string
	// settings are those of each request.
	settings url.Values
}

// maxQueryBytes bounds the text of a statement, which names the frames that it is about.
const maxQueryBytes = 64 << 20

// newClient reads clickhouse://user:password@host:port/database, or clickhouses:// for HTTPS.
func newClient(address string) (c *client, database string, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, "", fmt.Errorf("the address of ClickHouse is no URL: %w", withoutPassword(err))
	}
	scheme := map[string]string{"clickhouse": "http", "clickhouses": "https"}[u.Scheme]
	if scheme == "" || u.Host == "" {
		return nil, "", fmt.Errorf("the address of ClickHouse begins with %q, want clickhouse://HOST:PORT/DATABASE", u.Scheme)
	}
	database = strings.Trim(u.Path, "/")
	if database == "" {
		database = "outsight"
	}
	if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(database) {
		return nil, "", fmt.Errorf("the database of ClickHouse is %q, want letters, digits and _", database)
	}
	c = &client{address: scheme + "://" + u.Host + "/", user: u.User.Username(),
		settings: url.Values{"max_query_size": {strconv.Itoa(maxQueryBytes)},
			// Of results in 256 parts, the terms of a query are planned for each: that took nine tenths of the time.
			"group_by_two_level_threshold": {"0"}, "group_by_two_level_threshold_bytes": {"0"}}}
	c.password, _ = u.User.Password()
	if u.Port() == "" {
		port := map[string]string{"http": "8123", "https": "8443"}[scheme]
		c.address = scheme + "://" + net.JoinHostPort(u.Hostname(), port) + "/"
	}
	return c, database, nil
}

// withoutPassword is an error of url.Parse without the URL.
func withoutPassword(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}

// Error is what ClickHouse answered.
type Error struct {
	// Code is ClickHouse's number of the error, 0 where it told none.
	Code int
	Text string
}

func (e *Error) Error() string { return "ClickHouse: " + e.Text }

// maxErrorBytes bounds the text of an error that is read.
const maxErrorBytes = 4 << 10

// do carries out a statement and answers its result, which is to be closed. rows are those of an INSERT.
func (c *client) do(ctx context.Context, statement string, rows []byte) (io.ReadCloser, error) {
	address, body := c.address+"?"+c.settings.Encode(), io.Reader(strings.NewReader(statement))
	if rows != nil {
		address, body = address+"&query="+url.QueryEscape(statement), bytes.NewReader(rows)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, body)
	if err != nil {
		return nil, err
	}
	if c.user != "" {
		r.Header.Set("X-ClickHouse-User", c.user)
		r.Header.Set("X-ClickHouse-Key", c.password)
	}
	reply, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("asking ClickHouse: %w", err)
	}
	if reply.StatusCode == http.StatusOK {
		return reply.Body, nil
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(reply.Body, maxErrorBytes))
	return nil, newError(reply.Status, string(text))
}

var errorCode = regexp.MustCompile(`Code: (\d+)`)

func newError(status, text string) *Error {
	e := &Error{Text: status + ": " + strings.TrimSpace(text)}
	if found := errorCode.FindStringSubmatch(text); found != nil {
		e.Code, _ = strconv.Atoi(found[1])
	}
	return e
}

// run carries out a statement that has no result.
func (c *client) run(ctx context.Context, statement string, rows []byte) error {
	body, err := c.do(ctx, statement, rows)
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(io.Discard, body)
	return err
}

// texts are the rows of a small result, each of n texts.
func (c *client) texts(ctx context.Context, n int, query string) (rows [][]string, err error) {
	body, err := c.do(ctx, query+" FORMAT RowBinary", nil)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	r := newReader(body)
	for r.more() {
		row := make([]string, n)
		for i := range row {
			row[i] = r.text()
		}
		rows = append(rows, row)
	}
	return rows, r.err
}

func seconds(d time.Duration) int64 { return int64(d / time.Second) }
