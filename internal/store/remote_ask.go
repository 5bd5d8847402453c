package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// remoteEnvelope is the answer of the API around its data.
type remoteEnvelope struct {
	Status    string          `json:"status"`
	ErrorType string          `json:"errorType"`
	Error     string          `json:"error"`
	Data      json.RawMessage `json:"data"`
	Warnings  []string        `json:"warnings"`
	Infos     []string        `json:"infos"`
}

// query sends one request; reads are not retried, since a user waits for the answer.
func (r *Remote) query(ctx context.Context, account *account, method, path string, form url.Values) (a Answer,
	err error) {
	address, body := r.options.ReadURL+"/api/v1/"+path, []byte(form.Encode())
	if method == http.MethodGet {
		address, body = address+"?"+string(body), nil
	}
	request, err := r.request(ctx, method, address, body)
	if err != nil {
		return a, &queryError{ErrStorage, err}
	}
	if method == http.MethodPost {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	response, err := r.client.Do(request)
	if err != nil {
		return a, r.unread(ctx, err)
	}
	defer response.Body.Close()
	limit := r.options.MaxAnswerBytes
	if response.StatusCode/100 != 2 {
		limit = maxErrorBytes
	}
	text, err := io.ReadAll(&chargedReader{io.LimitReader(response.Body, limit+1), allowance{account: account}})
	if own := (*queryError)(nil); errors.As(err, &own) {
		return a, own
	}
	if err != nil {
		return a, r.unread(ctx, err)
	}
	var e remoteEnvelope
	parseErr := json.Unmarshal(text, &e)
	switch {
	case response.StatusCode/100 != 2 || parseErr == nil && e.Status == "error":
		if parseErr != nil || e.Error == "" {
			response.Body = io.NopCloser(bytes.NewReader(text))
			e.Error = answerText(response)
		}
		return a, r.remoteError(response.StatusCode, e)
	case int64(len(text)) > limit:
		r.answersTooLarge.Add(1)
		return a, &queryError{ErrExecution,
			fmt.Errorf("the remote store's answer has more than %d bytes: ask for fewer series or a longer step", limit)}
	case parseErr != nil:
		return a, r.badAnswer(parseErr)
	case e.Status != "success" || len(e.Data) == 0:
		return a, r.badAnswer(fmt.Errorf("status %q", clip(e.Status)))
	}
	return Answer{JSON: e.Data, Warnings: e.Warnings[:min(len(e.Warnings), maxNotes)],
		Infos: e.Infos[:min(len(e.Infos), maxNotes)]}, nil
}

// chargedReader charges what is read, and what is made of it.
type chargedReader struct {
	io.Reader
	allowance allowance
}

// answerFactor is how many copies of a text are in memory: as received, its data, and the decoded results.
const answerFactor = 3

// Read implements io.Reader.
func (r *chargedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if full := r.allowance.reserve(int64(n) * answerFactor); full != nil {
		return n, full
	}
	return n, err
}

func (r *Remote) unread(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return r.gate.sort(ctx, fmt.Errorf("asking the remote store: %w", ctx.Err()))
	}
	return &queryError{ErrStorage, fmt.Errorf("asking the remote store: %w", err)}
}

func (r *Remote) badAnswer(err error) error {
	r.badAnswers.Add(1)
	return &queryError{ErrStorage, fmt.Errorf("the remote store %s gave no answer of Prometheus's API: %w",
		r.options.ReadURL, err)}
}

// remoteError sorts an error of the other system by kind. What it is called differs from system
// to system; the status hardly does.
func (r *Remote) remoteError(status int, e remoteEnvelope) error {
	err := errors.New(clip(e.Error))
	switch {
	case e.ErrorType == "timeout" || status == http.StatusGatewayTimeout:
		r.gate.counts.tooSlow.Add(1)
		return &queryError{ErrTimeout, err}
	case e.ErrorType == "canceled":
		return &queryError{ErrCanceled, err}
	case status == http.StatusBadRequest:
		return &queryError{ErrBadQuery, err}
	case status == http.StatusUnprocessableEntity:
		return &queryError{ErrExecution, err}
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		return &queryError{ErrBusy, err}
	case status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound ||
		status/100 == 3:
		return &queryError{ErrStorage, fmt.Errorf("reading from %s: %w: %w", r.options.ReadURL, ErrAccess, err)}
	}
	return &queryError{ErrStorage, fmt.Errorf("reading from %s: status %d: %w", r.options.ReadURL, status, err)}
}

func clip(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) > maxErrorText {
		return strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}
