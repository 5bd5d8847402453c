package store

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
)

// wireSample is a number or a histogram at a time in ms.
type wireSample struct {
	at int64
	v  float64
	h  *histogram.Histogram
}

// wireSeries is a series as it is sent: its labels, with a suffix to the name and a label "le"
// where it is part of a classic histogram.
type wireSeries struct {
	labels     labels.Labels
	suffix, le string
	samples    []wireSample
}

// Bounds of one request.
const (
	maxRequestSeries = 5000
	maxRequestBytes  = 4 << 20
)

// remoteAppender collects a batch and sends it when it is committed.
type remoteAppender struct {
	remote *Remote
	ctx    context.Context
	series []wireSeries
}

// Append implements storage.AppenderV2. A series that begins has a zero at st.
func (a *remoteAppender) Append(ref storage.SeriesRef, l labels.Labels, st, t int64, v float64, h *histogram.Histogram,
	_ *histogram.FloatHistogram, _ storage.AppendV2Options) (storage.SeriesRef, error) {
	begins := st != 0 && st < t
	if h == nil {
		a.add(l, "", "", begins, st, wireSample{at: t, v: v})
		return ref, nil
	}
	form := a.remote.options.Histograms
	if form != Classic {
		samples := []wireSample{{at: t, h: h}}
		if begins {
			zero := &histogram.Histogram{Schema: h.Schema, ZeroThreshold: h.ZeroThreshold}
			samples = []wireSample{{at: st, h: zero}, samples[0]}
		}
		a.series = append(a.series, wireSeries{labels: l, samples: samples})
	}
	if form != Native {
		a.addClassic(l, begins, st, t, h)
	}
	return ref, nil
}

func (a *remoteAppender) add(l labels.Labels, suffix, le string, begins bool, st int64, s wireSample) {
	samples := []wireSample{s}
	if begins {
		samples = []wireSample{{at: st}, s}
	}
	a.series = append(a.series, wireSeries{l, suffix, le, samples})
}

// addClassic adds the counters of a classic histogram, or the end of each.
func (a *remoteAppender) addClassic(l labels.Labels, begins bool, st, t int64, h *histogram.Histogram) {
	ends := value.IsStaleNaN(h.Sum)
	of := func(v float64) wireSample {
		if ends {
			v = math.Float64frombits(value.StaleNaN)
		}
		return wireSample{at: t, v: v}
	}
	count := 0.0
	if !ends {
		count = float64(h.Count)
	}
	a.add(l, "_sum", "", begins, st, of(h.Sum))
	a.add(l, "_count", "", begins, st, of(count))
	cumulative(h, a.remote.bounds, func(b bound, n uint64) {
		a.add(l, "_bucket", b.le, begins, st, of(float64(n)))
	})
	a.add(l, "_bucket", infinite, begins, st, of(count))
}

// Rollback implements storage.AppenderV2.
func (a *remoteAppender) Rollback() error {
	a.series = nil
	return nil
}

// Commit implements storage.AppenderV2: it sends the batch, in requests of bounded size.
func (a *remoteAppender) Commit() error {
	refused := refusedError{}
	for rest := a.series; len(rest) > 0; {
		n, err := a.remote.write(a.ctx, rest)
		rest = rest[n:]
		switch e := err.(type) {
		case nil:
		case refusedError:
			refused.samples += e.samples
			refused.err = e.err
		default:
			return err
		}
	}
	if refused.err != nil {
		return refused
	}
	return nil
}

// write sends the first n of some series.
func (r *Remote) write(ctx context.Context, series []wireSeries) (n int, err error) {
	for {
		body, n := r.encode(series)
		again := false
		err := r.retrying(ctx, func(ctx context.Context) (err error) {
			again, err = r.send(ctx, body, series[:n])
			return err
		})
		if !again {
			return n, err
		}
		// The other protocol has another body.
	}
}

func (r *Remote) encode(series []wireSeries) (compressed []byte, n int) {
	var body []byte
	if r.protocol == Write1 {
		body, n = encodeWrite1(series)
	} else {
		body, n = encodeWrite2(series)
	}
	return snappy.Encode(nil, body), n
}

// Headers and content types of remote write.
const (
	contentWrite1  = "application/x-protobuf"
	contentWrite2  = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
	versionHeader  = "X-Prometheus-Remote-Write-Version"
	writtenSamples = "X-Prometheus-Remote-Write-Samples-Written"
	writtenNative  = "X-Prometheus-Remote-Write-Histograms-Written"
)

// send makes one attempt. Again says that the protocol has been changed to 1.0.
func (r *Remote) send(ctx context.Context, body []byte, series []wireSeries) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.WriteTimeout)
	defer cancel()
	request, err := r.request(ctx, http.MethodPost, r.options.WriteURL, body)
	if err != nil {
		return false, err
	}
	request.Header.Set("Content-Encoding", "snappy")
	if r.protocol == Write1 {
		request.Header.Set("Content-Type", contentWrite1)
		request.Header.Set(versionHeader, "0.1.0")
	} else {
		request.Header.Set("Content-Type", contentWrite2)
		request.Header.Set(versionHeader, "2.0.0")
	}
	r.written.requests.Add(1)
	r.written.bytes.Add(uint64(len(body)))
	response, err := r.client.Do(request)
	if err != nil {
		return false, errRetry{err: err}
	}
	defer response.Body.Close()
	defer io.Copy(io.Discard, io.LimitReader(response.Body, maxErrorBytes)) // so that the connection can be used again
	return r.judge(response, series)
}

// judge says what an answer to a write means.
func (r *Remote) judge(response *http.Response, series []wireSeries) (again bool, err error) {
	code := response.StatusCode
	stated := response.Header.Get(writtenSamples) != "" || response.Header.Get(writtenNative) != ""
	switch {
	case r.protocol == Auto && (code == http.StatusUnsupportedMediaType || code == http.StatusBadRequest && !stated ||
		code/100 == 2 && !stated):
		// A receiver of 1.0 finds nothing it knows in a message of 2.0, and may say that all is well.
		r.protocol = Write1
		r.options.Logger.Debug("the remote store does not take remote write 2.0; 1.0 it is", "answer", response.Status)
		return true, nil
	case code/100 == 2:
		if r.protocol == Auto {
			r.protocol = Write2
		}
		return false, r.missing(response, series)
	case code/100 == 5 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		after := retryAfter(response.Header.Get("Retry-After"), time.Now())
		return false, errRetry{after, fmt.Errorf("writing to %s: %s", r.options.WriteURL, answerText(response))}
	case code == http.StatusUnauthorized || code == http.StatusForbidden || code == http.StatusNotFound ||
		code == http.StatusMethodNotAllowed || code/100 == 3:
		return false, fmt.Errorf("writing to %s: %w: %s", r.options.WriteURL, ErrAccess, answerText(response))
	}
	return false, refusedError{r.notWritten(response, series), fmt.Errorf("writing to %s: %s", r.options.WriteURL,
		answerText(response))}
}

// missing is an error if a successful answer of remote write 2.0 states fewer written samples than were sent.
func (r *Remote) missing(response *http.Response, series []wireSeries) error {
	if r.protocol != Write2 {
		return nil
	}
	if n := r.notWritten(response, series); n > 0 {
		return refusedError{n, fmt.Errorf("writing to %s: %d samples were not written", r.options.WriteURL, n)}
	}
	return nil
}

// notWritten is how many samples of series an answer does not say to have written.
func (r *Remote) notWritten(response *http.Response, series []wireSeries) (n uint64) {
	for _, s := range series {
		n += uint64(len(s.samples))
	}
	for _, name := range []string{writtenSamples, writtenNative} {
		if written, err := strconv.ParseUint(response.Header.Get(name), 10, 32); err == nil {
			n -= min(n, written)
		}
	}
	return n
}
